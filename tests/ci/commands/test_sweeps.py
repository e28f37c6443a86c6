"""`ridgeline sweep`, with a declaration and a measuring program made by hand."""

from __future__ import annotations

import gzip
import json
import tomllib
from pathlib import Path

import pytest

from benchmarks.points import Point
from ci.__main__ import main
from ci.sweeps import catalogue, run
from ci.sweeps.measured import read
from ci.sweeps.pruning import DueRung, PointCompiler, Pruned
from tests.ci import made_trials
from tests.ci.made_trials import HEAD, write
from tests.ci.sweeps import driver
from tests.ci.sweeps.made_lines import line
from tests.ci.sweeps.made_sweeps import DEFAULTS, FAST, OTHER, RULE, SLOW, TABLE, case, sweep_file
from tests.kit import ridgeline

ROOT = Path(__file__).parents[3]
KNOBS = {"num_warps": {"default": 4, "type": "int"}, "tma": {"default": False, "type": "bool"}}


def _entry(backend, case="m16", **more):
    about = {"kernel": "gemm", "case": case, "backend": backend, "world": 1, "tier": "pr"}
    return {**about, "baseline": backend == "blas", "knobs": {}, "why": "", "config": {}, "candidates": [], **more}


def _declared(arch):
    candidates = [{"num_warps": 4, "tma": False}, {"num_warps": 8, "tma": True}]
    swept = {"knobs": KNOBS, "config": {"num_warps": 4, "tma": False}, "candidates": candidates}
    entries = [_entry("triton", case, **swept) for case in ("m16", "m64")]
    return {"kernel": "gemm", "arch": arch, "compute_units": None, "entries": [*entries, _entry("blas")]}


@pytest.fixture
def sweep(monkeypatch, tmp_path):
    def asked(verb, *arguments):
        return _declared(arguments[arguments.index("--arch") + 1] if "--arch" in arguments else "cpu")

    monkeypatch.setattr(catalogue, "query", asked)
    monkeypatch.setattr(PointCompiler, "compiled", lambda *_: {})
    monkeypatch.setattr(run, "command", driver.command)
    monkeypatch.chdir(tmp_path)

    def invoke(*arguments):
        where = ["--commit", HEAD, "--commit-date", "1", "--tree", str(ROOT)]
        return ridgeline("sweep", "gemm", *where, *arguments)

    return invoke


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        ([], "say what to try: --knob NAME=V,V or --candidates"),
        (["--knob", "num_warp=4"], "have no knob 'num_warp'; there are "),
        (["--knob", "num_warps=4", "--case", "m17"], "no case of gemm fits 'm17'; it has m16, m64"),
        (["--knob", "num_warps=4", "--backend", "hip"], "gemm has no backend 'hip'; it has triton, blas"),
        (["--knob", "num_warps=4", "--arch", "gfx942"], "--arch is for --dry-run"),
        (["--backend", "blas", "--candidates"], "has no such candidates or knobs"),
    ],
)
def test_bad_input_is_named_before_anything_runs(sweep, tmp_path, arguments, said):
    found = sweep(*arguments)
    assert found.exit_code == 3
    assert said in " ".join(found.output.split())
    assert not (tmp_path / "starts").exists()
    assert not (tmp_path / ".ridgeline").exists()


def test_a_dry_run_says_points_and_reasons_and_does_nothing(sweep, tmp_path):
    found = sweep("--knob", "num_warps=2,4,8", "--arch", "gfx942", "--dry-run")
    assert found.exit_code == 0, found.output
    assert "6 points of gemm in 2 cases on gfx942" in found.output
    assert "2 points are not measured: the code of another point" in found.output
    assert "would measure 4 points\ninto .ridgeline/sweeps/gemm-" in found.output
    told = json.loads(sweep("--candidates", "--arch", "gfx950", "--dry-run", "--json").output)
    assert told["points"]["m64"] == [{"backend": "triton", "knobs": {"num_warps": 8, "tma": True}}]
    assert told["arch"] == "gfx950"
    assert not list(tmp_path.iterdir())


