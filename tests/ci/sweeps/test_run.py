"""Measuring a sweep: resumed after any death, within a budget, alone in its file."""

from __future__ import annotations

import dataclasses
import fcntl
import itertools
import os
import signal
import subprocess
import sys
import time
from collections import Counter
from pathlib import Path

import pytest
from rich.console import Console

from benchmarks import lifetime
from ci.sweeps import alone, run, show
from ci.sweeps.measured import SweepError, read
from ci.sweeps.run import SweepPlan
from ci.sweeps.rungs import Rungs
from ci.trials.file import read as read_file
from tests.ci.made_trials import MACHINE, parsed, trial, write
from tests.ci.sweeps import driver
from tests.ci.sweeps.made_sweeps import line

ROOT = Path(__file__).parents[3]
LIMIT_S = 60.0


@pytest.fixture(autouse=True)
def stand_in(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(run, "command", driver.command)


def _started(out: Path) -> subprocess.Popen[str]:
    argv = [sys.executable, "-m", "tests.ci.sweeps.driver", str(out)]
    return subprocess.Popen(argv, cwd=ROOT, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True)


def _lines(out: Path) -> int:
    return out.read_bytes().count(b"\n") if out.exists() else 0


def _measured(out: Path) -> Counter[tuple[int, str]]:
    """How often each point was measured in each rung."""
    trials = read_file(out).trials
    return Counter((one.sweep.rung, id_) for one in trials if one.sweep for id_ in one.sweep.points)


def _wait(done, what: str) -> None:
    deadline = time.monotonic() + LIMIT_S
    while not done():
        assert time.monotonic() < deadline, what
        time.sleep(0.01)


@pytest.mark.slow
def test_killed_three_times_no_finished_point_is_measured_twice(tmp_path: Path) -> None:
    out = tmp_path / "sweep.jsonl"
    for lines in (2, 4, 7):
        killed = _started(out)
        _wait(lambda: _lines(out) >= lines, "a line")  # noqa: B023
        killed.send_signal(signal.SIGKILL)
        killed.wait()
    last = _started(out)
    assert last.communicate(timeout=LIMIT_S)[0].strip() == "complete"
    assert set(_measured(out).values()) == {1}
    assert sum(1 for rung, _ in _measured(out) if rung == 0) == len(driver.WARPS)
    [best] = show.rankings(read([out]))
    assert best.winner.knobs == "num_warps=5"
    starts = [int(pid) for pid in (tmp_path / "starts").read_text().split()]
    assert len(starts) >= 4
    assert not [pid for pid in starts if lifetime.lives(pid)], "nothing that was left behind still measures"


def test_what_a_killed_call_left_behind_is_ended_first(tmp_path: Path) -> None:
    plan = driver.plan(tmp_path / "sweep.jsonl")
    marked = {**os.environ, alone.MARK: str(plan.out.resolve())}
    left = subprocess.Popen([sys.executable, "-c", "import time; time.sleep(60)"], env=marked)
    other = subprocess.Popen([sys.executable, "-c", "import time; time.sleep(60)"])
    try:
        _wait(lambda: alone.job.marked(str(plan.out.resolve()), alone.MARK), "the process has its environment")
        run.measure(plan, Console(quiet=True))
        assert left.wait(LIMIT_S) == -signal.SIGKILL
        assert other.poll() is None
        assert alone.MARK not in os.environ
    finally:
        left.kill()
        other.kill()


def test_what_is_complete_is_not_started_again(tmp_path: Path) -> None:
    plan = driver.plan(tmp_path / "sweep.jsonl")
    first = run.run(plan, Console(quiet=True))
    starts = (tmp_path / "starts").read_text()
    assert run.run(plan, Console(quiet=True)).frame.equals(first.frame)
    assert (tmp_path / "starts").read_text() == starts
    assert starts.count("\n") == 3, "one start for each rung"


@pytest.mark.slow
def test_more_points_are_added_to_what_there_is(tmp_path: Path) -> None:
    plan = driver.plan(tmp_path / "sweep.jsonl")
    some = dataclasses.replace(plan.pruned, kept={"m16": plan.pruned.kept["m16"][:4]})
    run.run(dataclasses.replace(plan, pruned=some), Console(quiet=True))
    run.run(plan, Console(quiet=True))
    assert {count for (rung, _), count in _measured(plan.out).items() if rung == 0} == {1}


def test_a_budget_ends_it_and_says_what_is_left(tmp_path: Path) -> None:
    plan = driver.plan(tmp_path / "sweep.jsonl", budget_min=1.2 / 60)
    ended = run.measure(plan, Console(quiet=True))
    assert ended.left is not None
    assert "budget of 0.02 GPU minutes is spent" in ended.why
    assert run.measure(dataclasses.replace(plan, budget_min=None), Console(quiet=True)).left is None
    assert set(_measured(plan.out).values()) == {1}


@pytest.mark.slow
def test_shards_measure_every_point_once_and_the_finals_follow(tmp_path: Path) -> None:
    outs = [tmp_path / f"{number}.jsonl" for number in (1, 2, 3)]
    for number, out in enumerate(outs, 1):
        run.run(driver.plan(out, shard=(number, 3), finals=False), Console(quiet=True))
    first = [{id_ for rung, id_ in _measured(out) if rung == 0} for out in outs]
    assert all(not a & b for a, b in itertools.combinations(first, 2))
    assert sum(map(len, first)) == len(driver.WARPS)
    assert max(rung for out in outs for rung, _ in _measured(out)) == 1
    plan = driver.plan(tmp_path / "all.jsonl", earlier=tuple(outs))
    ended = run.measure(plan, Console(quiet=True))
    assert ended.left is None
    assert {rung for rung, _ in _measured(plan.out)} == {2}, "only the finals were left"
    [best] = show.rankings(ended.measured)
    assert best.winner.knobs == "num_warps=5"


def test_a_point_is_dealt_to_one_shard_whoever_else_is_there() -> None:
    whole = driver.plan(Path("x"))
    dealt = [dataclasses.replace(whole, shard=(k, 5)).dealt.get("m16", []) for k in range(1, 6)]
    assert sorted(point.label for own in dealt for point in own) == sorted(p.label for p in whole.dealt["m16"])
    fewer = dataclasses.replace(whole.pruned, kept={"m16": whole.pruned.kept["m16"][:5]})
    some = dataclasses.replace(whole, pruned=fewer, shard=(2, 5)).dealt.get("m16", [])
    assert set(some) <= set(dealt[1])


def _refused(plan: SweepPlan, words: str) -> None:
    with pytest.raises(SweepError, match=words):
        run.measure(plan, Console(quiet=True))


def test_a_file_of_something_else_is_left_alone(tmp_path: Path) -> None:
    _refused(driver.plan(write(tmp_path / "a.jsonl", trial())), "a trial that is of no sweep")
    _refused(driver.plan(write(tmp_path / "b.jsonl", line([], sweep="other"))), "a line of the sweep other")
    two = write(tmp_path / "c.jsonl", line([]), line([], batch=1, machine={**MACHINE, "name": "other-1"}))
    _refused(driver.plan(two), "lines of 2 origins.*are not mixed")


def test_two_calls_do_not_measure_into_one_file(tmp_path: Path) -> None:
    plan = driver.plan(tmp_path / "sweep.jsonl")
    with (tmp_path / ".sweep.jsonl.lock").open("w") as held:
        fcntl.flock(held, fcntl.LOCK_EX)
        _refused(plan, "is being measured by another call")


def test_a_program_that_measures_nothing_does_not_loop(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(run, "command", lambda plan, asked: [sys.executable, "-c", "pass"])
    ended = run.measure(driver.plan(tmp_path / "sweep.jsonl"), Console(quiet=True))
    assert ended.left.count == len(driver.WARPS)
    assert "wrote no line" in ended.why
    broken = "import sys; sys.exit('Error: no GPU here') if 0 else (print('no GPU here', file=sys.stderr), sys.exit(3))"
    monkeypatch.setattr(run, "command", lambda plan, asked: [sys.executable, "-c", broken])
    _refused(driver.plan(tmp_path / "sweep.jsonl"), "broke off .exit code 3.: no GPU here; what is finished is in")


def test_an_empty_plan_is_an_error(tmp_path: Path) -> None:
    plan = driver.plan(tmp_path / "sweep.jsonl")
    nothing = dataclasses.replace(plan, pruned=dataclasses.replace(plan.pruned, kept={}))
    with pytest.raises(SweepError, match="no point is left after pruning"):
        run.run(nothing, Console(quiet=True))


def test_the_first_lines_name_what_is_not_timed(tmp_path: Path) -> None:
    plan = driver.plan(tmp_path / "x", rungs=Rungs((8, 20)))
    kept = plan.pruned.kept["m16"]
    points = list(kept[:3])
    pruned = dataclasses.replace(
        plan.pruned,
        kept={"m16": points},
        equal={("m16", kept[5].label): points[1].label, ("m16", kept[6].label): "triton"},
        twins=(kept[5], kept[6]),
    )
    plan = dataclasses.replace(plan, pruned=pruned)
    seen = run.seen_in([parsed(line([]))], "gemm", "spaced")
    left = run.due(plan.dealt, plan.rungs_here, seen, plan.anchors)
    batches = plan.points_file(left).batches
    told = {one.point.label: one.same_as for batch in batches for one in batch.untimed}
    assert told == {kept[5].label: points[1].label, kept[6].label: "triton"}
    assert all(one.same_as in {p.label for p in b.points} | {"triton"} for b in batches for one in b.untimed)
