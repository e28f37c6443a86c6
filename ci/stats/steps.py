"""Change points of one series: levels that last, told from noise, outliers, drift and autocorrelation.

A series is freed of short spikes (`steps_noise`), then split top-down: the clearest split is taken while it stands out
of the noise that is left beside it, of which the autocorrelation raises the bar (`steps_scan`).  What a smooth drift
explains as well is no step.  The bar is set for the whole series: 1 of 200 series without a step raises any alarm
(`steps_critical`).

Steps of positive values are ratios: everything is done on logarithms.  The series may grow for ever: of more than
WINDOW points the oldest are decided for good, so a new point costs the same however long the history is.
"""

from __future__ import annotations

import dataclasses
from collections import defaultdict
from collections.abc import Mapping, Sequence

import numpy as np
from scipy.special import stdtrit

from ci.stats import steps_scan
from ci.stats.steps_noise import Sums, Wander, median, size, wander, without_spikes
from ci.stats.steps_scan import p_value
from ci.stats.types import FloatArray, Step

WINDOW, UNDECIDED, OVERLAP = 1024, 256, 512
"""Points that are looked at together; of a full window, the newest that stay undecided; and the newest kept to compare
with what follows.  A step of one standard deviation needs about 60 points on either side.  A drift of two standard
deviations over 1,000 points is seen as one: 0.3 % of such series raise an alarm, with windows of 512 62 % do
(2026-11-22)."""

ROWS = 512
"""Series that are analysed together: their sums stay in a core's cache."""

INTERVAL = 0.99
"""Coverage of the interval about a step's ratio."""

MEDIAN_ERROR = (np.pi / 2) ** 0.5
"""Standard error of the median of normal values / that of their mean."""


@dataclasses.dataclass(frozen=True)
class Tail:
    """What is decided of a growing series: its steps so far, and the point from which on nothing is."""

    start: int = 0
    steps: tuple[Step, ...] = ()


def find(values: FloatArray) -> list[Step]:
    """Steps of a series of positive finite values, oldest first.  ValueError for other values."""
    return find_many([values])[0]


def find_many(series: Sequence[FloatArray]) -> list[list[Step]]:
    """`find` of many series, fastest where many have the same length."""
    return [steps for _, steps in advance([Tail()] * len(series), series)]


def advance(tails: Sequence[Tail], series: Sequence[FloatArray]) -> list[tuple[Tail, list[Step]]]:
    """(what is decided now, all steps) of each series, given what was decided before; the same as from the start.

    Of each series only the values from its tail's start on are read; they must be positive and finite.
    """
    return _advance(tails, series, logs=True)


def find_shifts(values: FloatArray) -> list[Step]:
    """Steps of a series of any finite values, as differences; the ratio is NaN where either level is not positive."""
    return _advance([Tail()], [values], logs=False)[0][1]


def _advance(tails: Sequence[Tail], series: Sequence[FloatArray], *, logs: bool) -> list[tuple[Tail, list[Step]]]:
    now, steps = list(tails), [list(tail.steps) for tail in tails]
    waiting = list(range(len(series)))
    while waiting:
        full = []
        for (start, stop), rows in _alike(now, series, waiting).items():
            seen = _scaled(np.stack([series[i][start:stop] for i in rows]), logs=logs)
            for i, found in zip(rows, _analysed(seen, start, logs=logs), strict=True):
                steps[i] = [*now[i].steps, *found]
                if stop < len(series[i]):
                    now[i] = _decided(now[i], found)
                    full.append(i)
        waiting = full
    return list(zip(now, steps, strict=True))


def _alike(
    tails: Sequence[Tail], series: Sequence[FloatArray], waiting: Sequence[int]
) -> Mapping[tuple[int, int], list[int]]:
    """Series by what of them is looked at: (first point, the one after the last)."""
    found = defaultdict(list)
    for i in waiting:
        start = tails[i].start
        found[start, min(start + WINDOW, len(series[i]))].append(i)
    return found


def _scaled(values: FloatArray, *, logs: bool) -> FloatArray:
    x = np.asarray(values, dtype=np.float64)
    bad = ~(np.isfinite(x) & (x > 0)) if logs else ~np.isfinite(x)
    if bad.any():
        wanted = "a positive finite number: a step is a ratio" if logs else "a finite number"
        raise ValueError(f"{x[bad][0]} is not {wanted}; leave such points out")
    return np.log(x) if logs else x


def _decided(tail: Tail, found: Sequence[Step]) -> Tail:
    """After a full window: its older steps are kept as they are, and what follows is compared with its newer part."""
    old = [step for step in found if step.index < tail.start + WINDOW - UNDECIDED]
    start = max([tail.start + WINDOW - OVERLAP, *(step.index for step in old[-1:])])
    return Tail(start, (*tail.steps, *old))


def _analysed(seen: FloatArray, start: int, *, logs: bool) -> list[list[Step]]:
    """The steps of each row; `start`: points of the history before them."""
    if seen.shape[1] < 2 * steps_scan.SHORTEST:
        return [[] for _ in seen]
    found: list[list[Step]] = []
    for first in range(0, len(seen), ROWS):
        some = seen[first : first + ROWS]
        sums = Sums.of(without_spikes(some))
        for row, places in enumerate(steps_scan.places(sums, start + seen.shape[1])):
            found.append(_described(some[row], sums, row, places, start, logs=logs) if places else [])
    return found


def _described(seen: FloatArray, sums: Sums, row: int, places: list[int], start: int, *, logs: bool) -> list[Step]:
    edges = [0, *places, len(seen)]
    noise = wander(sums, row, edges)
    steps = []
    for split in zip(edges, edges[1:], edges[2:], strict=False):
        p = p_value(float(size(sums, row, split, noise)), start + len(seen))
        steps.append(_step(seen, split, noise, p, start, logs=logs))
    return steps


def _step(
    seen: FloatArray, split: tuple[int, int, int], noise: Wander, p_value: float, start: int, *, logs: bool
) -> Step:
    a, k, b = split
    before, after = median(seen[a:k]), median(seen[k:b])
    error = MEDIAN_ERROR * float(np.sqrt(noise.variance(k - a) + noise.variance(b - k)))
    reach = float(stdtrit(max(b - a - 2, 1), (1 + INTERVAL) / 2)) * error
    gap = after - before
    ratio, low, high = _ratios(before, [gap, gap - reach, gap + reach], logs=logs)
    if logs:
        before, after = float(np.exp(before)), float(np.exp(after))
    return Step(start + k, before, after, ratio, low, high, p_value)


def _ratios(before: float, gaps: list[float], *, logs: bool) -> list[float]:
    """after / before of each gap between the levels."""
    if logs:
        return [float(np.exp(gap)) for gap in gaps]
    return [(before + gap) / before if before > 0 and before + gaps[0] > 0 else float("nan") for gap in gaps]
