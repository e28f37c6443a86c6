"""Lanes: one is timed while the others rest; who needs much memory waits for room; stopping leaves none behind."""

from __future__ import annotations

import os
import sys
import threading
import time
import traceback
from concurrent.futures import ThreadPoolExecutor

import pytest

from benchmarks.coordinator import lanes, ranks
from benchmarks.coordinator.checkouts import Checkout
from benchmarks.coordinator.lanes import (
    BY_ITSELF,
    LANES_VARIABLE,
    PHASES,
    Quiet,
    SecondsLedger,
    SideBySide,
    Stopped,
    phase,
)
from benchmarks.coordinator.orders import PlannedTrial
from benchmarks.coordinator.trial import measure
from benchmarks.plan import PlannedArm, PlannedCase, Protocol, Selection, UsageError
from benchmarks.worker.requests import CASE_STEPS, Service
from benchmarks.worker.scripts.interception import STEPS
from tests.kit import HANGS_S, until


@pytest.fixture
def others():
    with ThreadPoolExecutor(8) as executor:
        yield executor


def resting(future):
    """Whether a thread waits in a lane, once it does that or has ended."""
    until(lambda: future.done() or _waits(future))
    return not future.done()


def _waits(future):
    """Whether the thread that runs it is in Quiet._wait."""
    for frame in sys._current_frames().values():
        stack = [one for one, _ in traceback.walk_stack(frame)]
        if any(one.f_code.co_name == "run" and _future_of(one) is future for one in stack):
            return any(one.f_code is Quiet._wait.__code__ for one in stack)
    return False


def _future_of(frame):
    """The future of the item of work that a frame of concurrent.futures runs."""
    return getattr(frame.f_locals.get("self"), "future", None)


def times(quiet, timed):
    with quiet.lane(lambda: 0), quiet.alone():
        timed.wait(HANGS_S)


def test_while_one_is_timed_no_other_does_anything(others):
    quiet, at_work, seen = Quiet(), [0], []
    lock = threading.Lock()

    def works():
        with lock:
            at_work[0] += 1
        time.sleep(0.001)
        with lock:
            at_work[0] -= 1

    def trial():
        with quiet.lane(lambda: 0):
            for _ in range(20):
                quiet.pause()
                works()
                with quiet.alone():
                    seen.append(at_work[0])
                    works()
                    seen.append(at_work[0])

    for done in [others.submit(trial) for _ in range(6)]:
        done.result(HANGS_S)
    assert seen == [0] * 240


def test_a_lane_at_work_is_waited_for_and_one_that_pauses_too_late_waits(others, monkeypatch):
    monkeypatch.setattr(lanes, "PATIENCE_S", 0.2)
    quiet, request, timed, paused = Quiet(), threading.Event(), threading.Event(), []

    def prepares():
        with quiet.lane(lambda: 0):
            quiet.pause()
            paused.append("before anybody wanted to be timed")
            until(lambda: quiet._wanting == 1)
            quiet.pause()
            paused.append("soon after")
            request.wait(HANGS_S)
            quiet.pause()
            paused.append("when all was done")

    first = others.submit(prepares)
    until(lambda: len(quiet._lanes) == 1)
    second = others.submit(times, quiet, timed)
    until(lambda: len(paused) == 2)
    time.sleep(0.25)
    request.set()
    assert resting(first), "it stops at its next request"
    assert len(paused) == 2
    assert not quiet._at_work
    assert not second.done()
    timed.set()
    assert first.result(HANGS_S) is second.result(HANGS_S) is None
    assert paused[-1] == "when all was done"


@pytest.mark.parametrize("needs", [60, 200, BY_ITSELF])
def test_what_finds_no_room_waits_and_what_comes_later_does_not_go_first(others, needs):
    quiet, order = Quiet(room=100), []

    def enters(name, wanted):
        with quiet.lane(lambda: wanted) as lane:
            order.append((name, lane.beside))

    with quiet.lane(lambda: 50) as first:
        large = others.submit(enters, "large", needs)
        until(lambda: len(quiet._queue) == 1)
        small = others.submit(enters, "small", 10)
        assert resting(large)
        assert resting(small)
        assert not first.beside
    large.result(HANGS_S)
    small.result(HANGS_S)
    assert [name for name, _ in order] == ["large", "small"]
    assert not order[0][1] or needs == 60


