"""`python -m benchmarks run --points` on real processes: every fault costs its point, and nothing is measured twice."""

from __future__ import annotations

import collections
import dataclasses
import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from benchmarks import trial_file
from benchmarks.points import Batch, Point, PointsFile
from benchmarks.worker import declare
from benchmarks.worker.failures import Refused

ROOT = Path(__file__).parents[3]
SWEPT = (Path(__file__).parent / "swept.py").read_text()


@pytest.fixture
def tree(toy_tree: Callable[..., Path]) -> Path:
    return toy_tree("tree", {"toy/swept.py": SWEPT})


def point(case: str, **knobs: object) -> Point:
    return Point(case, "ours", knobs)


def asked(tmp_path: Path, rung: int, *batches: Batch) -> Path:
    path = tmp_path / f"rung{rung}.json"
    path.write_text(json.dumps(dataclasses.asdict(PointsFile("s1", "swept", rung, 4, batches))))
    return path


def command(tree: Path, points: Path, out: Path) -> list[str]:
    options = ["--points", points, "--out", out, "--point-deadline", 6, "--progress", "none", "--commit", "head=c0"]
    return [sys.executable, "-m", "benchmarks", "run", "--tree", f"head={tree}", *map(str, options)]


def run(*arguments: Path) -> subprocess.CompletedProcess[str]:
    return subprocess.run(command(*arguments), cwd=ROOT, capture_output=True, text=True)


def lines_of(out: Path) -> list[dict]:
    found = [json.loads(text) for text in out.read_text().splitlines()]
    for line in found:
        trial_file.check(line)
    return found


def arms_of(line: dict) -> dict[str, dict]:
    [(_, entry)] = line["cases"].items()
    return {key.removeprefix("head/"): arm for key, arm in entry["arms"].items()}


@pytest.mark.slow
def test_a_run_that_is_killed_goes_on_and_every_fault_costs_its_point(tree, tmp_path, toy_log):
    good, slow = [point("one", tile=t) for t in (1, 2)], point("one", tile=3, fault="slow")
    bad = {fault: point("one", fault=fault) for fault in ("wrong", "dies", "hangs", "unsupported")}
    unknown = point("one", tyle=1)
    batches = (
        Batch("one", "ours", (*good, Point("one", "library"))),
        Batch("one", "ours", (slow, *bad.values(), unknown)),
        Batch("two", "library", (point("two", tile=1),)),
        Batch("crowd", "ours", (point("crowd", tile=1),)),
    )
    points, out = asked(tmp_path, 0, *batches), tmp_path / "trials.jsonl"
    started = subprocess.Popen(command(tree, points, out), cwd=ROOT, stderr=subprocess.DEVNULL)
    until = time.monotonic() + 120
    while not (out.exists() and out.read_bytes().endswith(b"\n")) and time.monotonic() < until:
        time.sleep(0.02)
    os.kill(started.pid, signal.SIGKILL)
    started.wait()
    [first] = lines_of(out)
    assert first["sweep"] == {
        "id": "s1", "rung": 0, "batch": 0, "anchor": "ours", "points": {one.id: one.as_json() for one in good}
    }  # fmt: skip
    arms = arms_of(first)
    assert {label: (arm["status"], len(arm["seconds"]), arm["knobs"]) for label, arm in arms.items()} == {
        "ours": ("ok", 4, {"tile": 16}),
        good[0].label: ("ok", 4, {"tile": 1}),
        good[1].label: ("ok", 4, {"tile": 2}),
        "library": ("ok", 4, {}),
    }
    assert first["protocol"]["warm_up"]["rounds"] == 1

    done = run(tree, points, out)
    assert done.returncode == 1, done.stderr
    _, second, of_two, skipped = lines_of(out)
    arms = arms_of(second)
    assert {fault: arms[one.label]["status"] for fault, one in bad.items()} == {
        "wrong": "wrong", "dies": "crash", "hangs": "hang", "unsupported": "unsupported"
    }  # fmt: skip
    assert "gave no answer within 6 s in step: first call" in arms[bad["hangs"].label]["why"]
    assert "has no knob 'tyle'; its knobs are: tile, fault" in arms[unknown.label]["why"]
    assert arms[slow.label]["status"] == arms["ours"]["status"] == "ok"
    built = collections.Counter(text for text in toy_log.read_text().splitlines() if " built one " in text)
    assert [built[f"tree built one {tile} sound"] for tile in (1, 2)] == [1, 1], "finished points are not built again"
    assert {arm["status"] for arm in arms_of(of_two).values()} == {"ok"}
    assert {arm["status"] for arm in arms_of(skipped).values()} == {"skipped"}

    again = run(tree, points, out)
    assert (again.returncode, "nothing is left to measure" in again.stderr) == (0, True)
    later = run(tree, asked(tmp_path, 1, Batch("one", "ours", (slow, bad["hangs"], bad["dies"]))), out)
    assert later.returncode == 1, later.stderr
    last = lines_of(out)[-1]
    assert last["trial"] == last["sweep"]["rung"] == 1
    arms = arms_of(last)
    assert arms[slow.label]["status"] == "ok"
    for fault, status in (("hangs", "hang"), ("dies", "crash")):
        arm = arms[bad[fault].label]
        assert (arm["status"], arm["why"].startswith("not tried again: ")) == (status, True)


