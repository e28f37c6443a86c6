"""Steps of one machine, kind and direction that are the same change, put together."""

from __future__ import annotations

import bisect
import dataclasses
import functools
import itertools
import math
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence

import numpy as np

from ci.history.series import Direction, EventKind, EventState, MeasuredPlaces, Moved, SeriesKey, Tracks
from ci.stats.steps import median
from ci.stats.types import FloatArray, Step

# What a step is evidence of: our kernel, the vendor's library or the machine.
#
# Ours is judged by its ratio to the baseline of the same trial where there is one. What moves both alike moves no
# ratio: it shows as a step of the baseline's own seconds that ours went along with, and is the machine's.


PAIRS = "pairs"
"""What a step is judged by whose commits ran side by side (see `Moved.judged_by`)."""

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
    counts: whether its size is the event's.  seconds: what the step added to one call.  first, stop: the points of the
    track that the levels before and after the step begin and end at.
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
    first: int = 0
    stop: int = 0

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
    in_pairs: Callable[[int, Step], bool] = lambda track, step: False
    """Whether the commits of a track's step were compared in pairs, with that result."""

    def candidates(self) -> Iterator[Candidate]:
        """All of them; a step of a baseline that nothing else bears out is none."""
        for track in range(len(self.steps)):
            for found in self._plain(track):
                if self.in_pairs(track, found.step):  # whose it is and where needs no evidence
                    yield dataclasses.replace(found, judged_by=PAIRS, low=found.good, high=found.bad)
                elif self.tracks.by_ratio[track]:
                    yield self._of_ratio(found)
                elif self.tracks.is_baseline[track]:
                    yield from self._of_baseline(dataclasses.replace(found, kind=EventKind.LIBRARY))
                else:
                    yield found

    def _plain(self, track: int) -> Iterator[Candidate]:
        """The steps of a track as they stand, with its levels in seconds as they were recorded where it is judged by
        seconds; the ratio is what is left beside the machine."""
        span, by_ratio = self.tracks.span(track), bool(self.tracks.by_ratio[track])
        place, seconds = self.tracks.place[span], self.tracks.seconds[span]
        edges = [0, *(step.index for step in self.steps[track]), len(place)]
        for number, (step, first, stop) in enumerate(zip(self.steps[track], edges, edges[2:], strict=False)):
            index, slack, after = step.index, _slack(step, first, stop), median(seconds[step.index : stop])
            yield Candidate(
                EventKind.KERNEL,
                Direction.SLOWER if step.ratio > 1 else Direction.FASTER,
                self.tracks.keys[track],
                track,
                number,
                step if by_ratio else dataclasses.replace(step, before=median(seconds[first:index]), after=after),
                "ratio" if by_ratio else "seconds",
                int(place[index - 1]),
                int(place[index]),
                int(place[index - 1 - slack]) if index - 1 >= slack else -1,
                int(place[min(index + slack, len(place) - 1)]),
                seconds=after * (1 - 1 / step.ratio),
                first=first,
                stop=stop,
            )

    def _of_ratio(self, found: Candidate) -> Candidate:
        span = self.tracks.span(found.track)
        own = self.tracks.seconds[span]
        ours, theirs = (_log_change(values, found) for values in (own, own / self.tracks.values[span]))
        if abs(theirs) <= abs(ours):
            return found
        way = Direction.SLOWER if theirs > 0 else Direction.FASTER
        library = dataclasses.replace(found, kind=EventKind.LIBRARY, direction=way, counts=False)
        vendor = found.key._replace(backend=self.tracks.vendor(found.track))
        vendor_steps = (one for track in self.tracks.of_key.get(vendor, ()) for one in self._plain(track))
        if any(other.agrees(found) and other.own_direction is way for other in vendor_steps):
            return library
        index = span.start + found.step.index
        if self.same_versions(int(self.tracks.row[index - 1]), int(self.tracks.row[index])):
            return found
        turned = found.step  # the library's own step, as the ratio to it shows it
        step = dataclasses.replace(
            turned, before=1 / turned.before, after=1 / turned.after, ratio=1 / turned.ratio,
            ratio_low=1 / turned.ratio_high, ratio_high=1 / turned.ratio_low,
        )  # fmt: skip
        return dataclasses.replace(library, step=step, key=vendor, number=-1, counts=True)

    def _of_baseline(self, found: Candidate) -> Iterator[Candidate]:
        if abs(math.log(found.step.ratio)) < LEAST_SECONDS:
            return
        ours = self._partners.get(found.key, ())
        against = (one for other in ours for one in self._plain(other) if one.own_direction is not found.direction)
        if not ours or any(one.agrees(found) for one in against):
            yield found
            return
        leader = dataclasses.replace(found, kind=EventKind.MACHINE)
        place = self.tracks.place[self.tracks.span(found.track)]
        window = int(place[found.first]), int(place[found.stop - 1])
        along = [one for other in ours if (one := went_along(self.tracks, other, leader, *window))]
        if along:
            yield from (leader, *along)

    @functools.cached_property
    def _partners(self) -> Mapping[SeriesKey, Sequence[int]]:
        """By a baseline's series, the tracks that are judged against it."""
        found: dict[SeriesKey, list[int]] = {}
        for track in np.flatnonzero(self.tracks.by_ratio).tolist():
            key = self.tracks.keys[track]._replace(backend=self.tracks.vendor(track))
            found.setdefault(key, []).append(track)
        return found


