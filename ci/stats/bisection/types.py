"""What a search over positions is given, and what it believes.

Positions 0..last lie in a row: position 0 is known to be good, `last` is bad.  Change k leads from position k-1 to k.
A shift is log(time at the higher position / time at the lower one) of one trial: above 0 is slower.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from functools import cached_property

import numpy as np

from ci.stats.types import FloatArray


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
    changes: shape (last,), probability that change k is a step.
    state: shape (nodes, 3, levels, noises), joint with the number of steps before each of `nodes`.
    noise: expected scale of a trial's noise, a share.  level: shape (nodes,), expected shift of each node.
    """

    none: float
    one: float
    two: float
    changes: FloatArray
    nodes: Sequence[int]
    state: FloatArray
    level: FloatArray
    noise: float
    none_at_worst: float

    @property
    def surely_none(self) -> float:
        """Probability of no step, by the prior over sizes and against each size alone: the smaller one."""
        return min(self.none, self.none_at_worst)
