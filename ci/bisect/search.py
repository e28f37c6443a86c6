"""Which of many places in a row changed a speed: what the trials so far say, what to measure next, until it is sure.

Bayes over the places of one step, from paired trials with heavy-tailed noise.  Everything follows from the list of
outcomes, so a search that was interrupted goes on from the trials in its file.

Positions 0..last lie in a row: position 0 is known to be good, `last` is bad.  Change k leads from position k-1 to k.
A shift is log(time at the higher position / time at the lower one) of one trial: above 0 is slower.
"""

from __future__ import annotations

import dataclasses
import functools
import itertools
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import cached_property

import numpy as np

from ci.stats import FloatArray

# A search as values: its row of places, what its trials came to, how it ended.


class BisectError(Exception):
    """A search cannot start or go on; the text names the value, what is allowed and the next step."""


@dataclasses.dataclass(frozen=True)
class RowPlace:
    """A position of the row: its name (a full commit hash, a setting, a Python), short name, and a line about it."""

    name: str
    short: str
    subject: str = ""


@dataclasses.dataclass(frozen=True)
class TrialOutcome:
    """What one trial of two positions came to.

    shift: log(time at high / time at low), None without times.  failed: why a position could not be measured.
    labels: what the positions ran, "" where it is not known; equal labels are equal code with equal launch parameters.
    seconds: wall time.
    """

    low: int
    high: int
    shift: float | None = None
    failed: Mapping[int, str] = dataclasses.field(default_factory=dict)
    labels: Mapping[int, str] = dataclasses.field(default_factory=dict)
    seconds: float = 0.0


@dataclasses.dataclass(frozen=True, eq=False)
class Line:
    """A row of positions.  weights: shape (last,), the prior share of change k in weights[k - 1], adding up to 1.

    smallest: the least step looked for, a share of the time.  noise: typical difference between trials, a share.
    skipped: positions that cannot be measured; neither end is one.
    """

    weights: FloatArray
    smallest: float = 0.003
    noise: float = 0.003
    skipped: frozenset[int] = frozenset()

    @property
    def last(self) -> int:
        """The highest position."""
        return len(self.weights)

    @cached_property
    def testable(self) -> FloatArray:
        """Positions that can be measured, rising."""
        return np.array([p for p in range(self.last + 1) if p not in self.skipped])

    @cached_property
    def reached(self) -> FloatArray:
        """Shape (last + 1,): the prior share of changes up to each position."""
        return np.concatenate([[0.0], np.cumsum(self.weights)])


# The grids that size and noise of a step are summed over, and the prior on them.
#
# Sizes are log-uniform from the smallest step looked for to a factor of 20, slower and faster alike. The noise of a
# trial is Student's t with 3 or 10 degrees of freedom. Recorded A/A trials of H200s have lighter tails than either
# (mm_m16 and tgemm_m64: excess kurtosis 0.2 and -0.2 over 78 trials, 2026-11-22); heavier ones guard against a
# disturbed trial. Its scale is log-normal about what the policy holds typical, a factor of e either way.


FINENESS = 1.2
"""Neighbouring sizes have this ratio: the grid is then off by at most 10 % of a step, less than a search can tell."""
LARGEST = 3.0
"""Log-ratio of the largest step, a factor of 20."""
TAILS = (3.0, 10.0)
"""Degrees of freedom of the noise."""
SCALES = 9
"""Scales of the noise, within +-2.5 of the log of the typical one."""
REACH = 2.5
NONE = 0.5
"""Prior of no step.  With 1/2 on it, a row without a step ends in 99 % for a change in at most about 1 % of searches,
however long they go on (Ville's inequality: the posterior odds against the truth are a martingale)."""


@dataclasses.dataclass(frozen=True, eq=False)
class StepGrid:
    """levels: shape (V,), log-ratio of a step, 0 first.  scale, tail, weight: shape (S,), of the noise."""

    levels: FloatArray
    scale: FloatArray
    tail: FloatArray
    weight: FloatArray

    def log_density(self, away: FloatArray) -> FloatArray:
        """Log-density of the noise at a distance, shape (..., S)."""
        from scipy import stats  # 0.6 s, which `bisect --help` and `--dry-run` need not wait for

        return np.asarray(stats.t.logpdf(away[..., None], self.tail, scale=self.scale))


@functools.lru_cache(maxsize=32)
def grid_of(smallest: float, noise: float) -> StepGrid:
    """The grid for steps of at least `smallest` in noise of about `noise`, shares of the time."""
    least = np.log1p(smallest)
    sizes = np.exp(np.arange(np.log(least), np.log(LARGEST), np.log(FINENESS)))
    places = np.linspace(-REACH, REACH, SCALES)
    scale, tail = (column.ravel() for column in np.meshgrid(noise * np.exp(places), TAILS, indexing="ij"))
    weight = np.repeat(np.exp(-(places**2) / 2), len(TAILS))
    return StepGrid(np.concatenate([[0.0], -sizes, sizes]), scale, tail, weight / weight.sum())


