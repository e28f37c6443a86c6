"""Measuring a sweep: resumed after any death, within a budget, alone in its file."""

from __future__ import annotations

import dataclasses
import fcntl
import json
import math
import signal
import subprocess
import sys
import time
from collections import Counter
from pathlib import Path

import pytest
from rich.console import Console

from benchmarks import lifetime
from benchmarks.points import Point, UntimedPoint
from ci.sweeps import measured, run, show
from ci.sweeps.measured import SweepError, read
from ci.sweeps.pruning import Dropped, Pruned, Rungs, due, seen_in
from ci.trials.file import read as read_file
from tests.ci.made_trials import MACHINE, parsed, trial, write
from tests.ci.sweeps import driver
from tests.ci.sweeps.made_lines import line
from tests.kit import HANGS_S, until

ROOT = Path(__file__).parents[3]


@pytest.fixture(autouse=True)
def stand_in(monkeypatch):
    monkeypatch.setattr(run, "command", driver.command)


def rankings(of, pruned=None):
    return show.rankings(show.point_rows(of.frame), pruned)


def _started(out):
    argv = [sys.executable, "-m", "tests.ci.sweeps.driver", str(out)]
    return subprocess.Popen(argv, cwd=ROOT, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True)


def _lines(out):
    return out.read_bytes().count(b"\n") if out.exists() else 0


def _measured(out):
    """How often each point was measured in each rung."""
    trials = read_file(out).trials
    return Counter((one.sweep.rung, id_) for one in trials if one.sweep for id_ in one.sweep.points)


@pytest.mark.slow
def test_killed_three_times_no_finished_point_is_measured_twice(tmp_path):
    out = tmp_path / "sweep.jsonl"
    for lines in (2, 4, 7):
        killed = _started(out)
        until(lambda: _lines(out) >= lines)  # noqa: B023
        killed.send_signal(signal.SIGKILL)
        killed.wait()
    last = _started(out)
    assert last.communicate(timeout=HANGS_S)[0].strip() == "complete"
    assert set(_measured(out).values()) == {1}
    assert sum(1 for rung, _ in _measured(out) if rung == 0) == len(driver.WARPS)
    [best] = rankings(read([out]))
    assert best.winner["knobs"] == "num_warps=5"
    starts = [int(pid) for pid in (tmp_path / "starts").read_text().split()]
    assert len(starts) >= 4
    assert not [pid for pid in starts if lifetime.lives(pid)], "nothing that was left behind still measures"


def test_what_is_complete_is_not_started_again(tmp_path):
    plan = driver.plan(tmp_path / "sweep.jsonl")
    first = run.measure(plan, Console(quiet=True)).measured
    starts = (tmp_path / "starts").read_text()
    assert run.measure(plan, Console(quiet=True)).measured.frame.equals(first.frame)
    assert (tmp_path / "starts").read_text() == starts
    assert starts.count("\n") == 3, "one start for each rung"


@pytest.mark.slow
def test_a_budget_ends_it_and_says_what_is_left(tmp_path):
    plan = driver.plan(tmp_path / "sweep.jsonl", budget_min=2)
    ended = run.measure(plan, Console(quiet=True), time.monotonic() - 118.8)
    assert ended.left is not None
    assert "budget of 2 GPU minutes is spent" in ended.why
    assert run.measure(dataclasses.replace(plan, budget_min=None), Console(quiet=True)).left is None
    assert set(_measured(plan.out).values()) == {1}


def _refused(plan, words):
    with pytest.raises(SweepError, match=words):
        run.measure(plan, Console(quiet=True))


def test_a_file_of_something_else_is_left_alone(tmp_path):
    _refused(driver.plan(write(tmp_path / "a.jsonl", trial())), "a trial that is of no sweep")
    _refused(driver.plan(write(tmp_path / "b.jsonl", line([], sweep="other"))), "a line of the sweep other")
    two = write(tmp_path / "c.jsonl", line([]), line([], batch=1, machine={**MACHINE, "name": "other-1"}))
    _refused(driver.plan(two), "lines of 2 origins.*are not mixed")


def test_two_calls_do_not_measure_into_one_file(tmp_path):
    plan = driver.plan(tmp_path / "sweep.jsonl")
    with (tmp_path / ".sweep.jsonl.lock").open("w") as held:
        fcntl.flock(held, fcntl.LOCK_EX)
        _refused(plan, "is being measured by another call")


