"""Which of many commits changed a speed: Bayes over places of a step, from paired trials with heavy-tailed noise."""

from __future__ import annotations

import dataclasses
import functools
from collections.abc import Callable, Iterable, Sequence
from functools import cached_property

import numpy as np
from scipy import special

from ci.stats.types import FloatArray

# What a search over positions is given, and what it believes.
#
# Positions 0..last lie in a row: position 0 is known to be good, `last` is bad.  Change k leads from position k-1 to k.
# A shift is log(time at the higher position / time at the lower one) of one trial: above 0 is slower.


@dataclasses.dataclass(frozen=True)
class PairShift:
    """One trial of two positions, low < high.  shift: log(time at high / time at low)."""

    low: int
    high: int
    shift: float


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

    def weight(self, low: int, high: int) -> float:
        """Prior share of the changes after `low` up to `high`."""
        return float(self.reached[high] - self.reached[low])

    def weight_of_two(self, low: int, high: int) -> float:
        """Prior share of two of these changes: the sum of w_k * w_l over k < l."""
        own = self.weights[low:high]
        return float(max(0.0, own.sum() ** 2 - (own**2).sum()) / 2)

    def bracket(self, change: int) -> tuple[int, int]:
        """The nearest measurable positions below and from a change: the changes between cannot be told apart."""
        at = int(np.searchsorted(self.testable, change))
        return int(self.testable[at - 1]), int(self.testable[at])


@dataclasses.dataclass(frozen=True, eq=False)
class Belief:
    """What the trials so far say.

    none, one, two: probability of no step, one, two.  none_at_worst: of none, against one step of the size and in the
    noise that fit the trials best; at most 1 in 100 searches over a true step of any size see it rise above 0.99.
    changes: shape (last,), probability that change k is a step; with two steps, two of them are.
    first: shape (last,), probability that change k is the first step: with `none` they add up to 1.
    state: shape (nodes, 3, levels, noises), joint with the number of steps before each of `nodes`.
    noise: expected scale of a trial's noise, a share.  level: shape (nodes,), expected shift of each node.
    """

    none: float
    one: float
    two: float
    changes: FloatArray
    first: FloatArray
    nodes: Sequence[int]
    state: FloatArray
    level: FloatArray
    noise: float
    none_at_worst: float

    @property
    def surely_none(self) -> float:
        """Probability of no step, by the prior over sizes and against each size alone: the smaller one."""
        return min(self.none, self.none_at_worst)


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


# The posterior of a row of positions, exactly, by going along it once in each direction.
#
# A step changes the level of everything after it, and there are at most two, so what lies before a position matters to
# what lies behind it through the number of steps and the level alone: a hidden Markov chain (Rabiner 1989). Its nodes
# are the positions that were measured, or may be next; a stretch between two nodes has as much of a step as the prior
# of its changes says. Arrays are over noises S first, then levels V; each pass is scaled node by node.


@dataclasses.dataclass(frozen=True, eq=False)
class Passing:
    """Weights of having made no step (S,), one (S, V) and two (S, V), the latter two by level."""

    none: FloatArray
    one: FloatArray
    two: FloatArray

    @property
    def total(self) -> FloatArray:
        """Shape (S,)."""
        return np.asarray(self.none + self.one.sum(axis=1) + self.two.sum(axis=1))

    def times(self, other: Passing) -> Passing:
        """Product, entry by entry."""
        return Passing(self.none * other.none, self.one * other.one, self.two * other.two)

    def scaled(self, factor: FloatArray) -> Passing:
        """Times one number for each noise."""
        return Passing(self.none * factor, self.one * factor[:, None], self.two * factor[:, None])

    @property
    def stacked(self) -> FloatArray:
        """Shape (3, V + 1, S): the last level is 0, and only no step has it."""
        noises, levels = self.one.shape
        out = np.zeros((3, levels + 1, noises))
        out[0, -1], out[1, :-1], out[2, :-1] = self.none, self.one.T, self.two.T
        return out


