"""Changes of the machine code as events: one per commit, version of Triton and operator."""

from __future__ import annotations

import dataclasses
import hashlib
import itertools
import math
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path

import pandas as pd

from ci.history.commits import CommitOrder
from ci.history.events import decided
from ci.history.exact import MACHINE, CodeStep, RecordedCommit, sentences
from ci.history.health import readings
from ci.history.health.apart import RULES, HealthFinding, HealthPoint
from ci.history.health.machines import all_findings
from ci.history.triage import Triage
from ci.history.types import (
    Cause,
    CommitFacts,
    Direction,
    EventKind,
    EventPlace,
    EventState,
    HistoryEvent,
    Moved,
    SeriesKey,
)
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


# A machine that parts from its peers, as one event of the history; and what it explains of the other events.


JUDGED_BY = "peers"
"""What a health series is judged by (see `Moved.judged_by`)."""


def events(findings: Iterable[HealthFinding], commits: Mapping[str, CommitFacts]) -> list[HistoryEvent]:
    """One event for each stretch in which a device or machine was slower than its peers, oldest first.

    Stretches of one device that overlap in time are one event.  Heat, throttling and noise are its causes; alone they
    cost no time that was measured, so they stay findings of the machine's page.
    """
    by_who: dict[tuple[str, str], list[HealthFinding]] = defaultdict(list)
    for finding in findings:
        by_who[finding.machine, finding.who].append(finding)
    found = [
        _event(group, commits)
        for those in by_who.values()
        for group in _overlapping(those)
        if any(RULES[one.measure].costs_time for one in group)
    ]
    return sorted(found, key=lambda event: (event.first_bad.date_ms, event.machine, event.id))


def with_machines(
    history: Sequence[HistoryEvent],
    results: Path,
    frame: pd.DataFrame,
    commits: Mapping[str, CommitFacts],
    triage: Triage,
) -> tuple[HistoryEvent, ...]:
    """The events of a history and those of its machines' health, by the date of their first bad commit."""
    found = [_decided(event, triage) for event in events(all_findings(readings.load(results), frame), commits)]
    return tuple(sorted(joined(history, found), key=lambda one: (one.first_bad.date_ms, one.id)) if found else history)


def _decided(event: HistoryEvent, triage: Triage) -> HistoryEvent:
    """With what people decided about it; an event that ended by itself stays so."""
    entry = triage.entries.get(event.id)
    if entry is None:
        return event
    state = entry.state if event.state is EventState.OPEN else event.state
    return dataclasses.replace(event, state=state, owner=entry.owner, reason=entry.reason, link=entry.link)


def joined(history: Sequence[HistoryEvent], health: Sequence[HistoryEvent]) -> list[HistoryEvent]:
    """Both, each thing once.

    An event of the history on the same machine, from the same commit on and in the same direction, has the device as
    its likely cause.  A machine's event is the same thing then, so the health event is left out.
    """
    told, result = set[str](), list[HistoryEvent]()
    for event in history:
        reasons = [one for one in health if _explains(one, event)]
        if event.kind is EventKind.MACHINE:
            told |= {one.id for one in reasons}
        causes = tuple(cause for one in reasons for cause in one.causes)
        result.append(dataclasses.replace(event, causes=(*causes, *event.causes)) if causes else event)
    return [*result, *(one for one in health if one.id not in told)]


def _explains(health: HistoryEvent, event: HistoryEvent) -> bool:
    same = (health.machine, health.direction) == (event.machine, event.direction)
    first_bad = {event.first_bad.hash, *(one.first_bad for one in event.moved)}
    return same and event.kind is not EventKind.CODE and health.first_bad.hash in first_bad


def _overlapping(findings: Sequence[HealthFinding]) -> list[list[HealthFinding]]:
    """Findings of one device in groups that touch each other in time."""
    groups: list[list[HealthFinding]] = []
    end = 0.0
    for finding in sorted(findings, key=lambda one: one.since.at_ms):
        if groups and finding.since.at_ms <= end:
            groups[-1].append(finding)
        else:
            groups.append([finding])
        end = max(end, finding.ended.at_ms if finding.ended else float("inf"))
    return groups


def _event(group: Sequence[HealthFinding], commits: Mapping[str, CommitFacts]) -> HistoryEvent:
    slow = [one for one in group if RULES[one.measure].costs_time]
    first, worst = slow[0], max(slow, key=lambda one: one.ratio)
    lasting = any(one.ended is None for one in slow)
    ends = [one.ended for one in slow if one.ended]
    causes = tuple(Cause("machine", one.text) for one in (*slow, *(one for one in group if one not in slow)))
    return HistoryEvent(
        _id(first),
        EventKind.MACHINE,
        Direction.SLOWER,
        first.machine,
        tuple(map(_moved_by_health, slow)),
        _facts(first.since, commits),
        _facts(first.before or first.since, commits),
        between=0,
        ratio=worst.ratio,
        ratio_low=min(one.ratio_low for one in slow),
        ratio_high=max(one.ratio_high for one in slow),
        p_value=min(one.p_value for one in slow),
        causes=causes,
        state=EventState.OPEN if lasting else EventState.RECOVERED,
        ended_at=None if lasting else _facts(max(ends, key=lambda one: one.at_ms), commits),
    )


def _moved_by_health(finding: HealthFinding) -> Moved:
    key = SeriesKey(finding.machine, "machine health", finding.who, str(finding.measure))
    step = Step(0, finding.peers, finding.value, finding.ratio, finding.ratio_low, finding.ratio_high, finding.p_value)
    last_good = finding.before.commit if finding.before else ""
    return Moved(key, step, Direction.SLOWER, JUDGED_BY, finding.since.commit, last_good)


def _facts(point: HealthPoint, commits: Mapping[str, CommitFacts]) -> CommitFacts:
    return CommitFacts.of(point.commit, point.at_ms, commits)


def _id(finding: HealthFinding) -> str:
    """The same however much history follows."""
    parts = (finding.machine, finding.who, str(finding.measure), str(finding.since.at_ms), finding.since.commit)
    return hashlib.sha256("|".join(parts).encode()).hexdigest()[:10]
