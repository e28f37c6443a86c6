"""`python -m benchmarks` as a process: exit codes, progress, interruption, and that nothing it started stays."""

from __future__ import annotations

import json
import os
import random
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from benchmarks import __main__ as command_line
from benchmarks import program
from benchmarks.coordinator.starting import WORKER

ROOT = Path(__file__).parent.parent.parent


def command(*arguments: object) -> list[str]:
    return [sys.executable, "-m", "benchmarks", *map(str, arguments)]


def run(*arguments: object, **variables: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        command(*arguments), cwd=ROOT, capture_output=True, text=True, timeout=200, env={**os.environ, **variables}
    )


def lines_of(path: Path) -> list[dict]:
    return [json.loads(line) for line in path.read_text().splitlines()]


def processes_with(text: str, place: str = "cmdline") -> list[str]:
    """Command lines of processes in whose command line, or environ, a text is; zombies have neither."""
    found = []
    for entry in Path("/proc").iterdir():
        try:
            if entry.name.isdigit() and text.encode() in (entry / place).read_bytes():
                found.append((entry / "cmdline").read_bytes().replace(b"\0", b" ").decode())
        except OSError:
            continue  # it ended while we looked
    return found


@pytest.fixture(params=["fork", "spawn"])
def marked(request: pytest.FixtureRequest) -> dict[str, str]:
    """An environment that everything started with it, and by it, can be known by; with and without a fork server."""
    return {"RIDGELINE_START": request.param, "MARK": f"{random.randrange(10**9, 10**10)}"}


def alive(marked: dict[str, str]) -> list[str]:
    """Command lines of everything that runs with such an environment."""
    return processes_with(f"MARK={marked['MARK']}\0", "environ")


def measures(marked: dict[str, str]) -> bool:
    """Whether a measuring process runs; a fork server is started by a file beside theirs and has their command line."""
    own = [line for line in alive(marked) if str(WORKER) in line]
    return len(own) > (marked["RIDGELINE_START"] == "fork")


def wait_until(what: object, seconds: float = 180.0) -> None:
    until = time.monotonic() + seconds
    while not what():
        assert time.monotonic() < until, "waited in vain"
        time.sleep(0.05)


@pytest.mark.slow
def test_a_good_run_with_progress_and_no_git(toy_tree, tmp_path):
    tree, out = toy_tree("tree"), tmp_path / "trials.jsonl"
    done = run(
        "run",
        "--tree",
        f"head={tree}",
        "--kernel",
        "steady",
        "--rounds",
        3,
        "--trials",
        1,
        "--out",
        out,
        "--progress",
        "json",
        "--commit",
        "head=" + "a" * 40,
        "--date-ms",
        "head=7",
        "--set",
        "tile=32",
        PATH="/nowhere",
    )
    assert done.returncode == 0, done.stderr
    [line] = lines_of(out)
    head = line["trees"]["head"]
    assert (head["commit"], head["date_ms"], head["dirty"]) == ("a" * 40, 7, False)
    assert line["cases"]["small"]["arms"]["head/ours"]["knobs"]["tile"] == 32
    events = [json.loads(text) for text in done.stderr.splitlines()]
    assert events[-1] == {"done": 3, "total": 3, "what": "done"}
    assert all(set(event) == {"done", "total", "what"} for event in events)


def test_a_wrong_home_of_the_heap_is_refused_by_option_and_by_variable(toy_tree, tmp_path):
    what = ("run", "--tree", f"head={toy_tree('tree')}", "--kernel", "steady", "--out", tmp_path / "o.jsonl")
    for done in (run(*what, "--heap", "ipx"), run(*what, RIDGELINE_HEAP="ipx")):
        assert done.returncode == 3
        assert "'ipx' is no home of the symmetric heap; known: auto, torch, ipc" in done.stderr


@pytest.mark.slow
def test_a_fault_gives_exit_code_1_and_is_reported(toy_tree, tmp_path):
    done = run(
        "run",
        "--tree",
        f"head={toy_tree('tree')}",
        "--kernel",
        "faults",
        "--backend",
        "good",
        "--backend",
        "wrong",
        "--rounds",
        2,
        "--trials",
        1,
        "--out",
        tmp_path / "o.jsonl",
    )
    assert done.returncode == 1
    assert "faults one head/wrong: wrong: check: " in done.stderr


