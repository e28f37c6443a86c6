"""Will more trials decide a case?  The predictive probability, from what the trials so far say of the effect.

The effect is taken as normal about its estimate, with the standard error that the interval implies; that of n times
as many trials is smaller by the square root of n.  Given the trials so far, the estimate after `later` trials is then
normal about the present one with the variance that is still to be lost (Spiegelhalter, Freedman and Blackburn,
Controlled Clinical Trials 7, 1986: predictive power).  A case is decided where its interval then lies within the bounds
of SAME, or where the change is large enough and surely real.

How much trials differ is itself only estimated: the logarithm of a standard deviation from n values has a standard
error of 1 / sqrt(2 (n - 1)), so the later one is averaged over.  On recorded trials the half of the interval after 12
is 0.6 to 1.5 times what the square root alone says after 4 (10 to 90 %; the formula: 0.62 to 1.6), 0.8 to 1.3 after 8.
`python -m ci.study.budget.early_stop` counts what stopping by this chance costs.
"""

from __future__ import annotations

import dataclasses
import math

from scipy.special import ndtr, ndtri

SURE = 0.8
"""The chance at which so many trials are said to decide a case: the usual power of a planned experiment."""

MOST = 200
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
    return next((n - now.trials for n in range(now.trials + 1, MOST + 1) if chance(now, n, rule) >= SURE), None)
