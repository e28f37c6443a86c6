"""Groups of steps as events: sizes, commits, causes, states."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Callable

from ci.history.commits import CommitOrder
from ci.history.grouping import Group
from ci.history.states import Ending
from ci.history.triage import TriageEntry
from ci.history.types import Cause, EventState, HistoryEvent

REDEFINED = "the benchmark definition changed there: times before and after it do not compare"


@dataclasses.dataclass(frozen=True)
class EventMaker:
    """Makes events of groups, in an order of commits."""

    order: CommitOrder
    causes: Callable[[Group], tuple[Cause, ...]]

    def event(self, group: Group, event_id: str, ending: Ending, entry: TriageEntry | None) -> HistoryEvent:
        """The event of a group; entry: what somebody decided about it."""
        names = self.order.names
        steps = [one.step for one in group.counting]
        ended = self.order.facts(names[ending.place]) if ending.place >= 0 else None
        event = HistoryEvent(
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
            reason=REDEFINED if ending.state is EventState.ACCEPTED and ended else "",
            ended_at=ended,
        )
        return decided(event, entry)


def decided(event: HistoryEvent, entry: TriageEntry | None) -> HistoryEvent:
    """The event with what somebody decided about it.

    A decision outlives what the series do, but for one: an acknowledged event may still end.
    """
    if entry is None:
        return event
    ended = event.state in (EventState.RECOVERED, EventState.FIXED)
    state = event.state if ended and entry.state is EventState.ACKNOWLEDGED else entry.state
    told = {name: getattr(entry, name) for name in ("owner", "reason", "link") if getattr(entry, name)}
    return dataclasses.replace(event, state=state, **told)