def _slack(step: Step, first: int, stop: int) -> int:
    """Points by which the place of a step may be off, by its size beside the scatter its interval tells of."""
    error = math.log(step.ratio_high / step.ratio_low) / (2 * NORMAL_99 * MEDIAN_TO_MEAN)
    sigma = error / math.sqrt(1 / (step.index - first) + 1 / (stop - step.index))
    size = abs(math.log(step.ratio))
    return 0 if size >= EXACT * sigma else 1 if size >= NEARLY * sigma else SLACK


def _log_change(values: FloatArray, found: Candidate) -> float:
    """The change (log) of a track's values at a step."""
    index = found.step.index
    return math.log(median(values[index : found.stop])) - math.log(median(values[found.first : index]))


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


MACHINE_SHARE = 0.5
"""Series without a baseline: from this share of a machine's on, stepping together, it is the machine.  A choice."""
MACHINE_OPERATORS = 3
"""And from so many operators on: fewer share code with each other more often than a machine moves.  A choice."""


Leader = tuple[int, int, Candidate]
"""Place, rank by sureness, and the candidate itself."""


@dataclasses.dataclass(frozen=True)
class StepGroup:
    """Candidates that are one change.  good, bad: places of the last good and the first bad commit."""

    machine: str
    kind: EventKind
    direction: Direction
    members: tuple[Candidate, ...]
    good: int
    bad: int

    @functools.cached_property
    def operators(self) -> frozenset[str]:
        """The kernels that moved."""
        return frozenset(one.key.kernel for one in self.members)

    @property
    def counting(self) -> tuple[Candidate, ...]:
        """Members whose size is the event's."""
        return tuple(one for one in self.members if one.counts) or self.members

    @property
    def surest(self) -> Candidate:
        """The member with the smallest p-value."""
        return min(self.members, key=_sureness)


def grouped(
    candidates: Iterable[Candidate], alone: Mapping[str, int], same_compiler: Callable[[Candidate], bool]
) -> list[StepGroup]:
    """Groups by machine, kind and direction, oldest first.

    alone: series without a baseline, by machine.  same_compiler: whether a candidate's two sides were compiled alike;
    where they were not, a step of every series is no sign of the machine.
    """
    found = [group for same in _apart(candidates) for group in _groups(same)]
    turned = [_of_machine(group, alone, same_compiler) for group in found]
    machine = [one for group in turned if group.kind is EventKind.MACHINE for one in group.members]
    united = [group for same in _apart(machine) for group in _groups(same)]  # some of them are the same change
    kept = _joined([*(group for group in turned if group.kind is not EventKind.MACHINE), *united])
    return sorted(kept, key=lambda group: (group.bad, group.machine, group.kind, group.direction))


