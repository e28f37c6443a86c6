"""What a measuring process answers about a kernel."""

from types import SimpleNamespace

import pytest

from benchmarks.worker.requests import _tuning


def backend(**told):
    return SimpleNamespace(baseline=False, **told)


NAMED = SimpleNamespace(backends={"a": backend(tries=None), "b": backend(tries=print)}, compilations={})
SILENT = SimpleNamespace(backends={"a": backend(), "b": backend(), "c": backend()}, compilations={"a": print})


@pytest.mark.parametrize(("kernel", "names"), [(NAMED, ["b"]), (SILENT, ["b", "c"])])
def test_a_set_up_chooses_by_times_itself_only_where_the_contract_knows_no_other_moment(kernel, names):
    assert _tuning(kernel, SimpleNamespace()) == names
    assert _tuning(kernel, SimpleNamespace(TUNES="tune")) == []