def test_a_program_that_measures_nothing_does_not_loop(tmp_path, monkeypatch):
    monkeypatch.setattr(run, "command", lambda plan, asked: [sys.executable, "-c", "pass"])
    ended = run.measure(driver.plan(tmp_path / "sweep.jsonl"), Console(quiet=True))
    assert ended.left.count == len(driver.WARPS)
    assert "wrote no line" in ended.why
    broken = "import sys; sys.exit('Error: no GPU here') if 0 else (print('no GPU here', file=sys.stderr), sys.exit(3))"
    monkeypatch.setattr(run, "command", lambda plan, asked: [sys.executable, "-c", broken])
    _refused(driver.plan(tmp_path / "sweep.jsonl"), "broke off .exit code 3.: no GPU here; what is finished is in")


def test_the_first_lines_name_what_is_not_timed(tmp_path):
    plan = driver.plan(tmp_path / "x", rungs=Rungs((8, 20)))
    kept = plan.pruned.to_measure["m16"]
    points = list(kept[:3])
    pruned = dataclasses.replace(
        plan.pruned,
        to_measure={"m16": points},
        twins=(UntimedPoint(kept[5], points[1].label), UntimedPoint(kept[6], "triton")),
    )
    plan = dataclasses.replace(plan, pruned=pruned)
    left = run.state(plan)[1]
    batches = plan.points_file(left).batches
    told = {one.point.label: one.same_as for batch in batches for one in batch.untimed}
    assert told == {kept[5].label: points[1].label, kept[6].label: "triton"}
    assert all(one.same_as in {p.label for p in b.points} | {"triton"} for b in batches for one in b.untimed)


# What is measured next, from the lines that are there.


TRUTH = {2: 1.30, 4: 1.001, 8: 0.90, 16: 1.10}
POINTS = [Point("m16", "triton", {"num_warps": warps}) for warps in TRUTH]
RUNGS = Rungs((8, 20, 40))


def _next(*lines, rungs=RUNGS, points=POINTS):
    seen = seen_in([parsed(one) for one in lines], "gemm")
    return due({"m16": points}, rungs, seen, {"m16": "triton"})


def _warps(found):
    assert found is not None
    return [point.knobs["num_warps"] for point in found.points["m16"]]


def _rung(warps, rung=0, rounds=8, **more):
    return line([({"num_warps": w}, TRUTH[w]) for w in warps], rung=rung, rounds=rounds, **more)


def test_first_all_points_then_those_that_may_be_the_best():
    assert (_next().rung, _warps(_next())) == (0, [2, 4, 8, 16])
    found = _next(_rung(TRUTH))
    assert (found.rung, _warps(found), found.entered) == (1, [8], 1)
    found = _next(_rung(TRUTH), _rung([8], 1, 20))
    assert (found.rung, _warps(found)) == (2, [8])
    assert _next(_rung(TRUTH), _rung([8], 1, 20), _rung([8], 2, 40)) is None


def test_a_finished_point_is_not_asked_for_again():
    assert _warps(_next(_rung([2, 8]))) == [4, 16]
    assert _next(_rung([2, 8]), _rung([4, 16], batch=1)).rung == 1


def test_a_point_that_failed_is_never_tried_again():
    bad = line([({"num_warps": 8}, "hang"), ({"num_warps": 2}, TRUTH[2]), ({"num_warps": 4}, TRUTH[4])])
    rest = _rung([16], batch=1)
    assert _next(bad, rest).rung == 1
    assert 8 not in _warps(_next(bad, rest))


def test_lines_of_fewer_rounds_do_not_count():
    assert _warps(_next(_rung([2, 8], rounds=4))) == [2, 4, 8, 16]


def test_without_halving_all_points_are_in_all_rungs():
    found = _next(_rung(TRUTH), rungs=Rungs((8, 8), halving=False))
    assert (found.rung, _warps(found)) == (1, [2, 4, 8, 16])


def test_what_others_are_compared_with_stays_however_slow():
    slow = Rungs((8, 20, 40), stay=frozenset({("m16", POINTS[0].label), ("other", POINTS[1].label)}))
    assert _warps(_next(_rung(TRUTH), rungs=slow)) == [2, 8]
    faster_anchor = line([({"num_warps": w}, 1.5) for w in TRUTH], rounds=8)
    assert _warps(_next(faster_anchor, rungs=slow)) == [2]
    assert _next(faster_anchor) is None


def test_an_anchor_that_failed_ends_its_case():
    broken = _rung(TRUTH)
    broken["cases"]["m16"]["arms"]["head/triton"] = {"status": "wrong", "why": "norm 2", "detail": ""}
    assert _next(broken) is None


def test_a_fast_library_drops_none_of_our_points():
    points = [*POINTS, Point("m16", "blas")]
    found = _next(_rung(TRUTH, plain={"blas": 0.2}), points=points)
    assert [point.label for point in found.points["m16"]][1:] == ["blas"]
    assert found.points["m16"][0].knobs == {"num_warps": 8}


