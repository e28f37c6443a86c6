"""Everything that happened, as events: steps that belong together, code, machines, configurations."""

from __future__ import annotations

import dataclasses
import hashlib
import itertools
import math
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

from ci.history import types
from ci.history.configurations import Beaten, SweptCase, better_knobs, stretches
from ci.history.exact import MACHINE, CodeStep, RecordedCommit, Surroundings, sentences
from ci.history.finding import places
from ci.history.grouping import Ending, MovedWork, StepGroup, moved_work, outcome
from ci.history.health import RULES, HealthFinding, HealthPoint
from ci.history.series import MeasuredPlaces, root
from ci.history.triage import Triage, TriageEntry
from ci.history.types import (
    LENGTH,
    Cause,
    CommitFacts,
    CommitOrder,
    Direction,
    EventKind,
    EventPlace,
    EventState,
    HistoryEvent,
    Moved,
    SeriesKey,
)
from ci.stats.types import Step


def told(
    groups: Sequence[StepGroup], around: Surroundings, steps: Sequence[Sequence[Step]], triage: Triage
) -> list[HistoryEvent]:
    """The events of groups, without those that are only the way back or the other half of another one."""
    names = _names(groups, places(groups, around.tracks), around, triage)
    entries = {n: entry for n, name in enumerate(names) if (entry := _entry(name, groups[n], around.order, triage))}
    accepted = {number for number, entry in entries.items() if entry.state is EventState.ACCEPTED}
    ends = outcome(groups, MeasuredPlaces(around.tracks, around.order.place), steps, accepted)
    moves = moved_work(groups)
    halves = {move.faster for move in moves.values()} - set(entries)
    found = []
    for n, group in enumerate(groups):
        if n not in ends.way_back and n not in halves:
            event = _of_group(group, names[n], ends.endings[n], around)
            found.append(decided(_with_half(event, moves.get(n), groups, around), entries.get(n)))
    return found


def _names(groups: Sequence[StepGroup], told_first: Sequence[int], around: Surroundings, triage: Triage) -> list[str]:
    """The id of each group.  told_first: the place that each had at its first alarm."""
    commits = around.order.names
    first = zip(groups, told_first, strict=True)
    named = [EventPlace(root(g.machine, triage.renamed), g.kind, g.direction, commits[bad]) for g, bad in first]
    known = {name: place for name, entry in triage.entries.items() if (place := entry.place)}
    known = {name: dataclasses.replace(one, machine=root(one.machine, triage.renamed)) for name, one in known.items()}
    order = {
        root(machine, triage.renamed): {commits[place]: rank for rank, place in enumerate(those)}
        for machine, those in around.tracks.places_of.items()
    }
    return types.ids(named, known, order)


def _entry(name: str, group: StepGroup, order: CommitOrder, triage: Triage) -> TriageEntry | None:
    """What was decided about a group: about its event, or on a pull request of its commits before there was one."""
    if name in triage.entries or not triage.advance or group.direction is not Direction.SLOWER:
        return triage.entries.get(name)
    numbers = (order.facts(commit).pull_request for commit in order.names[group.good + 1 : group.bad + 1])
    keys = (one.key for one in group.members)
    return triage.accepting(
        name, {one for one in numbers if one}, {f"{key.kernel}/{key.backend}/{key.case}" for key in keys}
    )


def _of_group(group: StepGroup, event_id: str, ending: Ending, around: Surroundings) -> HistoryEvent:
    """The event of a group."""
    order = around.order
    bad, good = order.names[group.bad], order.names[group.good]
    return made(
        [one.step for one in group.counting],
        id=event_id,
        kind=group.kind,
        direction=group.direction,
        machine=group.machine,
        moved=tuple(one.moved(order.names) for one in group.members),
        first_bad=order.facts(bad),
        last_good=order.facts(good),
        between=order.between(good, bad),
        causes=around.causes(group),
        state=ending.state,
        reason=ending.reason,
        ended_at=order.facts(order.names[ending.place]) if ending.place >= 0 else None,
    )


def made(steps: Sequence[Step], **said: Any) -> HistoryEvent:
    """An event that is as large as these steps are together: the one way to make one.  said: all else, by field."""
    sizes = {
        "ratio": math.exp(math.fsum(math.log(step.ratio) for step in steps) / len(steps)),
        "ratio_low": min(step.ratio_low for step in steps),
        "ratio_high": max(step.ratio_high for step in steps),
        "p_value": min(step.p_value for step in steps),
    }
    return HistoryEvent(**{"between": 0, **sizes, **said})


