"""What follows from raw metrics, what cannot be launched, how records become entries."""

from __future__ import annotations

from types import SimpleNamespace

import pytest

from benchmarks.isa.__main__ import MEANING, document, entries, finish, mean_width, will_not_load
from benchmarks.isa.compile import environment, first_cause

RAW = {
    "vgpr": 86,
    "agpr": 0,
    "sgpr": 24,
    "vgpr_spills": 0,
    "sgpr_spills": 0,
    "scratch_bytes": 0,
    "lds_bytes": 32768,
    "waves_per_group": 8,
    "scratch_ops": 0,
    "scratch_ops_in_loops": 0,
    "code_bytes": 3400,
    "instructions": 532,
    "matrix": {"v_mfma_f32_16x16x16_f16": 96},
    "load_widths": {"16": 12},
    "store_widths": {"8": 6, "2": 2},
    "remote_store_widths": {},
    "lds_read_widths": {},
    "lds_write_widths": {},
    "barriers": 5,
    "waits": 30,
    "atomics": {},
    "loops": 1,
    "loop": {"instructions": 70, "depth": 1, "mix": {"mfma": 32, "lds": 16, "valu": 22}, "matrix_share": 0.4571},
}


def test_occupancy_is_the_lesser_of_registers_and_lds():
    found = finish(RAW, "gfx942")
    assert found["lds_limit"] == 65536
    assert (found["occupancy_by_registers"], found["occupancy_by_lds"], found["occupancy"]) == (4, 4, 4)
    assert finish({**RAW, "lds_bytes": 40000}, "gfx942")["occupancy"] == 2
    assert finish({**RAW, "vgpr": 256}, "gfx942")["occupancy"] == 2
    assert finish({**RAW, "lds_bytes": 0, "vgpr": 20}, "gfx950")["occupancy"] == 8


def test_mean_width():
    assert mean_width({"16": 1, "2": 7}) == 3.75
    assert mean_width({}) is None


def test_every_metric_has_a_meaning_and_its_place():
    found = finish(RAW, "gfx942")
    assert list(found) == [name for name in MEANING if name in found]
    assert RAW.keys() <= found.keys()


@pytest.mark.parametrize(
    ("changed", "arch", "said"),
    [
        ({"lds_bytes": 98304}, "gfx942", "it needs 98304 B of LDS and a workgroup on gfx942 may have 65536 B"),
        ({"waves_per_group": 32}, "gfx942", "its workgroup has 2048 threads and gfx942 allows 1024"),
        ({"vgpr": 264, "waves_per_group": 16}, "gfx942", "264 registers per lane times 16 waves do not fit"),
    ],
)
def test_what_cannot_be_launched_is_said(changed, arch, said):
    assert will_not_load(finish({**RAW, **changed}, arch), arch).startswith(said)


LISTING = {
    "triton": "3.8.0",
    "broken": [],
    "units": [
        {"kernel": "gemm", "backend": "triton", "case": case, "label": label}
        for label in ("a", "b")
        for case in ("one", "two")
    ],
}


def ok(key):
    return {"status": "ok", "hash": key * 2, "asm": f"{key}.s", "metrics": RAW, "notes": [], "key": key}


def test_cases_that_lead_to_one_compilation_are_one_entry():
    records = {0: ok("k"), 1: ok("k"), 2: ok("l"), 3: {"status": "failed", "why": "no"}}
    found = entries("gfx942", LISTING, records)
    assert [(e["label"], e["cases"], e["status"]) for e in found] == [
        ("a", ["one", "two"], "ok"),
        ("b", ["one"], "ok"),
        ("b", ["two"], "failed"),
    ]
    assert "key" not in found[0]


def test_a_document_of_a_failed_listing_says_so():
    dead = SimpleNamespace(arch="gfx942", listing=None, records={}, failure="it died")
    good = SimpleNamespace(arch="gfx950", listing=LISTING, records=dict.fromkeys(range(4), ok("k")), failure="")
    found = document([dead, good])
    assert found["failures"] == [{"arch": "gfx942", "why": "it died"}]
    assert (found["triton"], len(found["entries"])) == ("3.8.0", 2)


def test_what_changes_code_is_not_inherited():
    found = environment({"TRITON_ALWAYS_COMPILE": "1", "AMDGCN_ENABLE_DUMP": "1", "PATH": "/bin", "HOME": "/"})
    assert found["PATH"] == "/bin"
    assert not any(name.startswith("AMDGCN") or name == "TRITON_ALWAYS_COMPILE" for name in found)
    assert found["TRITON_DISABLE_LINE_INFO"] == "1"


def test_the_compilers_own_words_come_first():
    log = "noise\nLLVM ERROR: Unsupported DotScaleOp found when converting TritonGPU to LLVM.\nmodule {...}\n"
    assert first_cause(RuntimeError("PassManager::run failed"), log) == (
        "the compiler says: Unsupported DotScaleOp found when converting TritonGPU to LLVM."
    )
    assert first_cause(ValueError("line one\nline two")) == "ValueError: line two"
    assert first_cause(RuntimeError("see /a/b/c.py")) == "RuntimeError: see c.py"
