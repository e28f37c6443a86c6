"""Detection over all tracks, and which of the steps may be told."""

from __future__ import annotations

import dataclasses
import functools
import itertools
import math
import os
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pandas as pd
from scipy.special import stdtr

from ci.history.grouping import LEAST_SECONDS, NORMAL_99, SLACK, Candidate, StepGroup, went_along
from ci.history.series import BoolArray, Direction, EventKind, IntArray, MachinePath, SeriesKey, Tracks, coded
from ci.stats import steps as detector
from ci.stats.types import FloatArray, Step

# Which steps may be told: what stands out of the noise of its machine, and what comparing in pairs bears out.
#
# How well the times of a machine repeat is known from its own records alone; until it is, a step on it means nothing.


PAIRS = 2
"""Pairs of neighbouring commits from which on the noise counts as known: a difference is a step or noise, and of a
single pair nobody can say which.  Where one of two is a step, their median is half of it, which hides the step."""

LEAST_NOISE = 0.001
"""Smallest noise (log) that is believed: how well a paired ratio repeats (A/A on an H200, 2026-11)."""

MOST = 500
"""Series of a machine that are looked at: more would cost time and tell little."""

SHORT, SURE = 16, 7.0
"""Points below which a step must also stand out of the machine's noise, and by how many standard errors, since runs
differ with heavy tails: of so few the scatter of a series itself is not known well enough.  In made histories of a CPU
(processes that differ by 25 %, 18 series) 1 in 20 had an event at 8 to 12 points without it, none with it, nor had any
first part of 20 recorded checks (tests/ci/history/test_finding.py, 2026-11)."""

SPREAD = 1.4826 / math.sqrt(2)
"""Standard deviation of a point / median difference of two, of normal values."""


@dataclasses.dataclass(frozen=True)
class MachineNoise:
    """sigma: standard deviation of a point (log), None while it is not known.  missing: commits that it still takes."""

    sigma: float | None
    missing: int = 0

    def lets_through(self, step: Step, points: int) -> bool:
        """Whether a step of a series of so many points may be one, by what is known of the machine."""
        if self.sigma is None:
            return False
        error = self.sigma * math.sqrt(1 / step.index + 1 / (points - step.index))
        return points >= SHORT or abs(math.log(step.ratio)) >= SURE * error


def of_machines(tracks: Tracks) -> Mapping[str, MachineNoise]:
    """The noise of each machine: of ratios to a baseline where it has any, else of seconds."""
    return {machine: _machine_noise(tracks, where) for machine, where in tracks.of_machine.items()}


