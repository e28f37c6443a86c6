"""Changes of the machine code as events: one per commit, version of Triton and operator."""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterator, Sequence

from ci.history.commits import CommitOrder
from ci.history.events import decided
from ci.history.exact import MACHINE, CodeStep, RecordedCommit, sentences
from ci.history.identity import EventPlace
from ci.history.triage import Triage
from ci.history.types import Cause, Direction, EventKind, EventState, HistoryEvent, Moved, SeriesKey
from ci.stats.types import Step


def code_events(code: Sequence[RecordedCommit], order: CommitOrder, triage: Triage) -> list[HistoryEvent]:
    """One event per recorded commit and operator whose code changed.

    They are ACCEPTED as they stand: the next commit is compared with the new code, and whether it is worse was judged
    at its pull request (`ridgeline isa`).  Here they explain what the times do.
    """
    return [event for number, one in enumerate(code) for event in _of_commit(one, number, order, triage)]


def _of_commit(record: RecordedCommit, number: int, order: CommitOrder, triage: Triage) -> Iterator[HistoryEvent]:
    for kernel, found in itertools.groupby(record.steps, key=lambda step: step.kernel):
        changed = list(found)
        ratio = math.exp(math.fsum(math.log(ratio_of(step)) for step in changed) / len(changed))
        way = Direction.SLOWER if ratio > 1 else Direction.FASTER
        part = f"{kernel} {record.env}"
        event_id = EventPlace(MACHINE, EventKind.CODE, way, record.commit, part).id
        event = HistoryEvent(
            id=event_id,
            kind=EventKind.CODE,
            direction=way,
            machine=MACHINE,
            moved=tuple(_moved(changed, record, number)),
            first_bad=order.facts(record.commit),
            last_good=order.facts(record.previous),
            between=order.between(record.previous, record.commit),
            ratio=ratio,
            ratio_low=ratio,
            ratio_high=ratio,
            p_value=0.0,
            causes=tuple(Cause("code", sentence) for sentence in sentences(changed)),
            state=EventState.ACCEPTED,
        )
        yield decided(event, triage.entries.get(event_id))


def _moved(changed: Sequence[CodeStep], record: RecordedCommit, number: int) -> Iterator[Moved]:
    """Of each backend and configuration the largest change; the sentences tell all of them."""
    largest: dict[tuple[str, str], CodeStep] = {}
    for step in sorted(changed, key=lambda step: -abs(math.log(ratio_of(step)))):
        for configuration in step.configurations:
            largest.setdefault((step.backend, configuration), step)
    for (backend, configuration), step in sorted(largest.items(), key=lambda pair: pair[0]):
        ratio = ratio_of(step)
        key = SeriesKey(MACHINE, step.kernel, backend, configuration)
        told = Step(number, step.before or 0.0, step.after or 0.0, ratio, ratio, ratio, 0.0)
        way = Direction.SLOWER if ratio > 1 else Direction.FASTER
        yield Moved(key, told, way, "code", record.commit, record.previous)


def ratio_of(step: CodeStep) -> float:
    """New count / old count; of counts that are or were 0 the ratio of the counts + 1, of a failure 1: it has none."""
    if step.before is None or step.after is None:
        return 1.0
    add = 0 if step.before and step.after else 1
    return (step.after + add) / (step.before + add)
