"""Change points of one series: levels that last, told from noise, outliers, drift and autocorrelation.

Works on logarithms, so a step is a ratio.  A series is first freed of short spikes (a running median and a clip), then
split top-down: the best split in any of a nested set of windows is taken while it stands out of the noise that
is left beside it.  Each step is then placed again between its neighbours and dropped if it no longer stands out.
"""

from __future__ import annotations

import dataclasses
import functools

import numpy as np
import numpy.typing as npt

from ci.stats.types import FloatArray, Step

SHORTEST = 3
"""Points of the shortest level: spikes of one or two points are no step."""

CLIP = 3.0
"""Points further from the running median than this many robust standard deviations are pulled back to it."""

CRITICAL = 4.6
"""Standard errors."""


@dataclasses.dataclass(frozen=True)
class Noise:
    """sigma: standard deviation of one point (log); correlation: of neighbouring points, at least 0."""

    sigma: float
    correlation: float

    def variance(self, count: FloatArray | float) -> FloatArray:
        """Of the mean of `count` points in a row, of an AR(1) process."""
        r, m = self.correlation, np.asarray(count, dtype=np.float64)
        stretch = (1 + r) / (1 - r) - 2 * r * (1 - r**m) / (m * (1 - r) ** 2)
        return np.asarray(self.sigma**2 * stretch / m)


def find(values: FloatArray) -> list[Step]:
    """Steps of a series of positive finite values, in order, oldest first."""
    logs = np.log(np.asarray(values, dtype=np.float64))
    if len(logs) < 2 * SHORTEST:
        return []
    clean = without_spikes(logs)
    places = _refined(clean, _split(clean))
    return _described(logs, clean, places)


def without_spikes(logs: FloatArray) -> FloatArray:
    """The series with each point pulled to within CLIP robust standard deviations of the median of 7 about it."""
    width = min(7, len(logs) - 1 + len(logs) % 2)
    rolled = np.median(np.lib.stride_tricks.sliding_window_view(logs, width), axis=1)
    centre = np.concatenate([np.full(width // 2, rolled[0]), rolled, np.full(width // 2, rolled[-1])])
    reach = CLIP * 1.4826 * float(np.median(np.abs(logs - centre)))
    return np.clip(logs, centre - reach, centre + reach)


@functools.lru_cache(maxsize=64)
def windows(points: int) -> tuple[tuple[int, int], ...]:
    """Nested windows of falling length, each half over its neighbour."""
    found, length = {(0, points)}, float(points)
    while length >= 4 * SHORTEST:
        length /= 2**0.5
        count = int(np.ceil(2 * points / length))
        starts = np.linspace(0, points - length, count)
        found |= {(int(s), min(points, int(np.ceil(s + length)))) for s in starts}
    return tuple(sorted(w for w in found if w[1] - w[0] >= 2 * SHORTEST))


def best_split(sums: FloatArray, start: int, stop: int) -> tuple[float, int]:
    """(sum of squares that the best split of [start, stop) explains, its place)."""
    k = np.arange(start + SHORTEST, stop - SHORTEST + 1)
    left, right = sums[k] - sums[start], sums[stop] - sums[k]
    gap = left / (k - start) - right / (stop - k)
    gain = gap**2 * (k - start) * (stop - k) / (stop - start)
    best = int(np.argmax(gain))
    return float(gain[best]), int(k[best])


def noise_beside(clean: FloatArray, edges: npt.NDArray[np.intp]) -> Noise:
    """What is left when the levels between the edges are taken off."""
    residual = clean.copy()
    for a, b in zip(edges[:-1], edges[1:], strict=True):
        residual[a:b] -= residual[a:b].mean()
    n, pieces = len(clean), len(edges) - 1
    total = float(residual @ residual)
    if total <= 1e-24 * n:
        return Noise(1e-12, 0.0)
    r = float(residual[1:] @ residual[:-1]) / total
    r = min(max(r + pieces * (1 + 4 * max(r, 0)) / n, 0.0), 0.9)
    return Noise((total / max(n - pieces - 1, 1)) ** 0.5, r)


def _size(clean: FloatArray, a: int, k: int, b: int, noise: Noise) -> float:
    gap = clean[a:k].mean() - clean[k:b].mean()
    return float(abs(gap) / np.sqrt(noise.variance(k - a) + noise.variance(b - k)))


def _split(clean: FloatArray) -> list[int]:
    n = len(clean)
    sums = np.concatenate([[0.0], np.cumsum(clean - np.median(clean))])
    scored = [(*best_split(sums, a, b), a, b) for a, b in windows(n)]
    places: list[int] = []
    while True:
        edges = [0, *places, n]
        inside = [s for s in scored if not any(s[2] < p < s[3] for p in places)]
        inside += [(*best_split(sums, a, b), a, b) for a, b in zip(edges, edges[1:]) if b - a >= 2 * SHORTEST]
        if not inside:
            return places
        _, k, a, b = max(inside)
        noise = noise_beside(clean, np.array(sorted({*edges, a, k, b})))
        if _size(clean, a, k, b, noise) < CRITICAL:
            return places
        places = sorted({*places, k})


def _refined(clean: FloatArray, places: list[int]) -> list[int]:
    n = len(clean)
    sums = np.concatenate([[0.0], np.cumsum(clean - np.median(clean))])
    while places:
        edges = [0, *places, n]
        places = sorted({best_split(sums, a, b)[1] for a, b in zip(edges, edges[2:])})
        edges = [0, *places, n]
        noise = noise_beside(clean, np.array(edges))
        sizes = [_size(clean, a, k, b, noise) for a, k, b in zip(edges, edges[1:], edges[2:])]
        if min(sizes) >= CRITICAL:
            return places
        places.pop(int(np.argmin(sizes)))
    return places


def _described(logs: FloatArray, clean: FloatArray, places: list[int]) -> list[Step]:
    edges = [0, *places, len(logs)]
    noise = noise_beside(clean, np.array(edges))
    return [_step(logs, clean, a, k, b, noise) for a, k, b in zip(edges, edges[1:], edges[2:])]


def _step(logs: FloatArray, clean: FloatArray, a: int, k: int, b: int, noise: Noise) -> Step:
    before, after = float(np.median(logs[a:k])), float(np.median(logs[k:b]))
    error = 1.2533 * float(np.sqrt(noise.variance(k - a) + noise.variance(b - k)))
    size = _size(clean, a, k, b, noise)
    low, high = np.exp([after - before - 2.8 * error, after - before + 2.8 * error])
    p = min(1.0, 500 * np.exp(-(size**2) / 2))
    return Step(
        k, float(np.exp(before)), float(np.exp(after)), float(np.exp(after - before)), float(low), float(high), float(p)
    )
