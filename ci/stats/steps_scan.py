"""Where the levels of a series change: top-down, the clearest split first; many series of one length at a time.

A split of the whole series is blind to a level that comes and goes, so every split of a set of nested windows is
looked at (seeded binary segmentation: Kovacs, Buehlmann, Li and Munk, Biometrika 110, 2023).  The gain of a split is
the sum of squares that it explains.
"""

from __future__ import annotations

import dataclasses
import functools
import itertools
from collections.abc import Sequence

import numpy as np

from ci.stats.steps_noise import IntArray, Sums, jumps, size, wander
from ci.stats.types import FloatArray

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
AR(1) 0.5 and 1 % outliers.  `python -m tests.study.step_bar --series 6000`, 2026-11-22."""


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


SHORTEST = 3
"""Points of the shortest level: spikes of one or two points are no step."""

SHRINK = 2**0.5
"""Length of a window / that of the next shorter ones; each half covers its neighbour.  sqrt(2) is what the paper on
seeded binary segmentation advises."""

TRIES = 3
"""Splits that are looked at, the clearest first: beside a drift the clearest is often the drift itself."""

ROUNDING = 1e-9
"""Share of the bar by which the same size may differ that is computed of many series together."""


@dataclasses.dataclass(frozen=True, eq=False)
class Splits:
    """The best split of each window; start, stop: (windows,); place, gain: (series, windows)."""

    start: IntArray
    stop: IntArray
    place: IntArray
    gain: FloatArray


def places(sums: Sums, length: int) -> list[list[int]]:
    """First points of new levels of each series; `length`: points of the whole history, which sets the bar."""
    splits, bar = scan(sums), critical(length)
    found: list[list[int]] = [[] for _ in sums.points]
    for row in loud(sums, splits, bar).tolist():
        found[row] = levels(sums, splits, row, bar)
    return found


def loud(sums: Sums, splits: Splits, bar: float) -> IntArray:
    """The series in which one of the clearest splits is `bar` standard errors large; in the others nothing stands out.

    Nine of ten series of a history are told so all at once, instead of one by one as :func:`loudest` does.
    """
    window = np.argsort(-splits.gain, axis=1, kind="stable")[:, :TRIES].ravel()
    rows = np.repeat(np.arange(len(sums.points)), len(window) // max(len(sums.points), 1))
    split = splits.start[window], splits.place[rows, window], splits.stop[window]
    noise = wander(sums, rows, [np.zeros_like(rows), *split, np.full_like(rows, sums.points.shape[1])])
    return np.unique(rows[size(sums, rows, split, noise) >= bar * (1 - ROUNDING)])


@functools.lru_cache(maxsize=1024)
def windows(points: int) -> tuple[IntArray, IntArray]:
    """(starts, stops) of nested windows of falling length, the whole series first."""
    found, length = [(0, points)], points / SHRINK
    while length >= 2 * SHORTEST:
        starts = np.linspace(0, points - length, int(np.ceil(2 * points / length)))
        found += [(int(s), min(points, int(np.ceil(s + length)))) for s in starts]
        length /= SHRINK
    start, stop = zip(*dict.fromkeys(found), strict=True)
    return np.array(start), np.array(stop)


def scan(sums: Sums) -> Splits:
    """The best split of each window of each series."""
    start, stop = windows(sums.points.shape[1])
    best = [best_split(sums.first, a, b) for a, b in zip(start.tolist(), stop.tolist(), strict=True)]
    place, gain = (np.stack(column, axis=1) for column in zip(*best, strict=True))
    return Splits(start, stop, place, gain)


def best_split(first: FloatArray, start: int, stop: int) -> tuple[IntArray, FloatArray]:
    """(place, gain) of the best split of [start, stop) of each series, shape (series,) each."""
    share, weight = _shares(stop - start)
    gain = (first[:, [start]] - first[:, [stop]]) * share  # in place: the arrays are large and there are many
    gain += first[:, start + SHORTEST : stop - SHORTEST + 1]
    gain -= first[:, [start]]
    np.square(gain, out=gain)
    gain *= weight
    best = np.argmax(gain, axis=1)
    return best + start + SHORTEST, gain[np.arange(len(gain)), best]


@functools.lru_cache(maxsize=4096)
def _shares(points: int) -> tuple[FloatArray, FloatArray]:
    """Of each split of so many points: share of the points on the left, and 1 / (their number * share on the right)."""
    left = np.arange(SHORTEST, points - SHORTEST + 1)
    share = left / points
    return share, 1 / (left * (1 - share))


def levels(sums: Sums, splits: Splits, row: int, bar: float) -> list[int]:
    """First points of new levels of one series."""
    found: list[int] = []
    while (best := loudest(sums, splits, row, found, bar))[0] >= bar:
        found = sorted({*found, best[1]})
    return _settled(sums, row, found, bar)


def loudest(
    sums: Sums, splits: Splits, row: int, found: Sequence[int] = (), enough: float = float("inf")
) -> tuple[float, int]:
    """(standard errors, place) of the loudest of the clearest splits beside those found, or the first that is enough.

    (0, 0) where none of them is a jump.
    """
    edges = [0, *found, sums.points.shape[1]]
    best = (0.0, 0)
    for split in _clearest(sums, splits, row, edges):
        noise = wander(sums, row, sorted({*edges, *split}))
        loudness = float(size(sums, row, split, noise))
        if loudness > best[0] and jumps(sums.points[row], *split):
            best = (loudness, split[1])
        if best[0] >= enough:
            break
    return best


def _clearest(sums: Sums, splits: Splits, row: int, edges: list[int]) -> list[tuple[int, int, int]]:
    """(start, place, stop) of the clearest splits within the levels between the edges, the clearest first."""
    whole = [
        (float(gain[0]), a, int(place[0]), b)
        for a, b in itertools.pairwise(edges)
        if b - a >= 2 * SHORTEST and len(edges) > 2
        for place, gain in [best_split(sums.first[row : row + 1], a, b)]
    ]
    inside = np.searchsorted(edges, splits.start, side="right") == np.searchsorted(edges, splits.stop, side="left")
    at = np.flatnonzero(inside)
    at = at[np.argsort(-splits.gain[row, at], kind="stable")[:TRIES]]
    columns = (splits.gain[row, at], splits.start[at], splits.place[row, at], splits.stop[at])
    some = list(zip(*(column.tolist() for column in columns), strict=True))
    return [(a, k, b) for _, a, k, b in sorted({*whole, *some}, reverse=True)[:TRIES]]


def _settled(sums: Sums, row: int, found: list[int], bar: float) -> list[int]:
    """Each split placed again between its neighbours; those that then do not stand out are dropped, weakest first."""
    first, points = sums.first[row : row + 1], sums.points.shape[1]
    while found:
        edges = [0, *found, points]
        found = sorted({int(best_split(first, a, b)[0][0]) for a, b in zip(edges, edges[2:], strict=False)})
        sizes = _sizes(sums, row, [0, *found, points])
        if min(sizes) >= bar:
            break
        found.pop(int(np.argmin(sizes)))
    return found


def _sizes(sums: Sums, row: int, edges: list[int]) -> list[float]:
    """Standard errors of each split; 0 for what a smooth drift explains as well."""
    noise = wander(sums, row, edges)
    splits = zip(edges, edges[1:], edges[2:], strict=False)
    return [float(size(sums, row, split, noise)) if jumps(sums.points[row], *split) else 0.0 for split in splits]
