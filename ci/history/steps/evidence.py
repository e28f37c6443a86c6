"""What a step is evidence of: our kernel, the vendor's library or the machine.

Ours is judged by its ratio to the baseline of the same trial where there is one.  What moves both alike moves no ratio:
it shows as a step of the baseline's own seconds that ours went along with, and is the machine's.
"""

from __future__ import annotations

import dataclasses
import functools
import math
from collections.abc import Callable, Iterator, Mapping, Sequence

import numpy as np

from ci.history.steps.series import Tracks
from ci.history.steps.words import Direction, EventKind, Moved, SeriesKey
from ci.stats.steps_noise import median
from ci.stats.types import FloatArray, Step

SLACK = 2
"""Points by which a detector may misplace a step: the issue's own tolerance for planted steps (2026-11-22)."""

EXACT, NEARLY = 5.0, 2.5
"""Sizes of a step in standard deviations of a point from which its place is sure, and off by one at most.  Of normal
values the place is off in 1.4 % and 24 % of draws, by more than one in 0.04 % and 7 % (2 levels of 20, 2026-11-22)."""

LEAST_SECONDS = 0.02
"""Smallest step of a library or machine: what is not timed beside something wanders so much (ci/policy.toml,
recorded_smallest_effect, 2026-11-20)."""

MOVED_ALONG = 0.5
"""Share of the vendor's step (log) from which ours went along with it: half separates 0 and 1 by most."""

NORMAL_99 = 2.576
MEDIAN_TO_MEAN = 1.2533
"""Standard error of a median / of a mean, of normal values: sqrt(pi / 2)."""


@dataclasses.dataclass(frozen=True)
class Candidate:
    """A step as evidence.  direction: that of the event; the series' own may be the other one (ratio to a library).

    good, bad: places (indices of commits in the order of history) of the points before and at the step.  low, high:
    the same with SLACK.  number: of the step among its track's, -1 for a series that only went along.
    counts: whether its size is the event's.  seconds: what the step added to one call.
    """

    kind: EventKind
    direction: Direction
    key: SeriesKey
    track: int
    number: int
    step: Step
    judged_by: str
    good: int
    bad: int
    low: int
    high: int
    counts: bool = True
    seconds: float = 0.0

    @property
    def own_direction(self) -> Direction:
        """Which way the series itself went."""
        return Direction.SLOWER if self.step.ratio > 1 else Direction.FASTER

    def agrees(self, other: Candidate) -> bool:
        """Whether both can be the same change: one's first bad commit is where the other's may be."""
        return self.low < other.bad <= self.high or other.low < self.bad <= other.high

    def moved(self, names: Sequence[str]) -> Moved:
        """The step in the words of the history."""
        way = self.own_direction
        return Moved(self.key, self.step, way, self.judged_by, names[self.bad], names[self.good])


SameVersions = Callable[[int, int], bool]
"""Whether what lies under two rows of the frame (torch, driver, runtime, library) is the same, as far as known."""


