"""From the trials of a case to an effect, its interval and its tail probabilities: honest at 3 to 12 trials.

A few trials cannot say how much trials differ from each other, so a t-test across them must assume the worst and finds
little.  But the rounds inside a trial say what the least possible difference is, and recorded machines say how much
there is beyond it.  The model of the log-ratio of trial t of a case:

    shift_t ~ Normal(effect, k * v_t + tau^2)

v_t: variance that the rounds of the trial imply (`paired`), stretched where the rounds drift;
k: how far rounds are from independent (1 to 3.5);  tau: what is different from one start of the processes to the next.

(k, tau) is not estimated but averaged over, with weights by how well they explain the scatter of the trials.  Two
hypotheses share the prior: *lock-step* (both arms see the same machine: tau is small, whatever the level does) and
*apart* (each arm drifts on its own: tau may be large, and then the level of the trials drifts just as much, since
the variance of a difference is four times that of a mean).  How often the first hypothesis holds is learned from all
cases judged together.  The effect has a flat prior, so given (k, tau) it is normal about the weighted mean, and
everything asked of it is an average of normal tails.  `tests/study/ab_study.md` shows how often this is wrong on
recorded trials.  It is weakest for 3 or 4 trials of arms that drift apart by percents: a 99 % interval then contains
the truth in 95 to 97 % (synthetic) or 98 to 99 % (recorded) of the cases.
"""

from __future__ import annotations

import dataclasses
import itertools
import math
from collections import defaultdict
from collections.abc import Iterable, Sequence

import numpy as np
import numpy.typing as npt
from scipy.special import expit, logit, logsumexp, ndtr

from ci.stats import FloatArray, PairedRounds

# From the rounds of one trial to one log-ratio, its sampling variance, and what the rounds say about drift.
#
# All arrays have shape (trials, rounds) in seconds, sample i of both from round i; results have shape (trials,).
#
# The estimate is a Hodges-Lehmann shift in blocks: the rounds are cut into blocks of about ten neighbours, every head
# sample is divided by every base sample of its own block, and the median of all those log-ratios is taken. Blocks keep
# the pairing (drift slower than a block cancels); the many ratios inside a block use the rounds better than one ratio
# per round does. On recorded H200 trials its standard deviation between trials is 0.23 % where the plain median of
# paired log-ratios has 0.27 % (copy, 72 us), 0.60 against 0.68 % (GEMM, 53 us), 0.41 against 0.44 % (GEMM, 42 us). It
# does not move while fewer than about 3 samples in 10 are spoiled.


BLOCK = 10
"""Rounds in a block, at least (fewer only where a trial has fewer rounds)."""

SPREAD = 1.5
"""The variance is read off the order statistics this many standard deviations of the rank sum from the middle."""

RESOLUTION = 1e-5
"""No log-ratio is known more precisely than this: event timers tick in steps (32 ns on H200, 0.5 us clocks divided by
calls)."""

CHUNK = 2048
"""Trials sorted at a time; bounds the memory to about CHUNK * rounds * BLOCK doubles."""


@dataclasses.dataclass(frozen=True, eq=False)
class Shifts:
    """What the rounds of each trial say; all of shape (trials,).

    shift: log(head time / base time).  variance: its sampling variance if the rounds are independent.
    serial: lag-one correlation of the signs of the paired log-ratios about their median, drift if positive.
    level: mean log time of both arms, from the quieter half of the samples.
    """

    shift: FloatArray
    variance: FloatArray
    serial: FloatArray
    level: FloatArray

    def __getitem__(self, index: object) -> Shifts:
        return Shifts(*(getattr(self, f.name)[index] for f in dataclasses.fields(self)))


def two_sided(not_slower: FloatArray, not_faster: FloatArray) -> FloatArray:
    """The p-value of a change in either direction, from the tails of both; any shape."""
    return np.asarray(np.minimum(1.0, 2 * np.minimum(not_slower, not_faster)))


def shifts(base: FloatArray, head: FloatArray) -> Shifts:
    """Summarise trials that all have the same number of rounds; at least 2 rounds."""
    log_base, log_head = np.log(base), np.log(head)
    parts = [_block_shift(log_base[i : i + CHUNK], log_head[i : i + CHUNK]) for i in range(0, len(base), CHUNK)]
    return Shifts(
        np.concatenate([shift for shift, _ in parts]),
        np.concatenate([variance for _, variance in parts]),
        _serial(log_head - log_base),
        (_level(log_base) + _level(log_head)) / 2,
    )


