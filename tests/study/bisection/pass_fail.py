"""Bisection by pass and fail, to compare with: each midpoint is called good or bad."""

from __future__ import annotations

import numpy as np

from ci.bisect.search import Draw

RUNS = 10
"""Trials per midpoint of the plain one."""
SURE = 0.99


def plain(rng: np.random.Generator, last: int, place: int, shift: float, noise: Draw) -> tuple[int, int]:
    """(change found, trials): ten trials per midpoint, bad if their mean is above half the step between the ends."""

    def mean(position: int) -> float:
        return float(np.mean([shift * (position >= place) + noise(rng) for _ in range(RUNS)]))

    bound, low, high, spent = mean(last) / 2, 0, last, RUNS
    while high - low > 1:
        middle = (low + high) // 2
        low, high = (low, middle) if mean(middle) > bound else (middle, high)
        spent += RUNS
    return high, spent


def bayesian(
    rng: np.random.Generator, last: int, place: int, shift: float, noise: Draw, most: int = 1000
) -> tuple[int, int]:
    """(change found, trials): one trial at a time, nearest to the median of what is believed; called good or bad.

    It knows the step and how often a single trial is called wrong, which no real search does.
    """
    wrong = float(np.mean([noise(rng) > shift / 2 for _ in range(2000)]))
    belief = np.full(last, 1 / last)
    spent = 0
    while belief.max() < SURE and spent < most:
        position = int(np.abs(np.cumsum(belief) - 0.5).argmin()) + 1
        bad = shift * (position >= place) + noise(rng) > shift / 2
        reached = np.arange(1, last + 1) <= position
        belief = belief * np.where(reached == bad, 1 - wrong, wrong)
        belief, spent = belief / belief.sum(), spent + 1
    return int(belief.argmax()) + 1, spent