def test_stopping_ends_every_wait_and_every_next_request(others):
    quiet = Quiet(room=100)

    def waits_for_room():
        with quiet.lane(lambda: BY_ITSELF):
            pass

    def wants_to_be_timed():
        with quiet.lane(lambda: 0), quiet.alone():
            pass

    with quiet.lane(lambda: 0):
        timed = others.submit(wants_to_be_timed)
        until(lambda: quiet._wanting == 1)
        queued = others.submit(waits_for_room)
        until(lambda: len(quiet._queue) == 1)
        quiet.stop()
        for stopped in (timed, queued):
            assert isinstance(stopped.exception(HANGS_S), Stopped)
        for call in (quiet.pause, quiet.refuse):
            with pytest.raises(Stopped):
                call()
    assert not quiet._lanes
    assert not quiet._at_work


# Where the seconds go: each to the request in flight, none twice, and what is left to the coordinator.


class Clock:
    def __init__(self):
        self.now = 100.0

    def __call__(self):
        return self.now


@pytest.fixture
def clock():
    return Clock()


def spend(ledger, clock, op, seconds, **fields):
    ledger.sent("pool", op, fields)
    clock.now += seconds
    ledger.answered("pool")


def opened(clock):
    ledger = SecondsLedger(clock)
    ledger.open()
    return ledger


def test_the_seconds_of_trials_side_by_side_add_up_to_those_of_the_clock(clock):
    """One prepares for 4 s; beside its second and third a second one is under way, which is timed in the third."""
    ledger, other = opened(clock), ThreadPoolExecutor(1)
    ledger.sent("a", "case", {})
    clock.now += 1.0
    assert other.submit(ledger.open).result() == 0.0
    other.submit(ledger.sent, "b", "join", {}).result()
    clock.now += 1.0
    other.submit(ledger.answered, "b").result()
    ledger.answered("a")
    other.submit(ledger.sent, "b", "samples", {}).result()
    clock.now += 1.0
    other.submit(ledger.answered, "b").result()
    assert other.submit(ledger.close).result() == (1.5, {"start": 0.5, "rounds": 1.0})
    spend(ledger, clock, "case", 1.0)
    assert ledger.close() == (2.5, {"inputs": 2.5})


def test_who_waits_for_a_compiler_takes_no_share_of_who_is_timed(clock):
    ledger, other = opened(clock), ThreadPoolExecutor(1)
    ledger.sent("a", "serve", {})
    clock.now += 1.0
    other.submit(ledger.open).result()
    other.submit(ledger.sent, "b", "samples", {}).result()
    clock.now += 2.0
    other.submit(ledger.answered, "b").result()
    assert other.submit(ledger.close).result() == (2.0, {"rounds": 2.0})
    ledger.answered("a")
    assert ledger.close() == (1.0, {"compiling": 1.0})
    ledger.lost(1.0)
    assert ledger.open() == 1.0


def test_every_request_of_a_case_has_a_phase():
    joining = {"join", "case", "quit", "serve"}  # the last of processes that compile
    assert {*CASE_STEPS, *STEPS, *joining, "resume"} == PHASES.keys()
    assert all(hasattr(Service, f"do_{op}") for op in joining)
    assert phase("new", {}) == "new"


# Trials side by side: how many, what is at work while one is timed, whose a fault is, and what stays when it ends.


QUICK = Protocol(rounds=4, trials=3, deadline_s=30.0)
SMALL = Selection(cases=("small",))
TIMED = ("samples", "whole", "tune")
"""Requests during which nothing else may be at work."""


@pytest.fixture
def three_lanes(monkeypatch):
    """As on a GPU."""
    monkeypatch.setenv(LANES_VARIABLE, "3")


