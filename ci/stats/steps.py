"""Change points of one series: levels that last, told from noise, outliers, drift and autocorrelation.

A series is freed of short spikes, then split top-down: the clearest split is taken while it stands out
of the noise that is left beside it, of which the autocorrelation raises the bar.  What a smooth drift
explains as well is not a step.  The bar is set for the whole series: 1 of 200 series without a step raises any alarm.

A split of the whole series is blind to a level that comes and goes, so every split of a set of nested windows is
looked at (seeded binary segmentation: Kovacs, Buehlmann, Li and Munk, Biometrika 110, 2023).  The gain of a split is
the sum of squares that it explains.

Steps of positive values are ratios: everything is done on logarithms.  The series may grow for ever: of more than
WINDOW points the oldest are decided for good, so a new point costs the same however long the history is.
"""

from __future__ import annotations

import dataclasses
import functools
import itertools
from collections import defaultdict
from collections.abc import Iterator, Sequence

import numpy as np
import numpy.typing as npt
from scipy.special import stdtrit

from ci.stats import FloatArray, Step

WINDOW, UNDECIDED, OVERLAP = 1024, 256, 512
"""Points that are looked at together; of a full window, the newest that stay undecided; and the newest kept to compare
with what follows.  A step of one standard deviation needs about 60 points on either side.  A drift of two standard
deviations over 1,000 points is seen as one: 0.3 % of such series raise an alarm, with windows of 512 62 % do
(2026-11-22)."""

INTERVAL = 0.99
"""Coverage of the interval about a step's ratio."""

MEDIAN_ERROR = (np.pi / 2) ** 0.5
"""Standard error of the median of normal values / that of their mean."""

SHORTEST = 3
"""Points of the shortest level: spikes of one or two points are not steps."""

Split = tuple[int, int, int]
"""Levels [start, place) and [place, stop) of a series."""


def find(values: FloatArray) -> list[Step]:
    """Steps of a series of positive finite values, oldest first.  ValueError for other values.

    Window by window: of a full one the older steps are kept, and what follows is compared with its newer part.
    """
    x = np.asarray(values, dtype=np.float64)
    bad = ~(np.isfinite(x) & (x > 0))
    if bad.any():
        raise ValueError(f"{x[bad][0]} is not a positive finite number: a step is a ratio; leave such points out")
    logs, steps, start = np.log(x), list[Step](), 0
    while True:
        of_window = list(_steps_of_window(logs[start : start + WINDOW], start))
        if start + WINDOW >= len(logs):
            return steps + of_window
        steps += (step for step in of_window if step.index < start + WINDOW - UNDECIDED)
        start = max([start + WINDOW - OVERLAP, *(step.index for step in steps[-1:])])


def _steps_of_window(logs: FloatArray, start: int) -> Iterator[Step]:
    """start: points of the history before these."""
    if len(logs) < 2 * SHORTEST:
        return
    series = CleanSeries(logs)
    edges = level_edges(series, critical(start + len(logs)))  # the bar is that of the whole history
    if len(edges) > 2 and are_spikes(logs[edges[-3] : edges[-2]], logs[edges[-2] :], len(logs)):
        del edges[-2]
    noise = series.noise_between(edges)
    for a, k, b in _splits_at(edges):
        before, after = np.median(logs[a:k]), np.median(logs[k:b])
        error = MEDIAN_ERROR * float(np.sqrt(noise.variance(k - a) + noise.variance(b - k)))
        reach = float(stdtrit(max(b - a - 2, 1), (1 + INTERVAL) / 2)) * error
        gaps = after - before + np.array([0.0, -reach, reach])
        chance = p_value(series.standard_errors((a, k, b), noise), start + len(logs))
        yield Step(start + k, *map(float, (*np.exp([before, after]), *np.exp(gaps), chance)))


def _splits_at(edges: Sequence[int]) -> Iterator[Split]:
    """Each inner edge with the edges beside it."""
    return zip(edges, edges[1:], edges[2:], strict=False)


# What a series does without a step: spikes, wandering and smooth drift.


