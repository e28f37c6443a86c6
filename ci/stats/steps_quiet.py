"""Series in which nothing stands out, told without looking closely: nine of ten of a history, at a tenth of the cost.

What is quiet here has no step for `steps_scan` either; what is not, may have none.  The sizes of all splits are bounded
from above: in single precision with more than its error added, first as if points were independent, then, for the few
windows that this leaves, as they are.  Arrays have shape (series, points) or, inside, (points, series).
"""

from __future__ import annotations

import functools

import numpy as np
import numpy.typing as npt

from ci.stats.steps_noise import MEDIAN_OF, IntArray, Points, Single, Sums, size, wander, without_spikes
from ci.stats.steps_scan import SHORTEST, windows
from ci.stats.types import FloatArray

BoolArray = npt.NDArray[np.bool_]

ROWS = 512
"""Series at a time, so that what is worked on stays in a core's cache: of 64 to 1024 the fastest (350 points,
2026-11-22)."""

AT_ONCE = 64
"""Series that are freed of spikes at a time, for the same reason."""

PAIRS = 4096
"""Windows at a time that are looked at exactly: 200 MB of 1,024 points each."""

NEARLY = 1e-9
"""Share of the bar that double precision may be off."""

EPS = float(np.finfo(np.float32).eps)


def loud(series: FloatArray, bar: float) -> IntArray:
    """The series that may have a split of `bar` standard errors; the others have none."""
    some, many = [], []
    for first in range(0, len(series), ROWS):
        window, row = np.nonzero(_possible(series[first : first + ROWS], bar))
        some.append(row + first)
        many.append(window)
    rows, window = np.concatenate(some), np.concatenate(many)
    return _confirmed(series, rows, window, bar) if len(rows) else rows


def _possible(series: FloatArray, bar: float) -> BoolArray:
    """Windows of each series whose best split could reach the bar if neighbouring points were independent; shape
    (windows, series).

    A split of a window explains `gain` of the sum of squares about the window's levels, and is at most
    sqrt(gain / variance) standard errors large: points that go along with their neighbours make it less.
    """
    points = series.shape[1]
    sums = np.zeros((points + 1, len(series)), np.float32)
    for first in range(0, len(series), AT_ONCE):
        part = slice(first, first + AT_ONCE)
        sums[1:, part] = _standard(series[part]).T
    varies, furthest = np.any(sums != 0, axis=0), _furthest(sums)
    np.cumsum(sums, axis=0, out=sums)
    error = EPS * points * (_furthest(sums) + 8 * furthest)  # of a sum: of adding up, and of every point that is added
    found = _largest(sums, points) + 4 * error
    return np.asarray(~(found < _enough(sums, error * (6 * furthest + points), bar)) & varies)


def _furthest(values: Single) -> Single:
    """Of each series, the largest value without its sign."""
    return np.asarray(np.maximum(values.max(axis=0), -values.min(axis=0)))


def _standard(series: FloatArray) -> Single:
    """The series without spikes, with a mean of 0 and a mean square of 1; all 0 where they do not vary."""
    x = series - np.median(series[:, :MEDIAN_OF], axis=1, keepdims=True)
    x /= _unless_zero(np.maximum(x.max(axis=1), -x.min(axis=1)))
    clean = without_spikes(x.astype(np.float32))
    clean -= clean.mean(axis=1, keepdims=True)
    clean /= _unless_zero(np.sqrt(np.einsum("ij,ij->i", clean, clean) / clean.shape[1]))
    return clean


def _unless_zero(scale: Points) -> Points:
    """A column to divide by."""
    return np.where(scale > 0, scale, np.ones_like(scale))[:, None]


def _enough(sums: Single, error: Single, bar: float) -> Single:
    """Of each window and series: square root of the gain from which a split reaches the bar, if points are independent.

    The series have a mean of 0 and a mean square of 1.  error: of a sum of squares.
    """
    points = len(sums) - 1
    start, stop = windows(points)
    inside, after = sums[stop] - sums[start], sums[-1] - sums[stop]
    before, within, beyond = (
        np.maximum(one, 1)[:, None].astype(np.float32) for one in (start, stop - start, points - stop)
    )
    levels = sums[start] ** 2 / before + inside**2 / within + after**2 / beyond
    free = points - 3 - (start > 0) - (stop < points)
    share = (bar**2 / (np.maximum(free, 1) + bar**2)).astype(np.float32)
    return np.asarray(np.sqrt(np.maximum(points - levels - error, 0) * share[:, None]))


def _largest(sums: Single, points: int) -> Single:
    """Square root of the gain of the best split of each window, shape (windows, series)."""
    start, stop = windows(points)
    found, room = np.empty((len(start), sums.shape[1]), np.float32), np.empty_like(sums)
    for number, (a, b) in enumerate(zip(start.tolist(), stop.tolist(), strict=True)):
        share, weight = _shares(b - a)
        gain = np.multiply(share, sums[a] - sums[b], out=room[: len(share)])  # in place: the arrays are large
        gain += sums[a + SHORTEST : b - SHORTEST + 1]
        gain -= sums[a]
        gain *= weight
        np.abs(gain, out=gain)
        np.max(gain, axis=0, out=found[number])
    return found


@functools.lru_cache(maxsize=4096)
def _shares(points: int) -> tuple[Single, Single]:
    """Of each split of so many points: share of the points on the left, and the root of what makes a square a gain."""
    left = np.arange(SHORTEST, points - SHORTEST + 1)[:, None]
    return (left / points).astype(np.float32), np.sqrt(points / (left * (points - left))).astype(np.float32)


def _confirmed(series: FloatArray, rows: IntArray, window: IntArray, bar: float) -> IntArray:
    """Those of the series in which one of the named windows has a split of the size of the bar."""
    mine, at = np.unique(rows, return_inverse=True)
    sums = Sums.of(without_spikes(series[mine]))
    start, stop = (edges[window] for edges in windows(series.shape[1]))
    pieces = [slice(first, first + PAIRS) for first in range(0, len(at), PAIRS)]
    place = np.concatenate([best_places(sums.first, at[part], start[part], stop[part]) for part in pieces])
    ends = np.zeros_like(start), np.full_like(start, series.shape[1])
    noise = wander(sums, at, [ends[0], start, place, stop, ends[1]])
    sizes = size(sums, at, (start, place, stop), noise)
    return np.asarray(mine[np.unique(at[sizes >= bar * (1 - NEARLY)])])


def best_places(first: FloatArray, rows: IntArray, start: IntArray, stop: IntArray) -> IntArray:
    """The best split of [start, stop) of each of the given rows, as `best_split` has it; shapes (pairs,)."""
    counts = stop - start - 2 * SHORTEST + 1
    edges = np.cumsum(counts) - counts
    left = np.arange(counts.sum()) - np.repeat(edges - SHORTEST, counts)
    before, points = first[rows, start], np.repeat(stop - start, counts)
    share = left / points
    gain = np.repeat(before - first[rows, stop], counts) * share
    gain += first[np.repeat(rows, counts), np.repeat(start, counts) + left]
    gain -= np.repeat(before, counts)
    gain = np.square(gain, out=gain) * (1 / (left * (1 - share)))
    best = np.flatnonzero(gain == np.repeat(np.maximum.reduceat(gain, edges), counts))
    return np.asarray(start + left[best[np.searchsorted(best, edges)]])
