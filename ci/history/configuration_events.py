"""Best configurations that moved, as events of the history: one for each machine, operator and commit."""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence

from ci.history.configurations import Beaten, SweptCase, better_knobs, stretches
from ci.history.events import decided
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

JUDGED_BY = "configuration"
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
    found = [_event(group, commits, triage) for group in groups.values()]
    return sorted(found, key=lambda event: (event.first_bad.date_ms, event.id))


def _facts(one: SweptCase, commits: Mapping[str, CommitFacts]) -> CommitFacts:
    return CommitFacts.of(one.commit, one.started_ms, commits)


def _event(group: Sequence[Beaten], commits: Mapping[str, CommitFacts], triage: Triage) -> HistoryEvent:
    first, key = group[0].first, group[0].first.key
    worst = max(group, key=lambda one: one.loss.ratio)
    event_id = EventPlace(key.machine, EventKind.CONFIGURATION, Direction.SLOWER, first.commit, key.kernel).id
    state, ended = _ending(group)
    event = HistoryEvent(
        id=event_id,
        kind=EventKind.CONFIGURATION,
        direction=Direction.SLOWER,
        machine=key.machine,
        moved=tuple(map(_moved, group)),
        first_bad=_facts(first, commits),
        last_good=_facts(worst.before, commits),
        between=0,
        ratio=math.exp(math.fsum(math.log(one.loss.ratio) for one in group) / len(group)),
        ratio_low=min(one.loss.low for one in group),
        ratio_high=max(one.loss.high for one in group),
        p_value=0.01,  # of 99 % intervals, at the most
        causes=(*_versions(worst), *map(_better, sorted(group, key=lambda one: -one.loss.ratio)[:NAMED])),
        state=state,
        ended_at=_facts(ended, commits) if ended else None,
    )
    return decided(event, triage.entries.get(event_id))


def _moved(one: Beaten) -> Moved:
    before = one.earlier.ratio if one.earlier else 1.0
    step = Step(0, before, one.loss.ratio, one.loss.ratio, one.loss.low, one.loss.high, 0.01)
    return Moved(one.first.key, step, Direction.SLOWER, JUDGED_BY, one.first.commit, one.before.commit)


def _ending(group: Sequence[Beaten]) -> tuple[EventState, SweptCase | None]:
    """Open while one of its cases is; fixed by other knobs, or recovered with the same."""
    ends = [one.ended for one in group if one.ended]
    if len(ends) < len(group):
        return EventState.OPEN, None
    state = EventState.FIXED if any(one.retuned for one in group) else EventState.RECOVERED
    return state, max(ends, key=lambda one: (one.started_ms, one.commit))


def _versions(one: Beaten) -> list[Cause]:
    old, new = one.before.versions, one.first.versions
    names = sorted(name for name in {*old, *new} if old.get(name) != new.get(name))
    return [Cause(name, f"{name} {old.get(name, 'unknown')} -> {new.get(name, 'unknown')}") for name in names]


def _better(one: Beaten) -> Cause:
    """The knobs that are better now, as differences to those in use."""
    told, key = better_knobs(one.first.chosen, one.loss.better), one.first.key
    return Cause("configuration", f"{key.backend}/{key.case}: faster with {told}")