@dataclasses.dataclass(frozen=True, eq=False)
class Stretch:
    """From one node to the next.  one, two: prior share of a step in it, and of two.

    stays, from_zero, between: likelihood of trials of just these two nodes, by what happens in the stretch.
    """

    grid: StepGrid
    one: float
    two: float
    stays: FloatArray
    from_zero: FloatArray
    between: FloatArray | None

    def forward(self, before: Passing) -> Passing:
        """What comes out of the stretch."""
        moved = before.none[:, None] * self.from_zero
        return Passing(
            before.none * self.stays,
            before.one * self.stays[:, None] + self.one * moved * self.grid.prior,
            before.two * self.stays[:, None] + self.one * self._onward(before.one) + self.two * moved * self.grid.both,
        )

    def backward(self, after: Passing) -> Passing:
        """What the rest of the row says of its beginning."""
        back = self.one * ((self.from_zero * after.one) @ self.grid.prior)
        twice = self.two * ((self.from_zero * after.two) @ self.grid.both)
        return Passing(
            after.none * self.stays + back + twice,
            after.one * self.stays[:, None] + self.one * self._back(after.two),
            after.two * self.stays[:, None],
        )

    def steps(self, before: Passing, after: Passing) -> tuple[FloatArray, FloatArray, FloatArray]:
        """Weight of just the first step in the stretch, of just the second, and of both; shape (S,) each."""
        moved = before.none[:, None] * self.from_zero
        first = self.one * (moved * self.grid.prior * after.one).sum(axis=1)
        second = self.one * (self._onward(before.one) * after.two).sum(axis=1)
        both = self.two * (moved * self.grid.both * after.two).sum(axis=1)
        return np.asarray(first), np.asarray(second), np.asarray(both)

    def _onward(self, one: FloatArray) -> FloatArray:
        """From the level after one step to that after two."""
        if self.between is None:
            return np.asarray(one @ self.grid.second)
        return np.asarray(np.einsum("sv,svw,vw->sw", one, self.between, self.grid.second))

    def _back(self, two: FloatArray) -> FloatArray:
        if self.between is None:
            return np.asarray(two @ self.grid.second.T)
        return np.asarray(np.einsum("sw,svw,vw->sv", two, self.between, self.grid.second))


