"""What launches execute, counted for the result file: in which shape, kept by what, refused when."""

from __future__ import annotations

import json

import pytest

from benchmarks.emulation.executed import MOST, cut
from benchmarks.isa import __main__ as program
from benchmarks.isa import executed
from benchmarks.isa.pool import Choice, CompileSetting
from kernels.gemm import gemm
from kernels.grouped_gemm import grouped_gemm_forward
from tests.kit import ROOT


def test_a_case_is_cut_to_a_small_shape_that_its_name_tells():
    case = gemm.case("n4096_k4096_m1024_fp16")
    small = cut(case, MOST["gemm"])
    assert (small.name, small.M, small.N, small.K) == ("m256_n256_k1024_fp16", 256, 256, 1024)
    assert (small.dtype, small.distribution) == (case.dtype, case.distribution)
    tiny = grouped_gemm_forward.case("tiny_extreme")
    assert cut(tiny, {"G": 8}) is tiny
    assert cut(tiny, MOST["grouped_gemm_forward"]).routing == "extreme"


def test_without_the_emulator_the_way_to_it_is_told(tmp_path, monkeypatch, capsys):
    monkeypatch.setattr(executed, "NEEDED", ("tinygrad_that_is_not_there",))
    monkeypatch.setattr(program, "_runs", lambda *asked: [])
    asked = ["metrics", "--execute", "--lenient", "--cache", str(tmp_path), "--progress", "none"]
    assert program.main(asked) == program.USAGE
    assert "pip install 'ridgeline[emulate]'" in capsys.readouterr().err


def test_cases_of_one_launch_are_executed_once(tmp_path, monkeypatch):
    asked = []

    class Executing:
        def __init__(self, *given):
            pass

        def ask(self, request, limits):
            asked.append(request["op"])
            same = {
                "kernel": "gemm",
                "backend": "triton",
                "at": "m1",
                "knobs": {},
                "limit": 1,
                "module": "kernels.gemm",
            }
            units = [{**same, "case": "a"}, {**same, "case": "b"}, {**same, "case": "c", "at": "m2"}]
            return {"ok": True, "units": units} if request["op"] == "list" else {"ok": True, "counts": {}}

        def kill(self):
            asked.append("kill")

    monkeypatch.setattr(executed, "ExecutingProcess", Executing)
    found = executed.executed(["gfx942"], Choice(), CompileSetting(ROOT, tmp_path))
    assert [(one["at"], one["cases"], one["status"]) for one in found] == [
        ("m1", ["a", "b"], "ok"),
        ("m2", ["c"], "ok"),
    ]
    assert asked == ["list", "execute", "execute", "kill"]


@pytest.mark.slow
def test_what_is_executed_is_kept_by_the_code_that_decides_it(tmp_path, capsys):
    asked = ["metrics", "--execute", "--kernel", "gemm", "--case", "n4096_k4096_m1*_fp16", "--arch", "gfx942"]
    asked += ["--cache", str(tmp_path), "--progress", "none"]

    def found():
        assert program.main(asked) == program.ALL
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