def test_from_knobs_to_table_and_back(sweep, tmp_path):
    asked = ["--knob", "num_warps=2,5,9", "--case", "m16", "--out", "s.jsonl"]
    found = sweep(*asked)
    assert found.exit_code == 0, found.output
    assert "triton num_warps=5 (winner)" in found.output
    assert "`ridgeline records add s.jsonl`" in found.output
    assert {path.name for path in tmp_path.glob("s.*")} == {"s.jsonl"}
    starts = (tmp_path / "starts").read_text()
    again = sweep(*asked, "--json")
    assert again.exit_code == 0
    told = json.loads(again.output)
    assert told["complete"] is True
    assert told["cases"][0]["winner"]["knobs"] == "num_warps=5"
    assert (tmp_path / "starts").read_text() == starts, "what is measured is not measured again"


def test_what_is_left_is_said_with_exit_code_2(sweep, monkeypatch):
    def measure(plan, console):
        write(plan.out, line([({"num_warps": 2}, 1.1)]))
        return run.Progressed(read([plan.out]), DueRung(0, {"m16": [Point("m16", "triton")]}, 2), "the budget is spent")

    monkeypatch.setattr("ci.commands.sweep.measure", measure)
    found = sweep("--knob", "num_warps=2,5", "--case", "m16", "--out", "s.jsonl")
    assert found.exit_code == 2, found.output
    assert "not measured: 1 points of rung 1 of 4 (the budget is spent); `ridgeline" in found.output


# `ridgeline tune` from files: the table of a tree, its diff, its exit codes, and sentences for bad input.


COMMIT = "c" * 40


def offered(cases, arch="sm_90"):
    """What `python -m benchmarks candidates` prints of some cases."""
    entries = []
    for one in cases:
        place = one.place
        table = {"file": str(place.file), "table": list(place.table), "key": place.key, "entry": dict(one.entry)}
        table |= {"rule": RULE, "defaults": DEFAULTS, "scale": {}}
        knobs = {name: {"default": value, "type": type(value).__name__} for name, value in DEFAULTS.items()}
        config = {**DEFAULTS, **(one.entry or RULE)}
        told = {"kernel": "gemm", "case": one.case, "backend": one.backend, "tier": "pr", "dtype": "fp16", "world": 1}
        told |= {"config": config, "rule": {**DEFAULTS, **RULE}, "knobs": knobs, "table": table, "baseline": False}
        entries.append({**told, "candidates": [dict(knobs) for knobs in one.candidates], "dims": {}, "why": ""})
    return {"kernel": "gemm", "arch": arch, "compute_units": 132, "entries": entries}


@pytest.fixture
def tree(tmp_path, monkeypatch):
    """A tree with a table; its two cases of m64 share an entry."""
    (tmp_path / "kernels").mkdir()
    file = tmp_path / "tuned.toml"
    file.write_text(TABLE)
    cases = [case("m64_fp16", FAST, file), case("m64_bf16", FAST, file), case("m256_fp16", SLOW, file)]
    cases += [case("m128_fp16", None, file)]
    asked = {"candidates": offered(cases), "list": {"kernels": [{"kernel": "gemm", "tuned": ["triton"]}]}}
    monkeypatch.setattr("ci.sweeps.catalogue.query", lambda verb, *_, **__: asked[verb])
    return tmp_path


def tune(tree, *words):
    common = ("--tree", str(tree), "--commit", COMMIT, "--commit-date", "1790000000000")
    return ridgeline("tune", *words, *common)


def both(ratio):
    return {name: [(RULE, 1.1), (OTHER, ratio)] for name in ("m64_fp16", "m64_bf16")}


def test_a_sweep_becomes_the_table(tree):
    file = sweep_file(tree, both(0.9), entry=FAST)
    done = tune(tree, "gemm", "--from", str(file))
    assert done.exit_code == 0, done.output
    assert "moved" in done.output
    found = tomllib.loads((tree / "tuned.toml").read_text())["sm_90"]
    assert {name: found["m64"][name] for name in OTHER} == OTHER
    assert found["m64"]["confirmed"]["cases"] == ["m64_fp16", "m64_bf16"]
    assert found["m256"] == SLOW


