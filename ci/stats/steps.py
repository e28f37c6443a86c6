"""Change points of one series: levels that last, told from noise, outliers, drift and autocorrelation.

A series is freed of short spikes, then split top-down: the clearest split is taken while it stands out
of the noise that is left beside it, of which the autocorrelation raises the bar.  What a smooth drift
explains as well is no step.  The bar is set for the whole series: 1 of 200 series without a step raises any alarm
(`steps_critical`).

Steps of positive values are ratios: everything is done on logarithms.  The series may grow for ever: of more than
WINDOW points the oldest are decided for good, so a new point costs the same however long the history is.
"""

from __future__ import annotations

import dataclasses
import functools
import itertools
from collections import defaultdict
from collections.abc import Sequence

import numpy as np
import numpy.typing as npt
from scipy.special import stdtrit

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


def find(values: FloatArray) -> list[Step]:
    """Steps of a series of positive finite values, oldest first.  ValueError for other values."""
    return find_many([values])[0]


def find_many(series: Sequence[FloatArray]) -> list[list[Step]]:
    """`find` of many series, fastest where many have the same length.

    Window by window: of a full one the older steps are kept, and what follows is compared with its newer part.
    """
    steps: list[list[Step]] = [[] for _ in series]
    starts, waiting = [0] * len(series), list(range(len(series)))
    while waiting:
        alike = defaultdict[tuple[int, int], list[int]](list)
        for i in waiting:
            alike[starts[i], min(starts[i] + WINDOW, len(series[i]))].append(i)
        waiting = []
        for (start, stop), rows in alike.items():
            seen = _logarithms(np.stack([series[i][start:stop] for i in rows]))
            for i, found in zip(rows, _analysed(seen, start), strict=True):
                if stop < len(series[i]):
                    found = [step for step in found if step.index < start + WINDOW - UNDECIDED]
                    starts[i] = max([start + WINDOW - OVERLAP, *(step.index for step in found[-1:])])
                    waiting.append(i)
                steps[i] += found
    return steps


def _logarithms(values: FloatArray) -> FloatArray:
    x = np.asarray(values, dtype=np.float64)
    bad = ~(np.isfinite(x) & (x > 0))
    if bad.any():
        raise ValueError(f"{x[bad][0]} is not a positive finite number: a step is a ratio; leave such points out")
    return np.log(x)


def _analysed(seen: FloatArray, start: int) -> list[list[Step]]:
    """The steps of each row; `start`: points of the history before them."""
    if seen.shape[1] < 2 * SHORTEST:
        return [[] for _ in seen]
    found: list[list[Step]] = [[] for _ in seen]
    bar = critical(start + seen.shape[1])  # for the whole history
    for first in range(0, len(seen), ROWS):
        some = seen[first : first + ROWS]
        sums = Sums.of(without_spikes(some))
        splits = scan(sums)
        for row in loud(sums, splits, bar).tolist():
            if first_points := levels(sums, splits, row, bar):
                found[first + row] = _described(some[row], sums, row, first_points, start)
    return found


def _described(seen: FloatArray, sums: Sums, row: int, first_points: list[int], start: int) -> list[Step]:
    edges = [0, *first_points, len(seen)]
    if by_chance(seen[edges[-3] : edges[-2]], seen[edges[-2] :], len(seen)):
        del edges[-2]
    noise, steps = wander(sums, row, edges), []
    for a, k, b in zip(edges, edges[1:], edges[2:], strict=False):
        before, after = median(seen[a:k]), median(seen[k:b])
        error = MEDIAN_ERROR * float(np.sqrt(noise.variance(k - a) + noise.variance(b - k)))
        reach = float(stdtrit(max(b - a - 2, 1), (1 + INTERVAL) / 2)) * error
        gaps = after - before + np.array([0.0, -reach, reach])
        chance = p_value(float(size(sums, row, (a, k, b), noise)), start + len(seen))
        steps.append(Step(start + k, *map(float, (*np.exp([before, after]), *np.exp(gaps), chance))))
    return steps


# What a series does without a step: spikes, wandering and smooth drift; many series of one length at a time.
#
# Arrays have shape (series, points) unless said otherwise.  Edges are the first points of each level and the number of
# points: one number each where one series is asked for, an array where several are; they may repeat (an empty level).


IntArray = npt.NDArray[np.intp]
Index = IntArray | int
"""A place in each of several series, or in one."""

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