def _with_half(
    event: HistoryEvent, move: MovedWork | None, groups: Sequence[StepGroup], around: Surroundings
) -> HistoryEvent:
    """The event with the other half of work that only moved: a note, not an alarm."""
    if move is None or event.state is not EventState.OPEN:
        return event
    other = tuple(one.moved(around.order.names) for one in groups[move.faster].members)
    causes = (Cause("moved work", move.sentence), *event.causes)
    return dataclasses.replace(
        event, moved=event.moved + other, causes=causes, state=EventState.ACCEPTED, reason=move.sentence
    )


def decided(event: HistoryEvent, entry: TriageEntry | None) -> HistoryEvent:
    """The event with what somebody decided about it.

    A decision outlives what the series do, but for one: an acknowledged event may still end.
    """
    if entry is None:
        return event
    ended = event.ended_at is not None
    state = event.state if ended and entry.state is EventState.ACKNOWLEDGED else entry.state
    said = {name: getattr(entry, name) for name in ("owner", "reason", "link") if getattr(entry, name)}
    return dataclasses.replace(event, state=state, **said)


# Changes of the machine code: one event per commit, version of Triton and operator.


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
        way = _way(ratio - 1)
        name = EventPlace(MACHINE, EventKind.CODE, way, record.commit, f"{kernel} {record.env}").id
        event = made(
            [_exact(number, 1.0, ratio, ratio)],
            id=name,
            kind=EventKind.CODE,
            direction=way,
            machine=MACHINE,
            moved=tuple(_largest(changed, record, number)),
            first_bad=order.facts(record.commit),
            last_good=order.facts(record.previous),
            between=order.between(record.previous, record.commit),
            causes=tuple(Cause("code", sentence) for sentence in sentences(changed)),
            state=EventState.ACCEPTED,
        )
        yield decided(event, triage.entries.get(name))


def _largest(changed: Sequence[CodeStep], record: RecordedCommit, number: int) -> Iterator[Moved]:
    """Of each backend and configuration the largest change; the sentences tell all of them."""
    largest: dict[tuple[str, str], CodeStep] = {}
    for step in sorted(changed, key=lambda step: -abs(math.log(ratio_of(step)))):
        for configuration in step.configurations:
            largest.setdefault((step.backend, configuration), step)
    for (backend, configuration), step in sorted(largest.items(), key=lambda pair: pair[0]):
        key, ratio = SeriesKey(MACHINE, step.kernel, backend, configuration), ratio_of(step)
        told = _exact(number, step.before or 0.0, step.after or 0.0, ratio)
        yield Moved(key, told, _way(ratio - 1), "code", record.commit, record.previous)


def _exact(number: int, before: float, after: float, ratio: float) -> Step:
    return Step(number, before, after, ratio, ratio, ratio, 0.0)


def _way(more: float) -> Direction:
    return Direction.SLOWER if more > 0 else Direction.FASTER


def ratio_of(step: CodeStep) -> float:
    """New count / old count; of counts that are or were 0 the ratio of the counts + 1, of a failure 1: it has none."""
    if step.before is None or step.after is None:
        return 1.0
    add = 0 if step.before and step.after else 1
    return (step.after + add) / (step.before + add)


# A machine that parts from its peers, as one event of the history; and what it explains of the other events.


JUDGED_BY = "peers"
"""What a health series is judged by (see `Moved.judged_by`)."""


def health_events(
    findings: Iterable[HealthFinding], commits: Mapping[str, CommitFacts], triage: Triage
) -> list[HistoryEvent]:
    """One event for each stretch in which a device or machine was slower than its peers, oldest first.

    Stretches of one device that overlap in time are one event.  Heat, throttling and noise are its causes; alone they
    cost no time that was measured, so they stay findings of the machine's page.
    """
    by_who: dict[tuple[str, str], list[HealthFinding]] = defaultdict(list)
    for finding in findings:
        by_who[finding.machine, finding.who].append(finding)
    found = [
        _of_findings(group, commits)
        for those in by_who.values()
        for group in _overlapping(those)
        if any(RULES[one.measure].costs_time for one in group)
    ]
    told = (decided(event, triage.entries.get(event.id)) for event in found)
    return sorted(told, key=lambda event: (event.first_bad.date_ms, event.machine, event.id))


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


def _of_findings(group: Sequence[HealthFinding], commits: Mapping[str, CommitFacts]) -> HistoryEvent:
    def at(point: HealthPoint) -> CommitFacts:
        return CommitFacts.of(point.commit, point.at_ms, commits)

    slow = [one for one in group if RULES[one.measure].costs_time]
    first, moved = slow[0], [_beside_peers(one) for one in slow]
    ends = [one.ended for one in slow if one.ended]
    lasting = len(ends) < len(slow)
    said = (first.machine, first.who, str(first.measure), str(first.since.at_ms), first.since.commit)
    return made(
        [one.step for one in moved],
        id=hashlib.sha256("|".join(said).encode()).hexdigest()[:LENGTH],  # the same however much history follows
        kind=EventKind.MACHINE,
        direction=Direction.SLOWER,
        machine=first.machine,
        moved=tuple(moved),
        first_bad=at(first.since),
        last_good=at(first.before or first.since),
        ratio=max(one.ratio for one in slow),
        causes=tuple(Cause("machine", one.text) for one in (*slow, *(one for one in group if one not in slow))),
        state=EventState.OPEN if lasting else EventState.RECOVERED,
        ended_at=None if lasting else at(max(ends, key=lambda one: one.at_ms)),
    )


