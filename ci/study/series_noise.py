"""Series without a step, as histories of timings wander; for the studies of change points.

Values are logarithms with a standard deviation of 2 % unless a kind says otherwise, shape (series, points).
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
from scipy.signal import lfilter

from ci.stats.types import FloatArray

SIGMA = 0.02
"""Between runs the median of one GEMM wanders by 2 to 3 % on H200 (recorded 2026-11-20)."""

WARM_UP = 50
"""Points that an AR(1) process of correlation 0.5 needs to forget how it began."""

Noise = Callable[[np.random.Generator, int, int], FloatArray]


def gaussian(rng: np.random.Generator, series: int, points: int) -> FloatArray:
    return np.asarray(SIGMA * rng.normal(size=(series, points)))


def heavy(rng: np.random.Generator, series: int, points: int) -> FloatArray:
    """Student's t with 3 degrees of freedom, scaled to the same standard deviation."""
    return np.asarray(SIGMA / np.sqrt(3) * rng.standard_t(3, size=(series, points)))


def correlated(rng: np.random.Generator, series: int, points: int, correlation: float = 0.5) -> FloatArray:
    """AR(1)."""
    shocks = rng.normal(size=(series, points + WARM_UP)) * np.sqrt(1 - correlation**2)
    return np.asarray(SIGMA * lfilter([1], [1, -correlation], shocks, axis=1)[:, WARM_UP:])


def outliers(rng: np.random.Generator, series: int, points: int) -> FloatArray:
    """Gaussian, and 1 % of the points 30 % slower."""
    return np.asarray(gaussian(rng, series, points) + np.log(1.3) * (rng.random((series, points)) < 0.01))


def bimodal(rng: np.random.Generator, series: int, points: int) -> FloatArray:
    """Two modes 5 % apart, the slower one in 3 of 10 points at random, and 0.2 % noise."""
    return np.asarray(gaussian(rng, series, points) / 10 + np.log(1.05) * (rng.random((series, points)) < 0.3))


def drifting(rng: np.random.Generator, series: int, points: int) -> FloatArray:
    """Gaussian on a sine wave of half a period to two, with an amplitude of one standard deviation."""
    periods, phase = rng.choice([0.5, 1, 1.5, 2], size=(series, 1)), rng.random((series, 1))
    wave = np.sin(2 * np.pi * (periods * np.arange(points) / points + phase))
    return gaussian(rng, series, points) + SIGMA * wave


KINDS: dict[str, Noise] = {
    "gaussian": gaussian,
    "t, 3 degrees": heavy,
    "AR(1) 0.5": correlated,
    "1 % outliers": outliers,
    "bimodal": bimodal,
    "slow drift": drifting,
}
"""What null series are made of."""

PROMISED = ("gaussian", "t, 3 degrees", "AR(1) 0.5", "1 % outliers")
"""Kinds for which the false-alarm rate holds.  A drift of one standard deviation looks like a step too often, and two
modes of which a short series shows first one and then the other are two levels to anybody."""