@dataclasses.dataclass(frozen=True, eq=False)
class Sums:
    """Series without spikes.  points: about their medians.  before: sums of the points before each index."""

    points: FloatArray
    before: FloatArray

    @classmethod
    def of(cls, clean: FloatArray) -> Sums:
        points = clean - np.median(clean, axis=1, keepdims=True)
        return cls(points, np.pad(np.cumsum(points, axis=1), ((0, 0), (1, 0))))


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
    centre = running_median(series)
    off = np.sort(np.abs(series - centre), axis=1)
    points = off.shape[1]
    typical = NORMAL * (off[:, (points - 1) // 2] + off[:, points // 2]) / 2
    reach = np.maximum(CLIP * typical, off[:, int((1 - CLIPPED_SHARE) * (points - 1))])[:, None]
    return np.clip(series, centre - reach, centre + reach)


def by_chance(before: FloatArray, after: FloatArray, points: int) -> bool:
    """Are the last points of a series spikes in a row, as the level before them has, and no level of their own?

    The running median cannot follow so few.  Were they spikes of that level, so many in a row would be expected more
    often than LEVEL allows in a series of `points`.
    """
    if len(after) > MEDIAN_OF // 2:
        return False
    up = median(after) > median(before)
    share = float(np.mean(before >= after.min() if up else before <= after.max()))
    return points * share ** len(after) > LEVEL


def running_median(series: FloatArray) -> FloatArray:
    """Median of the points about each one; at the ends, of the first or last full stretch."""
    points = series.shape[1]
    width = min(MEDIAN_OF, points - 1 + points % 2)
    side = width // 2
    stretches = np.lib.stride_tricks.sliding_window_view(series, width, axis=1)
    medians = np.empty_like(series)
    medians[:, side : points - side] = np.sort(stretches, axis=-1)[..., side]
    medians[:, :side], medians[:, points - side :] = medians[:, [side]], medians[:, [points - 1 - side]]
    return medians


def median(values: FloatArray) -> float:
    """Of one series; np.median takes ten times as long for some hundred values."""
    ranked, points = np.sort(values), len(values)
    return float((ranked[(points - 1) // 2] + ranked[points // 2]) / 2)


def wander(sums: Sums, rows: Index, edges: Sequence[Index]) -> Wander:
    """What is left of the given series when the levels between the edges are taken off.

    The correlation of residuals of a fit is too small by about (1 + 4 r) / points for each level (Marriott and Pope,
    Biometrika 41, 1954); that is put back.
    """
    x = sums.points[rows]
    points, residual, levels = x.shape[-1], x.copy(), np.zeros(np.shape(rows), dtype=np.intp)
    level = np.zeros(x.shape, dtype=np.intp)  # that each point lies in
    for edge in edges[1:-1]:
        level += np.arange(points) >= np.asarray(edge)[..., None]
    for number in range(len(edges) - 1):
        inside = level == number
        count = inside.sum(axis=-1)
        residual -= inside * ((x * inside).sum(axis=-1) / np.maximum(count, 1))[..., None]
        levels += count > 0
    neighbours = residual[..., 1:] * residual[..., :-1] * (level[..., 1:] == level[..., :-1])
    total = np.maximum((residual**2).sum(axis=-1), points * (FLOOR * np.ptp(x, axis=-1)) ** 2 + TINY)
    r = neighbours.sum(axis=-1) / total
    r = r + levels * (1 + 4 * np.maximum(r, 0)) / points
    r = (points * r + PRIOR_POINTS * PRIOR_CORRELATION) / (points + PRIOR_POINTS)
    correlation = np.minimum(np.maximum(r, 0), MOST_CORRELATION)
    return Wander(np.sqrt(total / np.maximum(points - levels - 1, 1)), correlation)


def size(sums: Sums, rows: Index, split: tuple[Index, Index, Index], noise: Wander) -> FloatArray:
    """Standard errors between the means of [start, place) and [place, stop) of the given series."""
    start, place, stop = split
    at = sums.before[rows, place]
    left, right = (at - sums.before[rows, start]) / (place - start), (sums.before[rows, stop] - at) / (stop - place)
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


# Where the levels of a series change: top-down, the clearest split first; many series of one length at a time.
#
# A split of the whole series is blind to a level that comes and goes, so every split of a set of nested windows is
# looked at (seeded binary segmentation: Kovacs, Buehlmann, Li and Munk, Biometrika 110, 2023).  The gain of a split is
# the sum of squares that it explains.


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
    best = [best_split(sums.before, a, b) for a, b in zip(start.tolist(), stop.tolist(), strict=True)]
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


def loudest(sums: Sums, splits: Splits, row: int, found: Sequence[int], enough: float) -> tuple[float, int]:
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
    inside = np.searchsorted(edges, splits.start, side="right") == np.searchsorted(edges, splits.stop, side="left")
    columns = (splits.gain[row], splits.start, splits.place[row], splits.stop)
    candidates = set(zip(*(column[inside].tolist() for column in columns), strict=True))
    for a, b in itertools.pairwise(edges):
        if b - a >= 2 * SHORTEST:
            place, gain = best_split(sums.before[row : row + 1], a, b)
            candidates.add((float(gain[0]), a, int(place[0]), b))
    return [(a, k, b) for _, a, k, b in sorted(candidates, reverse=True)[:TRIES]]


def _settled(sums: Sums, row: int, found: list[int], bar: float) -> list[int]:
    """Each split placed again between its neighbours; those that then do not stand out are dropped, weakest first.

    A split that a smooth drift explains as well does not stand out at all.
    """
    points = sums.points.shape[1]
    while found:
        edges = [0, *found, points]
        ends = zip(edges, edges[2:], strict=False)
        found = sorted({int(best_split(sums.before[row : row + 1], a, b)[0][0]) for a, b in ends})
        edges = [0, *found, points]
        noise, splits = wander(sums, row, edges), zip(edges, edges[1:], edges[2:], strict=False)
        sizes = [float(size(sums, row, split, noise)) * jumps(sums.points[row], *split) for split in splits]
        if min(sizes) >= bar:
            break
        found.pop(int(np.argmin(sizes)))
    return found