def _machine_noise(tracks: Tracks, where: IntArray) -> MachineNoise:
    """From differences of neighbouring commits; of those with the same code where there are enough."""
    ratios = where[tracks.by_ratio[where]]
    chosen = ratios if len(ratios) else where
    chosen = chosen[:: len(chosen) // MOST + 1]
    spans = [np.arange(tracks.starts[track] + 1, tracks.starts[track + 1]) for track in chosen.tolist()]
    later = np.concatenate(spans)
    moved = np.abs(np.log(tracks.values[later] / tracks.values[later - 1]))
    same = ~_other_code(tracks, later)
    for some in (same, np.ones_like(same)):
        pairs = len(np.unique(tracks.place[later[some]]))
        if pairs >= PAIRS:
            return MachineNoise(max(SPREAD * float(np.median(moved[some])), LEAST_NOISE))
    return MachineNoise(None, PAIRS - pairs)


def _other_code(tracks: Tracks, later: IntArray) -> BoolArray:
    """Which points ran other code than the one before; where that is not known, none."""
    if "code" not in tracks.frame:
        return np.zeros(len(later), bool)
    codes, names = coded(tracks.frame["code"].iloc[np.concatenate([tracks.row[later - 1], tracks.row[later]])])
    before, after = np.split(codes, 2)
    unknown = np.array([*(name == "" for name in names), True])
    return np.asarray((before != after) & ~unknown[before] & ~unknown[after])


# ---- compared in pairs ----------------------------------------------------------------------------------------------


@dataclasses.dataclass(frozen=True)
class PairedStep:
    """What the gate says of a case with times of both commits in the same trials.

    direction: "slower", "faster", or "" where nothing is shown.  ratio: head's time / base's, its interval and p-value.
    """

    direction: str
    ratio: float
    low: float
    high: float
    p_value: float


Paired = Callable[[str, str, str], Mapping[str, PairedStep]]
"""(machine, base, head) -> by case ("gemm/triton/m64"), of those that were compared in pairs."""


@dataclasses.dataclass(frozen=True, eq=False)
class StepVerdicts:
    """What was said of the commits on both sides of a point.  commits: by place."""

    tracks: Tracks
    commits: Sequence[str]
    paired: Paired

    def in_pairs(self, track: int, index: int) -> PairedStep | None:
        """Of the point at an index of a track against the one before; None if they were not compared in pairs."""
        key, start = self.tracks.keys[track], self.tracks.starts[track]
        base, head = (self.commits[self.tracks.place[start + at]] for at in (index - 1, index))
        return self.paired(key.machine, base, head).get(f"{key.kernel}/{key.backend}/{key.case}")

    def said(self, track: int, index: int) -> str | None:
        """Which way the case moved there, "" for none; None if the two commits were not compared in pairs."""
        found = self.in_pairs(track, index)
        return found.direction if found else None

    def agrees(self, track: int, step: Step) -> bool:
        """Whether it was said of the two commits of a step that the case moved that way."""
        return self.said(track, step.index) == (Direction.SLOWER if step.ratio > 1 else Direction.FASTER)

    def told(self, track: int) -> Iterator[Step]:
        """The steps of a track that were said of neighbouring points, with the numbers of their verdicts."""
        values = self.tracks.values[self.tracks.span(track)]
        for index in self._met.get(track, ()):
            found = self.in_pairs(track, index)
            if found and found.direction:
                before, after = values[index - 1 : index + 1].tolist()
                yield Step(index, before, after, found.ratio, found.low, found.high, found.p_value)

    @functools.cached_property
    def _met(self) -> Mapping[int, Sequence[int]]:
        """By track: the points whose commit ran beside that of the point before."""
        tracks = self.tracks
        if "compared_with" not in tracks.frame or not len(tracks.row):
            return {}
        codes, names = coded(tracks.frame["compared_with"].iloc[tracks.row])
        places = {name: place for place, name in enumerate(self.commits)}
        base = np.array([*(places.get(str(name), -1) for name in names), -1], int)[codes]  # code -1: nothing known
        first = np.zeros(len(tracks.row), bool)
        first[tracks.starts[:-1]] = True
        found: dict[int, list[int]] = {}
        for at in (np.flatnonzero((base[1:] == tracks.place[:-1]) & ~first[1:]) + 1).tolist():
            track = int(np.searchsorted(tracks.starts, at, side="right")) - 1
            found.setdefault(track, []).append(at - int(tracks.starts[track]))
        return found

    def settled(self, found: Sequence[Sequence[Step]], noise: Mapping[str, MachineNoise]) -> list[list[Step]]:
        """The steps that nothing speaks against: what was said in pairs, else the noise of their machine.

        A step that was said of commits within the tolerance of detection stands there; what was said of two neighbours
        is a step whether it was found or not.
        """
        each = (self._settled(track, steps, noise) for track, steps in enumerate(found))
        return [_merged(list(self.told(track)), list(steps)) for track, steps in enumerate(each)]

    def _settled(self, track: int, steps: Sequence[Step], noise: Mapping[str, MachineNoise]) -> Iterator[Step]:
        span, machine = self.tracks.span(track), self.tracks.keys[track].machine
        points = span.stop - span.start
        for step in steps:
            if self.said(track, step.index) is None:
                if noise[machine].lets_through(step, points):
                    yield step
                continue
            near = range(max(step.index - SLACK, 1), min(step.index + SLACK + 1, points))
            moved = (dataclasses.replace(step, index=at) for at in sorted(near, key=lambda at: abs(at - step.index)))
            yield from [one for one in moved if self.agrees(track, one)][:1]


# Large steps among the first points of a series, which are too few for a detector.
#
# A ratio to a baseline of the same trial repeats so well that a large step needs no long history, only the noise of its
# machine (`MachineNoise`).  Seconds wander by more than that, so they are not judged here.


FIRST = 7
"""Points that are looked at: a detector that wants three of each level finds little among fewer than eight."""
LEAST_STEP = 0.05
"""Smallest step (log): above the 4.7 % within which nine of ten series of this repository's own H200 records stay
(2026-11-22)."""
TAILS = 3
"""Degrees of freedom of Student's t for the p-value: runs differ with heavy tails."""
LASTING = 3
"""Points whose median is the level after: an outlier is none."""


AGREEING = 0.5
"""Share of an operator's series that step alike from which one bears out the other.  A choice: most of them."""
TRIALS = 2
"""Trials of a point that nothing else bears out: of one alone nobody knows how well it repeats."""

REPEATED = 2
"""Points on both sides that bear each other out: then their own intervals, wide of two trials, need not."""

Early = Mapping[int, Sequence[Step]]
"""Large early steps by track."""


def with_early(
    tracks: Tracks, found: Sequence[Sequence[Step]], noise: Mapping[str, MachineNoise], verdicts: StepVerdicts
) -> list[list[Step]]:
    """The steps of all tracks, with the large early ones of those judged by ratio.

    What was said of the two commits when they were compared in pairs holds.  Where they were not, an early step stands
    out of the noise of its machine, and is believed if most series of its operator step alike, or, while there are no
    more points than FIRST, if both levels were measured twice, or several trials of both points tell them apart: a
    first point alone may be an outlier.
    """
    seen: dict[int, list[Step]] = {}
    for track in np.flatnonzero(tracks.by_ratio).tolist():
        sigma = noise[tracks.keys[track].machine].sigma
        steps = list(early(tracks.values[tracks.span(track)], sigma, functools.partial(verdicts.said, track)))
        seen |= {track: steps} if steps else {}
    votes = _votes(tracks, seen)
    merged = [list(steps) for steps in found]
    for track, steps in seen.items():
        others = [one for one in steps if verdicts.agrees(track, one) or _believed(tracks, track, one, votes)]
        merged[track] = _merged(found[track], others)
    return merged


def _votes(tracks: Tracks, seen: Early) -> Mapping[tuple[str, str, int, bool], float]:
    """By machine, operator, place and direction: the share of its series that have an early step there."""
    steps = Counter(_what(tracks, track, one) for track, found in seen.items() for one in found)
    ours = Counter(tracks.keys[int(track)][:2] for track in np.flatnonzero(tracks.by_ratio))
    return {what: count / ours[what[:2]] for what, count in steps.items() if count > 1}


def _what(tracks: Tracks, track: int, step: Step) -> tuple[str, str, int, bool]:
    place = int(tracks.place[tracks.starts[track] + step.index])
    return *tracks.keys[track][:2], place, step.ratio > 1


def _believed(tracks: Tracks, track: int, step: Step, votes: Mapping[tuple[str, str, int, bool], float]) -> bool:
    if votes.get(_what(tracks, track, step), 0.0) >= AGREEING:
        return True
    span = tracks.span(track)
    if span.stop - span.start > FIRST or "trials" not in tracks.frame:
        return False
    if min(step.index, span.stop - span.start - step.index) >= REPEATED:
        return True
    rows = tracks.frame.iloc[tracks.row[span.start + step.index - 1 : span.start + step.index + 1]]
    return bool((rows["trials"] >= TRIALS).all()) and _apart(rows)


def _apart(rows: pd.DataFrame) -> bool:
    """Whether the intervals of two points' paired ratios do not meet, where the records have them."""
    if "paired_low" not in rows:
        return True
    low, high = rows["paired_low"].to_numpy(np.float64), rows["paired_high"].to_numpy(np.float64)
    return bool(not np.isfinite(low).all() or high[0] < low[1] or high[1] < low[0])


def early(
    values: FloatArray, sigma: float | None, said: Callable[[int], str | None] = lambda index: None
) -> Iterator[Step]:
    """Large lasting steps among the first points of a series of ratios.

    sigma: noise of the machine, None where it is not known.  said: of the two commits at an index, in pairs.
    """
    jumps = np.abs(np.diff(np.log(values[:FIRST])))
    places = (np.flatnonzero(jumps >= LEAST_STEP) + 1).tolist()
    known = _noise(values, sigma) if places else None
    start = 0
    for index in places:
        way = said(index)
        if not way and (way is not None or known is None):
            continue
        noise = known or LEAST_STEP / SURE
        least = LEAST_STEP if way else max(LEAST_STEP, SURE * noise * math.sqrt(2))
        before, after = (float(np.median(part)) for part in (values[start:index], values[index : index + LASTING]))
        if jumps[index - 1] >= least and abs(math.log(after / before)) >= least:
            yield _step(index, before, after, noise)
            start = index


def _noise(values: FloatArray, sigma: float | None) -> float | None:
    """Of one point: the machine's, or the series' own where it is larger and there are enough points to tell."""
    if sigma is None or len(values) <= FIRST:
        return sigma
    differences = np.diff(np.log(values))
    return max(sigma, 1.4826 * float(np.median(np.abs(differences))) / math.sqrt(2))


def _step(index: int, before: float, after: float, noise: float) -> Step:
    error = noise * math.sqrt(2)
    reach = math.exp(NORMAL_99 * error)
    ratio = after / before
    p_value = float(2 * stdtr(TAILS, -abs(math.log(ratio)) / error))
    return Step(index, before, after, ratio, ratio / reach, ratio * reach, p_value)


def _merged(steps: Sequence[Step], others: Sequence[Step]) -> list[Step]:
    """The steps and those of the others that are none of them."""
    new = [one for one in others if all(abs(one.index - step.index) > SLACK for step in steps)]
    return sorted([*steps, *new], key=lambda step: step.index)


TOGETHER = 8192
"""Tracks in one piece of work at most: of 512 to 8192 the fastest (350 points, two cores, 2026-11-22)."""

FEW = 512
"""Tracks that are done before one more thread is of use."""


def found(tracks: Tracks) -> list[list[Step]]:
    """The steps of each track; numpy lets go of the interpreter in long loops, so two threads are faster than one."""
    arrays = tracks.arrays()
    if len(arrays) < FEW:
        return detector.find_many(arrays)
    threads = min(os.cpu_count() or 1, len(arrays) // FEW)
    size = -(-len(arrays) // (threads * -(-len(arrays) // (threads * TOGETHER))))
    pieces = [arrays[at : at + size] for at in range(0, len(arrays), size)]
    with ThreadPoolExecutor(threads) as pool:
        return [steps for piece in pool.map(detector.find_many, pieces) for steps in piece]


# Where a step was placed when it could first be told: ids are made of that, so more history changes none.
#
# A detector that has seen more places a step better, so its place moves; what it said of the points up to the first
# alarm does not.


BEFORE, AFTER = 40, range(3, 16)
"""Points before a step that are looked at, and after it: most steps of a history of noise as it is are told by then."""


def places(groups: Sequence[StepGroup], tracks: Tracks) -> list[int]:
    """The place of each group as its first alarm had it; the place it has now where none of those looks found it."""
    asked = [(number, one) for number, group in enumerate(groups) for one in group.counting if one.number >= 0]
    first: dict[int, tuple[int, SeriesKey, int]] = {}
    points = np.diff(tracks.starts)
    for after in AFTER:
        asked = [(number, one) for number, one in asked if one.step.index + after <= points[one.track]]
        spans = [tracks.span(one.track) for _, one in asked]
        begins = [max(one.step.index - BEFORE, 0) for _, one in asked]
        looks = [
            tracks.values[span][begin : one.step.index + after]
            for (_, one), span, begin in zip(asked, spans, begins, strict=True)
        ]
        left = []
        for (number, one), span, begin, steps in zip(asked, spans, begins, detector.find_many(looks), strict=True):
            alike = (begin + step.index for step in steps if (step.ratio > 1) == (one.step.ratio > 1))
            index = next((at for at in alike if abs(at - one.step.index) <= SLACK), None)
            place = tracks.place[span]
            if index is not None:
                told = int(place[one.step.index + after - 1]), one.key, int(place[index])
                first[number] = min(first.get(number, told), told, key=lambda one: one[:2])
            else:
                left.append((number, one))
        asked = left
    return [first[number][2] if number in first else group.bad for number, group in enumerate(groups)]


# Steps of a machine's own path: what all its operators did at one commit.


def of_paths(
    tracks: Tracks,
    paths: Mapping[str, MachinePath],
    noise: Mapping[str, MachineNoise],
    same_compiler: Callable[[Candidate], bool],
) -> Iterator[Candidate]:
    """Candidates of all machines: one series of each operator and arm that went along tells of the step.

    Where no library went along and the compiler changed, it is the compiler's doing: of kind KERNEL.
    """
    for machine, path in paths.items():
        steps = detector.find(np.exp(path.path)) if np.any(path.path) else []
        steps = [step for step in steps if noise[machine].lets_through(step, len(path.path))]
        edges = [0, *(step.index for step in steps), len(path.path)]
        for step, (first, stop) in zip(steps, zip(edges, edges[2:], strict=False), strict=True):
            if abs(math.log(step.ratio)) >= LEAST_SECONDS:
                leader = _leader(path, step, tracks, machine)
                yield from _told_of_machine_steps(
                    tracks, machine, leader, (path.places[first], path.places[stop - 1]), same_compiler
                )


def _leader(path: MachinePath, step: Step, tracks: Tracks, machine: str) -> Candidate:
    """The step as if it were of a series."""
    where = [int(path.places[index]) for index in (step.index - 1, step.index)]
    way = Direction.SLOWER if step.ratio > 1 else Direction.FASTER
    track = int(tracks.of_machine[machine][0])
    bounds = (where[0], where[1], where[0], where[1])
    return Candidate(EventKind.MACHINE, way, tracks.keys[track], track, -1, step, "seconds", *bounds)


def _told_of_machine_steps(
    tracks: Tracks, machine: str, leader: Candidate, window: tuple[int, int], same_compiler: Callable[[Candidate], bool]
) -> list[Candidate]:
    def arm(track: int) -> tuple[str, bool]:
        return tracks.keys[track].kernel, bool(tracks.is_baseline[track])

    found = []
    listed = sorted(map(int, tracks.of_machine[machine]), key=lambda track: (arm(track), tracks.keys[track], track))
    for _, same in itertools.groupby(listed, key=arm):
        along = (one for track in same if (one := went_along(tracks, track, leader, *window)))
        if one := next(along, None):
            found.append(one)
    alike = any(tracks.is_baseline[one.track] for one in found) or all(map(same_compiler, found))
    kind = EventKind.MACHINE if alike else EventKind.KERNEL
    return [dataclasses.replace(one, kind=kind) for one in found]