MEDIAN_OF = 9
"""Points of the running median: it follows a level of five points, also at the end, and ignores a spike of four.
With 7, 5 % of null series of t noise (3 degrees, 1,000 points) raise an alarm; with 11, a level is seen a point
later."""

CLIP, CLIPPED_SHARE = 2.0, 0.1
"""Points further from the running median than 2 robust standard deviations are pulled back to it, but at most this
share of them: more are not outliers but how the series is.  At 3, 9 % of null series of t noise (1,000 points) raise an
alarm, and without the share every fifth bimodal series does.  (2026-11-22, simulated)"""

NORMAL = 1.4826
"""Standard deviation of a normal variable / its median absolute deviation."""

PRIOR_CORRELATION, PRIOR_POINTS = 0.5, 10.0
"""What few points cannot say about autocorrelation is taken from here, worth 10 points: H200 runs one after the other
(data of 2026-11-20) have 0.2 to 0.7."""

MOST_CORRELATION = 0.9
"""Beyond it nothing can be told from a random walk."""

FLOOR = 1e-7
"""Standard deviation of a point, relative to the series' range, that rounding can imitate."""

TINY = float(np.finfo(np.float64).tiny)


@dataclasses.dataclass(frozen=True)
class Noise:
    """sigma: standard deviation of one point; correlation: of neighbouring points, 0 to 0.9."""

    sigma: float
    correlation: float

    def variance(self, count: int) -> float:
        """Of the mean of `count` points in a row of an AR(1) process."""
        r = self.correlation
        stretch = (1 + r) / (1 - r) - 2 * r * (1 - r**count) / (count * (1 - r) ** 2)
        return self.sigma**2 * stretch / count


class CleanSeries:
    """A series without its spikes.  points: about their median.  sums: of the points before each index."""

    def __init__(self, logs: FloatArray) -> None:
        clean = without_spikes(logs)
        self.points = clean - np.median(clean)
        self.sums = np.concatenate([[0.0], np.cumsum(self.points)])

    def noise_between(self, edges: Sequence[int]) -> Noise:
        """What is left when the levels between the edges are taken off.

        The correlation of residuals of a fit is too small by about (1 + 4 r) / points for each level (Marriott and
        Pope, Biometrika 41, 1954); that is put back.
        """
        x, points, levels = self.points, len(self.points), len(edges) - 1
        residual, neighbours = x.copy(), np.zeros(points - 1)
        for a, b in itertools.pairwise(edges):
            inside = np.zeros(points)
            inside[a:b] = x[a:b]
            residual[a:b] -= inside.sum() / (b - a)  # of x[a:b] alone another rounding, and p-values of another one
            neighbours[a : b - 1] = residual[a + 1 : b] * residual[a : b - 1]
        total = max(float((residual**2).sum()), points * (FLOOR * float(np.ptp(x))) ** 2 + TINY)
        r = float(neighbours.sum()) / total
        r = r + levels * (1 + 4 * max(r, 0.0)) / points
        r = (points * r + PRIOR_POINTS * PRIOR_CORRELATION) / (points + PRIOR_POINTS)
        sigma = float(np.sqrt(total / max(points - levels - 1, 1)))
        return Noise(sigma, min(max(r, 0.0), MOST_CORRELATION))

    def standard_errors(self, split: Split, noise: Noise) -> float:
        """How many lie between the means of the two levels."""
        start, place, stop = split
        at = self.sums[place]
        left, right = (at - self.sums[start]) / (place - start), (self.sums[stop] - at) / (stop - place)
        return float(np.abs(right - left) / np.sqrt(noise.variance(place - start) + noise.variance(stop - place)))

    def is_jump(self, split: Split) -> bool:
        """Whether two levels explain more of these points than a smooth drift, a cubic, does."""
        start, place, stop = split
        part = self.points[start:stop] - self.points[start:stop].mean()
        smooth = float(np.sum((_cubic(stop - start) @ part) ** 2))
        left, right = float(part[: place - start].sum()), float(part[place - start :].sum())
        return left**2 / (place - start) + right**2 / (stop - place) > smooth


