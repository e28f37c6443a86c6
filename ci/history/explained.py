"""What experiments have shown about an event: recorded explanations of commits within the range of its step."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping, Sequence

from ci.history.types import Cause, CommitFacts, Direction, HistoryEvent
from ci.records.ledger import Explanation, RecordedCause

SHOWN = {"proven": "proven", "partly": "partly proven"}
"""By the state of an explanation, the kind of the cause that an event names for it."""


def with_explanations(
    events: Sequence[HistoryEvent], causes: Sequence[RecordedCause], known: Mapping[str, CommitFacts]
) -> tuple[HistoryEvent, ...]:
    """Events with what is recorded of why they are slower; what is shown comes before what merely changed, too.

    known: commits in the order of the history (`ci.history.commits.read`).
    """
    if not causes:
        return tuple(events)
    place = {commit: number for number, commit in enumerate(known)}
    return tuple(_with(event, [one.explanation for one in causes if _about(one, event, place)]) for event in events)


def _with(event: HistoryEvent, found: Sequence[Explanation]) -> HistoryEvent:
    shown = tuple(Cause(SHOWN[one.state], one.sentence) for one in found if one.state in SHOWN)
    return dataclasses.replace(event, causes=(*shown, *event.causes), explanations=tuple(found)) if found else event


def _about(one: RecordedCause, event: HistoryEvent, place: Mapping[str, int]) -> bool:
    """Whether both commits lie within the event's range, and a case of it was slower between them."""
    if one.machine != event.machine or event.direction is not Direction.SLOWER:
        return False
    moved = {f"{key.kernel}/{key.backend}/{key.case}" for key in (step.key for step in event.moved)}
    if moved.isdisjoint(one.explanation.cases):
        return False
    ends = (event.last_good.hash, event.first_bad.hash)
    if (one.base, one.head) == ends:
        return True
    if not {one.base, one.head, *ends} <= place.keys():
        return False
    good, base, head, bad = (place[commit] for commit in (ends[0], one.base, one.head, ends[1]))
    return good <= base < head <= bad
