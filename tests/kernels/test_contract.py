"""The collectives keep the library's contract, and what is called unguarded does not."""

import pytest

from tests.kernels.contract import GUARDED, UNGUARDED
from tests.kernels.ranks import run_ranks

MODULE = "tests.kernels.contract"


@pytest.mark.nightly
def test_outputs_may_be_read_late_and_inputs_overwritten_at_once(tmp_path):
    (tmp_path / "meet").mkdir()
    said = run_ranks(MODULE, "on_cpu", 2, tmp_path / "meet", TRITON_INTERPRET="1")
    for rank in said:
        assert rank.count(" 0\n") == sum(len(variants) for variants in GUARDED.values())


@pytest.mark.nightly
def test_the_unguarded_push_is_caught(tmp_path):
    (tmp_path / "meet").mkdir()
    said = run_ranks(MODULE, "read_late", 2, tmp_path / "meet", TRITON_INTERPRET="1")
    assert said[0].splitlines() == [f"{name} triton_unguarded wrong" for name in UNGUARDED]
