"""`python -m benchmarks` as a process: exit codes, progress, interruption, and that nothing it started stays."""

from __future__ import annotations

import json
import os
import random
import signal
import subprocess
import sys

import pytest

from benchmarks import __main__ as command_line
from benchmarks import program as shared
from benchmarks.coordinator.starting import WORKER
from tests.benchmarks.conftest import ROOT, lines_of, processes_with, program
from tests.kit import HANGS_S, mostly_nightly, until

ONE = ("--rounds", 2, "--trials", 1)


@pytest.fixture(params=["fork", "spawn"])
def marked(request):
    """An environment that everything started with it, and by it, can be known by; with and without a fork server."""
    return {"RIDGELINE_START": request.param, "MARK": f"{random.randrange(10**9, 10**10)}"}


def alive(marked):
    """Command lines of everything that runs with such an environment."""
    return processes_with(f"MARK={marked['MARK']}\0", "environ")


def measures(marked):
    """Whether a measuring process runs; a fork server is started by a file beside theirs and has their command line."""
    own = [line for line in alive(marked) if str(WORKER) in line]
    return len(own) > (marked["RIDGELINE_START"] == "fork")


def started(marked, *arguments):
    command = [sys.executable, "-m", "benchmarks", "run", "--progress", "none", *map(str, arguments)]
    return subprocess.Popen(command, cwd=ROOT, env={**os.environ, **marked})


@pytest.mark.slow
def test_a_good_run_with_progress_and_no_git(toy_tree, tmp_path):
    side, out = {"path": str(toy_tree("tree")), "commit": "a" * 40, "date_ms": 7, "dirty": False}, tmp_path / "t.jsonl"
    more = ("--tree", f"head={json.dumps(side)}", "--set", "tile=32", "--progress", "json")
    done = program("run", "--kernel", "steady", *ONE, "--out", out, *more, PATH="/nowhere")
    assert done.returncode == 0, done.stderr
    [line] = lines_of(out)
    head = line["trees"]["head"]
    assert (head["commit"], head["date_ms"], head["dirty"]) == ("a" * 40, 7, False)
    assert line["cases"]["small"]["arms"]["head/ours"]["knobs"]["tile"] == 32
    events = [json.loads(text) for text in done.stderr.splitlines()]
    assert events[-1] == {"done": 3, "total": 3, "what": "done"}
    assert all(set(event) == {"done", "total", "what"} for event in events)


def test_what_the_caller_does_not_say_of_a_commit_stays_unknown():
    """git belongs to ci, also inside a repository."""
    [head] = shared.parse_options(command_line.MeasuredArms, ["--out", "x", "--tree", f"head={ROOT}"]).checkouts
    assert (head.commit, head.date_ms, head.dirty) == (None, None, None)


@pytest.mark.slow
def test_nothing_measured_gives_exit_code_2(toy_tree, tmp_path, in_process, capsys):
    what = ("--tree", f"head={toy_tree('tree')}", "--kernel", "steady", "--case", "crowd", *ONE)
    assert in_process("run", *what, "--out", tmp_path / "o.jsonl") == 2
    assert "nothing was measured: 3 skipped" in capsys.readouterr().err
    assert lines_of(tmp_path / "o.jsonl")[0]["cases"]["crowd"]["arms"]["head/ours"]["status"] == "skipped"


RUN = ("run", "--out", "x")


@pytest.mark.parametrize(
    ("text", "setting"), [("false", False), ("True", True), ("3", 3), ("0.5", 0.5), ("ipc", "ipc"), ("'4'", "4")]
)
def test_a_knob_is_set_to_what_the_text_says(text, setting):
    assert shared.knob(f"base.tile={text}") == ("base.tile", setting)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ([*RUN, "--tree", "head=/nowhere"], "/nowhere is not a folder"),
        ([*RUN, "--tree", "feature=."], "expected ROLE=PATH with ROLE one of base, head"),
        ([*RUN, "--tree", 'head={"commit": "abc"}'], "head.path is missing; allowed: a value"),
        ([*RUN, "--tree", 'head={"path": ".", "env": "x"}'], "head: unknown key 'env'; known: commit, date_ms, dirty"),
        ([*RUN, "--tier", "daily"], 'tier is "daily"; allowed: pr, nightly, sweep'),
        (["run", "--out", "/proc/nowhere/x"], "cannot write /proc/nowhere/x"),
        ([*RUN, "--tree", 'head={"path": ".", "date_ms": "yesterday"}'], 'head.date_ms is "yesterday"; allowed: a'),
        ([*RUN, "--tree", 'head={"path": ".", "date_ms": 4102444800001}'], "a whole number from 0 to 4102444800000"),
        ([*RUN, "--deadline", "nan"], "allowed: a number from 0.1 to 86400"),
        ([*RUN, "--set", "tile=1e999"], '--set tile is "inf"; allowed: finite numbers'),
        ([*RUN, "--heap", "ipx"], "'ipx' is not a home of the symmetric heap; known: auto, torch, ipc"),
        ([*RUN, "--kernel", "gem", "--tree", f"head={ROOT}"], "no kernel 'gem'; known: all_gather"),
        (["verify", "--out", "x", "--tree", "base=."], "one checkout is verified at a time: --tree head=PATH"),
        (["measure", "--out", "x"], "'measure' is not a verb; known: run, verify, list, candidates, doctor"),
        (["run", "--kernel", "gemm"], "out is missing; allowed: a value"),
        ([*RUN, "--rounds"], "argument --rounds: expected one argument"),
        ([*RUN, "--rounds=many"], 'rounds is "many"; allowed: a whole number from 1'),
        ([*RUN, "--tree", "head={path}"], 'head is "{path}"; allowed: a table'),
        (["verify", "--out", "x.gz"], "checks are not compressed; name a .jsonl file"),
        (["verify", "--out", "x", "--rounds", "3"], "unknown option --rounds; known: --tree, --progress, --out"),
    ],
)
def test_usage_errors_give_exit_code_3(arguments, message, tmp_path, monkeypatch, in_process, capsys):
    monkeypatch.chdir(tmp_path)
    assert in_process(*arguments) == 3
    assert message in capsys.readouterr().err
    assert not (tmp_path / "x").exists()


