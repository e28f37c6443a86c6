"""The grids that size and noise of a step are summed over, and the prior on them.

Sizes are log-uniform from the smallest step looked for to a factor of 20, slower and faster alike.  The noise of a
trial is Student's t with 3 or 10 degrees of freedom.  Recorded A/A trials of H200s have lighter tails than either
(mm_m16 and tgemm_m64: excess kurtosis 0.2 and -0.2 over 78 trials, 2026-11-22); heavier ones guard against a disturbed
trial.  Its scale is log-normal about what the policy holds typical, a factor of e either way.
"""

from __future__ import annotations

import dataclasses
import functools
from collections.abc import Iterable

import numpy as np
from scipy import special

from ci.stats.types import FloatArray

FINENESS = 1.2
"""Neighbouring sizes have this ratio: the grid is then off by at most 10 % of a step, less than a search can tell."""
LARGEST = 3.0
"""Log-ratio of the largest step, a factor of 20."""
TAILS = (3.0, 10.0)
"""Degrees of freedom of the noise."""
SCALES = 9
"""Scales of the noise, within +-2.5 of the log of the typical one."""
REACH = 2.5
ANSWERS = 64
"""Cells that the outcome of a trial is put into, to reckon what the trial would tell."""

NONE, ONE, TWO = 0.5, 0.45, 0.05
"""Prior of no step, one, two.  With 1/2 on none, a row without a step ends in 99 % for a change in at most about 1 % of
searches, however long they go on (Ville's inequality: the posterior odds against the truth are a martingale)."""


@dataclasses.dataclass(frozen=True, eq=False)
class StepGrid:
    """levels: shape (V,), log-ratio to position 0; prior: shape (V,).  second: shape (V, V), the level after a second
    step given the one before it.  scale, tail, weight: shape (S,), of the noise.  answers: shape (Y,)."""

    levels: FloatArray
    prior: FloatArray
    second: FloatArray
    scale: FloatArray
    tail: FloatArray
    weight: FloatArray
    answers: FloatArray

    def likelihood(self, shifts: Iterable[float]) -> tuple[FloatArray, FloatArray]:
        """Log-likelihood of trials against position 0: at level 0, shape (S,), and at each level, shape (S, V)."""
        seen = np.array(list(shifts))
        at_zero = self.log_density(seen[:, None]).sum(axis=0)
        at_level = self.log_density(seen[:, None, None] - self.levels[:, None]).sum(axis=0).T
        return at_zero, at_level

    def of_jumps(self, shifts: Iterable[float]) -> tuple[FloatArray, FloatArray, FloatArray]:
        """Log-likelihood of trials of neighbours: no jump (S,), a jump from 0 (S, V), one between levels (S, V, V)."""
        seen = np.array(list(shifts))
        stays, jumps = self.likelihood(seen)
        apart = self.levels[None, :] - self.levels[:, None]
        between = sum(self.log_density((shift - apart)[..., None]) for shift in seen)
        return stays, jumps, np.moveaxis(np.asarray(between), -1, 0)

    def log_density(self, away: FloatArray) -> FloatArray:
        """Log-density of the noise at a distance; the last axis is broadcast over the noises."""
        tail, z = self.tail, away / self.scale
        constant = (
            special.gammaln((tail + 1) / 2) - special.gammaln(tail / 2) - np.log(self.scale**2 * tail * np.pi) / 2
        )
        return np.asarray(constant - (tail + 1) / 2 * np.log1p(z**2 / tail))

    @functools.cached_property
    def both(self) -> FloatArray:
        """Shape (V,): prior of the level after two steps."""
        return np.asarray(self.prior @ self.second)

    @functools.cached_property
    def outcomes(self) -> FloatArray:
        """Shape (V + 1, S, Y): chance that a trial falls into each cell; the last level is 0."""
        levels = np.append(self.levels, 0.0)
        away = self.answers[None, :, None] - levels[:, None, None]
        chance = np.exp(np.moveaxis(self.log_density(away), -1, 1)) * np.gradient(self.answers)
        return np.asarray(chance / chance.sum(axis=-1, keepdims=True))


@functools.lru_cache(maxsize=32)
def of(smallest: float, noise: float) -> StepGrid:
    """The grid for steps of at least `smallest` in noise of about `noise`, shares of the time."""
    least = np.log1p(smallest)
    sizes = np.exp(np.arange(np.log(least), np.log(LARGEST), np.log(FINENESS)))
    levels = np.concatenate([-sizes[::-1], sizes])
    prior = np.full(len(levels), 1 / len(levels))
    apart = np.abs(levels[None, :] - levels[:, None]) >= least
    second = apart * prior / (apart * prior).sum(axis=1, keepdims=True)
    places = np.linspace(-REACH, REACH, SCALES)
    scale, tail = (one.ravel() for one in np.meshgrid(noise * np.exp(places), TAILS, indexing="ij"))
    weight = np.repeat(np.exp(-(places**2) / 2), len(TAILS))
    half = least / 8 * np.sinh(np.linspace(0, np.arcsinh(8 * LARGEST / least), ANSWERS // 2 + 1))[1:]
    answers = np.concatenate([-half[::-1], [0.0], half])
    return StepGrid(levels, prior, second, scale, tail, weight / weight.sum(), answers)
