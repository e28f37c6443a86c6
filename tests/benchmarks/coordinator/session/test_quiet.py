"""Lanes: one is timed while the others rest; who needs much memory waits for room; stopping leaves none behind."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor

import pytest

from benchmarks.coordinator import lanes
from benchmarks.coordinator.lanes import BY_ITSELF, Quiet, Stopped

PATIENCE_S = 30.0


@pytest.fixture
def others() -> Iterator[ThreadPoolExecutor]:
    with ThreadPoolExecutor(8) as executor:
        yield executor


def soon(is_so: Callable[[], bool]) -> None:
    until = time.monotonic() + PATIENCE_S
    while not is_so():
        assert time.monotonic() < until
        time.sleep(0.001)


def resting(future: Future[None]) -> bool:
    """Whether a thread is still waiting after it had time to go on."""
    time.sleep(0.05)
    return not future.done()


def test_while_one_is_timed_no_other_does_anything(others):
    quiet, at_work, seen = Quiet(), [0], []
    lock = threading.Lock()

    def works() -> None:
        with lock:
            at_work[0] += 1
        time.sleep(0.001)
        with lock:
            at_work[0] -= 1

    def trial() -> None:
        with quiet.lane(0):
            for _ in range(20):
                quiet.pause()
                works()
                with quiet.alone():
                    seen.append(at_work[0])
                    works()
                    seen.append(at_work[0])

    for done in [others.submit(trial) for _ in range(6)]:
        done.result(PATIENCE_S)
    assert seen == [0] * 240


def test_a_lane_at_work_is_waited_for_and_one_that_pauses_too_late_waits(others, monkeypatch):
    monkeypatch.setattr(lanes, "PATIENCE_S", 0.2)
    quiet, request, timed, paused = Quiet(), threading.Event(), threading.Event(), []

    def prepares() -> None:
        with quiet.lane(0):
            quiet.pause()
            paused.append("before anybody wanted to be timed")
            soon(lambda: quiet._wanting == 1)
            quiet.pause()
            paused.append("soon after")
            request.wait(PATIENCE_S)
            quiet.pause()
            paused.append("when all was done")

    def times() -> None:
        with quiet.lane(0), quiet.alone():
            timed.wait(PATIENCE_S)

    first = others.submit(prepares)
    soon(lambda: len(quiet._lanes) == 1)
    second = others.submit(times)
    soon(lambda: len(paused) == 2)
    time.sleep(0.25)
    request.set()
    assert resting(first), "it stops at its next request"
    assert len(paused) == 2
    assert not quiet._at_work
    assert not second.done()
    timed.set()
    assert first.result(PATIENCE_S) is second.result(PATIENCE_S) is None
    assert paused[-1] == "when all was done"


@pytest.mark.parametrize(("most_s", "goes_on"), [(PATIENCE_S, True), (0.0, False)])
def test_beside_a_long_request_others_go_on_for_a_while(others, monkeypatch, most_s, goes_on):
    monkeypatch.setattr(lanes, "PATIENCE_S", 0.0)
    monkeypatch.setattr(lanes, "MOST_PATIENCE_S", most_s)
    quiet, long, timed = Quiet(), threading.Event(), threading.Event()

    def has_a_long_request() -> None:
        with quiet.lane(0):
            quiet.pause()
            long.wait(PATIENCE_S)

    def times() -> None:
        with quiet.lane(0), quiet.alone():
            timed.wait(PATIENCE_S)

    def prepares() -> None:
        with quiet.lane(0):
            soon(lambda: quiet._wanting == 1)
            time.sleep(lanes.LONG_S + 0.05)
            quiet.pause()

    first, third = others.submit(has_a_long_request), others.submit(prepares)
    soon(lambda: len(quiet._lanes) == 2)
    second = others.submit(times)
    soon(lambda: quiet._wanting == 1)
    time.sleep(lanes.LONG_S + 0.05)
    assert resting(third) is not goes_on
    assert not second.done()
    long.set()
    soon(lambda: quiet._timing)
    timed.set()
    for one in (first, second, third):
        one.result(PATIENCE_S)


def test_those_that_have_come_to_their_samples_take_them_one_after_the_other(others):
    quiet, order, ready = Quiet(), [], threading.Barrier(4)

    def trial(name: str) -> None:
        with quiet.lane(0):
            ready.wait(PATIENCE_S)
            time.sleep(0.02)
            with quiet.alone():
                order.append(f"{name} timed")
                time.sleep(0.02)
            order.append("prepares")

    for done in [others.submit(trial, name) for name in "abcd"]:
        done.result(PATIENCE_S)
    assert order[4:] == ["prepares"] * 4


def test_outside_of_a_lane_nothing_is_waited_for():
    quiet = Quiet()
    quiet.pause()
    with quiet.alone(), quiet.alone():
        assert not quiet.in_lane()
    with quiet.lane(0) as lane:
        with quiet.alone(), quiet.alone():
            quiet.pause()
        assert quiet.in_lane()
    assert not lane.beside


@pytest.mark.parametrize("needs", [60, 200, BY_ITSELF])
def test_what_finds_no_room_waits_and_what_comes_later_does_not_go_first(others, needs):
    quiet, order = Quiet(room=100), []

    def enters(name: str, wanted: float) -> None:
        with quiet.lane(wanted) as lane:
            order.append((name, lane.beside))

    with quiet.lane(50) as first:
        large = others.submit(enters, "large", needs)
        soon(lambda: len(quiet._queue) == 1)
        small = others.submit(enters, "small", 10)
        assert resting(large)
        assert resting(small)
        assert not first.beside
    large.result(PATIENCE_S)
    small.result(PATIENCE_S)
    assert [name for name, _ in order] == ["large", "small"]
    assert not order[0][1] or needs == 60


def test_each_knows_whether_another_was_ever_beside_it(others):
    quiet = Quiet(room=100)
    with quiet.lane(50) as one:

        def enters() -> bool:
            with quiet.lane(50) as two:
                return two.beside

        assert others.submit(enters).result(PATIENCE_S)
    assert one.beside


def test_stopping_ends_every_wait_and_every_next_request(others):
    quiet = Quiet(room=100)

    def waits_for_room() -> None:
        with quiet.lane(BY_ITSELF):
            pass

    def wants_to_be_timed() -> None:
        with quiet.lane(0), quiet.alone():
            pass

    with quiet.lane(0):
        timed = others.submit(wants_to_be_timed)
        soon(lambda: quiet._wanting == 1)
        queued = others.submit(waits_for_room)
        soon(lambda: len(quiet._queue) == 1)
        quiet.stop()
        for stopped in (timed, queued):
            assert isinstance(stopped.exception(PATIENCE_S), Stopped)
        for call in (quiet.pause, quiet.refuse):
            with pytest.raises(Stopped):
                call()
    assert not quiet._lanes
    assert not quiet._at_work