class Chain:
    """The chain of a line, of the trials seen on it, and of `more` positions that are asked about."""

    def __init__(self, line: Line, seen: Sequence[PairShift], more: Iterable[int] = ()) -> None:
        self.line, self.grid = line, of(line.smallest, line.noise)
        ends = {0, line.last}
        self.nodes = sorted(ends | {p for one in seen for p in (one.low, one.high)} | set(more))
        self.evidence = np.zeros(len(self.grid.weight))
        self._shown = [self._emission([o.shift for o in seen if (o.low, o.high) == (0, node)]) for node in self.nodes]
        neighbours = list(zip(self.nodes, self.nodes[1:], strict=False))
        between = {pair: [o.shift for o in seen if (o.low, o.high) == pair and o.low > 0] for pair in neighbours}
        used = sum(map(len, between.values())) + sum(one.low == 0 for one in seen)
        if used != len(seen):
            raise ValueError("a trial is of position 0 and another one, or of two neighbours that were measured")
        self.stretches = [self._stretch(low, high, shifts) for (low, high), shifts in between.items()]

    def belief(self) -> Belief:
        """The posterior."""
        forward, totals, logs = self._forward()
        backward = self._backward()
        weight = self.grid.weight * np.exp(logs - logs.max())
        weight = weight / weight.sum()
        joint = [one.times(other) for one, other in zip(forward, backward, strict=True)]
        scales = [weight / np.maximum(one.total, TINY) for one in joint]
        joint = [one.scaled(scale) for one, scale in zip(joint, scales, strict=True)]
        end = joint[-1]
        state = np.stack([one.stacked for one in joint])
        first, second = self._changes(forward, backward, [s / t for s, t in zip(scales[1:], totals, strict=True)])
        levels = np.append(self.grid.levels, 0.0)
        return Belief(
            none=float(end.none.sum()),
            one=float(end.one.sum()),
            two=float(end.two.sum()),
            changes=first + second,
            first=first,
            nodes=self.nodes,
            state=state,
            level=state.sum(axis=(1, 3)) @ levels,
            noise=float(weight @ self.grid.scale),
            none_at_worst=self._against_any(state[-1]),
        )

    def _against_any(self, end: FloatArray) -> float:
        """Probability of no step if all of the prior of one step lay on the size and noise that fit the trials best.

        end: shape (3, levels, noises), the state of the last node.
        """
        none, grid = float(end[0].sum()), self.grid
        best = float((end[1, :-1] / (grid.prior[:, None] * grid.weight)).max())
        return none / max(none + best, TINY)

    def _forward(self) -> tuple[list[Passing], list[FloatArray], FloatArray]:
        """What leads to each node, with its own trials; what each was scaled by; the log-likelihood of all, (S,)."""
        noises, levels = len(self.grid.weight), len(self.grid.levels)
        nothing = np.zeros((noises, levels))
        found, logs = [Passing(np.ones(noises), nothing, nothing)], self.evidence.copy()
        totals: list[FloatArray] = []
        for stretch, shown in zip(self.stretches, self._shown[1:], strict=True):
            now = stretch.forward(found[-1]).times(shown)
            totals.append(np.maximum(now.total, TINY))
            found.append(now.scaled(1 / totals[-1]))
            logs += np.log(totals[-1])
        ended = found[-1].times(self._end())
        return found, totals, logs + np.log(np.maximum(ended.total, TINY))

    def _backward(self) -> list[Passing]:
        """What follows from each node, without its own trials."""
        found = [self._end()]
        for stretch, shown in zip(self.stretches[::-1], self._shown[:0:-1], strict=True):
            now = stretch.backward(found[-1].times(shown))
            found.append(now.scaled(1 / np.maximum(np.maximum(now.none, now.one.max(axis=1)), TINY)))
        return found[::-1]

    def _end(self) -> Passing:
        """The prior of having made so many steps in all."""
        noises, levels = len(self.grid.weight), len(self.grid.levels)
        pairs = self.line.weight_of_two(0, self.line.last)
        two = TWO / pairs if pairs else 0.0
        return Passing(np.full(noises, NONE), np.full((noises, levels), ONE), np.full((noises, levels), two))

    def _changes(
        self, forward: list[Passing], backward: list[Passing], scales: list[FloatArray]
    ) -> tuple[FloatArray, FloatArray]:
        """Probability of the first step at each change, and of the second; within a stretch the prior alone tells.

        scales: for each stretch what makes a weight for each noise, shape (S,), a probability.
        """
        firsts, seconds = np.zeros(self.line.last), np.zeros(self.line.last)
        for number, stretch in enumerate(self.stretches):
            low, high = self.nodes[number], self.nodes[number + 1]
            after = backward[number + 1].times(self._shown[number + 1])
            first, second, both = (float(scales[number] @ part) for part in stretch.steps(forward[number], after))
            own = self.line.weights[low:high]
            behind = stretch.one - np.cumsum(own)
            firsts[low:high] = first * own / max(stretch.one, TINY) + both * own * behind / max(stretch.two, TINY)
            before = stretch.one - own - behind
            seconds[low:high] = second * own / max(stretch.one, TINY) + both * own * before / max(stretch.two, TINY)
        return firsts, seconds

    def _emission(self, shifts: Sequence[float]) -> Passing:
        """Likelihood of a node's trials against position 0, scaled to at most 1 for each noise."""
        if not shifts:
            ones = np.ones((len(self.grid.weight), len(self.grid.levels)))
            return Passing(ones[:, 0], ones, ones)
        zero, level = self.grid.likelihood(shifts)
        most = np.maximum(zero, level.max(axis=1))
        self.evidence += most
        scaled = np.exp(level - most[:, None])
        return Passing(np.exp(zero - most), scaled, scaled)

    def _stretch(self, low: int, high: int, shifts: Sequence[float]) -> Stretch:
        one, two = self.line.weight(low, high), self.line.weight_of_two(low, high)
        if not shifts:
            ones = np.ones((len(self.grid.weight), len(self.grid.levels)))
            return Stretch(self.grid, one, two, ones[:, 0], ones, None)
        stays, jumps, between = self.grid.of_jumps(shifts)
        most = np.maximum(np.maximum(stays, jumps.max(axis=1)), between.max(axis=(1, 2)))
        self.evidence += most
        scaled = np.exp(between - most[:, None, None])
        return Stretch(self.grid, one, two, np.exp(stays - most), np.exp(jumps - most[:, None]), scaled)


TINY = 1e-200
"""Nothing is divided by less; its inverse times a probability is still a number."""

# What to measure next, and when enough is known.


SURE = 0.99
"""Probability at which a search ends."""
ASKED = 12
"""Places between measured positions that are weighed as the next one: quantiles of where the step may be."""
REPEATED = 0.5
"""The trials of the two neighbours of a change must show at least this share of its step."""

Seconds = Callable[[int], float]
"""What a trial of a position against position 0 takes, seconds."""


@dataclasses.dataclass(frozen=True)
class Ask:
    """Measure these two positions.  bits: expected information; fresh: it is to repeat what was found."""

    low: int
    high: int
    bits: float = 0.0
    fresh: bool = False