@dataclasses.dataclass(frozen=True, eq=False)
class Evidence:
    """The steps of all tracks, and what each is evidence of."""

    tracks: Tracks
    steps: Sequence[Sequence[Step]]
    same_versions: SameVersions

    def candidates(self) -> Iterator[Candidate]:
        """All of them; a step of a baseline that nothing else bears out is none."""
        for track, steps in enumerate(self.steps):
            for number in range(len(steps)):
                if self.tracks.by_ratio[track]:
                    yield self._of_ratio(track, number)
                elif self.tracks.is_baseline[track]:
                    yield from self._of_baseline(track, number)
                else:
                    yield self._plain(track, number, EventKind.KERNEL)

    def _of_ratio(self, track: int, number: int) -> Candidate:
        found = self._plain(track, number, EventKind.KERNEL)
        own, theirs = self._shares(track, number)
        if abs(theirs) <= abs(own):
            return found
        way = Direction.SLOWER if theirs > 0 else Direction.FASTER
        library = dataclasses.replace(found, kind=EventKind.LIBRARY, direction=way, counts=False)
        if any(other.agrees(found) and other.own_direction is way for other in self._vendor_steps(track)):
            return library
        index = self.tracks.span(track).start + found.step.index
        if self.same_versions(int(self.tracks.row[index - 1]), int(self.tracks.row[index])):
            return found
        return self._of_vendor(library)

    def _of_vendor(self, found: Candidate) -> Candidate:
        """The library's own step, as the ratio to it shows it."""
        turned = found.step
        step = dataclasses.replace(
            turned, before=1 / turned.before, after=1 / turned.after, ratio=1 / turned.ratio,
            ratio_low=1 / turned.ratio_high, ratio_high=1 / turned.ratio_low,
        )  # fmt: skip
        key = found.key._replace(backend=self._vendor(found.track))
        return dataclasses.replace(found, step=step, key=key, number=-1, counts=True)

    def _of_baseline(self, track: int, number: int) -> Iterator[Candidate]:
        found = self._plain(track, number, EventKind.LIBRARY)
        if abs(math.log(found.step.ratio)) < LEAST_SECONDS:
            return
        ours = self._partners.get(found.key, ())
        against = [one for other in ours for one in self._plains(other) if one.own_direction is not found.direction]
        if not ours or any(one.agrees(found) for one in against):
            yield found
            return
        leader = dataclasses.replace(found, kind=EventKind.MACHINE)
        along = [one for other in ours if (one := self._along(other, leader))]
        if along:
            yield from (leader, *along)

    def _along(self, track: int, vendor: Candidate) -> Candidate | None:
        """Ours, if its seconds went the same way as the vendor's at that place."""
        low, high = self._window(vendor.track, vendor.number)
        return went_along(self.tracks, track, vendor, low, high)

    def _plain(self, track: int, number: int, kind: EventKind) -> Candidate:
        step = self._as_measured(track, number)
        place, slack = self.tracks.place[self.tracks.span(track)], self._slack(track, number)
        where = (
            int(place[step.index - 1]),
            int(place[step.index]),
            int(place[step.index - 1 - slack]) if step.index - 1 >= slack else -1,
            int(place[min(step.index + slack, len(place) - 1)]),
        )
        way = Direction.SLOWER if step.ratio > 1 else Direction.FASTER
        judged = "ratio" if self.tracks.by_ratio[track] else "seconds"
        added = self._seconds_after(track, number) * (1 - 1 / step.ratio)
        return Candidate(kind, way, self.tracks.keys[track], track, number, step, judged, *where, seconds=added)

    def _as_measured(self, track: int, number: int) -> Step:
        """A step with its levels in seconds as they were recorded; its ratio is what is left beside the machine."""
        step = self.steps[track][number]
        if self.tracks.by_ratio[track]:
            return step
        first, index, stop = self._levels(track, number)
        seconds = self.tracks.seconds[self.tracks.span(track)]
        before, after = median(seconds[first:index]), median(seconds[index:stop])
        return dataclasses.replace(step, before=before, after=after)

    def _seconds_after(self, track: int, number: int) -> float:
        _, index, stop = self._levels(track, number)
        return median(self.tracks.seconds[self.tracks.span(track)][index:stop])

    def _slack(self, track: int, number: int) -> int:
        """Points by which the place of a step may be off, by its size beside the scatter its interval tells of."""
        step = self.steps[track][number]
        first, index, stop = self._levels(track, number)
        error = math.log(step.ratio_high / step.ratio_low) / (2 * NORMAL_99 * MEDIAN_TO_MEAN)
        sigma = error / math.sqrt(1 / (index - first) + 1 / (stop - index))
        size = abs(math.log(step.ratio))
        return 0 if size >= EXACT * sigma else 1 if size >= NEARLY * sigma else SLACK

    def _plains(self, track: int) -> Iterator[Candidate]:
        return (self._plain(track, number, EventKind.KERNEL) for number in range(len(self.steps[track])))

    def _vendor_steps(self, track: int) -> Iterator[Candidate]:
        key = self.tracks.keys[track]._replace(backend=self._vendor(track))
        return (one for other in self.tracks.of_key.get(key, ()) for one in self._plains(other))

    def _vendor(self, track: int) -> str:
        return self.tracks.vendor(track)

    @functools.cached_property
    def _partners(self) -> Mapping[SeriesKey, Sequence[int]]:
        """By a baseline's series, the tracks that are judged against it."""
        found: dict[SeriesKey, list[int]] = {}
        for track in np.flatnonzero(self.tracks.by_ratio):
            key = self.tracks.keys[int(track)]._replace(backend=self._vendor(int(track)))
            found.setdefault(key, []).append(int(track))
        return found

    def _levels(self, track: int, number: int) -> tuple[int, int, int]:
        """Of a step: first point of the level before, of the level after, of the level after that."""
        edges = [0, *(step.index for step in self.steps[track]), len(self.tracks.place[self.tracks.span(track)])]
        return edges[number], edges[number + 1], edges[number + 2]

    def _window(self, track: int, number: int) -> tuple[int, int]:
        """Places of the first point before and of the last point after a step."""
        first, _, stop = self._levels(track, number)
        place = self.tracks.place[self.tracks.span(track)]
        return int(place[first]), int(place[stop - 1])

    def _shares(self, track: int, number: int) -> tuple[float, float]:
        """The change (log) of our seconds and of the vendor's at a step of their ratio."""
        first, index, stop = self._levels(track, number)
        span = self.tracks.span(track)
        own = self.tracks.seconds[span]
        theirs = own / self.tracks.values[span]
        return _log_change(own, first, index, stop), _log_change(theirs, first, index, stop)


def went_along(tracks: Tracks, track: int, leader: Candidate, low: int, high: int) -> Candidate | None:
    """A track as evidence of a leader's step, if between two places its seconds moved by half as much or more."""
    span = tracks.span(track)
    place, seconds = tracks.place[span], tracks.seconds[span]
    before, after = (low <= place) & (place <= leader.good), (leader.bad <= place) & (place <= high)
    if not before.any() or not after.any():
        return None
    step = level_change(seconds[before], seconds[after], int(np.flatnonzero(after)[0]), leader.step.p_value)
    if math.log(step.ratio) / math.log(leader.step.ratio) < MOVED_ALONG:
        return None
    where = (int(place[before][-1]), int(place[after][0]), leader.low, leader.high)
    return Candidate(leader.kind, leader.direction, tracks.keys[track], track, -1, step, "seconds", *where)


def level_change(before: FloatArray, after: FloatArray, index: int, p_value: float) -> Step:
    """The step between two given levels: of their medians, with an interval from the scatter about them."""
    old, new = median(before), median(after)
    error = MEDIAN_TO_MEAN * math.hypot(_error(np.log(before)), _error(np.log(after)))
    ratio = new / old
    reach = math.exp(NORMAL_99 * error)
    return Step(index, old, new, ratio, ratio / reach, ratio * reach, p_value)


def _error(logs: FloatArray) -> float:
    """Standard error of the mean; of a single point 0, since nothing is known of it."""
    return float(np.std(logs, ddof=1)) / math.sqrt(len(logs)) if len(logs) > 1 else 0.0


def _log_change(values: FloatArray, first: int, index: int, stop: int) -> float:
    return math.log(median(values[index:stop])) - math.log(median(values[first:index]))
