"""What a series does without a step: spikes, wandering and smooth drift; many series of one length at a time.

Arrays have shape (series, points) unless said otherwise.  Edges are the first points of each level and the number of
points: one number each where one series is asked for, an array where several are; they may repeat (an empty level).
"""

from __future__ import annotations

import dataclasses
import functools
import itertools
from collections.abc import Sequence

import numpy as np
import numpy.typing as npt

from ci.stats.types import FloatArray

IntArray = npt.NDArray[np.intp]
Index = IntArray | int
"""A place in each of several series, or in one."""

MEDIAN_OF = 9
"""Points of the running median: it follows a level of five points, also at the end, and ignores a spike of four.
With 7, 5 % of null series of t noise (3 degrees, 1,000 points) raise an alarm; with 11, a level is seen a point
later."""

ROWS = 64
"""Series that are freed of spikes together: what is worked on stays in a core's cache (of 64 to 512 the fastest, 350
points, 2026-11-22)."""

CLIP, CLIPPED_SHARE = 2.0, 0.1
"""Points further from the running median than 2 robust standard deviations are pulled back to it, but at most this
share of them: more are not outliers but how the series is.  At 3, 9 % of null series of t noise (1,000 points) raise an
alarm, and without the share every fifth bimodal series does.  (2026-11-22, simulated as in tests.study.step_bar)"""

NORMAL = 1.4826
"""Standard deviation of a normal variable / its median absolute deviation."""

PRIOR_CORRELATION, PRIOR_POINTS = 0.5, 10.0
"""What few points cannot say about autocorrelation is taken from here, worth 10 points: H200 runs one after the other
(data of 2026-11-20) have 0.2 to 0.7."""

MOST_CORRELATION = 0.9
"""Beyond it nothing can be told from a random walk."""

FLOOR = 1e-7
"""Standard deviation of a point, relative to the series' range, that rounding in the sums below can imitate."""

TINY = float(np.finfo(np.float64).tiny)


@dataclasses.dataclass(frozen=True, eq=False)
class Sums:
    """Running sums of series without spikes; any level's mean and scatter follow in constant time.

    points: the series, about their medians.  first, second, lagged: sums of x, x^2 and x[t] x[t+1] before each index.
    spread: largest less smallest point, shape (series,).
    """

    points: FloatArray
    first: FloatArray
    second: FloatArray
    lagged: FloatArray
    spread: FloatArray

    @classmethod
    def of(cls, clean: FloatArray) -> Sums:
        x = clean - np.median(clean, axis=1, keepdims=True)
        return cls(x, _running(x), _running(x * x), _running(x[:, :-1] * x[:, 1:], len(x[0])), np.ptp(x, axis=1))


@dataclasses.dataclass(frozen=True, eq=False)
class Wander:
    """sigma: standard deviation of one point; correlation: of neighbouring points, 0 to 0.9; one for each series."""

    sigma: FloatArray
    correlation: FloatArray

    def variance(self, count: Index) -> FloatArray:
        """Of the mean of `count` points in a row of an AR(1) process."""
        r = self.correlation
        stretch = (1 + r) / (1 - r) - 2 * r * (1 - r**count) / (count * (1 - r) ** 2)
        return np.asarray(self.sigma**2 * stretch / count)


def without_spikes(series: FloatArray) -> FloatArray:
    """The series with each point pulled to within reach of its running median."""
    found = np.empty_like(series)
    for first in range(0, len(series), ROWS):
        part = slice(first, first + ROWS)
        found[part] = _without_spikes(series[part])
    return found


