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
"""Kinds for which the false-alarm rate holds.  Two modes of which a short series shows first one and then the other are
two levels to anybody.  A drift of one standard deviation looks like a step in 6 % of series; to tell it costs power.
Of a step it can be asked that two levels explain more than a cubic by so many squared standard deviations of a point,
or more than a polynomial of a higher degree.  False alarms on slow drift at 100, 200 and 300 points, then power at a
step of 2 % at sigma 2 % in Gaussian, t and AR(1) noise (700 series each, 2026-11-22; asv finds 0.67 of the first):

    cubic, 0 (as it is)  0.059 0.066 0.057    0.94 0.99 0.46
    cubic, 2             0.037 0.050 0.037    0.90 0.98 0.44
    cubic, 4             0.016 0.027 0.026    0.85 0.96 0.42
    cubic, 8             0.006 0.016 0.017    0.68 0.90 0.36
    degree 4, 0          0.044 0.044 0.029    0.91 0.98 0.42
    degree 5, 0          0.030 0.026 0.011    0.79 0.91 0.31

It stays as it is: what a whole machine drifts by is taken off before (ci.history.series), and ratios to a
baseline of the same trial do not see it."""