@pytest.mark.slow
def test_nothing_measured_gives_exit_code_2(toy_tree, tmp_path):
    done = run(
        "run",
        "--tree",
        f"head={toy_tree('tree')}",
        "--kernel",
        "steady",
        "--case",
        "crowd",
        "--trials",
        1,
        "--out",
        tmp_path / "o.jsonl",
    )
    assert done.returncode == 2
    assert "nothing was measured: 3 skipped" in done.stderr
    assert lines_of(tmp_path / "o.jsonl")[0]["cases"]["crowd"]["arms"]["head/ours"]["status"] == "skipped"


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["run", "--tree", "head=/nowhere", "--out", "x"], "/nowhere is not a folder"),
        (["run", "--tree", "feature=.", "--out", "x"], "expected ROLE=VALUE with ROLE one of base, head"),
        (["run", "--commit", "base=abc", "--out", "x"], "there is no --tree base=PATH"),
        (["run", "--out", "x", "--trials", "0"], "expected a number of at least 1"),
        (["run", "--out", "x", "--tier", "daily"], "invalid choice: 'daily'"),
        (["run", "--out", "x", "--date-ms", "head=yesterday"], "'yesterday' is not a number of milliseconds"),
        (["run", "--out", "/proc/nowhere/x"], "cannot write /proc/nowhere/x"),
        (["run", "--out", "x", "--date-ms", "head=253402300799999"], "is not a date between 1970 and 2100"),
        (["run", "--out", "x", "--seed", "-1"], "expected a whole number from 0 to 2**63 - 1"),
        (["run", "--out", "x", "--seed", str(2**63)], "expected a whole number from 0 to 2**63 - 1"),
        (["run", "--out", "x", "--deadline", "nan"], "expected 0.1 to 86400 seconds"),
        (["run", "--out", "x", "--deadline", "0.01"], "expected 0.1 to 86400 seconds"),
        (["run", "--out", "x", "--set", "tile"], "expected KEY=VALUE"),
        (["run", "--out", "x", "--set", "tile=1e999"], "JSON cannot hold this value"),
        (["run", "--out", "x", "--set", "tile={1, 2}"], "JSON cannot hold this value"),
        (["run", "--out", "x", "--dirty", "base"], "there is no --tree base=PATH for the dirty of 'base'"),
        (["run", "--out", "."], "cannot write .: Is a directory"),
        (["run", "--out", "x", "--kernel", "gem", "--tree", f"head={ROOT}"], "no kernel 'gem'; known: all_gather"),
        (["run"], "the following arguments are required: --out"),
        (["fly"], "invalid choice: 'fly'"),
    ],
)
def test_usage_errors_give_exit_code_3(arguments, message, tmp_path):
    done = subprocess.run(
        command(*arguments),
        cwd=tmp_path,
        capture_output=True,
        text=True,
        timeout=60,
        env={**os.environ, "PYTHONPATH": str(ROOT)},
    )
    assert done.returncode == 3, done.stderr
    assert message in done.stderr
    assert not (tmp_path / "x").exists()


@pytest.mark.slow
@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_an_interrupted_run_keeps_its_trials_and_leaves_no_process(toy_tree, tmp_path, number, marked):
    tree, out = toy_tree("tree"), tmp_path / "trials.jsonl"
    running = subprocess.Popen(
        command(
            "run",
            "--tree",
            f"head={tree}",
            "--kernel",
            "steady",
            "--case",
            "small",
            "--trials",
            500,
            "--rounds",
            2,
            "--out",
            out,
            "--progress",
            "none",
        ),
        cwd=ROOT,
        env={**os.environ, **marked},
    )
    try:
        wait_until(lambda: out.exists() and out.stat().st_size > 0)
        wait_until(lambda: measures(marked))
        running.send_signal(number)
        assert running.wait(120) == 130
    finally:
        running.kill()
    assert all(line["cases"]["small"]["arms"]["head/ours"]["status"] == "ok" for line in lines_of(out))
    wait_until(lambda: not alive(marked), 30)


