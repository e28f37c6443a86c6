"""Events of the history with what experiments have shown about them."""

from __future__ import annotations

import dataclasses
import json

import pytest

from ci.history.reading import with_explanations
from ci.history.types import Cause, CommitFacts, Direction, EventKind, HistoryEvent, Moved, SeriesKey
from ci.records.ledger import Explanation, RecordedCause
from ci.stats.types import Step

COMMITS = [f"{number:040x}" for number in range(6)]
KNOWN = {commit: CommitFacts(commit, number) for number, commit in enumerate(COMMITS)}
CASE = "gemm/triton/m64"
SHOWN = Explanation((CASE,), CASE, "proven", "knob a 1 → 2: proven")
MOVED = Moved(
    SeriesKey("m", "gemm", "triton", "m64"), Step(3, 1.0, 1.1, 1.1, 1.09, 1.11, 0.0), Direction.SLOWER, "ratio",
    COMMITS[4], COMMITS[1],
)  # fmt: skip
EVENT = HistoryEvent(
    "e", EventKind.KERNEL, Direction.SLOWER, "m", (MOVED,), KNOWN[COMMITS[4]], KNOWN[COMMITS[1]], 2, 1.1, 1.09, 1.11,
    0.0, (Cause("code", "vgpr 1 → 2"),),
)  # fmt: skip


def recorded(base: int, head: int, machine: str = "m", **changes: object) -> RecordedCause:
    return RecordedCause(machine, COMMITS[base], COMMITS[head], dataclasses.replace(SHOWN, **changes))  # type: ignore[arg-type]


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


def test_the_same_two_commits_need_no_history() -> None:
    (found,) = with_explanations([EVENT], [recorded(1, 4)], {})
    assert found.explanations == (SHOWN,)
    assert with_explanations([EVENT], [recorded(2, 3)], {}) == (EVENT,)


def test_what_was_not_found_is_no_cause_and_an_improvement_has_none() -> None:
    (found,) = with_explanations([EVENT], [recorded(1, 4, state="not found")], KNOWN)
    assert found.causes == EVENT.causes
    assert found.explanations
    faster = dataclasses.replace(EVENT, direction=Direction.FASTER)
    assert with_explanations([faster], [recorded(1, 4)], KNOWN) == (faster,)
