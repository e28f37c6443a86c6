"""What became of a step: it stands, its series went back to the old level, or its series ended."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Iterable, Iterator, Mapping, Sequence

from ci.history.steps.evidence import Candidate
from ci.history.steps.gone import MeasuredPlaces
from ci.history.steps.grouping import StepGroup
from ci.history.steps.series import Tracks
from ci.history.steps.words import Direction, EventState
from ci.stats.types import Step

BACK = 0.25
"""Share of a step (log) that may be left when its old level counts as back: a fix is seldom exact.  A choice."""

FEW = 5
"""Points of a series within which a level that comes back has recovered by itself: a flaky node, a driver reset, a
revert before anybody looked.  The issue's bound for what is too short to be sure of (2026-11-22)."""


REDEFINED = "the benchmark definition changed there: times before and after it do not compare"
GONE = "no longer measured: the operator's records have none of these series from there on"


@dataclasses.dataclass(frozen=True)
class Ending:
    """State of a group by its series alone, and the place of the commit at which it ended; -1 while it stands.

    reason: why it ended, where no level came back.
    """

    state: EventState
    place: int = -1
    reason: str = ""


@dataclasses.dataclass(frozen=True)
class Endings:
    """How each group ended, and the groups that are only the way back of another one."""

    endings: Mapping[int, Ending]
    way_back: frozenset[int]


def outcome(
    groups: Sequence[StepGroup], measured: MeasuredPlaces, steps: Sequence[Sequence[Step]], accepted: set[int]
) -> Endings:
    """What became of groups (by index).  accepted: those whose level is the one to hold now; nothing ends them."""
    reader = _Levels(measured.tracks, steps, measured)
    backs = {
        number: {(one.track, back) for one in group.members if (back := reader.back(one)) >= 0}
        for number, group in enumerate(groups)
        if number not in accepted
    }
    used = set(_used(groups, backs, reader))
    way_back = frozenset(n for n, group in enumerate(groups) if n not in accepted and _only_back(group, used))
    endings = {n: reader.ending(group) for n, group in enumerate(groups) if n not in accepted}
    return Endings({**endings, **{n: Ending(EventState.ACCEPTED) for n in accepted}}, way_back)


def _used(
    groups: Sequence[StepGroup], backs: Mapping[int, Iterable[tuple[int, int]]], reader: _Levels
) -> Iterator[tuple[int, int]]:
    """Steps (track, number) that are the way back of one before: an end of a slow time always, of a fast time only
    if it was short.  What makes a kernel slower than it has been for long is a regression, whatever was before."""
    for number, found in backs.items():
        for one in groups[number].members:
            for track, back in found:
                short = one.track == track and reader.points_to(one, back) <= FEW
                if one.track == track and (one.own_direction is Direction.SLOWER or short):
                    yield track, back


def _only_back(group: StepGroup, used: set[tuple[int, int]]) -> bool:
    own = [one for one in group.members if one.number >= 0]
    return bool(own) and all((one.track, one.number) in used for one in own)


@dataclasses.dataclass(frozen=True)
class _Levels:
    """The levels of all tracks between their steps."""

    tracks: Tracks
    steps: Sequence[Sequence[Step]]
    measured: MeasuredPlaces

    def back(self, one: Candidate) -> int:
        """The later step of a candidate's series that brings its old level back; -1 if none does."""
        if one.number < 0:
            return -1
        steps = self.steps[one.track]
        size = math.log(steps[one.number].ratio)
        old = steps[one.number].before
        for number in range(one.number + 1, len(steps)):
            left = math.log(steps[number].after / old) / size
            if left <= BACK:
                return number
        return -1

    def points_to(self, one: Candidate, number: int) -> int:
        """Points of the series between a candidate's step and a later one."""
        return self.steps[one.track][number].index - one.step.index

    def ending(self, group: StepGroup) -> Ending:
        """RECOVERED or FIXED if every series that counts is back, ACCEPTED if the others are measured no more, or not
        as they were, else OPEN."""
        counting = [one for one in group.counting if one.number >= 0]
        back = {one: self.back(one) for one in counting}
        standing = [one for one, number in back.items() if number < 0]
        if standing or not counting:
            return self._closed(standing)
        short = all(self.points_to(one, number) <= FEW for one, number in back.items())
        place = max(self._place(one, number) for one, number in back.items())
        return Ending(EventState.RECOVERED if short else EventState.FIXED, place)

    def _closed(self, standing: Sequence[Candidate]) -> Ending:
        """ACCEPTED if nothing more can be learnt of any series that stands, else OPEN."""
        ends = []
        for one in standing:
            following = self.next_track(one)
            place = self._first_place(following) if following >= 0 else self.measured.gone(one.key)
            if place < 0:
                return Ending(EventState.OPEN)
            ends.append((place, REDEFINED if following >= 0 else GONE))
        return Ending(EventState.ACCEPTED, *max(ends)) if ends else Ending(EventState.OPEN)

    def next_track(self, one: Candidate) -> int:
        """The stretch of the same series under the next benchmark definition; -1 if there is none."""
        same = self.tracks.of_key[one.key]
        where = same.index(one.track) + 1
        return same[where] if where < len(same) else -1

    def _place(self, one: Candidate, number: int) -> int:
        start = self.tracks.span(one.track).start
        return int(self.tracks.place[start + self.steps[one.track][number].index])

    def _first_place(self, track: int) -> int:
        return int(self.tracks.place[self.tracks.starts[track]])
