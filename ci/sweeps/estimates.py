"""Points against an anchor: what few rounds say of a ratio, and which points need more of them."""

from __future__ import annotations

import dataclasses

import numpy as np
import numpy.typing as npt
from scipy.special import ndtri

from ci.stats.interval import summaries
from ci.stats.types import FloatArray

# What the trials of many points say of their ratios to the anchor: a mean and its standard deviation each.
#
# The model of the log-ratio of a point in one trial, as in `ci.stats.interval` but with one spread between trials,
# since most points of a sweep have a single trial and cannot tell it themselves:
#
#     shift_t ~ Normal(effect, v_t + tau^2),   tau = max(least, TRIAL_SHARE * spread of one round)
#
# v_t: what the rounds imply (`ci.stats.interval`), half its own and half the median of the points beside it, because
# eight rounds know their own variance to some 40 % only.


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
    rows = zip(pairs, summaries(pairs), strict=True)
    return [TrialShift(float(shift), float(variance), len(anchor)) for (anchor, _), (shift, variance, *_) in rows]


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


# Which points of a sweep go on to the next rung, so that the best one is among them with a stated chance.
#
# With n points whose log-ratios are known as m_i +- s_i, let
#
#     U = min_j (m_j + a s_j),   a = normal quantile of 1 - miss / (2 n):   no m_j is further below its truth than a s_j
#     keep i  if  m_i - b s_i <= U + indifference,   b = normal quantile of 1 - miss / 2
#
# Whatever the truth is, the best point w fails this only if its own m_w is more than b s_w too high (chance miss / 2)
# or some m_j is more than a s_j too low (chance miss / 2 for all n together, by Bonferroni): for every other j, m_j + a
# s_j >= truth_j >= truth_w >= m_w - b s_w. So the best point is lost with a chance of at most `miss` per rung, and so
# is any one point that is within the indifference of the best. How many are kept is up to the noise: nothing is dropped
# because of a fixed share.


MISS = 0.05
"""Chance of missing the winner over all rungs, unless asked otherwise."""

INDIFFERENCE = 0.01
"""Points whose times differ by less than this share are equally good (issue 14: the winner within 1 % of the best)."""


def survivors(
    mean: FloatArray, sd: FloatArray, miss: float, indifference: float = INDIFFERENCE
) -> npt.NDArray[np.bool_]:
    """Which points go on, shape (points,).  mean, sd: of the log-ratios.  miss: chance that is spent on this rung."""
    if not len(mean):
        return np.zeros(0, dtype=np.bool_)
    reach, joint = ndtri(1 - miss / 2), ndtri(1 - miss / (2 * len(mean)))
    bound = float(np.min(mean + joint * sd)) + np.log1p(indifference)
    return np.asarray(mean - reach * sd <= bound)


def miss_per_rung(miss: float, rungs: int) -> float:
    """What each of the rungs that drop points may spend, so that all together miss with a chance of at most `miss`."""
    return miss / max(1, rungs)
