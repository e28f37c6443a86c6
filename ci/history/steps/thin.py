"""Large steps among the first points of a series, which are too few for a detector.

A ratio to a baseline of the same trial repeats so well that a large step needs no history: of commits recorded apart it
differs by 0.5 %.  Seconds wander by more than that, so they are not judged here.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence

import numpy as np
import pandas as pd
from scipy.special import stdtr

from ci.history.steps.evidence import NORMAL_99
from ci.history.steps.series import IntArray, Tracks
from ci.stats.types import FloatArray, Step

FIRST = 7
"""Points that are looked at: a detector that wants three of each level finds little among fewer than eight."""
NOISE = 0.005
"""Typical difference of the ratio between two runs (ci/policy.toml, recorded_noise, 2026-11-20)."""
LEAST = 0.05
"""Smallest step (log): ten times NOISE, and above the 4.7 % within which nine of ten series of this repository's own
H200 records stay (2026-11-22)."""
SURE = 7.0
"""Smallest step in standard errors of the difference of two points, for series that turn out to be noisy."""
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

ROUNDING = 1e-12
"""Share by which the same median may differ that numpy takes of many rows."""

Early = Mapping[int, Sequence[Step]]
"""Large early steps by track."""


def with_early(tracks: Tracks, found: Sequence[Sequence[Step]]) -> list[list[Step]]:
    """The steps of all tracks, with the large early ones of those judged by ratio.

    An early step is believed if most series of its operator step alike, or, while there are no more points than FIRST,
    if both levels were measured twice, or several trials of both points tell them apart: a first point alone may be an
    outlier.
    """
    looked_at = stepping(tracks)
    seen = {int(t): steps for t in looked_at if (steps := list(early(tracks.values[tracks.span(int(t))])))}
    votes = _votes(tracks, seen)
    merged = [list(steps) for steps in found]
    for track, steps in seen.items():
        others = [one for one in steps if _believed(tracks, track, one, votes)]
        merged[track] = _merged(found[track], others)
    return merged


def stepping(tracks: Tracks) -> IntArray:
    """Tracks judged by ratio whose first points have a level LEAST from all before it; the others have no such step."""
    where = np.flatnonzero(tracks.by_ratio)
    start, stop = tracks.starts[where][:, None], tracks.starts[where + 1][:, None]
    points = np.minimum(start + np.arange(FIRST - 1 + LASTING), stop - 1)  # the last one again where there are too few
    values = tracks.values[points]
    jumps = np.abs(np.diff(np.log(values[:, :FIRST]), axis=1)) >= LEAST
    at = np.flatnonzero(jumps.any(axis=1))
    values, left, found = values[at], (stop - start)[at, 0], np.zeros(len(at), bool)
    for index in range(1, FIRST):
        before, after = np.median(values[:, :index], axis=1), _after(values, left - index, index)
        found |= np.abs(np.log(after / before)) >= LEAST * (1 - ROUNDING)
    return where[at[found]]


def _after(values: FloatArray, left: IntArray, index: int) -> FloatArray:
    """Median of up to LASTING values from an index on, of which there are `left`; NaN where there are none."""
    found = np.full(len(values), np.nan)
    for count in range(1, LASTING + 1):
        those = left >= count if count == LASTING else left == count
        found[those] = np.median(values[those, index : index + count], axis=1)
    return found


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


def early(values: FloatArray) -> Iterator[Step]:
    """Large lasting steps among the first points of a series of ratios."""
    jumps = np.abs(np.diff(np.log(values[:FIRST])))
    if not np.any(jumps >= LEAST):
        return
    noise = _noise(values)
    least = max(LEAST, SURE * noise * math.sqrt(2))
    start = 0
    for index in map(int, np.flatnonzero(jumps >= least) + 1):
        before, after = (float(np.median(part)) for part in (values[start:index], values[index : index + LASTING]))
        if abs(math.log(after / before)) >= least:
            yield _step(index, before, after, noise)
            start = index


def _noise(values: FloatArray) -> float:
    """Of one point: from the differences of neighbours where there are enough of them to tell."""
    if len(values) <= FIRST:
        return NOISE
    differences = np.diff(np.log(values))
    return max(NOISE, 1.4826 * float(np.median(np.abs(differences))) / math.sqrt(2))


def _step(index: int, before: float, after: float, noise: float) -> Step:
    error = noise * math.sqrt(2)
    reach = math.exp(NORMAL_99 * error)
    ratio = after / before
    p_value = float(2 * stdtr(TAILS, -abs(math.log(ratio)) / error))
    return Step(index, before, after, ratio, ratio / reach, ratio * reach, p_value)


def _merged(steps: Sequence[Step], others: Sequence[Step]) -> list[Step]:
    """The detector's steps and those of the others that are none of them."""
    new = [one for one in others if all(abs(one.index - step.index) > 2 for step in steps)]
    return sorted([*steps, *new], key=lambda step: step.index)