@pytest.mark.parametrize(
    ("options", "words"),
    [
        (["--kernel", "swept"], "--kernel beside --points"),
        (["--tree", "base=."], "one checkout are measured at a time"),
    ],
)
def test_options_that_say_what_the_file_says_are_refused(tree, tmp_path, options, words):
    points = asked(tmp_path, 0, Batch("one", "ours", ()))
    done = subprocess.run(
        [*command(tree, points, tmp_path / "out.jsonl"), *options], cwd=ROOT, capture_output=True, text=True
    )
    assert done.returncode == 3
    assert words in done.stderr


# What a sweep could try: in full, as overrides, and where a tuned entry would be; without a GPU.


PLACE = {"arch": "sm_90", "compute_units": 132}
CASE = "n4096_k4096_m64_fp16"


def test_a_backend_without_candidates_and_an_architecture_without_a_rule_say_so():
    entries = {one["backend"]: one for one in declare.listed(ROOT, "gemm", [CASE], [], PLACE)}
    assert (entries["blas"]["baseline"], entries["blas"]["candidates"], entries["blas"]["knobs"]) == (True, [], {})
    [other] = declare.listed(ROOT, "gemm", [CASE], ["triton"], {"arch": "gfx90a", "compute_units": None})
    assert other["why"].startswith("no GEMM configuration for arch 'gfx90a'")
    assert (other["config"], other["candidates"]) == (None, [])


@pytest.mark.parametrize(
    ("asked", "words"),
    [
        (("gem", [], []), "no kernel 'gem'; known: .*gemm"),
        (("gemm", ["m64*"], []), r"no case fits 'm64\*'; known: n4096"),
        (("gemm", [], ["hip"]), "no backend fits 'hip'; known: blas, torch, triton"),
    ],
)
def test_unknown_names_are_refused(asked, words):
    with pytest.raises(Refused, match=words):
        declare.listed(ROOT, *asked, PLACE)


@pytest.mark.slow
def test_the_command_prints_json_and_refuses_an_unknown_architecture(toy_tree):
    tree = toy_tree("tree", {"toy/swept.py": (Path(__file__).parent / "swept.py").read_text()})
    command = [sys.executable, "-m", "benchmarks", "candidates", "--tree", str(tree), "--kernel", "swept", "--json"]
    done = subprocess.run([*command, "--backend", "ours", "--case", "o*"], cwd=ROOT, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    told = json.loads(done.stdout)
    assert (told["kernel"], told["arch"]) == ("swept", "cpu")
    [entry] = told["entries"]
    assert (entry["config"], entry["candidates"]) == ({"tile": 16, "fault": ""}, [])
    wrong = subprocess.run([*command, "--arch", "gfx1"], cwd=ROOT, capture_output=True, text=True)
    assert wrong.returncode == 3
    assert "architecture 'gfx1' is not known; known: cpu, gfx942" in wrong.stderr
