"""Tables of tuned knobs: what of a file is a knob, and whose."""

from __future__ import annotations

from kernels._shared import tuning
from kernels._shared.tuning import read_tuned
from kernels.registry import discover
from kernels.spec import Place

KERNELS = discover().kernels


def test_provenance_is_no_knob(tmp_path):
    (tmp_path / "tuned.toml").write_text(
        "[sm_90.m64]\nprograms = 32\n[sm_90.m64.confirmed]\nratio = 0.9\n[sm_90.m64.confirmed.code]\nwinner = 'ab'\n"
    )
    assert read_tuned(str(tmp_path / "config.py")) == {"sm_90": {"m64": {"programs": 32}}}


def test_an_entry_of_one_backend_of_the_table_is_not_that_of_another(tmp_path, monkeypatch):
    kernel = KERNELS["moe_gemm2_mxfp4"]
    case = kernel.cases[3].at(Place(arch="sm_90", compute_units=132))
    place = kernel.backends["triton_reduce"].tuned
    monkeypatch.setitem(tuning._tables(place.file), "triton_reduce", {"sm_90": {place.key(case): {"tiles": 7}}})
    assert kernel.backends["triton_reduce"].config(case, "sm_90") == {"tiles": 7}
    assert kernel.backends["triton_atomic"].config(case, "sm_90") == place.rule(case, "sm_90")
