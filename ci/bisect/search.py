"""The search: what the trials so far say, what to measure next, until it is sure or its trials are spent.

Everything follows from the list of outcomes, so a search that was interrupted goes on from the trials in its file.
"""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Callable, Iterable, Mapping, Sequence

import numpy as np
import pandas as pd

from ci.stats import bisection
from ci.stats.bisection import Ask, Belief, Line, PairShift, SearchAnswer
from ci.stats.types import FloatArray

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
    then: Ask | SearchAnswer
    skipped: Mapping[int, str]
    classes: int

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
    apart = (~equal).sum()
    if apart in (0, len(equal)):
        return np.full(len(equal), 1 / len(equal))
    return np.asarray(np.where(equal, OTHER_CAUSE / equal.sum(), (1 - OTHER_CAUSE) / apart))


def same_code(known: Labels, measured: Mapping[int, str]) -> list[bool]:
    """Of each change, whether it lies between positions with equal code.

    known: what was known before.  measured: what trials said of the positions that they measured; it holds for all
    positions with the same known label too.
    """
    spread = {known[position]: label for position, label in measured.items() if known[position] is not None}
    launched = [measured.get(n) or spread.get(label) for n, label in enumerate(known)]
    return [one or other for one, other in zip(_between_equals(known), _between_equals(launched), strict=True)]


def _between_equals(labels: Labels) -> list[bool]:
    """Of each change, whether the nearest labels before and after it are equal."""
    known = pd.Series(list(labels), dtype="str")
    before, after = known.ffill().to_numpy()[:-1], known.bfill().to_numpy()[1:]
    return [bool(one == other) for one, other in zip(before, after, strict=True)]  # what is not known is NaN


# The search itself.


Tell = Callable[[SearchState], None]


def search(
    places: Sequence[RowPlace],
    known: Labels,
    rules: SearchRules,
    measure: Measure,
    before: Iterable[TrialOutcome] = (),
    tell: Tell = lambda state: None,
) -> list[SearchState]:
    """The states after no trial, after the first, and so on; the last has the answer, or `rules.most` trials.

    known: labels of the places' code, None where it is not known.  before: outcomes of an earlier call.
    tell: hears of every state that is not of an earlier call.
    Raises BisectError where an end cannot be measured, and what `measure` raises.
    """
    outcomes, states = list(before), list[SearchState]()
    while True:
        state = state_of(places, known, rules, outcomes[: len(states)])
        states.append(state)
        if state.trials == len(outcomes):
            tell(state)
        if not isinstance(state.then, Ask) or state.trials >= rules.most:
            return states
        if state.trials == len(outcomes):
            outcomes.append(measure(state.then.low, state.then.high))


def state_of(
    places: Sequence[RowPlace], known: Labels, rules: SearchRules, outcomes: Sequence[TrialOutcome]
) -> SearchState:
    """What these outcomes say.  Raises BisectError if one of the ends cannot be measured."""
    launched = {position: label for one in outcomes for position, label in one.labels.items()}
    same = same_code(known, launched)
    skipped = {position: why for one in outcomes for position, why in one.failed.items()}
    _check_ends(places, skipped)
    line = Line(weights(same), rules.smallest, rules.noise, frozenset(skipped))
    seen = [
        PairShift(one.low, one.high, one.shift)
        for one in outcomes
        if one.shift is not None and not skipped.keys() & {one.low, one.high}
    ]
    belief = bisection.believe(line, seen) if seen else None
    then = bisection.next_step(line, seen, belief)
    return SearchState(line, tuple(outcomes), belief, then, skipped, 1 + same.count(False))


def _check_ends(places: Sequence[RowPlace], skipped: dict[int, str]) -> None:
    for end, word in ((0, "the good end"), (len(places) - 1, "the bad end")):
        if end in skipped:
            said = f"{word}, {places[end].short}, cannot be measured: {skipped[end]}"
            raise BisectError(f"{said}; name another one that can")


def expected_trials(classes: int, rules: SearchRules, ratio: float | None = None) -> float:
    """Trials that a search over so many classes takes on average, for a step of `ratio` (None: 2.5 times the noise).

    Fitted to tests/study/bisection.md: two trials for each bit of the place, and what the noise asks for; within 15 %
    of its rows with one step.
    """
    step = abs(math.log(ratio)) if ratio and ratio not in (0, 1) else max(math.log1p(rules.smallest), 2.5 * rules.noise)
    return min(max(2 * math.log2(max(classes, 1)) + 90 * (rules.noise / step) ** 2 - 7, 3.0), float(rules.most))