def _without_spikes(series: FloatArray) -> FloatArray:
    centre = running_median(series)
    off = np.sort(np.abs(series - centre), axis=1)
    points = off.shape[1]
    typical = NORMAL * (off[:, (points - 1) // 2] + off[:, points // 2]) / 2
    reach = np.maximum(CLIP * typical, off[:, int((1 - CLIPPED_SHARE) * (points - 1))])[:, None]
    return np.clip(series, centre - reach, centre + reach)


def running_median(series: FloatArray) -> FloatArray:
    """Median of the points about each one; at the ends, of the first or last full stretch."""
    points = series.shape[1]
    width = min(MEDIAN_OF, points - 1 + points % 2)
    side = width // 2
    found = np.empty_like(series)
    found[:, side : points - side] = _medians_of_nine(series) if width == 9 else _medians(series, width)
    found[:, :side], found[:, points - side :] = found[:, [side]], found[:, [points - 1 - side]]
    return found


def _medians(series: FloatArray, width: int) -> FloatArray:
    return np.asarray(np.median(np.lib.stride_tricks.sliding_window_view(series, width, axis=1), axis=2))


def _medians_of_nine(series: FloatArray) -> FloatArray:
    """Of each nine points in a row: the median of the largest low, the middle middle and the smallest high one of
    three sorted threes, which neighbouring nines share.  Ten times as fast as sorting each (2026-11-22)."""
    a, b, c = series[:, :-2], series[:, 1:-1], series[:, 2:]
    low, high = np.minimum(a, b), np.maximum(a, b)
    middle = np.maximum(low, np.minimum(high, c))
    low, high = np.minimum(low, c), np.maximum(high, c)
    lows, middles, highs = ([one[:, :-6], one[:, 3:-3], one[:, 6:]] for one in (low, middle, high))
    return _middle(functools.reduce(np.maximum, lows), _middle(*middles), functools.reduce(np.minimum, highs))


def median(values: FloatArray) -> float:
    """Of one series; np.median takes ten times as long for some hundred values."""
    ranked, points = np.sort(values), len(values)
    return float((ranked[(points - 1) // 2] + ranked[points // 2]) / 2)


def _middle(a: FloatArray, b: FloatArray, c: FloatArray) -> FloatArray:
    """The median of three, point by point."""
    return np.maximum(np.minimum(a, b), np.minimum(np.maximum(a, b), c))


def wander(sums: Sums, rows: Index, edges: Sequence[Index]) -> Wander:
    """What is left of the given series when the levels between the edges are taken off.

    The correlation of residuals of a fit is too small by about (1 + 4 r) / points for each level (Marriott and Pope,
    Biometrika 41, 1954); that is put back.
    """
    points = sums.points.shape[1]
    square, lag, levels = _scatter(sums, rows, edges)
    total = np.maximum(square, points * (FLOOR * sums.spread[rows]) ** 2 + TINY)
    r = lag / total
    r = r + levels * (1 + 4 * np.maximum(r, 0)) / points
    r = (points * r + PRIOR_POINTS * PRIOR_CORRELATION) / (points + PRIOR_POINTS)
    correlation = np.minimum(np.maximum(r, 0), MOST_CORRELATION)
    return Wander(np.sqrt(total / np.maximum(points - levels - 1, 1)), correlation)


def _scatter(sums: Sums, rows: Index, edges: Sequence[Index]) -> tuple[FloatArray, FloatArray, IntArray]:
    """Of each series: sums of squared residuals, and of products of neighbouring ones within a level; its levels."""
    square, lag, levels = np.zeros(np.shape(rows)), np.zeros(np.shape(rows)), np.zeros(np.shape(rows), dtype=np.intp)
    for start, stop in itertools.pairwise(edges):
        length, last = stop - start, np.maximum(stop - 1, start)
        total = sums.first[rows, stop] - sums.first[rows, start]
        mean = total / np.maximum(length, 1)
        square = square + (sums.second[rows, stop] - sums.second[rows, start] - total * mean)
        ends = sums.points[rows, np.minimum(start, sums.points.shape[1] - 1)] + sums.points[rows, stop - 1]
        inner = sums.lagged[rows, last] - sums.lagged[rows, start] - mean * (2 * total - ends) + (length - 1) * mean**2
        lag = lag + inner * (length > 0)
        levels = levels + (length > 0)
    return square, lag, levels


def size(sums: Sums, rows: Index, split: tuple[Index, Index, Index], noise: Wander) -> FloatArray:
    """Standard errors between the means of [start, place) and [place, stop) of the given series."""
    start, place, stop = split
    at = sums.first[rows, place]
    left, right = (at - sums.first[rows, start]) / (place - start), (sums.first[rows, stop] - at) / (stop - place)
    error = np.sqrt(noise.variance(place - start) + noise.variance(stop - place))
    return np.asarray(np.abs(right - left) / error)


def jumps(points: FloatArray, start: int, place: int, stop: int) -> bool:
    """Do two levels explain more of these points (of one series) than a smooth drift, a cubic, does?"""
    part = points[start:stop] - points[start:stop].mean()
    smooth = float(np.sum((_cubic(stop - start) @ part) ** 2))
    left, right = float(part[: place - start].sum()), float(part[place - start :].sum())
    return left**2 / (place - start) + right**2 / (stop - place) > smooth


@functools.lru_cache(maxsize=4096)
def _cubic(points: int) -> FloatArray:
    """Orthonormal polynomials up to degree 3 on evenly spaced points, shape (4, points)."""
    return np.asarray(np.linalg.qr(np.vander(np.linspace(-1, 1, points), 4))[0].T)


def _running(x: FloatArray, last: int | None = None) -> FloatArray:
    """Sum of everything before each index, shape (series, points + 1); the sum of all goes on to index `last`."""
    sums = np.concatenate([np.zeros((len(x), 1)), np.cumsum(x, axis=1)], axis=1)
    more = 0 if last is None else last + 1 - sums.shape[1]
    return np.concatenate([sums, np.repeat(sums[:, -1:], more, axis=1)], axis=1)
