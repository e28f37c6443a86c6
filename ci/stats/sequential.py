"""When to stop measuring: looks at fixed numbers of trials, an error budget split over them, fresh trials as a check.

Every look at the data is a chance to be wrong, so each look may use only its share of the false-alarm rate; the shares
add up to 1 and the rate over all looks is at most the rate allowed (Bonferroni; nothing is assumed about how the looks
depend on each other).  A finding of SLOWER must then be repeated by trials that had no part in it.
"""

from __future__ import annotations

import dataclasses
import math
from collections import defaultdict
from collections.abc import Hashable, Mapping, Sequence

import numpy as np
from scipy.special import ndtr, ndtri

from ci.stats import FloatArray
from ci.stats.interval import BLOCK, Sample, Shifts, stacked

# Control of false alarms over all cases judged together.


def adjusted(p_values: FloatArray) -> FloatArray:
    """Benjamini-Hochberg adjusted p-values (J. R. Statist. Soc. B 57, 1995): reject where adjusted <= q.

    Rejecting so keeps the expected share of false findings among all findings at most q for independent or positively
    dependent cases.  Shape (cases,), or (runs, cases): each run by itself; an empty array stays empty.
    """
    count = p_values.shape[-1]
    order = np.argsort(p_values, axis=-1)[..., ::-1]
    ranked = np.take_along_axis(p_values, order, axis=-1) * count / np.arange(count, 0, -1)
    result = np.empty(p_values.shape)
    np.put_along_axis(result, order, np.minimum(np.minimum.accumulate(ranked, axis=-1), 1.0), axis=-1)
    return result


def significant(p_values: FloatArray, each: FloatArray | float, false_share: float) -> FloatArray:
    """1.0 where a case is a finding, 0.0 elsewhere: its own p-value at most `each`, the adjusted one at most
    `false_share`.

    `each` (one per case, or one for all) bounds the false alarms per case judged; `false_share` bounds them among the
    findings of a large run, where thousands of cases would add up.
    """
    return ((p_values <= each) & (adjusted(p_values) <= false_share)).astype(np.float64)


CONFIRMING_TAIL = 0.05
"""Fresh trials confirm if, on their own, the probability of no slowdown is at most this."""


@dataclasses.dataclass(frozen=True)
class Progress:
    """How far a live comparison has got: its looks, and the number of trials at which a case first looked slower.

    looks: numbers of trials at which cases are judged, rising.  confirming: fresh trials that must repeat a SLOWER.
    """

    looks: tuple[int, ...] = (4, 6, 8, 12)
    confirming: int = 3
    flagged: Mapping[str, int] = dataclasses.field(default_factory=dict)

    @property
    def budget(self) -> int:
        """Most trials of a case, confirmation apart."""
        return self.looks[-1]

    def extended(self, trials: int) -> Progress:
        """The state with its last look after so many trials: the shares of the error budget stay."""
        return dataclasses.replace(self, looks=(*self.looks[:-1], trials))

    def advanced(self, slower: Mapping[str, int]) -> Progress:
        """The state after a look.  slower: trials of the cases that look slower; of each its first look counts."""
        return dataclasses.replace(self, flagged={**slower, **self.flagged})


def error_share(trials: int, looks: tuple[int, ...]) -> float:
    """Share of the false-alarm rate that a look after this many trials may use; 0 before the first look.

    Equal shares: an early look that finds a large change ends the measuring, a late one has the trials to be strict.
    """
    if trials < looks[0]:
        return 0.0
    return 1.0 / len(looks)


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
# 8. `python -m tests.study.budget.early_stop` of commit 168d12b8 counts what stopping by this chance costs.


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


def probability_decided(now: SoFar, later: int, rule: DecisionRule) -> float:
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


def trials_needed(now: SoFar, rule: DecisionRule) -> int | None:
    """How many more trials decide a case with the probability SURE; None if MOST do not."""
    return next(
        (n - now.trials for n in range(now.trials + 1, MOST_TRIALS + 1) if probability_decided(now, n, rule) >= SURE),
        None,
    )


