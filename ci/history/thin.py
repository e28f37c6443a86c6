"""Large steps among the first points of a series, which are too few for a detector.

A ratio to a baseline of the same trial repeats so well that a large step needs no history: of commits recorded apart it
differs by 0.5 %.  Seconds wander by more than that, so they are not judged here.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence

import numpy as np
from scipy import stats

from ci.history.evidence import NORMAL_99
from ci.history.series import Tracks
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


def with_early(tracks: Tracks, found: Sequence[Sequence[Step]]) -> list[list[Step]]:
    """The steps of all tracks, with the large early ones of those judged by ratio."""
    return [
        _merged(steps, list(early(values)) if by_ratio else [])
        for values, steps, by_ratio in zip(tracks.arrays(), found, tracks.by_ratio, strict=True)
    ]


def early(values: FloatArray) -> Iterator[Step]:
    """Large lasting steps among the first points of a series of ratios."""
    if len(values) < 2 or float(np.max(np.abs(np.diff(np.log(values[: FIRST + 1]))))) < LEAST / 2:
        return
    noise = _noise(values)
    start = 0
    for index in range(1, min(len(values), FIRST)):
        before, after = (float(np.median(part)) for part in (values[start:index], values[index : index + LASTING]))
        own = abs(math.log(values[index] / values[index - 1]))
        size = math.log(after / before)
        if min(own, abs(size)) >= max(LEAST, SURE * noise * math.sqrt(2)):
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
    p_value = float(2 * stats.t.sf(abs(math.log(ratio)) / error, TAILS))
    return Step(index, before, after, ratio, ratio / reach, ratio * reach, p_value)


def _merged(steps: Sequence[Step], others: Sequence[Step]) -> list[Step]:
    """The detector's steps and those of the others that are none of them."""
    new = [one for one in others if all(abs(one.index - step.index) > 2 for step in steps)]
    return sorted([*steps, *new], key=lambda step: step.index)