class Requests:
    """Every request to measuring processes: (trial's thread, op, begin, end)."""

    def __init__(self, monkeypatch):
        self.seen = []
        begun = {}
        post, collect = ranks.WorkerPool.post, ranks.WorkerPool.collect

        def posts(pool, step, limit_s, op, *rest, **fields):
            begun[pool] = threading.get_ident(), op, time.monotonic()
            post(pool, step, limit_s, op, *rest, **fields)

        def collects(pool):
            try:
                return collect(pool)
            finally:
                self.seen.append((*begun.pop(pool), time.monotonic()))

        monkeypatch.setattr(ranks.WorkerPool, "post", posts)
        monkeypatch.setattr(ranks.WorkerPool, "collect", collects)

    def beside(self, ops):
        """Pairs of requests of different trials at the same time, the first of them one of `ops`."""
        return [
            (one, other)
            for thread, one, begin, end in self.seen
            for others, other, from_, to in self.seen
            if one in ops and thread != others and from_ < end and begin < to
        ]


@pytest.mark.slow
def test_nothing_is_at_work_beside_samples_and_much_beside_the_rest(toy_tree, three_lanes, monkeypatch):
    requests = Requests(monkeypatch)
    lines = list(measure(["steady"], [Checkout(role, toy_tree(role)) for role in ("base", "head")], QUICK, None, SMALL))
    assert sorted(line["trial"] for line in lines) == [0, 1, 2]
    for line in lines:
        arms = line["cases"]["small"]["arms"]
        assert {arm["status"] for arm in arms.values()} == {"ok", "unsupported"}
        assert all(len(arm["seconds"]) == 4 for arm in arms.values() if "seconds" in arm)
    assert requests.beside(TIMED) == []
    assert {other for _, other in requests.beside(("join", "case", "build", "check"))} & {"join", "case", "build"}


TUNING = """
@steady.backend("ours", config=lambda case, arch: {"tile": 16}, tries=lambda case, arch: [("library", {})])
def ours(case, inputs, *, tile=8, order="rows"):
    out, call = doubled(inputs)

    class Chosen:
        def tune(self):
            log("tune", case.name)

        def __call__(self):
            return call()

    return Chosen()

def another("""


@pytest.mark.slow
def test_what_chooses_by_times_does_so_with_nothing_else_at_work(toy_tree, toy_log, three_lanes, monkeypatch):
    requests = Requests(monkeypatch)
    declared = '@steady.backend("ours", config=lambda case, arch: {"tile": 16})\ndef ours('
    tree = toy_tree("tree", replace={declared: TUNING})
    lines = list(measure(["steady"], [Checkout("head", tree)], QUICK, None, SMALL))
    assert {line["cases"]["small"]["arms"]["head/ours"]["status"] for line in lines} == {"ok"}
    assert toy_log.read_text().count("tune") == sum(op == "tune" for _, op, _, _ in requests.seen) == len(lines)
    assert requests.beside(TIMED) == []


def test_what_one_raises_ends_the_others():
    quiet, stopped = Quiet(), []

    def works():
        try:
            with quiet.lane(lambda: 0):
                while True:
                    quiet.pause()
                    time.sleep(0.001)
        except BaseException as error:
            stopped.append(type(error).__name__)
            raise

    def fails():
        raise OSError("no disk")

    with pytest.raises(OSError, match="no disk"):
        list(lanes.run([works, works, fails, works], 3, quiet))
    assert len(stopped) >= 2, "the fourth may have begun"
    assert set(stopped) == {"Stopped"}


def needing(**arm):
    """A case of 10 bytes whose only arm has these fields."""
    return (PlannedCase("c", 1, (PlannedArm("head", "a", **arm),), "graph", memory_bytes=10),)


