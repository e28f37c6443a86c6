"""What a series does without a step: spikes, wandering and smooth drift; many series of one length at a time.

Arrays have shape (series, points) unless said otherwise; edges have shape (series, levels + 1), from 0 to the number of
points, and may repeat (an empty level).
"""

from __future__ import annotations

import dataclasses
import functools

import numpy as np
import numpy.typing as npt
from scipy.ndimage import median_filter

from ci.stats.types import FloatArray

IntArray = npt.NDArray[np.intp]

MEDIAN_OF = 7
"""Points of the running median: it follows a level of four points and ignores a spike of three."""

CLIP, CLIPPED_SHARE = 2.0, 0.1
"""Points further from the running median than 2 robust standard deviations are pulled back to it, but at most this
share of them: more are not outliers but how the series is.  Chosen on 2026-11-22 by `python -m ci.study.detectors`:
3 lets 9 % of null series of t noise (1,000 points) raise an alarm, and without the share bimodal series do."""

NORMAL = 1.4826
"""Standard deviation of a normal variable / its median absolute deviation."""

PRIOR_CORRELATION, PRIOR_POINTS = 0.5, 10.0
"""What few points cannot say about autocorrelation is taken from here, worth 10 points: H200 runs one after the other
(data of 2026-11-20) have 0.2 to 0.7."""

MOST_CORRELATION = 0.9
"""Beyond it nothing can be told from a random walk."""

FLOOR = 1e-7
"""Standard deviation of a point, relative to the series' range, that rounding in the sums below can imitate."""


@dataclasses.dataclass(frozen=True, eq=False)
class Sums:
    """Running sums of series without spikes; any level's mean and scatter follow in constant time.

    points: the series, about their medians.  first, second, lagged: sums of x, x^2 and x[t] x[t+1] before each index.
    """

    points: FloatArray
    first: FloatArray
    second: FloatArray
    lagged: FloatArray

    @classmethod
    def of(cls, clean: FloatArray) -> Sums:
        x = clean - np.median(clean, axis=1, keepdims=True)
        return cls(x, _running(x), _running(x * x), _running(x[:, :-1] * x[:, 1:]))

    def row(self, i: int) -> Sums:
        """One series of them."""
        one = slice(i, i + 1)
        return Sums(self.points[one], self.first[one], self.second[one], self.lagged[one])


@dataclasses.dataclass(frozen=True, eq=False)
class Wander:
    """sigma: standard deviation of one point; correlation: of neighbouring points, 0 to 0.9; of shape (series,)."""

    sigma: FloatArray
    correlation: FloatArray

    def variance(self, count: IntArray) -> FloatArray:
        """Of the mean of `count` points in a row of an AR(1) process."""
        r = self.correlation
        stretch = (1 + r) / (1 - r) - 2 * r * (1 - r**count) / (count * (1 - r) ** 2)
        return np.asarray(self.sigma**2 * stretch / count)


def without_spikes(series: FloatArray) -> FloatArray:
    """The series with each point pulled to within reach of its running median."""
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
    found = np.asarray(median_filter(series, size=(1, width), mode="nearest"))
    found[:, :side], found[:, points - side :] = found[:, [side]], found[:, [points - 1 - side]]
    return found


def wander(sums: Sums, edges: IntArray) -> Wander:
    """What is left of the series when the levels between the edges are taken off.

    The correlation of residuals of a fit is too small by about (1 + 4 r) / points for each level (Marriott and Pope,
    Biometrika 41, 1954); that is put back.
    """
    points, range_of = sums.points.shape[1], np.ptp(sums.points, axis=1)
    length = np.diff(edges, axis=1)
    square, lag = _scatter(sums, edges, length)
    total = np.maximum(square, points * (FLOOR * range_of) ** 2 + np.finfo(float).tiny)
    levels = (length > 0).sum(axis=1)
    r = lag / total
    r += levels * (1 + 4 * np.maximum(r, 0)) / points
    r = (points * r + PRIOR_POINTS * PRIOR_CORRELATION) / (points + PRIOR_POINTS)
    return Wander(np.sqrt(total / np.maximum(points - levels - 1, 1)), np.clip(r, 0, MOST_CORRELATION))


def _scatter(sums: Sums, edges: IntArray, length: IntArray) -> tuple[FloatArray, FloatArray]:
    """Sums over each series of squared residuals, and of products of neighbouring ones within a level."""
    start, stop = edges[:, :-1], edges[:, 1:]
    total = np.diff(np.take_along_axis(sums.first, edges, 1), axis=1)
    mean = total / np.maximum(length, 1)
    square = np.diff(np.take_along_axis(sums.second, edges, 1), axis=1) - total * mean
    last = np.maximum(stop - 1, start)
    before = np.minimum(start, sums.points.shape[1] - 1)
    neighbours = np.take_along_axis(sums.lagged, last.clip(max=sums.lagged.shape[1] - 1), 1)
    neighbours = neighbours - np.take_along_axis(sums.lagged, before.clip(max=sums.lagged.shape[1] - 1), 1)
    ends = np.take_along_axis(sums.points, before, 1) + np.take_along_axis(sums.points, np.maximum(stop - 1, 0), 1)
    lag = np.where(length > 0, neighbours - mean * (2 * total - ends) + (length - 1) * mean**2, 0)
    return square.sum(axis=1), lag.sum(axis=1)


def size(sums: Sums, start: IntArray, place: IntArray, stop: IntArray, noise: Wander) -> FloatArray:
    """Standard errors between the means of [start, place) and [place, stop); arguments of shape (series,)."""
    rows = np.arange(len(place))
    left = (sums.first[rows, place] - sums.first[rows, start]) / (place - start)
    right = (sums.first[rows, stop] - sums.first[rows, place]) / (stop - place)
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


def _running(x: FloatArray) -> FloatArray:
    """Sum of everything before each index, shape (series, points + 1)."""
    return np.concatenate([np.zeros((len(x), 1)), np.cumsum(x, axis=1)], axis=1)