def test_a_dry_run_shows_the_difference_and_writes_nothing(tree):
    done = tune(tree, "gemm", "--from", str(sweep_file(tree, both(0.9), entry=FAST)), "--dry-run")
    assert done.exit_code == 0, done.output
    assert "-stages = 2\n+stages = 4" in done.output
    assert (tree / "tuned.toml").read_text() == TABLE


@pytest.mark.parametrize(("ratio", "code"), [(0.9, 1), (1.05, 0)])
def test_a_verification_that_finds_something_better_is_an_alarm(tree, ratio, code):
    done = tune(tree, "gemm", "--verify", "--from", str(sweep_file(tree, both(ratio), entry=FAST)), "--json")
    assert done.exit_code == code, done.output
    [entry] = json.loads(done.stdout)["entries"]
    assert entry["action"] == ("moved" if code else "confirmed")
    assert entry["against_rule"][0] < 1


def test_what_is_not_decided_is_no_pass(tree):
    half = {"m64_fp16": both(0.9)["m64_fp16"]}
    done = tune(tree, "gemm", "--from", str(sweep_file(tree, half, entry=FAST)))
    assert done.exit_code == 2
    assert "m64_bf16" in done.output
    assert (tree / "tuned.toml").read_text() == TABLE


def test_a_verification_without_a_device_says_what_it_would_measure(tree, monkeypatch):
    monkeypatch.setattr("ci.sweeps.tuning.prune", lambda catalogue, points, anchors, compiler: Pruned(points))
    done = tune(tree, "gemm", "--verify", "--dry-run")
    assert done.exit_code == 0, done.output
    assert "gemm: 2 entries on sm_90, for 3 cases and backends" in done.output
    assert "would measure 3 points" in done.output


# `ridgeline study`, from the command line to the folder: from files, and measured for real on a CPU.


def study(*arguments, code=0):
    with pytest.raises(SystemExit) as ended:
        main(["study", *map(str, arguments)])
    assert (ended.value.code or 0) == code


def test_the_list_names_questions_operators_and_ranks(capsys):
    study("--list", "--json")
    listed = {one["name"]: one for one in json.loads(capsys.readouterr().out)}
    assert listed["m_sweep"]["question"].endswith("?")
    assert listed["m_sweep"]["operators"] == ["gemm", "gemm_all_scatter"]
    study("--list")
    assert "m_sweep" in capsys.readouterr().out


@pytest.mark.slow
def test_a_study_from_a_file_needs_no_measuring(tmp_path, capsys):
    cases = [f"n4096_k4096_m{m}_fp16" for m in (1, 2, 4)]
    declared = made_trials.declaration(cases=cases)
    for one, m in zip(declared["cases"], (1, 2, 4), strict=True):
        one |= {"M": m, "N": 4096, "K": 4096}
    trees = {"head": made_trials.tree(declared=declared)}
    made = [line([], case, plain={"blas": 0.9}, trees=trees) for case in cases]
    (tmp_path / "trials.jsonl").write_text("".join(f"{json.dumps(one)}\n" for one in made))
    study("m_sweep", "--from", tmp_path / "trials.jsonl", "--results", tmp_path / "results", "--json")
    told = json.loads(capsys.readouterr().out)
    folder = tmp_path / "results" / "studies" / "m_sweep" / made_trials.MACHINE["name"]
    assert Path(told["folder"]) == folder
    assert [row["M"] for row in told["rows"] if row["backend"] == "triton"] == [1, 2, 4]
    assert "gemm_all_scatter on 8 ranks: waits for 8 GPUs; this machine has 2" in told["waits"]
    assert told["figures"] == ["speed"], "no call was timed from the host"
    assert {path.name for path in folder.iterdir()} >= {"speed.svg", "table.md", "study.json"}
    assert len(gzip.decompress((folder / "trials.jsonl.gz").read_bytes()).splitlines()) == 3