def test_what_would_keep_others_waiting_has_no_other_beside_it():
    """A library that compiles itself at its first use, as long as it has not; ranks that choose their heap's home."""
    quiet, beside = Quiet(room=100), {}

    def trial(one):
        [lane] = [lane for lane in quiet._lanes if lane.needs != 1]
        beside[one.kernel, one.number] = lane.needs
        return {"ahead_s": 0.0, "duration_s": 0.0, "kernel": one.kernel}

    wanted = [
        PlannedTrial("plain", 0, needing(first_call_s=60.0)),  # it is not installed
        PlannedTrial("builds", 0, needing(first_call_s=60.0, libraries="humming 0.1")),
        PlannedTrial("builds", 1, needing(first_call_s=60.0, libraries="humming 0.1")),
        PlannedTrial("ranks", 0, (PlannedCase("w2", 2, (), "graph", memory_bytes=10),)),
        PlannedTrial("ranks", 1, (PlannedCase("w2", 2, (), "graph", memory_bytes=10),)),
        PlannedTrial("skipped", 0, (PlannedCase("w2", 2, (), "graph", skip="one GPU", memory_bytes=10),)),
    ]

    def undecided(one):
        return one.kernel == "ranks" and ("ranks", 0) not in beside and ("ranks", 1) not in beside

    lanes_of = SideBySide(quiet, {}, lambda line: True, lambda seconds: None, undecided)
    assert len(list(lanes_of.lines(trial, wanted, 1))) == 6
    assert beside == {
        ("plain", 0): 10,
        ("builds", 0): BY_ITSELF,
        ("builds", 1): 10,
        ("ranks", 0): BY_ITSELF,
        ("ranks", 1): 10,
        ("skipped", 0): 0,
    }


def test_a_line_that_is_not_sound_is_measured_again_by_itself_and_its_seconds_are_told():
    quiet, lost, alone, hung, both = Quiet(room=100), [], [], [], threading.Barrier(2)
    known = {"bad": {("c", "head/a"): "hung before"}}

    def trial(one):
        again = bool(alone)
        if not again:
            both.wait(HANGS_S)
        if one.kernel == "bad":
            hung.append(known["bad"])
            alone.append(len(quiet._lanes) == 1)
            known["bad"] = {("c", "head/b"): "hung beside others"}
        if not again:
            both.wait(HANGS_S)
        return {"ahead_s": 1.0, "duration_s": 2.0, "kernel": one.kernel, "again": again}

    wanted = [PlannedTrial("bad", 0, needing()), PlannedTrial("good", 0, needing())]
    lanes_of = SideBySide(quiet, known, lambda line: line["kernel"] != "bad", lost.append, lambda one: False)
    lines = {line["kernel"]: line for line in lanes_of.lines(trial, wanted, 2)}
    assert lines["bad"]["again"]
    assert not lines["good"]["again"]
    assert alone == [False, True]
    assert hung[1] == hung[0], "what hung beside others is tried by itself"
    assert lost == [3.0]


@pytest.mark.parametrize(
    ("kind", "cores", "processes", "load", "wanted"),
    [
        ("gpu", 16, 1, 0.0, 8),
        ("gpu", 16, 2, 0.0, 4),
        ("gpu", 16, 2, 4.0, 3),
        ("gpu", 4, 2, 0.0, 1),
        ("cpu", 64, 1, 0.0, 1),
    ],
)
def test_free_cores_decide_how_many(monkeypatch, tmp_path, kind, cores, processes, load, wanted):
    monkeypatch.delenv(LANES_VARIABLE, raising=False)
    monkeypatch.setattr(os, "getloadavg", lambda: (load, 0.0, 0.0))
    monkeypatch.setattr(os, "cpu_count", lambda: 16)
    monkeypatch.setattr(lanes, "QUOTA", tmp_path / "none")
    assert lanes.how_many(kind, cores, processes) == wanted


def test_a_quota_of_the_container_counts(monkeypatch, tmp_path):
    monkeypatch.delenv(LANES_VARIABLE, raising=False)
    monkeypatch.setattr(os, "getloadavg", lambda: (0.0, 0.0, 0.0))
    monkeypatch.setattr(lanes, "QUOTA", tmp_path / "cpu.max")
    for written, wanted in (("200000 100000\n", 1), ("400000 100000\n", 2), ("max 100000\n", 16)):
        lanes.QUOTA.write_text(written)
        assert lanes.how_many("gpu", 64, 1) == wanted


def test_what_is_asked_for_must_be_a_number(monkeypatch):
    monkeypatch.setenv(LANES_VARIABLE, "2")
    assert lanes.how_many("cpu", 1, 2) == 2
    for wrong in ("0", "17", "many", "-1", "1.5"):
        monkeypatch.setenv(LANES_VARIABLE, wrong)
        with pytest.raises(UsageError, match=r"from 1 to 16"):
            lanes.how_many("gpu", 64, 1)