@dataclasses.dataclass(frozen=True, eq=False)
class Belief:
    """What the trials so far say.

    none: probability of no step.  none_at_worst: of none, against one step of the size and in the noise that fit the
    trials best; at most 1 in 100 searches over a true step of any size see it rise above 0.99.
    changes: shape (last,), probability that change k is the step: with `none` they add up to 1.
    levels: shape (last + 1,), expected shift of each position.  noise: expected scale of a trial's noise, a share.
    """

    none: float
    none_at_worst: float
    changes: FloatArray
    levels: FloatArray
    noise: float

    @property
    def surely_none(self) -> float:
        """Probability of no step, by the prior over sizes and against each size alone: the smaller one."""
        return min(self.none, self.none_at_worst)


def believe(line: Line, seen: Sequence[TrialOutcome]) -> Belief:
    """The posterior over no step, and one step by its place, its size and the noise.

    Changes between two neighbouring measured positions are told apart by their prior alone.
    """
    grid = grid_of(line.smallest, line.noise)
    nodes = np.array(sorted({0, line.last, *(place for trial in seen for place in (trial.low, trial.high))}))
    low, high = (np.array([getattr(trial, end) for trial in seen]) for end in ("low", "high"))
    shifts = np.array([trial.shift for trial in seen])
    density = grid.log_density(shifts[:, None] - grid.levels)  # (trials, V, S)
    spans = (low[:, None] <= nodes[:-1]) & (nodes[1:] <= high[:, None])  # a step in this stretch is in the trial
    gains = np.tensordot(spans.T.astype(float), density - density[:, :1], axes=1)  # (stretches, V, S)
    share = np.diff(line.reached[nodes])
    flat = density[:, 0].sum(axis=0) + np.log(grid.weight)
    sizes = len(grid.levels) - 1
    with np.errstate(divide="ignore"):
        step = flat + gains[:, 1:] + np.log((1 - NONE) * share / sizes)[:, None, None]
    flat = flat + np.log(NONE)
    most = max(float(flat.max()), float(step.max()))
    none, step = np.exp(flat - most), np.exp(step - most)
    total = none.sum() + step.sum()
    none, step = none / total, step / total
    inside = np.repeat(step.sum(axis=(1, 2)) / np.maximum(share, TINY), np.diff(nodes))
    at_nodes = np.concatenate([[0.0], np.cumsum(step.sum(axis=2) @ grid.levels[1:])])
    # If all of the prior of a step lay on the size and noise that fit the trials best.
    at_best = float((step.sum(axis=0) * sizes / grid.weight).max())
    return Belief(
        float(none.sum()),
        float(none.sum()) / max(float(none.sum()) + at_best, TINY),
        line.weights * inside,
        np.interp(line.reached, line.reached[nodes], at_nodes),
        float((none + step.sum(axis=(0, 1))) @ grid.scale),
    )


TINY = 1e-200
"""Nothing is divided by less; its inverse times a probability is still a number."""

# What to measure next, and when enough is known.


SURE = 0.99
"""Probability at which a search ends."""
REPEATED = 0.5
"""The trials of the two neighbours of a change must show at least this share of its step."""


@dataclasses.dataclass(frozen=True)
class Ask:
    """Measure these two positions.  fresh: it is to repeat what was found."""

    low: int
    high: int
    fresh: bool = False


@dataclasses.dataclass(frozen=True)
class SearchAnswer:
    """A step: one of the changes after `low` up to `high` (one change, unless some cannot be measured).

    high: 0 where the ends are alike.  probability: that this is so.  shift: log-ratio of the step.
    """

    probability: float
    low: int = 0
    high: int = 0
    shift: float = 0.0


def next_step(line: Line, seen: Sequence[TrialOutcome], belief: Belief) -> Ask | SearchAnswer:
    """The answer if it is sure enough and a fresh trial repeats it, else what to measure; the two ends come first."""
    if not seen:
        return Ask(0, line.last)
    if belief.surely_none >= SURE:
        return SearchAnswer(belief.surely_none)
    likeliest = culprit(line, belief)
    if likeliest.probability < SURE:
        return Ask(0, middle(line, belief))
    if not is_repeated(likeliest, seen):
        return Ask(likeliest.low, likeliest.high, fresh=True)
    return likeliest


def culprit(line: Line, belief: Belief) -> SearchAnswer:
    """The likeliest step."""
    units = list(itertools.pairwise(line.testable.tolist()))
    shares = [min(1.0, float(belief.changes[low:high].sum())) for low, high in units]
    at = int(np.argmax(shares))
    low, high = units[at]
    return SearchAnswer(shares[at], low, high, float(belief.levels[high] - belief.levels[low]))