def _apart(candidates: Iterable[Candidate]) -> Iterator[list[Candidate]]:
    def place(one: Candidate) -> tuple[str, str, str]:
        return one.key.machine, one.kind, one.direction

    return (list(group) for _, group in itertools.groupby(sorted(candidates, key=place), key=place))


def _groups(candidates: Sequence[Candidate]) -> Iterator[StepGroup]:
    """Around the surest step first; a step joins the leader it is nearest to."""
    reach = max((max(one.bad - one.low, one.high - one.bad) for one in candidates), default=0)
    leaders: list[Leader] = []
    for rank, one in enumerate(sorted(candidates, key=_sureness)):
        if not any(one.agrees(leader) for _, _, leader in _within(leaders, one.bad, reach)):
            bisect.insort(leaders, (one.bad, rank, one))
    members: dict[int, list[Candidate]] = {}
    for one in candidates:
        around = _within(leaders, one.bad, reach)
        near = ((abs(bad - one.bad), rank) for bad, rank, leader in around if one is leader or one.agrees(leader))
        members.setdefault(min(near)[1], []).append(one)
    return (group_of(each) for each in members.values())


def _within(
    leaders: Sequence[tuple[int, int, Candidate]], place: int, reach: int
) -> Sequence[tuple[int, int, Candidate]]:
    """Leaders that may agree with a candidate at a place."""
    return leaders[bisect.bisect_left(leaders, (place - reach,)) : bisect.bisect_left(leaders, (place + reach + 1,))]


def group_of(members: Sequence[Candidate]) -> StepGroup:
    """The group of members; its first bad commit is the one most of them name, the surest of them on a tie.

    A series in two tracks or with two steps within the slack is told once, by its surest step.
    """
    best: dict[tuple[object, bool], Candidate] = {}
    for one in sorted(members, key=_sureness):
        best.setdefault((one.key, one.counts), one)
    each = sorted(best.values(), key=lambda one: (one.key, one.bad))
    counting = [one for one in each if one.counts] or each
    votes = Counter(one.bad for one in counting)
    bad = min(counting, key=lambda one: (-votes[one.bad], _sureness(one))).bad
    good = max(one.good for one in counting if one.bad == bad)
    first = each[0]
    return StepGroup(first.key.machine, first.kind, first.direction, tuple(each), good, bad)


def _of_machine(group: StepGroup, alone: Mapping[str, int], same_compiler: Callable[[Candidate], bool]) -> StepGroup:
    """The group as the machine's, if most of the series that have no baseline are in it."""
    seconds = [one for one in group.members if one.judged_by == "seconds"]
    wide = len(seconds) >= MACHINE_SHARE * alone.get(group.machine, 0)
    several = len({one.key.kernel for one in seconds}) >= MACHINE_OPERATORS
    if group.kind is not EventKind.KERNEL or not (wide and several) or not all(map(same_compiler, seconds)):
        return group
    members = tuple(dataclasses.replace(one, kind=EventKind.MACHINE) for one in group.members)
    return dataclasses.replace(group, kind=EventKind.MACHINE, members=members)


def _joined(groups: Sequence[StepGroup]) -> Iterator[StepGroup]:
    """Steps of seconds that the machine's own steps explain go with these."""
    machines = [group for group in groups if group.kind is EventKind.MACHINE]
    taken: dict[int, list[Candidate]] = {}
    for group in groups:
        if group.kind is not EventKind.KERNEL:
            continue
        left = []
        for one in group.members:
            host = next((number for number, other in enumerate(machines) if _explains(other, one)), None)
            if host is None:
                left.append(one)
            else:
                taken.setdefault(host, []).append(dataclasses.replace(one, kind=EventKind.MACHINE))
        if left:
            yield group_of(left) if len(left) < len(group.members) else group
    for number, group in enumerate(machines):
        yield group_of([*group.members, *taken[number]]) if number in taken else group
    yield from (group for group in groups if group.kind not in (EventKind.KERNEL, EventKind.MACHINE))


