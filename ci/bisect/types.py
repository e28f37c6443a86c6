"""A search as values: its row of places, what its trials came to, how it ended."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Mapping, Sequence

from ci.stats.bisection import Ask, Belief, FoundSteps, Line


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
    labels: what the positions ran; equal labels are equal code with equal launch parameters.  seconds: wall time.
    """

    low: int
    high: int
    shift: float | None = None
    failed: Mapping[int, str] = dataclasses.field(default_factory=dict)
    labels: Mapping[int, str] = dataclasses.field(default_factory=dict)
    seconds: float = 0.0


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

    line: the row as it is seen now.  belief: None before the first trial with times.  skipped: why, by position.
    classes: runs of positions whose code may differ.
    """

    line: Line
    outcomes: Sequence[TrialOutcome]
    belief: Belief | None
    then: Ask | FoundSteps
    skipped: Mapping[int, str]
    classes: int

    @property
    def answer(self) -> FoundSteps | None:
        """The answer, None while there is none."""
        return self.then if isinstance(self.then, FoundSteps) else None

    @property
    def trials(self) -> int:
        """How many were spent, those without times too."""
        return len(self.outcomes)
