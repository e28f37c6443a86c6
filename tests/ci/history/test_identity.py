"""Ids: one per event, found again near the place of a decision, the same however much history follows."""

from __future__ import annotations

import pytest

from ci.history.analysis import analyse
from ci.history.types import Direction, EventKind, EventPlace, ids
from tests.ci.history.made import Line, commit, facts, frame, noisy

ORDER = {"m": {commit(number): number for number in range(20)}}


def place(number: int, direction: Direction = Direction.SLOWER, machine: str = "m") -> EventPlace:
    return EventPlace(machine, EventKind.KERNEL, direction, commit(number))


def test_the_nearest_known_id_is_taken_once() -> None:
    known = {"a" * 10: place(5), "b" * 10: place(7), "c" * 10: place(5, Direction.FASTER)}
    found = ids([place(6), place(7), place(10)], known, ORDER)
    assert found == ["a" * 10, "b" * 10, place(10).id]
    assert ids([place(8), place(6)], {"a" * 10: place(7)}, ORDER) == ["a" * 10, place(6).id]
    assert ids([place(8)], {"a" * 10: place(11)}, ORDER) == [place(8).id]


def test_a_decision_on_a_commit_that_is_gone_is_no_hindrance() -> None:
    known = {"a" * 10: place(99), "b" * 10: place(5, machine="other")}
    assert ids([place(5)], known, ORDER) == [place(5).id]


def test_no_two_events_share_an_id() -> None:
    found = ids([place(5), place(5), place(5)], {}, ORDER)
    assert len(set(found)) == 3
    assert found[0] == place(5).id


@pytest.mark.parametrize("seed", range(6))
def test_the_id_of_a_noisy_step_stays_when_history_grows(seed: int) -> None:
    line = Line("gemm", "c", noisy(seed, 120, {50: 1.05}, sigma=0.02))
    found = set()
    for count in range(60, 121, 5):
        grown = Line(line.kernel, line.case, line.seconds[:count])
        found |= {event.id for event in analyse(frame([grown]), commits=facts(120)).events}
    assert len(found) == 1