@pytest.mark.slow
def test_workers_do_not_outlive_a_killed_coordinator(toy_tree, tmp_path, marked):
    tree = toy_tree("tree")
    running = subprocess.Popen(
        command(
            "run",
            "--tree",
            f"head={tree}",
            "--kernel",
            "faults",
            "--case",
            "endless",
            "--backend",
            "hangs",
            "--tier",
            "nightly",
            "--deadline",
            100,
            "--out",
            tmp_path / "o.jsonl",
        ),
        cwd=ROOT,
        env={**os.environ, **marked},
        stderr=subprocess.DEVNULL,
    )
    try:
        wait_until(lambda: measures(marked))
    finally:
        running.kill()
        running.wait()
    wait_until(lambda: not alive(marked), 60)


@pytest.mark.slow
def test_children_of_a_kernel_are_killed_with_it(toy_tree, tmp_path):
    sleep = f"{random.randrange(10**6, 10**7)}"
    done = run(
        "run",
        "--tree",
        f"head={toy_tree('tree')}",
        "--kernel",
        "faults",
        "--case",
        "endless",
        "--backend",
        "has_children",
        "--tier",
        "nightly",
        "--rounds",
        2,
        "--trials",
        1,
        "--out",
        tmp_path / "o.jsonl",
        TOY_SLEEP=sleep,
    )
    assert done.returncode == 0, done.stderr
    assert processes_with(sleep) == []


@pytest.mark.slow
def test_list_and_doctor(toy_tree):
    tree = toy_tree("tree", {"toy/gone.py": "import no_such_module"})
    listed = json.loads(run("list", "--tree", tree, "--json").stdout)
    assert [kernel["kernel"] for kernel in listed["kernels"]] == ["faults", "pairs", "steady"]
    assert listed["broken"][0]["module"] == "toy.gone"
    examined = run("doctor", "--tree", tree, "--folder", tree / "results", "--json")
    report = json.loads(examined.stdout)
    assert examined.returncode == 1
    assert report["machine"]["kind"] in ("cpu", "gpu")
    assert report["kernels"]["steady"]["small"] == ""
    assert "needs 512" in report["kernels"]["steady"]["crowd"]
    [problem] = [problem for problem in report["problems"] if problem["kind"] == "broken_module"]
    assert problem["text"] == "module toy.gone does not import"
    assert "no_such_module" in problem["why"]
    assert list(report["node"]["facts"]["disk_bytes"]) == ["/tmp", str(tree / "results")]


@pytest.mark.slow
def test_a_run_without_commit_records_none(toy_tree, tmp_path):
    """git belongs to ci: what the caller does not say stays unknown, also inside a repository."""
    tree, out = toy_tree("tree"), tmp_path / "trials.jsonl"
    subprocess.run(["git", "init", "-q", str(tree)], check=True)
    what = ("--kernel", "steady", "--case", "small", "--backend", "ours", "--rounds", 1, "--trials", 1)
    assert run("run", "--tree", f"head={tree}", *what, "--out", out).returncode == 0
    head = lines_of(out)[0]["trees"]["head"]
    assert (head["commit"], head["date_ms"], head["dirty"]) == (None, None, None)


@pytest.mark.parametrize(("error", "code"), [(KeyError("lost"), 3), (KeyboardInterrupt(), 130)])
def test_a_defect_is_no_fault(error, code, monkeypatch, capsys, tmp_path):
    def fail(*_: object) -> None:
        raise error

    monkeypatch.setattr(command_line, "measure", fail)
    monkeypatch.setattr(program.signal, "signal", lambda *_: None)
    assert command_line.main(["run", "--out", str(tmp_path / "x"), "--tree", f"head={ROOT}"]) == code
    said = capsys.readouterr().err
    assert ("Error: KeyError: 'lost' (this is a defect of Ridgeline)" in said) == (code == 3)
    assert ("Traceback" in said) == (code == 3)


def test_help_shows_an_example():
    done = run("run", "--help")
    assert done.returncode == 0
    assert "--tree head=. --kernel gemm" in done.stdout
