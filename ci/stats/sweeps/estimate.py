"""What the trials of many points say of their ratios to the anchor: a mean and its standard deviation each.

The model of the log-ratio of a point in one trial, as in `ci.stats.interval` but with one spread between trials, since
most points of a sweep have a single trial and cannot tell it themselves:

    shift_t ~ Normal(effect, v_t + tau^2),   tau = max(least, TRIAL_SHARE * spread of one round)

v_t: what the rounds imply (`ci.stats.paired`), half its own and half the median of the points beside it, because eight
rounds know their own variance to some 40 % only.
"""

from __future__ import annotations

import dataclasses

import numpy as np

from ci.stats.paired import shifts
from ci.stats.types import FloatArray

TRIAL_SHARE = 0.2
"""Spread between trials / spread of the paired log-ratios of a trial: 0.05 to 0.3 in A/A trials of five kernels on two
H200 (recorded 2026-11-20; sd of 39 trials of 40 rounds, less what the rounds imply)."""

ROUND_VARIANCE = 1.2
"""rounds * v_t / variance of one paired log-ratio: 1.0 to 1.3 in the same trials."""

FEWEST_ROUNDS = 8
"""With 4 rounds two slow samples spoil a trial: sd 1.6 % where 8 rounds have 0.8 % (the same trials, GEMM of 42 us)."""


@dataclasses.dataclass(frozen=True, eq=False)
class TrialShift:
    """One trial of one point.  shift: log(time / anchor's time).  variance: of it, as its rounds imply it."""

    shift: float
    variance: float
    rounds: int


@dataclasses.dataclass(frozen=True, eq=False)
class Estimates:
    """Of several points, shape (points,): log-ratio to the anchor, and its standard deviation."""

    mean: FloatArray
    sd: FloatArray


def trial_shifts(pairs: list[tuple[FloatArray, FloatArray]]) -> list[TrialShift]:
    """(anchor's seconds, point's seconds), shape (rounds,) each, as shifts; at least 2 rounds each."""
    found: list[TrialShift | None] = [None] * len(pairs)
    by_rounds: dict[int, list[int]] = {}
    for index, (anchor, _) in enumerate(pairs):
        by_rounds.setdefault(len(anchor), []).append(index)
    for rounds, members in by_rounds.items():
        those = shifts(np.array([pairs[i][0] for i in members]), np.array([pairs[i][1] for i in members]))
        for row, index in enumerate(members):
            found[index] = TrialShift(float(those.shift[row]), float(those.variance[row]), rounds)
    return [one for one in found if one is not None]


def estimates(points: list[list[TrialShift]], least: float) -> Estimates:
    """Of each point (at least one trial) from its trials; points given together are of one case.

    least: the smallest spread between trials, as a share of the time (policy: trial_noise).
    """
    if not points:
        return Estimates(np.empty(0), np.empty(0))
    typical = float(np.median([one.variance * one.rounds for trials in points for one in trials]))
    rows = [_estimate(trials, typical, least) for trials in points]
    return Estimates(np.array([mean for mean, _ in rows]), np.array([sd for _, sd in rows]))


def _estimate(trials: list[TrialShift], typical: float, least: float) -> tuple[float, float]:
    """(mean, sd) of one point.  typical: variance of a trial of one round among the points of its case."""
    shift = np.array([one.shift for one in trials])
    per_round = np.array([(one.variance * one.rounds + typical) / 2 for one in trials])
    tau = np.maximum(least, TRIAL_SHARE * np.sqrt(per_round / ROUND_VARIANCE))
    precision = 1 / (per_round / np.array([one.rounds for one in trials]) + tau**2)
    return float((precision * shift).sum() / precision.sum()), float(1 / np.sqrt(precision.sum()))
