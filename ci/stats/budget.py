""""""

from __future__ import annotations

import dataclasses
import math

from scipy.special import ndtr, ndtri

from ci.stats.interval import BLOCK, Shifts
from ci.stats.types import FloatArray

# Will more trials decide a case?  The predictive probability, from what the trials so far say of the effect.
#
# The effect is taken as normal about its estimate, with the standard error that the interval implies; that of n times
# as many trials is smaller by the square root of n. Given the trials so far, the estimate after `later` trials is then
# normal about the present one with the variance that is still to be lost (Spiegelhalter, Freedman and Blackburn,
# Controlled Clinical Trials 7, 1986: predictive power). A case is decided where its interval then lies within the
# bounds of SAME, or where the change is large enough and surely real.
#
# How much trials differ is itself only estimated: the logarithm of a standard deviation from n values has a standard
# error of 1 / sqrt(2 (n - 1)), so the later one is averaged over. On recorded trials the half of the interval after 12
# is 0.6 to 1.5 times what the square root alone says after 4 (10 to 90 %; the formula: 0.62 to 1.6), 0.8 to 1.3 after
# 8. `python -m tests.study.budget.early_stop` counts what stopping by this chance costs.


SURE = 0.8
"""The chance at which so many trials are said to decide a case: the usual power of a planned experiment."""

MOST_TRIALS = 200
"""More trials than anybody measures of one case: 200 of 4 s are a quarter of an hour (2026-11)."""


NODES = ((-math.sqrt(3), 1 / 6), (0.0, 2 / 3), (math.sqrt(3), 1 / 6))
"""(value, weight) of a standard normal: Gauss-Hermite quadrature with three nodes, exact up to the fifth moment."""


@dataclasses.dataclass(frozen=True)
class DecisionRule:
    """When a case is decided.  within, smallest, bias: log-ratios of the policy.

    tail: probability of no change at which a change is real; confidence: of the interval that must lie within.
    """

    within: float
    smallest: float
    bias: float
    tail: float
    confidence: float


@dataclasses.dataclass(frozen=True)
class SoFar:
    """What is known of the effect after `trials`: its estimate, and half of the interval, as log-ratios."""

    effect: float
    half: float
    trials: int


def chance(now: SoFar, later: int, rule: DecisionRule) -> float:
    """Probability that a case is decided after `later` trials in all, 0 to 1."""
    width = float(ndtri(0.5 + rule.confidence / 2))
    error = now.half / width
    sure = math.sqrt(max(0.5 / (now.trials - 1) - 0.5 / (later - 1), 0.0))
    thens = ((weight, math.exp(node * sure) * error * math.sqrt(now.trials / later)) for node, weight in NODES)
    return min(1.0, sum(weight * _decided(now.effect, error, then, width, rule) for weight, then in thens))


def _decided(effect: float, error: float, error_then: float, width: float, rule: DecisionRule) -> float:
    """The same where the standard error will be `error_then`; width: of the interval, in standard errors."""
    spread = math.sqrt(max(error**2 - error_then**2, 1e-24))
    room = rule.within - width * error_then
    same = _between(effect, spread, -room, room) if room > 0 else 0.0
    real = max(rule.smallest, rule.bias - float(ndtri(rule.tail)) * error_then, room)
    return same + 1.0 - _between(effect, spread, -real, real)


def _between(middle: float, spread: float, low: float, high: float) -> float:
    return float(ndtr((high - middle) / spread) - ndtr((low - middle) / spread))


def needed(now: SoFar, rule: DecisionRule) -> int | None:
    """How many more trials decide a case with the probability SURE; None if MOST do not."""
    return next((n - now.trials for n in range(now.trials + 1, MOST_TRIALS + 1) if chance(now, n, rule) >= SURE), None)


# How many rounds a trial of an undecided case should have, so that a second tells most.
#
# With n rounds the shift of a trial has the variance tau^2 + w / n (tau: what is different from one start of the
# processes to the next, w: of one round), and the trial takes start_s + n round_s. What T seconds of such trials tell
# of the effect, the inverse of its variance, is T / ((start_s + n round_s) (tau^2 + w / n)), largest at
#
#     n = sqrt(start_s / round_s * w / tau^2)
#
# (Cochran, Sampling Techniques, 1977, section 10.6: optimum subsampling in two stages).  Only the noise decides, never
# the effect, so this is no look at the effect.  `python -m tests.study.budget.starts` has both on the recorded H200
# trials.


MOST_TIMES = 4
"""Times the usual rounds.  Beyond that tau decides: with w / tau^2 = 40, a trial of 160 rounds has a variance of 0.63,
one of 1000 of 0.52 times that of 40."""


@dataclasses.dataclass(frozen=True)
class TrialSeconds:
    """What a trial costs for one case: its part of what is ahead of the samples and behind them, and a round."""

    start_s: float
    round_s: float


def best(found: Shifts, rounds: FloatArray, start_noise: float, cost: TrialSeconds) -> int:
    """The rounds of the next trials.  found: of the trials so far, shape (trials,), and `rounds`, how many each had.

    start_noise: the least tau, as a log-ratio.  Whole blocks (ci.stats.interval), from the fewest so far to MOST times
    as many as these; fewer than two trials say nothing of tau.
    """
    fewest = int(rounds.min())
    of_round = float((found.variance * rounds).mean())
    if len(rounds) < 2 or min(of_round, cost.start_s, cost.round_s) <= 0:
        return fewest
    between = max(start_noise**2, float(found.shift.var(ddof=1) - found.variance.mean()))
    wanted = math.sqrt(cost.start_s / cost.round_s * of_round / between)
    return int(min(max(fewest, wanted // BLOCK * BLOCK), MOST_TIMES * fewest))