def blocks_of(rounds: int) -> tuple[int, int]:
    """(number of blocks, rounds in each); what does not divide is left out at the start, where the warm-up is."""
    count = max(1, rounds // BLOCK)
    return count, rounds // count


def _block_shift(log_base: FloatArray, log_head: FloatArray) -> tuple[FloatArray, FloatArray]:
    """(shift, variance): Moses' interval of the rank sum, stratified by block, turned into a variance.

    Under no shift the rank sum of one block of w and w has the variance w*w*(2w+1)/12 (Hollander and Wolfe,
    Nonparametric Statistical Methods, 3rd ed., section 4.3); blocks are independent, so the variances add.
    """
    trials, rounds = log_base.shape
    count, width = blocks_of(rounds)
    start = rounds - count * width
    shape = (trials, count, width)
    ratios = (
        log_head[:, start:].reshape(shape)[:, :, :, None] - log_base[:, start:].reshape(shape)[:, :, None, :]
    ).reshape(trials, -1)
    ratios.sort(axis=1)
    total = ratios.shape[1]
    reach = SPREAD * np.sqrt(count * width**2 * (2 * width + 1) / 12)
    low = max(0, round((total - 1) / 2 - reach))
    high = min(total - 1, round((total - 1) / 2 + reach))
    deviation = (ratios[:, high] - ratios[:, low]) / (2 * SPREAD)
    middle = (ratios[:, (total - 1) // 2] + ratios[:, total // 2]) / 2
    return middle, np.maximum(deviation, RESOLUTION) ** 2


def _serial(ratios: FloatArray) -> FloatArray:
    """Mean product of neighbouring signs about the median, the first round (warm-up) left out; 0 for short trials."""
    if ratios.shape[1] < 4:
        return np.zeros(len(ratios))
    signs = np.sign(ratios - np.median(ratios, axis=1, keepdims=True))[:, 1:]
    return np.asarray((signs[:, 1:] * signs[:, :-1]).mean(axis=1))


def _level(logs: FloatArray) -> FloatArray:
    """Mean of the samples between the 1/8 and the 1/2 quantile: slow bursts do not reach it."""
    ordered = np.sort(logs, axis=1)
    rounds = ordered.shape[1]
    return np.asarray(ordered[:, rounds // 8 : max(rounds // 2, rounds // 8 + 1)].mean(axis=1))


# Chosen by hand on the recorded H200 trials and runs of 2026-11-20, both GPUs in view, for A/A pairs of separate runs
# to stay below the false-alarm rate; the numbers by GPU are in tests/study/ab_study.md.
STRETCH = ((1.0, 0.3), (2.0, 0.4), (3.5, 0.3))
"""(k, weight): observed variance between trials / variance implied by the rounds is 1.2 to 3.3 in A/A trials."""

LOCK_STEP = ((0.0, 0.30), (0.5, 0.20), (1.0, 0.20), (2.0, 0.15), (4.0, 0.10), (8.0, 0.05))
"""(tau in units of the typical trial noise, weight) where the arms run in lock-step."""

APART = (
    (1.0, 0.05),
    (2.0, 0.10),
    (4.0, 0.15),
    (7.0, 0.15),
    (12.0, 0.15),
    (20.0, 0.15),
    (35.0, 0.10),
    (60.0, 0.07),
    (100.0, 0.04),
    (200.0, 0.04),
)
"""(tau in the same unit, weight) where they do not."""

LOCK_STEP_SHARE, SHARE_STRENGTH = 0.7, 4.0
"""Prior share of cases in lock-step, and how many cases that prior is worth."""

LEVEL_DRIFT = tuple(2.0**i for i in range(13))
"""Level variance * 4 / v in lock-step: anything between none and 4096 times, equally likely."""


STRETCHES, TAUS, LOG_WEIGHTS, TOGETHER = (
    np.array(column)
    for column in zip(
        *(
            (k, tau, math.log(of_k * of_tau), together)
            for together, scatter in ((True, LOCK_STEP), (False, APART))
            for (k, of_k), (tau, of_tau) in itertools.product(STRETCH, scatter)
        ),
        strict=True,
    )
)
"""Every component: k, tau in units of trial noise, log weight within its hypothesis, whether that is lock-step."""


@dataclasses.dataclass(frozen=True, eq=False)
class Fit:
    """What the trials say about the effects of several cases; arrays over (cases,) or (cases, components).

    effect: posterior mean of log(head / base).  weight, centre, width: the mixture of normals it is drawn from.
    lock_step: probability that the arms of the case saw the same machine.
    """

    effect: FloatArray
    weight: FloatArray
    centre: FloatArray
    width: FloatArray
    lock_step: FloatArray

    def below(self, bound: FloatArray | float) -> FloatArray:
        """Probability that the effect is below the bound (scalar or one per case), shape (cases,)."""
        edge = np.broadcast_to(bound, self.effect.shape)[:, None]
        return np.asarray((self.weight * ndtr((edge - self.centre) / self.width)).sum(axis=1))

    def above(self, bound: FloatArray | float) -> FloatArray:
        """Probability that the effect is above the bound, exact also where it is tiny."""
        edge = np.broadcast_to(bound, self.effect.shape)[:, None]
        return np.asarray((self.weight * ndtr((self.centre - edge) / self.width)).sum(axis=1))

    def interval(self, confidence: FloatArray | float) -> tuple[FloatArray, FloatArray]:
        """Central interval of the effect, shape (cases,) each; by bisection to 1e-7 of its width."""
        tail = (1 - np.broadcast_to(np.asarray(confidence, dtype=np.float64), self.effect.shape)) / 2
        return self._edge(tail, upper=False), self._edge(tail, upper=True)

    def _edge(self, tail: FloatArray, *, upper: bool) -> FloatArray:
        reach = 12 * self.width
        inner, outer = self.effect.copy(), (self.centre + reach if upper else self.centre - reach)
        outer = outer.max(axis=1) if upper else outer.min(axis=1)
        for _ in range(30):
            middle = (inner + outer) / 2
            inside = (self.above(middle) if upper else self.below(middle)) > tail
            inner, outer = np.where(inside, middle, inner), np.where(inside, outer, middle)
        return np.asarray((inner + outer) / 2)


@dataclasses.dataclass(frozen=True, eq=False)
class _Likelihood:
    """Log likelihood of the scatter of each case under each component of either hypothesis, with its normal."""

    score: FloatArray
    centre: FloatArray
    width: FloatArray


def drift_stretch(serial: FloatArray, rounds: int) -> FloatArray:
    """Factor by which drift inside the trials stretches the variance of their shifts, shape (cases, 1).

    serial: (cases, trials), sign correlation of neighbouring rounds.  For normal noise the correlation is
    sin(pi/2 * sign correlation); what chance alone makes of n rounds (1.5 standard errors) is taken off; an AR(1)
    series of correlation r has (1+r)/(1-r) times the variance of the mean.
    """
    correlation = np.sin(np.pi / 2 * np.clip(serial.mean(axis=1), -1, 1))
    correlation = np.clip(correlation - 1.5 / np.sqrt(serial.shape[1] * rounds), 0, 0.95)
    return np.asarray(((1 + correlation) / (1 - correlation))[:, None])


def fit(batches: list[tuple[Shifts, int, FloatArray]], runs: list[npt.NDArray[np.intp]] | None = None) -> list[Fit]:
    """Fit cases that are judged together.  A batch holds cases with equally many trials, at least two.

    batch: (shifts with fields of shape (cases, trials), rounds in a trial, typical trial noise of each case as a
    log-ratio, shape (cases,)).  The share of lock-step cases is learned over all batches by expectation maximisation;
    `runs` (per batch, the run each case belongs to, from 0) fits many independent runs at once.
    """
    likelihoods = [_likelihood(*batch) for batch in batches]
    which = runs or [np.zeros(len(likelihood.score), dtype=np.intp) for likelihood in likelihoods]
    share = _lock_step_share([likelihood.score for likelihood in likelihoods], which)
    return [_posterior(likelihood, share[w]) for likelihood, w in zip(likelihoods, which, strict=True)]


def _likelihood(shift: Shifts, rounds: int, noise: FloatArray) -> _Likelihood:
    trials = shift.shift.shape[1]
    stretched = shift.variance * drift_stretch(shift.serial, rounds)
    typical = stretched.mean(axis=1, keepdims=True)
    smooth = (stretched + typical) / 2  # the variance of one trial is itself only known to about 30 %
    extra = (TAUS * noise[:, None]) ** 2  # (cases, components)
    variance = STRETCHES * smooth[:, :, None] + extra[:, None, :]
    precision = 1 / variance
    total = precision.sum(axis=1)
    centre = (precision * shift.shift[:, :, None]).sum(axis=1) / total
    misfit = (precision * (shift.shift[:, :, None] - centre[:, None, :]) ** 2).sum(axis=1)
    score = -(np.log(variance).sum(axis=1) + np.log(total) + misfit) / 2
    drift = 4 * shift.level.var(axis=1, ddof=1)[:, None]
    free = logsumexp(_scatter(drift, typical * np.array(LEVEL_DRIFT), trials), axis=1) - np.log(len(LEVEL_DRIFT))
    tied = _scatter(drift, STRETCHES * typical + extra, trials)
    return _Likelihood(score + np.where(TOGETHER, free[:, None], tied) + LOG_WEIGHTS, centre, 1 / np.sqrt(total))


def _scatter(observed: FloatArray, expected: FloatArray, trials: int) -> FloatArray:
    """Log density, up to a constant, of a sample variance of `trials` normal values."""
    return np.asarray(-(trials - 1) / 2 * (np.log(expected) + observed / expected))


def _lock_step_share(scores: list[FloatArray], runs: list[npt.NDArray[np.intp]]) -> FloatArray:
    """Share of lock-step cases in each run, shape (runs,)."""
    if not scores:
        return np.array([LOCK_STEP_SHARE])
    odds = np.concatenate(
        [logsumexp(score[:, TOGETHER], axis=1) - logsumexp(score[:, ~TOGETHER], axis=1) for score in scores]
    )
    run = np.concatenate(runs)
    cases = np.bincount(run)
    share = np.full(len(cases), LOCK_STEP_SHARE)
    for _ in range(5):
        likely = expit(odds + logit(share)[run])
        share = (SHARE_STRENGTH * LOCK_STEP_SHARE + np.bincount(run, likely)) / (SHARE_STRENGTH + cases)
        share = np.clip(share, 0.02, 0.98)
    return share


def _posterior(likelihood: _Likelihood, share: FloatArray) -> Fit:
    score = likelihood.score + np.where(TOGETHER, np.log(share)[:, None], np.log1p(-share)[:, None])
    weight = np.exp(score - logsumexp(score, axis=1, keepdims=True))
    return Fit(
        (weight * likelihood.centre).sum(axis=1),
        weight,
        likelihood.centre,
        likelihood.width,
        weight[:, TOGETHER].sum(axis=1),
    )


# Many cases at once: the trials of all comparisons as a few large arrays, and back to one summary per case.


@dataclasses.dataclass(frozen=True, eq=False)
class Sample:
    """The trials of one case (or of its baseline, or of a group), summarised.

    numbers: trial numbers, shape (trials,).  shifts: fields of shape (trials,).  rounds: median number in a trial.
    base_relative, head_relative: per trial, time / median of the arm, first round left out; empty where not kept.
    base_seconds, head_seconds: median over trials of the trial medians.
    """

    numbers: tuple[int, ...]
    shifts: Shifts
    rounds: int
    base_relative: tuple[FloatArray, ...] = ()
    head_relative: tuple[FloatArray, ...] = ()
    base_seconds: float | None = None
    head_seconds: float | None = None

    @property
    def trials(self) -> int:
        """How many trials there are."""
        return len(self.numbers)

    def of(self, numbers: Sequence[int]) -> Sample:
        """The trials with these numbers, in this order, without the rounds."""
        places = np.array([self.numbers.index(number) for number in numbers], dtype=np.intp)
        return Sample(tuple(numbers), self.shifts[places], self.rounds)


@dataclasses.dataclass(frozen=True, eq=False)
class Effect:
    """What one sample says: log(head / base), its interval, and tail probabilities.

    not_slower: probability that head is at most `arm_bias` slower; not_faster likewise.
    lock_step: probability that the arms saw the same machine.
    """

    log_ratio: float
    low: float
    high: float
    not_slower: float
    not_faster: float
    lock_step: float

    @property
    def ratios(self) -> tuple[float, float, float]:
        """(middle, low, high): the effect and its interval as ratios head / base."""
        return math.exp(self.log_ratio), math.exp(self.low), math.exp(self.high)

    @property
    def p_value(self) -> float:
        """Two-sided."""
        return float(two_sided(np.asarray(self.not_slower), np.asarray(self.not_faster)))


@dataclasses.dataclass(frozen=True)
class Scale:
    """What `effects` needs to know of the policy: log-ratios, except the confidence."""

    noise: float
    bias: float
    confidence: float


def samples(cases: Sequence[Sequence[PairedRounds]], *, baseline: bool = False) -> list[Sample | None]:
    """Summarise the trials of each case; None for a case without usable trials.

    baseline: summarise the baseline instead (trials without it are left out, and its rounds are not kept).
    """
    arms = [{t.number: pair for t in trials if (pair := _pair(t, baseline)) is not None} for trials in cases]
    found = iter(summaries([pair for trials in arms for pair in trials.values()]))
    of_case = [[next(found) for _ in trials] for trials in arms]
    return [_sample(tuple(n), own, keep=not baseline) if own else None for n, own in zip(arms, of_case, strict=True)]


def _pair(trial: PairedRounds, baseline: bool) -> tuple[FloatArray, FloatArray] | None:
    if not baseline:
        return trial.base, trial.head
    if trial.baseline_base is None or trial.baseline_head is None or len(trial.baseline_base) < 2:
        return None
    return trial.baseline_base, trial.baseline_head


Summary = tuple[float, float, float, float, float, float, FloatArray, FloatArray]
"""Of one trial: the fields of its `Shifts`, then both arms' medians, then both arms relative to these."""


def summaries(trials: Sequence[tuple[FloatArray, FloatArray]]) -> list[Summary]:
    """Of the two arms of each trial; those with equally many rounds are computed together."""
    places = defaultdict(list)
    for place, (base, _) in enumerate(trials):
        places[len(base)].append(place)
    found: dict[int, Summary] = {}
    for those in places.values():
        arms = [np.array([trials[place][arm] for place in those]) for arm in (0, 1)]
        medians = [np.median(arm, axis=1) for arm in arms]
        relative = [arm[:, 1:] / middle[:, None] for arm, middle in zip(arms, medians, strict=True)]
        said = shifts(*arms)
        rows = zip(said.shift, said.variance, said.serial, said.level, *medians, *relative, strict=True)
        found.update(zip(those, rows, strict=True))
    return [found[place] for place in range(len(trials))]


def _sample(numbers: tuple[int, ...], trials: Sequence[Summary], *, keep: bool) -> Sample:
    """The trials of one case as one sample."""
    *fields, base, head, base_relative, head_relative = zip(*trials, strict=True)
    return Sample(
        numbers,
        Shifts(*map(np.array, fields)),
        int(np.median([1 + len(rounds) for rounds in base_relative])),
        base_relative if keep else (),
        head_relative if keep else (),
        float(np.median(base)),
        float(np.median(head)),
    )


def adjusted(case: Sample, baseline: Sample) -> Sample | None:
    """The case relative to its baseline, over the trials that have both; None if they share fewer than two."""
    common = [number for number in case.numbers if number in baseline.numbers]
    if len(common) < 2:
        return None
    ours = case.of(common)
    a, b = ours.shifts, baseline.of(common).shifts
    serial = np.maximum(a.serial, b.serial)
    relative = Shifts(a.shift - b.shift, a.variance + b.variance, serial, a.level - b.level)
    return dataclasses.replace(ours, shifts=relative)


def effects(samples: Sequence[Sample], scales: Iterable[Scale]) -> list[Effect]:
    """Judge samples together, at least two trials each; the order is kept."""
    groups: dict[int, list[tuple[int, Sample, Scale]]] = defaultdict(list)
    for place, (sample, scale) in enumerate(zip(samples, scales, strict=True)):
        groups[sample.trials].append((place, sample, scale))
    batches = [
        (
            stacked([sample.shifts for _, sample, _ in members]),
            int(np.median([sample.rounds for _, sample, _ in members])),
            np.array([scale.noise for _, _, scale in members]),
        )
        for members in groups.values()
    ]
    result: dict[int, Effect] = {}
    for members, fitted in zip(groups.values(), fit(batches), strict=True):
        bias = np.array([scale.bias for _, _, scale in members])
        low, high = fitted.interval(np.array([scale.confidence for _, _, scale in members]))
        columns = (fitted.effect, low, high, fitted.below(bias), fitted.above(-bias), fitted.lock_step)
        for (place, _, _), row in zip(members, zip(*columns, strict=True), strict=True):
            result[place] = Effect(*map(float, row))
    return [result[place] for place in range(len(samples))]


def stacked(cases: Sequence[Shifts]) -> Shifts:
    """Of several cases with equally many trials; fields of shape (cases, trials)."""
    return Shifts(*(np.array([getattr(one, f.name) for one in cases]) for f in dataclasses.fields(Shifts)))
