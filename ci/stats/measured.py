"""Many cases at once: the trials of all comparisons as a few large arrays, and back to one summary per case."""

from __future__ import annotations

import dataclasses
import math
from collections import defaultdict
from collections.abc import Iterable, Sequence

import numpy as np

from ci.stats.interval import Fit, Shifts, fit, shifts
from ci.stats.sequential import two_sided
from ci.stats.types import FloatArray, PairedRounds


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

    def only(self, index: Sequence[int]) -> Sample:
        """The trials at these positions, without the rounds."""
        positions = np.array(index, dtype=np.intp)
        return Sample(tuple(self.numbers[i] for i in index), self.shifts[positions], self.rounds)


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


_Arms = tuple[int, FloatArray, FloatArray]
"""Number of a trial, and the samples of two arms, shape (rounds,) each."""


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
    arms = [[(t.number, *pair) for t in trials if (pair := _pair(t, baseline)) is not None] for trials in cases]
    places = defaultdict(list)
    for case, trials in enumerate(arms):
        for position, (_, base, _) in enumerate(trials):
            places[len(base)].append((case, position))
    blocks = {rounds: _Block(arms, where) for rounds, where in places.items()}
    located: list[list[tuple[_Block, int]]] = [[] for _ in arms]
    for rounds, where in places.items():
        for row, (case, _) in enumerate(where):
            located[case].append((blocks[rounds], row))
    rows_of = zip(arms, located, strict=True)
    return [_gather(trials, rows, keep=not baseline) if rows else None for trials, rows in rows_of]


def _pair(trial: PairedRounds, baseline: bool) -> tuple[FloatArray, FloatArray] | None:
    if not baseline:
        return trial.base, trial.head
    if trial.baseline_base is None or trial.baseline_head is None or len(trial.baseline_base) < 2:
        return None
    return trial.baseline_base, trial.baseline_head


class _Block:
    """All trials with the same number of rounds, computed together; row i belongs to where[i]."""

    def __init__(self, arms: list[list[_Arms]], where: list[tuple[int, int]]) -> None:
        base = np.array([arms[case][position][1] for case, position in where])
        head = np.array([arms[case][position][2] for case, position in where])
        self.where, self.shifts = where, shifts(base, head)
        self.base_median, self.head_median = np.median(base, axis=1), np.median(head, axis=1)
        self.base_relative = base[:, 1:] / self.base_median[:, None]
        self.head_relative = head[:, 1:] / self.head_median[:, None]


def _gather(trials: list[_Arms], rows: list[tuple[_Block, int]], *, keep: bool) -> Sample:
    """The rows of one case, in the order of its trials, as one sample."""
    order = sorted(range(len(rows)), key=lambda i: rows[i][0].where[rows[i][1]][1])
    rows = [rows[i] for i in order]
    return Sample(
        tuple(number for number, _, _ in trials),
        _joined(rows),
        int(np.median([len(base) for _, base, _ in trials])),
        tuple(block.base_relative[row] for block, row in rows) if keep else (),
        tuple(block.head_relative[row] for block, row in rows) if keep else (),
        float(np.median([block.base_median[row] for block, row in rows])),
        float(np.median([block.head_median[row] for block, row in rows])),
    )


def _joined(rows: list[tuple[_Block, int]]) -> Shifts:
    first = rows[0][0]
    if all(block is first for block, _ in rows):
        return first.shifts[np.array([row for _, row in rows])]
    parts = [block.shifts[np.array([row])] for block, row in rows]
    return Shifts(*(np.concatenate([getattr(p, f.name) for p in parts]) for f in dataclasses.fields(Shifts)))


def adjusted(case: Sample, baseline: Sample) -> Sample | None:
    """The case relative to its baseline, over the trials that have both; None if they share fewer than two."""
    place = {number: i for i, number in enumerate(baseline.numbers)}
    mine = [i for i, number in enumerate(case.numbers) if number in place]
    theirs = [place[case.numbers[i]] for i in mine]
    if len(mine) < 2:
        return None
    ours, other = case.only(mine), baseline.only(theirs)
    a, b = ours.shifts, other.shifts
    serial = np.maximum(a.serial, b.serial)
    relative = Shifts(a.shift - b.shift, a.variance + b.variance, serial, a.level - b.level)
    return dataclasses.replace(ours, shifts=relative)


def effects(samples: Sequence[Sample], scales: Iterable[Scale]) -> list[Effect]:
    """Judge samples together, at least two trials each; the order is kept."""
    groups: dict[int, list[int]] = defaultdict(list)
    scale = list(scales)
    for i, sample in enumerate(samples):
        groups[sample.trials].append(i)
    batches = [_batch([samples[i] for i in m], [scale[i] for i in m]) for m in groups.values()]
    result: dict[int, Effect] = {}
    for members, fitted in zip(groups.values(), fit(batches), strict=True):
        result.update(zip(members, _effects(fitted, [scale[i] for i in members]), strict=True))
    return [result[i] for i in range(len(samples))]


def _batch(members: Sequence[Sample], scales: Sequence[Scale]) -> tuple[Shifts, int, FloatArray]:
    """Samples with equally many trials, as `fit` takes them."""
    rounds = int(np.median([member.rounds for member in members]))
    return _stack(members), rounds, np.array([scale.noise for scale in scales])


def _stack(members: Sequence[Sample]) -> Shifts:
    return Shifts(*(np.array([getattr(m.shifts, f.name) for m in members]) for f in dataclasses.fields(Shifts)))


def _effects(fitted: Fit, scales: list[Scale]) -> list[Effect]:
    bias = np.array([s.bias for s in scales])
    low, high = fitted.interval(np.array([s.confidence for s in scales]))
    columns = (fitted.effect, low, high, fitted.below(bias), fitted.above(-bias), fitted.lock_step)
    return [Effect(*map(float, row)) for row in zip(*columns, strict=True)]
