"""Events with what experiments have shown about them, and the words that every place has for them."""

from __future__ import annotations

import dataclasses
import json

import pytest

from ci.history import words
from ci.history.reading import with_explanations
from ci.history.types import Cause, CommitFacts, Direction, EventKind, EventState, HistoryEvent, Moved, SeriesKey
from ci.records.ledger import Explanation, RecordedCause
from ci.stats.types import Step

ROW = [f"{number:040x}" for number in range(6)]
KNOWN = {commit: CommitFacts(commit, number) for number, commit in enumerate(ROW)}
CASE = "gemm/triton/m64"
SHOWN = Explanation((CASE,), CASE, "proven", "knob a 1 → 2: proven")
MOVED = Moved(
    SeriesKey("m", "gemm", "triton", "m64"), Step(3, 1.0, 1.1, 1.1, 1.09, 1.11, 0.0), Direction.SLOWER, "ratio",
    ROW[4], ROW[1],
)  # fmt: skip
EVENT = HistoryEvent(
    "e", EventKind.KERNEL, Direction.SLOWER, "m", (MOVED,), KNOWN[ROW[4]], KNOWN[ROW[1]], 2, 1.1, 1.09, 1.11,
    0.0, (Cause("code", "vgpr 1 → 2"),),
)  # fmt: skip


def recorded(base: int, head: int, machine: str = "m", **changes: object) -> RecordedCause:
    return RecordedCause(machine, ROW[base], ROW[head], dataclasses.replace(SHOWN, **changes))  # type: ignore[arg-type]


@pytest.mark.parametrize("ends", [(1, 4), (2, 3), (1, 2), (3, 4)])
def test_what_was_shown_within_the_range_is_the_first_cause(ends: tuple[int, int]) -> None:
    (found,) = with_explanations([EVENT], [recorded(*ends)], KNOWN)
    assert found.causes == (Cause("proven", SHOWN.sentence), *EVENT.causes)
    assert found.explanations == (SHOWN,)
    assert json.loads(json.dumps(found.as_json()))["explanations"][0]["state"] == "proven"


@pytest.mark.parametrize(
    "one",
    [
        recorded(0, 4),
        recorded(1, 5),
        recorded(3, 2),
        recorded(1, 4, machine="other"),
        recorded(1, 4, cases=("gemm/triton/m16",)),
    ],
    ids=["begins earlier", "ends later", "backwards", "another machine", "another case"],
)
def test_what_was_shown_elsewhere_says_nothing(one: RecordedCause) -> None:
    assert with_explanations([EVENT], [one], KNOWN) == (EVENT,)


def test_what_was_not_found_is_no_cause_and_an_improvement_has_none() -> None:
    (found,) = with_explanations([EVENT], [recorded(1, 4, state="not found")], KNOWN)
    assert found.causes == EVENT.causes
    assert found.explanations
    faster = dataclasses.replace(EVENT, direction=Direction.FASTER)
    assert with_explanations([faster], [recorded(1, 4)], KNOWN) == (faster,)


# The words of an event.


def test_a_headline_says_what_moved_by_how_much_and_where() -> None:
    assert words.headline(EVENT) == "gemm, triton slower: +10.0 % [+9.0, +11.0], m64 on m"
    library = dataclasses.replace(EVENT, kind=EventKind.LIBRARY)
    assert words.headline(library) == "gemm: the library triton became slower: +10.0 % [+9.0, +11.0], m64 on m"


def test_who_and_what_may_be_to_blame() -> None:
    commit = CommitFacts("f" * 40, 0, "A. Author", "Faster tiles", 12)
    event = dataclasses.replace(EVENT, first_bad=commit)
    assert words.since(event) == "since ffffffff Faster tiles #12 (A. Author); or one of 2 before it"
    assert words.narrowing(event) == "", "two commits are no wide range"
    wide = dataclasses.replace(event, between=86)
    assert words.narrowing(wide) == "ridgeline run 00000000..ffffffff --kernel gemm --case m64"
    for ended in (EventState.ACCEPTED, EventState.BACK):
        assert words.narrowing(dataclasses.replace(wide, state=ended)) == ""


def test_what_became_of_it() -> None:
    assert words.standing(EVENT) == "open"
    assert words.standing(dataclasses.replace(EVENT, owner="Ada")) == "open, acknowledged by Ada"
    accepted = dataclasses.replace(EVENT, state=EventState.ACCEPTED, owner="Ada", reason="worth it")
    assert words.standing(accepted) == "accepted by Ada: worth it"
    back = dataclasses.replace(EVENT, state=EventState.BACK, ended_at=KNOWN[ROW[5]])
    assert words.standing(back) == "back at 00000000"


def test_the_order_of_need() -> None:
    faster = dataclasses.replace(EVENT, id="f", direction=Direction.FASTER, ratio=0.5)
    larger = dataclasses.replace(EVENT, id="l", ratio=1.2)
    done = dataclasses.replace(EVENT, id="d", state=EventState.BACK)
    ordered = words.in_order_of_need([done, faster, EVENT, larger])
    assert [event.id for event in ordered] == ["l", "e", "f", "d"]
