"""Where the levels of a series change: top-down, the clearest split first; many series of one length at a time.

A split of the whole series is blind to a level that comes and goes, so every split of a set of nested windows is
looked at (seeded binary segmentation: Kovacs, Buehlmann, Li and Munk, Biometrika 110, 2023).  The gain of a split is
the sum of squares that it explains.
"""

from __future__ import annotations

import dataclasses
import functools
import itertools

import numpy as np

from ci.stats.steps_critical import critical
from ci.stats.steps_noise import IntArray, Sums, Wander, jumps, size, wander
from ci.stats.types import FloatArray

SHORTEST = 3
"""Points of the shortest level: spikes of one or two points are no step."""

SHRINK = 2**0.5
"""Length of a window / that of the next shorter ones; each half covers its neighbour.  sqrt(2) is what the paper on
seeded binary segmentation advises."""

TRIES = 3
"""Splits that are looked at, the clearest first: beside a drift the clearest is often the drift itself."""

ROWS = 256
"""Series that are scanned together: their sums stay in a core's cache."""


@dataclasses.dataclass(frozen=True, eq=False)
class Splits:
    """The best split of each window; start, stop: (windows,); place, gain: (series, windows)."""

    start: IntArray
    stop: IntArray
    place: IntArray
    gain: FloatArray


def places(sums: Sums, length: int) -> list[list[int]]:
    """First points of new levels of each series; `length`: points of the whole history, which sets the bar."""
    points = sums.points.shape[1]
    found: list[list[int]] = [[] for _ in range(len(sums.points))]
    if points < 2 * SHORTEST:
        return found
    for first in range(0, len(found), ROWS):
        block = slice(first, first + ROWS)
        part = Sums(sums.points[block], sums.first[block], sums.second[block], sums.lagged[block])
        splits = scan(part)
        for row in loud(part, splits, critical(length)):
            found[first + row] = levels(part.row(row), splits, row, critical(length))
    return found


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
    part = first[:, start + SHORTEST : stop - SHORTEST + 1]
    left = np.arange(SHORTEST, stop - start - SHORTEST + 1)
    share = left / (stop - start)
    excess = part - first[:, [start]] - (first[:, [stop]] - first[:, [start]]) * share
    gain = excess**2 / (left * (1 - share))
    best = np.argmax(gain, axis=1)
    return best + start + SHORTEST, gain[np.arange(len(gain)), best]


def loud(sums: Sums, splits: Splits, bar: float) -> IntArray:
    """The series in which one of the clearest splits stands out of the noise beside it."""
    tries = min(TRIES, splits.gain.shape[1])
    clearest = np.argpartition(-splits.gain, tries - 1, axis=1)[:, :tries]
    rows, points = np.arange(len(clearest)), sums.points.shape[1]
    out = np.zeros(len(clearest), dtype=bool)
    for window in clearest.T:
        start, stop, place = splits.start[window], splits.stop[window], splits.place[rows, window]
        edges = np.stack([np.zeros_like(place), start, place, stop, np.full_like(place, points)], axis=1)
        out |= size(sums, start, place, stop, wander(sums, edges)) >= bar
    return np.flatnonzero(out)


def levels(sums: Sums, splits: Splits, row: int, bar: float) -> list[int]:
    """First points of new levels of one series."""
    found: list[int] = []
    while (place := _next(sums, splits, row, found, bar)) is not None:
        found = sorted({*found, place})
    return _settled(sums, found, bar)


def _next(sums: Sums, splits: Splits, row: int, found: list[int], bar: float) -> int | None:
    """Another split, beside those found; None where nothing stands out."""
    points = sums.points.shape[1]
    edges = [0, *found, points]
    for start, place, stop in _clearest(sums, splits, row, edges):
        noise = wander(sums, np.array([sorted({*edges, start, place, stop})]))
        if _size(sums, start, place, stop, noise) >= bar and jumps(sums.points[0], start, place, stop):
            return place
    return None


def _clearest(sums: Sums, splits: Splits, row: int, edges: list[int]) -> list[tuple[int, int, int]]:
    """(start, place, stop) of the clearest splits within the levels between the edges, the clearest first."""
    whole = [
        (float(gain[0]), a, int(place[0]), b)
        for a, b in itertools.pairwise(edges)
        if b - a >= 2 * SHORTEST
        for place, gain in [best_split(sums.first, a, b)]
    ]
    inside = np.searchsorted(edges, splits.start, side="right") == np.searchsorted(edges, splits.stop, side="left")
    at = np.flatnonzero(inside)
    at = at[np.argsort(-splits.gain[row, at], kind="stable")[:TRIES]]
    columns = (splits.gain[row, at], splits.start[at], splits.place[row, at], splits.stop[at])
    some = list(zip(*(column.tolist() for column in columns), strict=True))
    return [(a, k, b) for _, a, k, b in sorted({*whole, *some}, reverse=True)[:TRIES]]


def _settled(sums: Sums, found: list[int], bar: float) -> list[int]:
    """Each split placed again between its neighbours; those that then do not stand out are dropped, weakest first."""
    points = sums.points.shape[1]
    while found:
        edges = [0, *found, points]
        found = sorted({int(best_split(sums.first, a, b)[0][0]) for a, b in zip(edges, edges[2:], strict=False)})
        sizes = _sizes(sums, found)
        if min(sizes) >= bar:
            break
        found.pop(int(np.argmin(sizes)))
    return found


def _sizes(sums: Sums, found: list[int]) -> list[float]:
    """Standard errors of each split; 0 for what a smooth drift explains as well."""
    edges = [0, *found, sums.points.shape[1]]
    noise = wander(sums, np.array([edges]))
    return [
        _size(sums, a, k, b, noise) if jumps(sums.points[0], a, k, b) else 0.0
        for a, k, b in zip(edges, edges[1:], edges[2:], strict=False)
    ]


def _size(sums: Sums, start: int, place: int, stop: int, noise: Wander) -> float:
    return float(size(sums, np.array([start]), np.array([place]), np.array([stop]), noise)[0])