def _beside_peers(finding: HealthFinding) -> Moved:
    key = SeriesKey(finding.machine, "machine health", finding.who, str(finding.measure))
    step = Step(0, finding.peers, finding.value, finding.ratio, finding.ratio_low, finding.ratio_high, finding.p_value)
    last_good = finding.before.commit if finding.before else ""
    return Moved(key, step, Direction.SLOWER, JUDGED_BY, finding.since.commit, last_good)


# Best configurations that moved: one event for each machine, operator and commit.


BY_SWEEP = "configuration"
"""What a series is judged by here: the knobs in use against others of the same sweep."""

NAMED = 3
"""Cases whose better knobs are named as a cause; the others are counted by the series that moved."""


def configuration_events(
    swept: Iterable[SweptCase], commits: Mapping[str, CommitFacts], triage: Triage
) -> list[HistoryEvent]:
    """Events of recorded sweeps, oldest first.  commits: what git knows of them.

    Sweeps of one commit stand in the order of their dates: a new compiler needs no new commit.
    """
    by_key: dict[SeriesKey, list[SweptCase]] = defaultdict(list)
    for one in sorted(swept, key=lambda one: (_facts(one, commits).date_ms, one.commit, one.started_ms)):
        by_key[one.key].append(one)
    groups: dict[tuple[str, str, str], list[Beaten]] = defaultdict(list)
    for key in sorted(by_key):
        for stretch in stretches(by_key[key]):
            groups[key.machine, key.kernel, stretch.first.commit].append(stretch)
    found = [_of_beaten(group, commits, triage) for group in groups.values()]
    return sorted(found, key=lambda event: (event.first_bad.date_ms, event.id))


def _facts(one: SweptCase, commits: Mapping[str, CommitFacts]) -> CommitFacts:
    return CommitFacts.of(one.commit, one.started_ms, commits)


def _of_beaten(group: Sequence[Beaten], commits: Mapping[str, CommitFacts], triage: Triage) -> HistoryEvent:
    first, key = group[0].first, group[0].first.key
    worst = max(group, key=lambda one: one.loss.ratio)
    name = EventPlace(key.machine, EventKind.CONFIGURATION, Direction.SLOWER, first.commit, key.kernel).id
    moved = tuple(map(_beaten, group))
    state, ended = _ending(group)
    event = made(
        [one.step for one in moved],
        id=name,
        kind=EventKind.CONFIGURATION,
        direction=Direction.SLOWER,
        machine=key.machine,
        moved=moved,
        first_bad=_facts(first, commits),
        last_good=_facts(worst.before, commits),
        causes=(*_other_versions(worst), *map(_better, sorted(group, key=lambda one: -one.loss.ratio)[:NAMED])),
        state=state,
        ended_at=_facts(ended, commits) if ended else None,
    )
    return decided(event, triage.entries.get(name))


def _beaten(one: Beaten) -> Moved:
    before = one.earlier.ratio if one.earlier else 1.0
    step = Step(0, before, one.loss.ratio, one.loss.ratio, one.loss.low, one.loss.high, 0.01)  # 99 % intervals, at most
    return Moved(one.first.key, step, Direction.SLOWER, BY_SWEEP, one.first.commit, one.before.commit)


def _ending(group: Sequence[Beaten]) -> tuple[EventState, SweptCase | None]:
    """Open while one of its cases is; fixed by other knobs, or recovered with the same."""
    ends = [one.ended for one in group if one.ended]
    if len(ends) < len(group):
        return EventState.OPEN, None
    state = EventState.FIXED if any(one.retuned for one in group) else EventState.RECOVERED
    return state, max(ends, key=lambda one: (one.started_ms, one.commit))


def _other_versions(one: Beaten) -> list[Cause]:
    old, new = one.before.versions, one.first.versions
    names = sorted(name for name in {*old, *new} if old.get(name) != new.get(name))
    return [Cause(name, f"{name} {old.get(name, 'unknown')} -> {new.get(name, 'unknown')}") for name in names]


def _better(one: Beaten) -> Cause:
    """The knobs that are better now, as differences to those in use."""
    told, key = better_knobs(one.first.chosen, one.loss.better), one.first.key
    return Cause("configuration", f"{key.backend}/{key.case}: faster with {told}")