def is_repeated(step: SearchAnswer, seen: Sequence[TrialOutcome]) -> bool:
    """Whether trials of just the two neighbours show the step."""
    fresh = [t.shift for t in seen if t.shift is not None and (t.low, t.high) == (step.low, step.high)]
    return bool(fresh) and float(np.median(fresh)) / step.shift >= REPEATED


def middle(line: Line, belief: Belief) -> int:
    """The position that is as likely before a step as behind it, as nearly as one that can be measured is.

    Where a step is not sure yet, that is the last one.
    """
    behind = np.cumsum(belief.changes)[line.testable[1:] - 1]
    return int(line.testable[1 + np.argmin(np.abs(behind - 1 / 2))])


# A search: how it is led, and what is known after each of its trials.


Measure = Callable[[int, int], TrialOutcome]
"""One trial of the positions low and high."""


@dataclasses.dataclass(frozen=True)
class SearchRules:
    """How a search is led.  smallest: least step looked for; noise: typical of a trial; both shares of the time.

    most: trials it may spend.
    """

    smallest: float = 0.003
    noise: float = 0.003
    most: int = 60


@dataclasses.dataclass(frozen=True, eq=False)
class SearchState:
    """What is known after some trials, and what that leads to.

    line: the row as it is seen now.  skipped: why, by position.
    """

    places: Sequence[RowPlace]
    line: Line
    outcomes: Sequence[TrialOutcome]
    belief: Belief
    then: Ask | SearchAnswer
    skipped: Mapping[int, str]

    @property
    def answer(self) -> SearchAnswer | None:
        """The answer, None while there is none."""
        return self.then if isinstance(self.then, SearchAnswer) else None

    @property
    def trials(self) -> int:
        """How many were spent, those without times too."""
        return len(self.outcomes)


# Changes that lead to equal code are next to no suspects: the prior over changes, from what is known of the code.


OTHER_CAUSE = 0.01
"""Prior share of all changes with equal code on both sides together: a step among them has another cause than the code
that was compared (data files, host code, a build option).  It is the error rate at which a search ends."""

Labels = Sequence[str | None]
"""Of each position what its code is: equal labels are equal code; None: not known."""


def weights(same: Sequence[bool]) -> FloatArray:
    """Prior of each change, adding up to 1.  same: whether it is known to leave the code as it was."""
    equal = np.array(same)
    differing = (~equal).sum()
    if differing in (0, len(equal)):
        return np.full(len(equal), 1 / len(equal))
    return np.asarray(np.where(equal, OTHER_CAUSE / equal.sum(), (1 - OTHER_CAUSE) / differing))


def same_code(known: Labels, launched: Mapping[int, str]) -> list[bool]:
    """Of each change, whether it lies between positions with equal code.

    known: what was known before.  launched: what trials said of the positions that they measured.
    """
    same = [before is not None and before == after for before, after in itertools.pairwise(known)]
    for low, high in itertools.pairwise(sorted(place for place, label in launched.items() if label)):
        if launched[low] == launched[high]:
            same[low:high] = [True] * (high - low)
    return same


# The search itself.


def search(
    places: Sequence[RowPlace],
    known: Labels,
    rules: SearchRules,
    measure: Measure,
    before: Iterable[TrialOutcome] = (),
    report: Callable[[SearchState], None] = lambda state: None,
) -> SearchState:
    """The state with the answer, or after `rules.most` trials.

    known: labels of the places' code, None where it is not known.  before: outcomes of an earlier call.
    report: hears of every state.  Raises BisectError where an end cannot be measured, and what `measure` raises.
    """
    outcomes = list(before)
    while True:
        state = state_of(places, known, rules, outcomes)
        report(state)
        if not isinstance(state.then, Ask) or state.trials >= rules.most:
            return state
        outcomes.append(measure(state.then.low, state.then.high))


def state_of(
    places: Sequence[RowPlace], known: Labels, rules: SearchRules, outcomes: Sequence[TrialOutcome]
) -> SearchState:
    """What these outcomes say.  Raises BisectError if one of the ends cannot be measured."""
    launched = {position: label for trial in outcomes for position, label in trial.labels.items()}
    skipped = {position: reason for trial in outcomes for position, reason in trial.failed.items()}
    _check_ends(places, skipped)
    line = Line(weights(same_code(known, launched)), rules.smallest, rules.noise, frozenset(skipped))
    timed = [t for t in outcomes if t.shift is not None and not skipped.keys() & {t.low, t.high}]
    belief = believe(line, timed)
    return SearchState(places, line, tuple(outcomes), belief, next_step(line, timed, belief), skipped)


def _check_ends(places: Sequence[RowPlace], skipped: dict[int, str]) -> None:
    for end, word in ((0, "the good end"), (len(places) - 1, "the bad end")):
        if end in skipped:
            raise BisectError(
                f"{word}, {places[end].short}, cannot be measured: {skipped[end]}; name another one that can"
            )
