"""Groups of steps as events: ids, sizes, commits, causes, states."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

from ci.history import types
from ci.history.commits import CommitOrder
from ci.history.exact import Surroundings
from ci.history.steps import finding
from ci.history.steps.grouping import Ending, MovedWork, StepGroup, moved_work, outcome
from ci.history.steps.series import MeasuredPlaces, root
from ci.history.triage import Triage, TriageEntry
from ci.history.types import Cause, Direction, EventPlace, EventState, HistoryEvent
from ci.stats.types import Step


def told(
    groups: Sequence[StepGroup],
    around: Surroundings,
    steps: Sequence[Sequence[Step]],
    triage: Triage,
    kept: Path | None = None,
) -> list[HistoryEvent]:
    """The events of groups, without those that are only the way back or the other half of another one.

    kept: a folder for what a next call need not compute again.
    """
    names = _names(groups, finding.places(groups, around.tracks, kept), around, triage)
    entries = {n: entry for n, name in enumerate(names) if (entry := _entry(name, groups[n], around.order, triage))}
    accepted = {number for number, entry in entries.items() if entry.state is EventState.ACCEPTED}
    ends = outcome(groups, MeasuredPlaces(around.tracks, around.order.place), steps, accepted)
    moves = moved_work(groups)
    halves = {move.faster for move in moves.values()} - set(entries)
    make = EventMaker(around.order, around.causes)
    return [
        decided(_with_half(make.event(group, names[n], ends.endings[n]), moves.get(n), groups, make), entries.get(n))
        for n, group in enumerate(groups)
        if n not in ends.way_back and n not in halves
    ]


def _names(groups: Sequence[StepGroup], told_first: Sequence[int], around: Surroundings, triage: Triage) -> list[str]:
    """The id of each group.  told_first: the place that each had at its first alarm."""
    commits = around.order.names
    first = zip(groups, told_first, strict=True)
    places = [EventPlace(root(g.machine, triage.renamed), g.kind, g.direction, commits[bad]) for g, bad in first]
    known = {name: place for name, entry in triage.entries.items() if (place := entry.place)}
    known = {name: dataclasses.replace(one, machine=root(one.machine, triage.renamed)) for name, one in known.items()}
    return types.ids(places, known, _machine_order(around, triage))


def _machine_order(around: Surroundings, triage: Triage) -> Mapping[str, Mapping[str, int]]:
    """By machine, the index of each commit it recorded."""
    tracks, commits = around.tracks, around.order.names
    found = {}
    for machine, places in tracks.places_of.items():
        found[root(machine, triage.renamed)] = {commits[place]: rank for rank, place in enumerate(places)}
    return found


def _entry(name: str, group: StepGroup, order: CommitOrder, triage: Triage) -> TriageEntry | None:
    """What was decided about a group: about its event, or on a pull request of its commits before there was one."""
    if name in triage.entries or not triage.advance or group.direction is not Direction.SLOWER:
        return triage.entries.get(name)
    numbers = (order.facts(commit).pull_request for commit in order.names[group.good + 1 : group.bad + 1])
    keys = (one.key for one in group.members)
    return triage.accepting(
        name, {one for one in numbers if one}, {f"{key.kernel}/{key.backend}/{key.case}" for key in keys}
    )


@dataclasses.dataclass(frozen=True)
class EventMaker:
    """Makes events of groups, in an order of commits."""

    order: CommitOrder
    causes: Callable[[StepGroup], tuple[Cause, ...]]

    def event(self, group: StepGroup, event_id: str, ending: Ending) -> HistoryEvent:
        """The event of a group."""
        names = self.order.names
        steps = [one.step for one in group.counting]
        ended = self.order.facts(names[ending.place]) if ending.place >= 0 else None
        return HistoryEvent(
            id=event_id,
            kind=group.kind,
            direction=group.direction,
            machine=group.machine,
            moved=tuple(one.moved(names) for one in group.members),
            first_bad=self.order.facts(names[group.bad]),
            last_good=self.order.facts(names[group.good]),
            between=self.order.between(names[group.good], names[group.bad]),
            ratio=math.exp(math.fsum(math.log(step.ratio) for step in steps) / len(steps)),
            ratio_low=min(step.ratio_low for step in steps),
            ratio_high=max(step.ratio_high for step in steps),
            p_value=min(step.p_value for step in steps),
            causes=self.causes(group),
            state=ending.state,
            reason=ending.reason,
            ended_at=ended,
        )


def _with_half(
    event: HistoryEvent, move: MovedWork | None, groups: Sequence[StepGroup], make: EventMaker
) -> HistoryEvent:
    """The event with the other half of work that only moved: a note, not an alarm."""
    if move is None or event.state is not EventState.OPEN:
        return event
    other = tuple(one.moved(make.order.names) for one in groups[move.faster].members)
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