def without_spikes(series: FloatArray) -> FloatArray:
    """The series with each point pulled to within reach of its running median."""
    centre = running_median(series)
    off = np.abs(series - centre)
    reach = max(CLIP * NORMAL * np.median(off), np.quantile(off, 1 - CLIPPED_SHARE, method="lower"))
    return np.clip(series, centre - reach, centre + reach)


def running_median(series: FloatArray) -> FloatArray:
    """Median of the points about each one; at the ends, of the first or last full stretch."""
    width = min(MEDIAN_OF, len(series) - 1 + len(series) % 2)
    stretches = np.lib.stride_tricks.sliding_window_view(series, width)
    return np.pad(np.median(stretches, axis=1), width // 2, mode="edge")


def are_spikes(before: FloatArray, after: FloatArray, points: int) -> bool:
    """Are the last points of a series spikes in a row, as the level before them has, and no level of their own?

    The running median cannot follow so few.  Were they spikes of that level, so many in a row would be expected more
    often than LEVEL allows in a series of `points`.
    """
    if len(after) > MEDIAN_OF // 2:
        return False
    up = np.median(after) > np.median(before)
    share = float(np.mean(before >= after.min() if up else before <= after.max()))
    return points * share ** len(after) > LEVEL


@functools.lru_cache(maxsize=4096)
def _cubic(points: int) -> FloatArray:
    """Orthonormal polynomials up to degree 3 on evenly spaced points, shape (4, points)."""
    return np.asarray(np.linalg.qr(np.vander(np.linspace(-1, 1, points), 4))[0].T)


# How large the loudest split of a series without a step is, simulated: what a step must exceed, and its p-value.


LEVEL = 0.005
"""Null series with any alarm: half of the 1 % that is promised, because some noise is worse than what was simulated."""

TABLE = {
    6: (5.60, 12.37),
    8: (5.75, 9.46),
    10: (6.78, 9.06),
    14: (6.34, 9.16),
    20: (6.26, 8.49),
    30: (6.06, 7.96),
    50: (5.74, 7.07),
    100: (5.13, 6.14),
    200: (5.01, 5.73),
    350: (5.01, 5.58),
    512: (5.22, 5.94),
    1024: (5.42, 6.15),
}
"""Points: standard errors that 1 of 100 and 1 of 1000 null series exceed, of the worst of Gaussian, t (3 degrees),
AR(1) 0.5 and 1 % outliers.  `python -m tests.study.step_bar --series 6000` of commit 168d12b8, 2026-11-22."""


def critical(points: int) -> float:
    """Standard errors that a step of a series of so many points must exceed."""
    one, step = _line(points)
    return one + step * float(np.log10(0.01 / LEVEL * _windows(points)))


def p_value(size: float, points: int) -> float:
    """Share of null series of so many points that have a split of this many standard errors.

    Log-linear through the two tails of the table and beyond them, which a normal tail falls below.
    """
    one, step = _line(points)
    return float(min(1.0, 0.01 * _windows(points) * 10 ** min((one - size) / step, 2)))


def _line(points: int) -> tuple[float, float]:
    """(standard errors at 1 of 100, further ones for a factor of 10), between the lengths of the table."""
    lengths = np.log(list(TABLE))
    one, two = (np.interp(np.log(max(points, 1)), lengths, tail) for tail in zip(*TABLE.values(), strict=True))
    return float(one), float(two - one)


def _windows(points: int) -> float:
    """A history longer than the table has so many times more places for a false alarm."""
    return max(points / max(TABLE), 1.0)


# Where the levels of a series change: top-down, the clearest split first.


SHRINK = 2**0.5
"""Length of a window / that of the next shorter ones; each half covers its neighbour.  sqrt(2) is what the paper on
seeded binary segmentation advises."""

TRIES = 3
"""Splits that are looked at, the clearest first: beside a drift the clearest is often the drift itself."""

IntArray = npt.NDArray[np.intp]
Splits = Sequence[FloatArray | IntArray]
"""(gain, start, place, stop) of several, each of shape (splits,)."""


def level_edges(series: CleanSeries, bar: float) -> list[int]:
    """The first point of each level, and the number of points: steps of at least `bar` standard errors."""
    points = len(series.points)
    lengths = [best_splits(series, start, length) for length, start in windows(points)]
    splits = [np.concatenate(column) for column in zip(*lengths, strict=True)]
    edges = [0, points]
    while (place := _loudest(series, splits, edges, bar)) is not None:
        edges = sorted([*edges, place])
    return _edges_that_stand(series, edges, bar)


@functools.lru_cache(maxsize=1024)
def windows(points: int) -> tuple[tuple[int, IntArray], ...]:
    """(length, first points) of nested windows of falling length, the whole series first."""
    starts, length = defaultdict[int, dict[int, None]](dict), points / SHRINK
    starts[points][0] = None
    while length >= 2 * SHORTEST:
        for s in np.linspace(0, points - length, int(np.ceil(2 * points / length))).tolist():
            starts[min(points, int(np.ceil(s + length))) - int(s)][int(s)] = None
        length /= SHRINK
    return tuple((length, np.array(list(firsts))) for length, firsts in starts.items())


def best_splits(series: CleanSeries, start: IntArray, length: int) -> Splits:
    """The best split of each window of one length."""
    left, share, weight = _split_weights(length)
    sums, first = series.sums, start[:, None]
    before = sums[first]
    gain = ((before - sums[first + length]) * share + sums[first + left] - before) ** 2 * weight
    best = gain.argmax(axis=1)
    return gain[np.arange(len(gain)), best], start, start + SHORTEST + best, start + length


@functools.lru_cache(maxsize=1024)
def _split_weights(length: int) -> tuple[IntArray, FloatArray, FloatArray]:
    """Of every split of a window: points left of it, their share, and what a square of its gap weighs."""
    left = np.arange(SHORTEST, length - SHORTEST + 1)
    share = left / length
    return left, share, 1 / (left * (1 - share))


def _best_split(series: CleanSeries, start: int, stop: int) -> tuple[float, int, int, int]:
    gain, _, place, _ = best_splits(series, np.array([start]), stop - start)
    return float(gain[0]), start, int(place[0]), stop


def _loudest(series: CleanSeries, splits: Splits, edges: Sequence[int], bar: float) -> int | None:
    """The place of the first of the clearest splits within the levels that is a jump and reaches the bar."""
    for split in _clearest(series, splits, edges):
        noise = series.noise_between(sorted({*edges, *split}))
        if series.standard_errors(split, noise) >= bar and series.is_jump(split):
            return split[1]
    return None


def _clearest(series: CleanSeries, splits: Splits, edges: Sequence[int]) -> Iterator[Split]:
    """The clearest splits within the levels between the edges, the clearest first."""
    _, start, _, stop = splits
    inside = np.searchsorted(edges, start, side="right") == np.searchsorted(edges, stop, side="left")
    of_windows = [column[inside] for column in splits]
    order = np.lexsort(of_windows[::-1])[-TRIES:]
    candidates = set(zip(*(column[order].tolist() for column in of_windows), strict=True))
    levels = [(a, b) for a, b in itertools.pairwise(edges) if b - a >= 2 * SHORTEST]
    candidates |= {_best_split(series, a, b) for a, b in levels}
    return ((a, k, b) for _, a, k, b in sorted(candidates, reverse=True)[:TRIES])


def _edges_that_stand(series: CleanSeries, edges: list[int], bar: float) -> list[int]:
    """Each split placed again between its neighbours; those that then do not stand out are dropped, weakest first.

    A split that a smooth drift explains as well does not stand out at all.
    """
    while len(edges) > 2:
        ends = zip(edges, edges[2:], strict=False)
        edges = [0, *sorted({_best_split(series, a, b)[2] for a, b in ends}), edges[-1]]
        noise = series.noise_between(edges)
        sizes = [series.standard_errors(split, noise) * series.is_jump(split) for split in _splits_at(edges)]
        if min(sizes) >= bar:
            break
        edges.pop(1 + int(np.argmin(sizes)))
    return edges