def test_the_anchor_drops_points_that_are_slower_than_it():
    slow = [POINTS[0], POINTS[3]]
    assert _next(_rung([2, 16]), points=slow) is None


# The lines of a sweep as one row per point.


FAST, SLOW = {"num_warps": 8}, {"num_warps": 2}


def _row(found, knobs, case="m16"):
    own = found.frame[found.frame["point"] == Point(case, "triton", knobs).id]
    assert len(own) == 1
    return own.iloc[0]


def test_a_point_that_failed_once_has_no_time_and_says_why(tmp_path):
    lines = [line([(FAST, 0.5), (SLOW, "hang")]), line([(FAST, "wrong")], rung=1)]
    found = measured.read([write(tmp_path / "s.jsonl", *lines)])
    assert _row(found, FAST)["status"] == "wrong"
    assert math.isnan(_row(found, FAST)["ratio"])
    assert _row(found, SLOW)["status"] == "hang"
    assert _row(found, SLOW)["why"] == "one sentence"


def test_a_point_timed_under_another_name_says_which(tmp_path):
    twin = line([(FAST, 0.9), (SLOW, 0.9)])
    arms, ids = twin["cases"]["m16"]["arms"], [Point("m16", "triton", knobs).label for knobs in (FAST, SLOW)]
    arms[f"head/{ids[1]}"] = {**arms[f"head/{ids[0]}"], "same_as": f"head/{ids[0]}"}
    found = measured.read([write(tmp_path / "s.jsonl", twin, line([(FAST, 0.9)], rung=1, rounds=40))])
    assert _row(found, SLOW)["trials"] == 2, "what is known of the one is known of the other"
    assert _row(found, SLOW)["config"]["num_warps"] == 2
    assert _row(found, SLOW)["equal_to"] == ids[0]
    assert _row(found, SLOW)["ratio"] == _row(found, FAST)["ratio"]


def test_lines_of_two_machines_are_two_sweeps_and_no_line_is_an_error(tmp_path):
    other = line([(FAST, 0.9)], batch=1, machine={**MACHINE, "name": "h200x1-00000000"})
    file = write(tmp_path / "s.jsonl", line([(FAST, 0.9)]), other)
    with pytest.raises(SweepError, match=r"2 origins.*h200x2.*h200x1"):
        measured.read([file])
    with pytest.raises(SweepError, match="no line of a sweep"):
        measured.read([write(tmp_path / "t.jsonl", trial())])


# A sweep for people and for programs.


SHOWN = {2: 1.30, 4: 1.05, 8: 0.90, 16: 0.93}


@pytest.fixture
def shown(tmp_path):
    first = line(
        [({"num_warps": w}, t) for w, t in SHOWN.items()] + [({"num_warps": 32}, "crash")], plain={"blas": 0.8}
    )
    later = [line([({"num_warps": 8}, SHOWN[8])], rung=rung, rounds=40) for rung in (1, 2)]
    return read([write(tmp_path / "s.jsonl", first, *later)])


def test_the_winner_is_of_the_last_rung_and_of_the_anchors_backend(shown):
    dropped = Dropped(Point("m16", "triton", {"num_warps": 64}), "cannot load", "2048 threads")
    [one] = rankings(shown, Pruned({}, dropped=(dropped,)))
    assert one.winner["knobs"] == "num_warps=8"
    assert one.beats_anchor
    assert one.runner_up["is_anchor"], "points of earlier rungs are known too badly"
    assert [row["name"] for row in one.ranked][:2] == ["blas", "triton num_warps=8"]
    assert one.unusable == {"crash": 1, "cannot load": 1}


def test_what_fails_is_never_the_winner(tmp_path):
    lines = [line([({"num_warps": 8}, 0.5), ({"num_warps": 2}, "wrong")]), line([({"num_warps": 8}, "wrong")], rung=1)]
    [one] = rankings(read([write(tmp_path / "s.jsonl", *lines)]))
    assert one.winner["is_anchor"]
    assert one.unusable == {"wrong": 2}


def test_what_is_shown_of_a_sweep(shown):
    """The document holds what the terminal shows."""
    found = rankings(shown)
    [ranking] = found
    assert [row[0] for row in show.sheet(ranking).rows] == [
        "blas",
        "triton num_warps=8 (winner)",
        "triton num_warps=16",
        "triton (anchor)",
        "triton num_warps=4",
        "triton num_warps=2",
    ]
    assert show.sheet(ranking).rows[3][2:4] == ("1.0000", "")
    told = json.loads(json.dumps(show.document(shown, found, 3, "the budget")))
    assert (told["complete"], told["left"], told["why"]) == (False, 3, "the budget")
    [case] = told["cases"]
    assert (case["winner"]["knobs"], case["beats_anchor"], len(case["points"])) == ("num_warps=8", True, 6)