# How many rounds a trial of an undecided case should have, so that a second tells most.
#
# With n rounds the shift of a trial has the variance tau^2 + w / n (tau: what is different from one start of the
# processes to the next, w: of one round), and the trial takes start_s + n round_s. What T seconds of such trials tell
# of the effect, the inverse of its variance, is T / ((start_s + n round_s) (tau^2 + w / n)), largest at
#
#     n = sqrt(start_s / round_s * w / tau^2)
#
# (Cochran, Sampling Techniques, 1977, section 10.6: optimum subsampling in two stages).  Only the noise decides, never
# the effect, so this is no look at the effect.  `python -m tests.study.budget.starts` of commit 168d12b8 has both on
# the recorded H200 trials.


MOST_TIMES = 4
"""Times the usual rounds.  Beyond that tau decides: with w / tau^2 = 40, a trial of 160 rounds has a variance of 0.63,
one of 1000 of 0.52 times that of 40."""


@dataclasses.dataclass(frozen=True)
class TrialSeconds:
    """What a trial costs for one case: its part of what is ahead of the samples and behind them, and a round."""

    start_s: float
    round_s: float


def next_rounds(shifts: Shifts, rounds: FloatArray, start_noise: float, cost: TrialSeconds) -> int:
    """The rounds of the next trials.  shifts: of the trials so far, shape (trials,), and `rounds`, how many each had.

    start_noise: the least tau, as a log-ratio.  Whole blocks (ci.stats.interval), from the fewest so far to MOST times
    as many as these; fewer than two trials say nothing of tau.
    """
    fewest = int(rounds.min())
    of_round = float((shifts.variance * rounds).mean())
    if len(rounds) < 2 or min(of_round, cost.start_s, cost.round_s) <= 0:
        return fewest
    between = max(start_noise**2, float(shifts.shift.var(ddof=1) - shifts.variance.mean()))
    wanted = math.sqrt(cost.start_s / cost.round_s * of_round / between)
    return int(min(max(fewest, wanted // BLOCK * BLOCK), MOST_TIMES * fewest))


# One cause, many shapes: evidence shared by the cases of one kernel and backend.


LEAST_NEIGHBOURS = 4
"""At least this many shapes, so that a single one cannot move their median."""

ONE_SIDED_LEAST = 8
"""So many findings, all in one direction, are suspicious (by chance: 1 run in 128)."""


def groups_of_equal(keys: Sequence[Hashable]) -> list[list[int]]:
    """Positions of equal keys, groups of at least `LEAST_NEIGHBOURS`."""
    groups: dict[Hashable, list[int]] = defaultdict(list)
    for position, key in enumerate(keys):
        groups[key].append(position)
    return [members for members in groups.values() if len(members) >= LEAST_NEIGHBOURS]


def joined_sample(members: Sequence[Sample], *, robust: bool) -> Sample | None:
    """One sample for several cases: per trial, the mean of their shifts, or (robust) the median.

    Cases of one trial share its processes, so they are first combined within the trial; what they have in common then
    shows as scatter between trials, where it belongs.  Only trials that all members have are used; None if fewer than
    3.
    A median of C values has pi/2 times the variance of their mean.
    """
    common = set.intersection(*(set(member.numbers) for member in members))
    if len(common) < 3:
        return None
    numbers = [number for number in members[0].numbers if number in common]
    all_of = stacked([member.of(numbers).shifts for member in members])
    shift, variance, serial, level = all_of.shift, all_of.variance, all_of.serial, all_of.level
    loss = np.pi / 2 if robust else 1.0
    centre = np.median(shift, axis=0) if robust else shift.mean(axis=0)
    joined = Shifts(centre, loss * variance.mean(axis=0) / len(members), serial.mean(axis=0), level.mean(axis=0))
    return Sample(tuple(numbers), joined, int(np.median([m.rounds for m in members])))


def one_sided(slower: int, faster: int) -> str | None:
    """A warning if all of many findings point one way: the fingerprint of a machine that moved.

    A baseline that was timed beside the findings and stood still clears the machine; the caller knows.
    """
    if max(slower, faster) < ONE_SIDED_LEAST or min(slower, faster) > 0:
        return None
    findings = f"all {slower + faster} findings point one way ({'slower' if slower else 'faster'})"
    suspects = "no baseline stood still beside them, so suspect the machine, the environment or base first"
    return f"{findings} and {suspects}; compare base with itself to be sure"
