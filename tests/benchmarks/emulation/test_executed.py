"""What launches execute, counted for the result file: in which shape, kept by what, refused when."""

from __future__ import annotations

import json

import pytest

from benchmarks.coordinator.ranks import Failure, PoolDied
from benchmarks.emulation import executed, installed, pool
from benchmarks.emulation.cases import cut
from benchmarks.isa import __main__ as program
from benchmarks.isa.pool import Choice, CompileSetting
from benchmarks.program import MEASURED, USAGE
from benchmarks.trial_file import Status
from kernels.gemm import gemm
from kernels.grouped_gemm import grouped_gemm_forward
from tests.kit import ROOT


def test_a_case_is_cut_to_a_small_shape_that_its_name_tells():
    case = gemm.case("n4096_k4096_m1024_fp16")
    small = cut(case, gemm.counted_dims)
    assert (small.name, small.M, small.N, small.K) == ("m256_n256_k1024_fp16", 256, 256, 1024)
    assert (small.dtype, small.distribution) == (case.dtype, case.distribution)
    tiny = grouped_gemm_forward.case("tiny_extreme")
    assert cut(tiny, {"G": 8}) is tiny
    assert cut(tiny, grouped_gemm_forward.counted_dims).routing == "extreme"


def test_without_the_emulator_the_way_to_it_is_told(tmp_path, monkeypatch, capsys):
    monkeypatch.setattr(installed, "NEEDED", ("tinygrad_that_is_not_there",))
    monkeypatch.setattr(program, "compile_all", lambda *asked: [])
    asked = ["--execute", "--lenient", "--cache", str(tmp_path), "--progress", "none"]
    assert program.main(asked) == USAGE
    assert "pip install 'ridgeline[emulate]'" in capsys.readouterr().err


LISTED = [
    {"declared": "a", "case": "m1@0", "at": "m1", "limit": "memory", "flops": 1},
    {"declared": "b", "case": "m1@0", "at": "m1", "limit": "memory", "flops": 1},
    {"declared": "c", "case": "m2@0", "at": "m2", "limit": "compute", "flops": 2},
    {"declared": "d", "case": "m2@0", "at": "m2", "limit": "memory", "flops": 2},
    {"declared": "nightly", "case": "m3@0", "at": "m3", "limit": "memory", "flops": 3, "declared_tier": "nightly"},
]


@pytest.fixture
def asked(monkeypatch):
    """What processes that stand in for executing ones were asked; the case of 2 FLOP is `wrong` in `outcome`."""
    requests, outcome = [], {"m2@0": "ok"}
    about = {"kernel": "gemm", "backend": "triton", "arch": "gfx942", "declared_tier": "pr"}

    class Executing:
        label = "executing"

        def __init__(self, *given, **named):
            pass

        def ask(self, step, limit_s, op, what="", asked=None, **fields):
            return [{"files": [], "foreign": []} if op == "ran" else self.served(what, asked)]

        def served(self, what, asked):
            requests.append(what if what == "listing" else asked["index"])
            if what == "listing":
                kernels = {"gemm": {"module": "kernels.gemm", "baselines": []}}
                cases = [about | one for one in LISTED]
                others = [about | {"declared": "large", "why": "it is too large"}]
                return {"cases": cases, "not_counted": others, "kernels": kernels, "broken": [], "environment": {}}
            status = outcome.get(LISTED[asked["index"]]["case"], "ok")
            if status == "crash":
                raise PoolDied(Failure(Status.CRASH, "the process died"))
            told = {"counts": {}, "bounds": {"memory": None, "compute": {"percent": 9.0, "unit": "LDS"}}}
            return {"status": status, "why": status, **(told if status == "ok" else {})}

        def kill(self):
            pass

    monkeypatch.setattr(pool, "WorkerPool", Executing)
    monkeypatch.setattr(pool, "PROCESSES", 1)
    return requests, outcome


def test_cases_of_one_launch_are_executed_once(tmp_path, asked):
    requests, _ = asked
    found = executed.executed(["gfx942"], Choice(), CompileSetting(ROOT, tmp_path))
    assert [(one["at"], one["cases"], one["status"], one.get("bound")) for one in found] == [
        ("m1", ["a", "b"], "ok", None),
        ("m2", ["c"], "ok", {"percent": 9.0, "unit": "LDS"}),
        ("m2", ["d"], "ok", None),
        ("", ["large"], "unsupported", None),
    ]
    assert requests == ["listing", 2, 0], "the largest begins first"
    assert executed.executed(["gfx942"], Choice(), CompileSetting(ROOT, tmp_path)) == found
    assert requests == ["listing", 2, 0, "listing"], "of a tree that has not changed nothing is executed"
    executed.executed(["gfx942"], Choice(cases=("c",)), CompileSetting(ROOT, tmp_path))
    assert requests == ["listing", 2, 0, "listing", "listing"], "of another choice nothing is executed twice"


def test_a_process_that_died_is_told_and_replaced(tmp_path, asked):
    requests, outcome = asked
    outcome["m2@0"] = "crash"
    found = executed.executed(["gfx942"], Choice(), CompileSetting(ROOT, tmp_path))
    assert [(one["at"], one["status"], one.get("why")) for one in found] == [
        ("m1", "ok", None),
        ("m2", "unsupported", "the process died"),
        ("m2", "unsupported", "the process died"),
        ("", "unsupported", "it is too large"),
    ]
    assert requests == ["listing", 2, "listing", 0]


def test_what_is_wrong_has_no_counts_and_is_tried_again(tmp_path, asked):
    requests, outcome = asked
    outcome["m2@0"] = "wrong"
    for _ in range(2):
        found = executed.executed(["gfx942"], Choice(), CompileSetting(ROOT, tmp_path))
        assert [(one["status"], one.get("why")) for one in found] == [
            ("ok", None),
            ("failed", "wrong: wrong"),
            ("failed", "wrong: wrong"),
            ("unsupported", "it is too large"),
        ]
    assert requests == ["listing", 2, 0, "listing", 2]


@pytest.mark.nightly
def test_what_is_executed_is_kept_by_the_code_that_decides_it(tmp_path, capsys):
    asked = ["--execute", "--kernel", "gemm", "--case", "n4096_k4096_m1*_fp16", "--arch", "gfx942"]
    asked += ["--cache", str(tmp_path), "--progress", "none"]

    def found():
        assert program.main(asked) == MEASURED
        return {one["at"]: one for one in json.loads(capsys.readouterr().out)["executed"]}

    first = found()
    assert list(first) == ["m1_n256_k1024_fp16", "m16_n256_k1024_fp16", "m256_n256_k1024_fp16"]
    assert [one["cases"] for one in first.values()] == [[f"n4096_k4096_m{m}_fp16"] for m in (1, 16, 1024)]
    assert {one["status"] for one in first.values()} == {"ok"}
    assert first["m1_n256_k1024_fp16"]["bound"]["unit"] == "memory"
    assert first["m256_n256_k1024_fp16"]["bound"]["unit"] in ("MFMA issue", "LDS")
    mfma = first["m256_n256_k1024_fp16"]["counts"]["matrix"]
    assert sum(mfma.values()) * 16**3 == 256 * 256 * 1024, mfma
    assert found() == first
    for kept in tmp_path.glob("executed-*.json"):
        kept.write_text(kept.read_text().replace('"lds_passes": ', '"lds_passes": 7'))
    assert found() != first, "a second time nothing is executed"
    for kept in tmp_path.glob("executed-*.json"):
        kept.unlink()
    assert found() == first, "the same numbers to the last digit"
