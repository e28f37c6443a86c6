"""What to measure next, and when enough is known."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Sequence

import numpy as np

from ci.stats.bisection import grid as grids
from ci.stats.bisection.chain import Chain
from ci.stats.bisection.types import Belief, Line, PairShift
from ci.stats.types import FloatArray

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
    outcomes = grids.of(line.smallest, line.noise).outcomes
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