@dataclasses.dataclass(frozen=True)
class Culprit:
    """A step: one of the changes after `low` up to `high` (one change, unless some cannot be measured).

    shift: log-ratio of the step.
    """

    low: int
    high: int
    probability: float
    shift: float


@dataclasses.dataclass(frozen=True)
class FoundSteps:
    """The end of a search: the steps, the largest first, none where there is no step; how sure that is."""

    culprits: tuple[Culprit, ...]
    probability: float


def believe(line: Line, seen: Sequence[PairShift]) -> Belief:
    """The posterior, with the places that are weighed as the next among its nodes."""
    first = Chain(line, seen).belief()
    return Chain(line, seen, _places(line, first)).belief()


def next_step(
    line: Line, seen: Sequence[PairShift], belief: Belief | None, seconds: Seconds = lambda _: 1.0
) -> Ask | FoundSteps:
    """The answer if it is sure enough and fresh trials repeat it, else what to measure; the two ends come first."""
    if belief is None:
        return Ask(0, line.last)
    if belief.surely_none >= SURE:
        return FoundSteps((), belief.surely_none)
    found = culprits(line, belief)
    sure = [one for one in found if one.probability >= SURE]
    if not sure or (belief.two > 1 / 2 and len(sure) < 2):
        return best(line, belief, seconds)
    for one in sure:
        if not repeated(one, seen):
            return Ask(one.low, one.high, fresh=True)
    return FoundSteps(tuple(sure), min(one.probability for one in sure))


def culprits(line: Line, belief: Belief) -> list[Culprit]:
    """The two likeliest steps, the larger one first among those that are likelier than not."""
    units = _units(line)
    shares = [min(1.0, float(belief.changes[low:high].sum())) for low, high in units]
    likeliest = sorted(range(len(units)), key=lambda n: -shares[n])[:2]
    made = [Culprit(*units[n], shares[n], _level(belief, units[n][1]) - _level(belief, units[n][0])) for n in likeliest]
    return sorted(made, key=lambda one: (one.probability <= 1 / 2, -abs(one.shift), -one.probability))


def repeated(one: Culprit, seen: Sequence[PairShift]) -> bool:
    """Whether trials of just the two neighbours show the step."""
    fresh = [trial.shift for trial in seen if (trial.low, trial.high) == (one.low, one.high)]
    return bool(fresh) and float(np.median(fresh)) / one.shift >= REPEATED


def best(line: Line, belief: Belief, seconds: Seconds = lambda _: 1.0) -> Ask:
    """The position whose trial against position 0 tells most about where the steps are, per second."""
    bits = information(line, belief)
    worth = [bit / seconds(node) if node else -1.0 for node, bit in zip(belief.nodes, bits, strict=True)]
    at = int(np.argmax(worth))
    return Ask(0, belief.nodes[at], float(bits[at]))


def information(line: Line, belief: Belief) -> FloatArray:
    """Bits that one trial of each node is expected to tell of the number of steps before it; shape (nodes,)."""
    outcomes = of(line.smallest, line.noise).outcomes
    nodes, counts = belief.state.shape[:2]
    joint = belief.state.reshape(nodes * counts, -1) @ outcomes.reshape(-1, outcomes.shape[-1])
    joint = joint.reshape(nodes, counts, -1)
    apart = _entropy(joint.sum(axis=1)).sum(axis=-1) + _entropy(joint.sum(axis=2)).sum(axis=-1)
    return np.asarray(apart - _entropy(joint).sum(axis=(1, 2)))


def _entropy(chance: FloatArray) -> FloatArray:
    """-p log2 p."""
    return np.asarray(-chance * np.log2(np.where(chance > 0, chance, 1.0)))


def _places(line: Line, belief: Belief) -> set[int]:
    """Quantiles of where the step may be, as positions that can be measured."""
    reached = np.cumsum(belief.changes)
    wanted = (np.arange(ASKED) + 0.5) / ASKED * reached[-1]
    before = np.searchsorted(reached, wanted)
    return {end for change in before + 1 for end in line.bracket(min(int(change), line.last))}


def _units(line: Line) -> list[tuple[int, int]]:
    """Stretches between neighbours that can be measured."""
    places = [int(one) for one in line.testable]
    return list(zip(places, places[1:], strict=False))


def _level(belief: Belief, node: int) -> float:
    """Expected shift of a position; of one that is no node, that of the node before it."""
    at = int(np.searchsorted(np.array(belief.nodes), node, side="right")) - 1
    return float(belief.level[at])
