"""The posterior of a row of positions, exactly, by going along it once in each direction.

A step changes the level of everything after it, and there are at most two, so what lies before a position matters to
what lies behind it through the number of steps and the level alone: a hidden Markov chain (Rabiner 1989).  Its nodes
are the positions that were measured, or may be next; a stretch between two nodes has as much of a step as the prior of
its changes says.  Arrays are over noises S first, then levels V; each pass is scaled node by node.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable, Sequence

import numpy as np

from ci.stats.bisection import grid as grids
from ci.stats.bisection.grid import NONE, ONE, TWO, StepGrid
from ci.stats.bisection.types import Belief, Line, PairShift
from ci.stats.types import FloatArray


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

    def steps(self, before: Passing, after: Passing) -> tuple[FloatArray, FloatArray]:
        """Weight of exactly one step in the stretch, and of two; shape (S,) each."""
        moved = before.none[:, None] * self.from_zero
        once = self.one * (moved * self.grid.prior * after.one).sum(axis=1)
        twice = self.two * (moved * self.grid.both * after.two).sum(axis=1)
        return np.asarray(once + self.one * (self._onward(before.one) * after.two).sum(axis=1)), np.asarray(twice)

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
        self.line, self.grid = line, grids.of(line.smallest, line.noise)
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
        levels = np.append(self.grid.levels, 0.0)
        return Belief(
            none=float(end.none.sum()),
            one=float(end.one.sum()),
            two=float(end.two.sum()),
            changes=self._changes(forward, backward, [s / t for s, t in zip(scales[1:], totals, strict=True)]),
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

    def _changes(self, forward: list[Passing], backward: list[Passing], scales: list[FloatArray]) -> FloatArray:
        """Probability of a step at each change; within a stretch they differ by their prior alone.

        scales: for each stretch what makes a weight for each noise, shape (S,), a probability.
        """
        out = np.zeros(self.line.last)
        for number, stretch in enumerate(self.stretches):
            low, high = self.nodes[number], self.nodes[number + 1]
            after = backward[number + 1].times(self._shown[number + 1])
            once, twice = (float(scales[number] @ part) for part in stretch.steps(forward[number], after))
            own = self.line.weights[low:high]
            out[low:high] = once * own / max(stretch.one, TINY)
            out[low:high] += twice * own * (stretch.one - own) / max(stretch.two, TINY)
        return out

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
