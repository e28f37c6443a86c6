"""Times of knobs in a sweep, beside each other: what `tune` decides by, and the history of configurations."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Hashable, Mapping, Sequence
from typing import Any

from benchmarks.points import Knobs

LEAST_TRIALS = 2
"""Of knobs that win: one process start has a bias of its own (0.1 to 0.2 % on an H200), which no round shows."""


@dataclasses.dataclass(frozen=True)
class LogTime:
    """Of knobs in a case: log of time / time of the anchor, half its interval, and the trials behind it."""

    log: float
    half: float
    trials: int
    knobs: Knobs = dataclasses.field(default_factory=dict, compare=False)

    @classmethod
    def of_row(cls, row: Mapping[Hashable, Any], knobs: Knobs) -> LogTime | None:
        """From a row of `ci.sweeps.measured.COLUMNS` whose status is ok; None if it has no ratio."""
        ratio, low, high = (float(row[name]) for name in ("ratio", "low", "high"))
        if row["is_anchor"]:
            return cls(0.0, 0.0, int(row["trials"]), knobs)
        if not 0 < low <= high < math.inf:
            return None
        return cls(math.log(ratio), math.log(high / low) / 2, int(row["trials"]), knobs)


@dataclasses.dataclass(frozen=True)
class Versus:
    """time / time of something else, with its interval."""

    ratio: float
    low: float
    high: float

    def __str__(self) -> str:
        return f"{self.ratio:.3f} ({self.low:.3f} to {self.high:.3f})"


def versus(one: LogTime, other: LogTime) -> Versus:
    """The ratio of two times of a case.  Half its interval is the root of the sum of squares of both.

    Both are ratios to the same anchor, whose noise the difference does not have, so it is too wide rather than not.
    """
    return over_cases([(one, other)])


def over_cases(pairs: Sequence[tuple[LogTime, LogTime]]) -> Versus:
    """The geometric mean over cases of the ratio of two times, the cases independent."""
    log = math.fsum(one.log - other.log for one, other in pairs) / len(pairs)
    squares = (one.half**2 + other.half**2 for one, other in pairs if one != other)
    half = math.sqrt(math.fsum(squares)) / len(pairs)
    return Versus(math.exp(log), math.exp(log - half), math.exp(log + half))