def test_a_wrong_home_of_the_heap_is_refused_by_variable_too(toy_tree, tmp_path):
    done = program("run", "--tree", f"head={toy_tree('tree')}", "--out", tmp_path / "o.jsonl", RIDGELINE_HEAP="ipx")
    assert done.returncode == 3
    assert "'ipx' is not a home of the symmetric heap" in done.stderr


INTERRUPTS = [(signal.SIGTERM, "fork"), (signal.SIGINT, "fork"), (signal.SIGTERM, "spawn")]


@pytest.mark.slow
@pytest.mark.parametrize(("number", "marked"), mostly_nightly(INTERRUPTS, INTERRUPTS[0]), indirect=["marked"])
def test_an_interrupted_run_keeps_its_trials_and_leaves_no_process(toy_tree, tmp_path, number, marked):
    tree, out = f"head={toy_tree('tree')}", tmp_path / "trials.jsonl"
    what = ("--kernel", "steady", "--case", "small", "--trials", 500, "--rounds", 2)
    running = started(marked, "--tree", tree, "--out", out, *what)
    try:
        until(lambda: out.exists() and out.stat().st_size > 0)
        until(lambda: measures(marked))
        running.send_signal(number)
        assert running.wait(HANGS_S) == 130
    finally:
        running.kill()
    assert all(line["cases"]["small"]["arms"]["head/ours"]["status"] == "ok" for line in lines_of(out))
    until(lambda: not alive(marked))


@pytest.mark.slow
def test_workers_do_not_outlive_a_killed_coordinator(toy_tree, tmp_path, marked):
    hangs = ("--kernel", "faults", "--case", "endless", "--backend", "hangs", "--tier", "nightly", "--deadline", 100)
    running = started(marked, "--tree", f"head={toy_tree('tree')}", "--out", tmp_path / "o.jsonl", *hangs)
    try:
        until(lambda: measures(marked))
    finally:
        running.kill()
        running.wait()
    until(lambda: not alive(marked))


@pytest.mark.slow
def test_list_and_doctor(toy_tree, in_process, capsys):
    tree = toy_tree("tree", {"toy/gone.py": "import no_such_module"})
    in_process("list", "--tree", tree, "--json")
    listed = json.loads(capsys.readouterr().out)
    assert [kernel["kernel"] for kernel in listed["kernels"]] == ["faults", "pairs", "steady"]
    assert listed["broken"][0]["module"] == "toy.gone"
    assert in_process("doctor", "--tree", tree, "--folder", tree / "results", "--json") == 1
    report = json.loads(capsys.readouterr().out)
    assert report["machine"]["kind"] in ("cpu", "gpu")
    assert report["kernels"]["steady"]["small"] == ""
    assert "needs 512" in report["kernels"]["steady"]["crowd"]
    [problem] = [problem for problem in report["problems"] if problem["kind"] == "broken_module"]
    assert problem["text"] == "module toy.gone does not import"
    assert "no_such_module" in problem["why"]
    assert list(report["node"]["facts"]["disk_bytes"]) == ["/tmp", str(tree / "results")]


@pytest.mark.parametrize(("error", "code"), [(KeyError("lost"), 3), (KeyboardInterrupt(), 130)])
def test_a_defect_is_no_fault(error, code, monkeypatch, in_process, capsys, tmp_path):
    def fail(*_):
        raise error

    monkeypatch.setattr(command_line, "measure", fail)
    assert in_process("run", "--out", tmp_path / "x", "--tree", f"head={ROOT}") == code
    said = capsys.readouterr().err
    assert ("Error: KeyError: 'lost' (this is a defect of Ridgeline)" in said) == (code == 3)
    assert ("Traceback" in said) == (code == 3)