def _explains(machine: StepGroup, one: Candidate) -> bool:
    same = machine.machine == one.key.machine and machine.direction is one.direction and one.judged_by == "seconds"
    known = len(machine.operators) >= MACHINE_OPERATORS or one.key.kernel in machine.operators
    return same and known and any(one.agrees(other) for other in machine.members)


def _sureness(one: Candidate) -> tuple[float, int, object]:
    return one.step.p_value, one.bad, one.key


# Work that only moved: one operator slower and another faster by the same seconds, at one commit of one machine.


LEFT = 0.25
"""Share of the larger move that may be left over: levels of seconds are known to some percent each.  A choice."""


@dataclasses.dataclass(frozen=True)
class MovedWork:
    """faster: index of the group that gained.  sentence: what a person is told."""

    faster: int
    sentence: str


def moved_work(groups: Sequence[StepGroup]) -> dict[int, MovedWork]:
    """Pairs of groups that cancel, by the slower one; each group is in one pair at most."""
    taken: set[int] = set()
    found = {}
    at: dict[tuple[str, int, Direction], list[int]] = {}
    for number, group in enumerate(groups):
        if group.kind is EventKind.KERNEL:
            at.setdefault((group.machine, group.bad, group.direction), []).append(number)
    for (machine, bad, way), numbers in at.items():
        others = at.get((machine, bad, Direction.FASTER), []) if way is Direction.SLOWER else []
        for slower, faster in itertools.product(numbers, others):
            if slower not in taken and faster not in taken and _cancel(groups[slower], groups[faster]):
                taken |= {slower, faster}
                found[slower] = MovedWork(faster, _sentence(groups[slower], groups[faster]))
    return found


def _cancel(slower: StepGroup, faster: StepGroup) -> bool:
    lost, won = seconds(slower), seconds(faster)
    return not slower.operators & faster.operators and abs(lost + won) <= LEFT * max(abs(lost), abs(won))


def seconds(group: StepGroup) -> float:
    """Seconds that one call of each series takes more than before."""
    return math.fsum(one.seconds for one in group.members)


def _sentence(slower: StepGroup, faster: StepGroup) -> str:
    names = [", ".join(sorted(group.operators)) for group in (slower, faster)]
    moved = [f"{abs(seconds(group)) * 1e6:.3g} us" for group in (slower, faster)]
    return f"work moved: {names[0]} takes {moved[0]} more and {names[1]} {moved[1]} less at the same commit"


# What became of a step: it stands, its series went back to the old level, or its series ended.


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
    reader = _Levels(steps, measured)
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
        place = max(self._place(one.track, self.steps[one.track][number].index) for one, number in back.items())
        return Ending(EventState.RECOVERED if short else EventState.FIXED, place)

    def _closed(self, standing: Sequence[Candidate]) -> Ending:
        """ACCEPTED if nothing more can be learnt of any series that stands, else OPEN."""
        ends = []
        for one in standing:
            following = self.next_track(one)
            place = self._place(following) if following >= 0 else self.measured.gone(one.key)
            if place < 0:
                return Ending(EventState.OPEN)
            ends.append((place, REDEFINED if following >= 0 else GONE))
        return Ending(EventState.ACCEPTED, *max(ends)) if ends else Ending(EventState.OPEN)

    def next_track(self, one: Candidate) -> int:
        """The stretch of the same series under the next benchmark definition; -1 if there is none."""
        same = self.measured.tracks.of_key[one.key]
        return next((track for track in same if track > one.track), -1)

    def _place(self, track: int, point: int = 0) -> int:
        tracks = self.measured.tracks
        return int(tracks.place[tracks.starts[track] + point])
