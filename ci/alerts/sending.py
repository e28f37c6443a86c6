"""Which events people are told of, and what they have been told already."""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Iterator, Sequence
from pathlib import Path

from ci.alerts.channels import Channel
from ci.alerts.settings import AlertError, AlertSettings
from ci.history.analysis import History
from ci.history.identity import REACH
from ci.history.types import Direction, EventState, HistoryEvent
from ci.whole_files import replace

FILE = "alerts.jsonl"
"""In the folder of records, and pushed with it: a line for each thing told, only ever appended to."""

SURE = 0.01
"""Largest p-value of an event that people are told of: what the whole history of a series shows by chance as rarely."""

ENDED = (EventState.RECOVERED, EventState.FIXED, EventState.ACCEPTED)


@dataclasses.dataclass(frozen=True)
class Told:
    """A line of the file: which event, where it was then, by which channel, and "open" or "ended"."""

    event: str
    status: str
    channel: str
    machine: str
    kind: str
    direction: str
    first_bad: str


@dataclasses.dataclass(frozen=True)
class Sending:
    """What is to be told by one channel."""

    channel: Channel
    event: HistoryEvent
    status: str


def read(path: Path) -> list[Told]:
    """What people have been told; lines that are torn or foreign are none."""
    lines = path.read_text(encoding="utf-8").splitlines() if path.exists() else []
    return [told for line in lines if (told := _told(line))]


def _told(line: str) -> Told | None:
    try:
        return Told(**json.loads(line))
    except (ValueError, TypeError):
        return None


def alertable(event: HistoryEvent, settings: AlertSettings) -> bool:
    """Whether people are told of an event: an open slow-down of a wanted kind, and surely one."""
    return (
        event.state is EventState.OPEN
        and event.direction is Direction.SLOWER
        and event.kind in settings.kinds
        and event.ratio_low > 1
        and event.p_value <= SURE
    )


def due(
    history: History, settings: AlertSettings, channels: Sequence[Channel], told: Sequence[Told]
) -> tuple[list[Sending], int]:
    """What is to be told now, ends first, then the surest new events, and how many new ones wait for another run."""
    before = _Before(history, told)
    ends = [
        Sending(channel, dataclasses.replace(event, id=known.event), "ended")
        for event in history.events
        for channel in channels
        if event.state in ENDED and (known := before.of(event, channel)) and known.status == "open"
    ]
    new = [one for one in history.events if alertable(one, settings) and any(before.news(one, c) for c in channels)]
    new.sort(key=lambda event: (event.p_value, event.id))
    begins = [
        Sending(channel, event, "open")
        for event in new[: settings.most]
        for channel in channels
        if before.news(event, channel)
    ]
    return ends + begins, max(len(new) - settings.most, 0)


def send(sendings: Sequence[Sending], path: Path) -> Iterator[AlertError]:
    """Tell, and write down what was told at once; a refusal is passed on and does not stop the others."""
    for one in sendings:
        try:
            (one.channel.begin if one.status == "open" else one.channel.end)(one.event)
        except AlertError as error:
            yield error
            continue
        event = one.event
        place = (event.machine, str(event.kind), str(event.direction), event.first_bad.hash)
        line = json.dumps(dataclasses.asdict(Told(event.id, one.status, one.channel.name, *place)))
        replace(path, (path.read_text(encoding="utf-8") if path.exists() else "") + line + "\n")


class _Before:
    """What each channel told last of each event, wherever its first bad commit was placed then."""

    def __init__(self, history: History, told: Sequence[Told]) -> None:
        self._place = {commit: number for number, commit in enumerate(history.commits)}
        self._last = {(one.channel, one.event): one for one in told}

    def news(self, event: HistoryEvent, channel: Channel) -> bool:
        """Whether the channel has not told that this event is open."""
        known = self.of(event, channel)
        return known is None or known.status != "open"

    def of(self, event: HistoryEvent, channel: Channel) -> Told | None:
        """What the channel told last of this event."""
        known = self._last.get((channel.name, event.id))
        near = (one for (name, _), one in self._last.items() if name == channel.name and self._same(one, event))
        return known or next(near, None)

    def _same(self, told: Told, event: HistoryEvent) -> bool:
        what = (event.machine, str(event.kind), str(event.direction))
        then, now = self._place.get(told.first_bad), self._place.get(event.first_bad.hash)
        alike = what == (told.machine, told.kind, told.direction)
        return alike and then is not None and now is not None and abs(then - now) <= REACH
