"""Which of many commits changed a speed: Bayes over places of a step, from paired trials with heavy-tailed noise."""

from __future__ import annotations

import dataclasses
import functools
import itertools
from collections import defaultdict
from collections.abc import Iterable, Sequence
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
    state: shape (nodes, S, N), joint of the noises and the states of `StepGrid` at each of `nodes`.
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
    step given the one before it.  scale, tail, weight: shape (S,), of the noise.  answers: shape (Y,).

    A state is how many steps there were and where they led: none, one by level, two by level; N = 1 + 2 V of them.
    """

    levels: FloatArray
    prior: FloatArray
    second: FloatArray
    scale: FloatArray
    tail: FloatArray
    weight: FloatArray
    answers: FloatArray

    @property
    def counts(self) -> tuple[slice, slice, slice]:
        """The states of no step, of one and of two."""
        last = 1 + len(self.levels)
        return slice(0, 1), slice(1, last), slice(last, None)

    @functools.cached_property
    def level(self) -> FloatArray:
        """Shape (N,): the level of each state."""
        return np.concatenate([[0.0], self.levels, self.levels])

    @functools.cached_property
    def moves(self) -> tuple[FloatArray, FloatArray]:
        """(by one step, by two), shape (N, N) each: prior of the state that a state leads to."""
        (none, one, two), size = self.counts, len(self.level)
        once, twice = np.zeros((size, size)), np.zeros((size, size))
        once[none, one], once[one, two], twice[none, two] = self.prior, self.second, self.prior @ self.second
        return once, twice

    def log_density(self, away: FloatArray) -> FloatArray:
        """Log-density of the noise at a distance; the last axis is broadcast over the noises."""
        tail, z = self.tail, away / self.scale
        constant = (
            special.gammaln((tail + 1) / 2) - special.gammaln(tail / 2) - np.log(self.scale**2 * tail * np.pi) / 2
        )
        return np.asarray(constant - (tail + 1) / 2 * np.log1p(z**2 / tail))

    @functools.cached_property
    def outcomes(self) -> FloatArray:
        """Shape (S, N, Y): chance that a trial of a state falls into each cell."""
        away = self.answers - self.level[:, None]
        chance = np.exp(np.moveaxis(self.log_density(away[..., None]), -1, 0)) * np.gradient(self.answers)
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
# of its changes says. Arrays are over noises S first, then states N; each pass is scaled node by node.


class Chain:
    """The chain of a line, of the trials seen on it, and of `more` positions that are asked about."""

    def __init__(self, line: Line, seen: Sequence[PairShift], more: Iterable[int] = ()) -> None:
        self.line, self.grid = line, of(line.smallest, line.noise)
        self.nodes = sorted({0, line.last, *more, *(place for one in seen for place in (one.low, one.high))})
        self.stretches = list(itertools.pairwise(self.nodes))
        told = defaultdict[tuple[int, int], list[float]](list)
        for one in seen:
            told[one.low, one.high].append(one.shift)
        if any(low and (low, high) not in self.stretches for low, high in told):
            raise ValueError("a trial is of position 0 and another one, or of two neighbours that were measured")
        self.evidence = np.zeros(len(self.grid.weight))
        level = self.grid.level
        self.shown = [self._likelihood(told[0, node], level) for node in self.nodes]
        self.changes = [
            self._prior(low, high) * self._likelihood(told[low, high] if low else [], level - level[:, None])
            for low, high in self.stretches
        ]

    def _prior(self, low: int, high: int) -> FloatArray:
        """Shape (N, N): the prior of the state that each state leads to from one node to the next."""
        once, twice = self.grid.moves
        one, two = self.line.weight(low, high), self.line.weight_of_two(low, high)
        return np.asarray(np.eye(len(once)) + one * once + two * twice)

    def _likelihood(self, shifts: Sequence[float], at: FloatArray) -> FloatArray:
        """Of trials at each of these levels, scaled to at most 1 for each noise; shape (S, ...), or (...) for none."""
        if not shifts:
            return np.ones(at.shape)
        logs = np.moveaxis(np.asarray(sum(self.grid.log_density((one - at)[..., None]) for one in shifts)), -1, 0)
        most = logs.max(axis=tuple(range(1, logs.ndim)), keepdims=True)
        self.evidence += most.ravel()
        return np.asarray(np.exp(logs - most))

    def belief(self) -> Belief:
        """The posterior."""
        none, one, two = self.grid.counts
        forward, totals = self._forward()
        backward = self._backward()
        logs = self.evidence + np.log(totals).sum(axis=0)
        logs += np.log(np.maximum((forward[-1] * backward[-1]).sum(axis=1), TINY))
        weight = self.grid.weight * np.exp(logs - logs.max())
        weight = weight / weight.sum()
        joint = np.stack(forward) * np.stack(backward)
        scales = weight / np.maximum(joint.sum(axis=2), TINY)
        state = joint * scales[:, :, None]
        end = state[-1]
        first, second = self._steps(forward, backward, scales[1:] / totals)
        # If all of the prior of one step lay on the size and noise that fit the trials best.
        at_best = float((end[:, one] / (self.grid.prior * self.grid.weight[:, None])).max())
        flat = float(end[:, none].sum())
        return Belief(
            none=flat,
            one=float(end[:, one].sum()),
            two=float(end[:, two].sum()),
            changes=first + second,
            first=first,
            nodes=self.nodes,
            state=state,
            level=state.sum(axis=1) @ self.grid.level,
            noise=float(weight @ self.grid.scale),
            none_at_worst=flat / max(flat + at_best, TINY),
        )

    def _forward(self) -> tuple[list[FloatArray], FloatArray]:
        """What leads to each node, with its own trials, (S, N) each; what all but the first were scaled by."""
        found, totals = [np.zeros((len(self.grid.weight), len(self.grid.level)))], []
        found[0][:, 0] = 1.0
        for change, shown in zip(self.changes, self.shown[1:], strict=True):
            now = _led(found[-1], change) * shown
            totals.append(np.maximum(now.sum(axis=1), TINY))
            found.append(now / totals[-1][:, None])
        return found, np.array(totals)

    def _backward(self) -> list[FloatArray]:
        """What follows from each node, without its own trials, (S, N) each; first the prior of so many steps in all."""
        pairs = self.line.weight_of_two(0, self.line.last)
        end = np.empty((len(self.grid.weight), len(self.grid.level)))
        for some, share in zip(self.grid.counts, (NONE, ONE, TWO / pairs if pairs else 0.0), strict=True):
            end[:, some] = share
        found = [end]
        for change, shown in zip(self.changes[::-1], self.shown[:0:-1], strict=True):
            now = _led(found[-1] * shown, change.swapaxes(-1, -2))
            found.append(now / np.maximum(now.max(axis=1), TINY)[:, None])
        return found[::-1]

    def _steps(
        self, forward: list[FloatArray], backward: list[FloatArray], scales: FloatArray
    ) -> tuple[FloatArray, FloatArray]:
        """Probability of the first step at each change, and of the second; within a stretch the prior alone tells.

        scales: for each stretch what makes a weight for each noise a probability, shape (stretches, S).
        """
        firsts, seconds = np.zeros(self.line.last), np.zeros(self.line.last)
        none, one, two = self.grid.counts
        for number, (low, high) in enumerate(self.stretches):
            after = backward[number + 1] * self.shown[number + 1]
            before, change = forward[number], self.changes[number]
            first, second, both = (
                float(scales[number] @ (_led(before[:, a], change[..., a, b]) * after[:, b]).sum(axis=1))
                for a, b in ((none, one), (one, two), (none, two))
            )
            own = self.line.weights[low:high]
            share, pairs = self.line.weight(low, high), self.line.weight_of_two(low, high)
            alone, of_two = own / max(share, TINY), both * own / max(pairs, TINY)
            behind = share - np.cumsum(own)
            firsts[low:high] = first * alone + of_two * behind
            seconds[low:high] = second * alone + of_two * (share - own - behind)
        return firsts, seconds


def _led(states: FloatArray, change: FloatArray) -> FloatArray:
    """Weights of states, (S, N), after a change: one for all noises, (N, M), or one for each, (S, N, M)."""
    return np.asarray(states @ change if change.ndim == 2 else np.einsum("sn,snm->sm", states, change))


TINY = 1e-200
"""Nothing is divided by less; its inverse times a probability is still a number."""

# What to measure next, and when enough is known.


SURE = 0.99
"""Probability at which a search ends."""
ASKED = 12
"""Places between measured positions that are weighed as the next one: quantiles of where the step may be."""
REPEATED = 0.5
"""The trials of the two neighbours of a change must show at least this share of its step."""


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


def next_step(line: Line, seen: Sequence[PairShift], belief: Belief | None) -> Ask | FoundSteps:
    """The answer if it is sure enough and fresh trials repeat it, else what to measure; the two ends come first."""
    if belief is None:
        return Ask(0, line.last)
    if belief.surely_none >= SURE:
        return FoundSteps((), belief.surely_none)
    found = culprits(line, belief)
    sure = [one for one in found if one.probability >= SURE]
    if not sure or (belief.two > 1 / 2 and len(sure) < 2):
        return most_telling(line, belief)
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


def most_telling(line: Line, belief: Belief) -> Ask:
    """The position whose trial against position 0 tells most about where the steps are."""
    bits = information(line, belief)
    at = 1 + int(np.argmax(bits[1:]))  # the first node is position 0
    return Ask(0, belief.nodes[at], float(bits[at]))


def information(line: Line, belief: Belief) -> FloatArray:
    """Bits that one trial of each node is expected to tell of the number of steps before it; shape (nodes,)."""
    grid = of(line.smallest, line.noise)
    by_count = [np.tensordot(belief.state[:, :, some], grid.outcomes[:, some], axes=2) for some in grid.counts]
    joint = np.stack(by_count, axis=1)
    nats = special.entr(joint.sum(axis=1)).sum(axis=-1) + special.entr(joint.sum(axis=2)).sum(axis=-1)
    return np.asarray((nats - special.entr(joint).sum(axis=(1, 2))) / np.log(2))


def _places(line: Line, belief: Belief) -> set[int]:
    """Quantiles of where the step may be, as positions that can be measured."""
    reached = np.cumsum(belief.changes)
    wanted = (np.arange(ASKED) + 0.5) / ASKED * reached[-1]
    before = np.searchsorted(reached, wanted)
    return {end for change in before + 1 for end in line.bracket(min(int(change), line.last))}


def _units(line: Line) -> list[tuple[int, int]]:
    """Stretches between neighbours that can be measured."""
    return list(itertools.pairwise(line.testable.tolist()))


def _level(belief: Belief, node: int) -> float:
    """Expected shift of a position; of one that is no node, that of the node before it."""
    at = int(np.searchsorted(np.array(belief.nodes), node, side="right")) - 1
    return float(belief.level[at])
