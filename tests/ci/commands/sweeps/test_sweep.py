"""`ridgeline sweep`, with a declaration and a measuring program made by hand."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner, Result

from ci.__main__ import main
from ci.sweeps import catalogue, run
from ci.sweeps.pruning import PointCompiler
from tests.ci.made_trials import HEAD
from tests.ci.sweeps import driver

ROOT = Path(__file__).parents[4]
KNOBS = {"num_warps": {"default": 4, "type": "int"}, "tma": {"default": False, "type": "bool"}}


def _entry(backend: str, case: str = "m16", **more: Any) -> dict[str, Any]:
    about = {
        "kernel": "gemm",
        "case": case,
        "backend": backend,
        "world": 1,
        "tier": "pr",
        "dtype": "fp16",
        "dims": {"M": 16},
    }
    return {**about, "baseline": backend == "blas", "knobs": {}, "why": "", "config": {}, "candidates": [], **more}


def _declared(arch: str) -> dict[str, Any]:
    candidates = [{"num_warps": 4, "tma": False}, {"num_warps": 8, "tma": True}]
    swept = {"knobs": KNOBS, "config": {"num_warps": 4, "tma": False}, "candidates": candidates}
    cost = {"cost": {"flops": 10**12, "hbm_bytes": 10**9, "link_bytes": 0, "payload_bytes": 0}}
    entries = [_entry("triton", case, **swept, **cost) for case in ("m16", "m64")]
    return {"kernel": "gemm", "arch": arch, "compute_units": None, "entries": [*entries, _entry("blas", **cost)]}


@pytest.fixture
def sweep(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Callable[..., Result]:
    def asked(verb: str, *arguments: str) -> dict[str, Any]:
        return _declared(arguments[arguments.index("--arch") + 1] if "--arch" in arguments else "cpu")

    monkeypatch.setattr(catalogue, "query", asked)
    monkeypatch.setattr(PointCompiler, "compiled", lambda *_: {})
    monkeypatch.setattr(run, "command", driver.command)
    monkeypatch.chdir(tmp_path)

    def invoke(*arguments: str) -> Result:
        where = ["--commit", HEAD, "--commit-date", "1", "--tree", str(ROOT)]
        return CliRunner().invoke(main, ["sweep", "gemm", *where, *arguments])

    return invoke


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        ([], "say what to try: --knob NAME=V,V, --grid FILE, or --candidates"),
        (["--knob", "num_warp=4"], "has a knob 'num_warp'; there are num_warps"),
        (["--knob", "num_warps=four"], "'four' is not a whole number"),
        (["--knob", "num_warps=4", "--case", "m17"], "no case of gemm fits 'm17'; it has m16, m64"),
        (["--knob", "num_warps=4", "--backend", "hip"], "gemm has no backend 'hip'; it has triton, blas"),
        (["--knob", "num_warps=4", "--anchor", "hip"], "--anchor 'hip' is no backend of gemm"),
        (["--grid", "nowhere.toml"], "--grid nowhere.toml: No such file"),
        (["--knob", "num_warps=1,2,4", "--most", "5"], "6 points in 2 cases"),
        (["--knob", "num_warps=4", "--arch", "gfx942"], "--arch and --compute-units are for --dry-run"),
        (["--knob", "num_warps=4", "--shard", "9/8"], "'9/8': expected K/N such as 3/8"),
        (["--knob", "num_warps=4", "--rounds", "8,x"], "'8,x': expected rounds of each rung such as 8,20"),
        (["--knob", "num_warps=4", "--rounds", "4,20"], "4 rounds in the first rung; give at least 8"),
        (["--knob", "num_warps=4", "--miss", "0"], "0.0 is not in the range 0<x<1"),
        (["--knob", "num_warps=4", "--show"], "there is nothing to show"),
        (["--backend", "blas", "--candidates"], "declares no candidates"),
    ],
)
def test_bad_input_is_named_before_anything_runs(
    sweep: Callable[..., Result], tmp_path: Path, arguments: list[str], said: str
) -> None:
    found = sweep(*arguments)
    assert found.exit_code == 3
    assert said in " ".join(found.output.split())
    assert not (tmp_path / "starts").exists()
    assert not (tmp_path / ".ridgeline").exists()


def test_a_dry_run_says_points_reasons_and_minutes_and_does_nothing(
    sweep: Callable[..., Result], tmp_path: Path
) -> None:
    found = sweep("--knob", "num_warps=2,4,8", "--arch", "gfx942", "--dry-run")
    assert found.exit_code == 0, found.output
    assert "6 points of gemm in 2 cases on gfx942" in found.output
    assert "2 are not measured: the code of another point" in found.output
    assert "would measure 4 points into .ridgeline/sweeps/gemm-" in found.output
    assert "GPU minutes" in found.output
    told = json.loads(sweep("--candidates", "--arch", "gfx950", "--dry-run", "--json").output)
    assert told["points"]["m64"] == [{"backend": "triton", "knobs": {"num_warps": 8, "tma": True}}]
    assert (told["arch"], told["asked"], told["gpu_minutes"] > 0) == ("gfx950", 2, True)
    assert not list(tmp_path.iterdir())


def test_from_knobs_to_table_and_back(sweep: Callable[..., Result], tmp_path: Path) -> None:
    asked = ["--knob", "num_warps=2,5,9", "--case", "m16", "--rounds", "8,20", "--out", "s.jsonl", "--no-figure"]
    found = sweep(*asked)
    assert found.exit_code == 0, found.output
    assert "triton num_warps=5 (winner)" in found.output
    assert "`ridgeline records add s.jsonl`" in found.output
    assert {path.name for path in tmp_path.glob("s.*")} == {"s.jsonl", "s.csv", "s.md"}
    starts = (tmp_path / "starts").read_text()
    again = sweep(*asked, "--show", "--json")
    assert again.exit_code == 0
    told = json.loads(again.output)
    assert told["complete"] is True
    assert told["cases"][0]["winner"]["knobs"] == "num_warps=5"
    assert (tmp_path / "starts").read_text() == starts, "what is measured is not measured again"


def test_a_budget_leaves_a_rest_and_exit_code_2(sweep: Callable[..., Result]) -> None:
    asked = ["--knob", f"num_warps={','.join(map(str, range(1, 40)))}", "--case", "m16", "--no-figure", "--batch", "1"]
    found = sweep(*asked, "--budget", "0.04", "--rounds", "8,20")
    assert found.exit_code == 2, found.output
    assert "points of rung 1 of 2 (the budget of 0.04 GPU minutes is spent); `ridgeline" in found.output


@pytest.mark.slow
def test_a_shard_says_what_comes_next(sweep: Callable[..., Result]) -> None:
    asked = ["--knob", "num_warps=2,3,5,6,8", "--case", "m16", "--no-figure", "--rounds", "8,20,20"]
    for shard in ("1/2", "2/2"):
        found = sweep(*asked, "--shard", shard, "--out", f"{shard[0]}.jsonl")
        assert found.exit_code == 0, found.output
        assert "the final rungs follow when all shards are done" in found.output
    shown = sweep(*asked, "--show", "--from", "1.jsonl", "--from", "2.jsonl")
    assert shown.exit_code == 0
    assert "points of rung 3 of 3" in shown.output
    done = sweep(*asked, "--from", "1.jsonl", "--from", "2.jsonl", "--out", "all.jsonl")
    assert done.exit_code == 0
    assert "triton num_warps=5 (winner)" in done.output


def test_a_figure_that_cannot_be_drawn_takes_nothing_down(
    sweep: Callable[..., Result], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from ci.commands import sweep as verb

    real = verb.harness.program
    monkeypatch.setattr(
        verb.harness, "program", lambda name, *rest: real("no_such_module" if name.startswith("dash") else name, *rest)
    )
    found = sweep("--knob", "num_warps=5", "--case", "m16", "--rounds", "8", "--out", "s.jsonl")
    assert found.exit_code == 0
    assert "no figure: " in found.output
    assert (tmp_path / "s.csv").exists()
