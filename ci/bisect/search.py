"""The search: what the trials so far say, what to measure next, until it is sure or its trials are spent.

Everything follows from the list of outcomes, so a search that was interrupted goes on from the trials in its file.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Sequence

import numpy as np

from ci.bisect import axes
from ci.bisect.axes import BisectError, Measure, RowPlace, SearchRules, SearchState, TrialOutcome
from ci.stats import bisection
from ci.stats.bisection import Ask, FoundSteps, Line, PairShift

Tell = Callable[[SearchState], None]


def search(
    places: Sequence[RowPlace],
    known: axes.Labels,
    rules: SearchRules,
    measure: Measure,
    before: Iterable[TrialOutcome] = (),
    tell: Tell = lambda state: None,
) -> SearchState:
    """Measure until there is an answer, or `rules.most` trials are spent.

    known: labels of the places' code, None where it is not known.  before: outcomes of an earlier call.
    tell: hears of every state.  Raises BisectError where an end cannot be measured, and what `measure` raises.
    """
    outcomes = list(before)
    while True:
        state = state_of(places, known, rules, outcomes)
        tell(state)
        if not isinstance(state.then, Ask) or len(outcomes) >= rules.most:
            return state
        outcomes.append(measure(state.then.low, state.then.high))


def replayed(
    places: Sequence[RowPlace],
    known: axes.Labels,
    rules: SearchRules,
    outcomes: Sequence[TrialOutcome],
    *,
    whole: bool = False,
) -> list[SearchState]:
    """The states that outcomes lead to one by one, up to the answer or the end; before the first one if there is none.

    whole: all of them, past an answer: they are no search, and their order says nothing.
    Raises BisectError where an end cannot be measured.
    """
    states: list[SearchState] = []
    for count in range(1, (len(outcomes) if whole else min(len(outcomes), rules.most)) + 1):
        states.append(state_of(places, known, rules, outcomes[:count]))
        if states[-1].answer and not whole:
            break
    return states or [state_of(places, known, rules, [])]


def state_of(
    places: Sequence[RowPlace], known: axes.Labels, rules: SearchRules, outcomes: Sequence[TrialOutcome]
) -> SearchState:
    """What these outcomes say.  Raises BisectError if one of the ends cannot be measured."""
    launched = {position: label for one in outcomes for position, label in one.labels.items()}
    same = axes.same_code(known, launched)
    skipped = {position: why for one in outcomes for position, why in one.failed.items()}
    _check_ends(places, skipped)
    line = Line(axes.weights(same), rules.smallest, rules.noise, frozenset(skipped))
    seen = [
        PairShift(one.low, one.high, one.shift)
        for one in outcomes
        if one.shift is not None and not skipped.keys() & {one.low, one.high}
    ]
    belief = bisection.believe(line, seen) if seen else None
    then = bisection.next_step(line, seen, belief, _seconds(outcomes))
    return SearchState(line, tuple(outcomes), belief, then, skipped, 1 + same.count(False))


def _check_ends(places: Sequence[RowPlace], skipped: dict[int, str]) -> None:
    for end, word in ((0, "the good end"), (len(places) - 1, "the bad end")):
        if end in skipped:
            said = f"{word}, {places[end].short}, cannot be measured: {skipped[end]}"
            raise BisectError(f"{said}; name another one that can")


def _seconds(outcomes: Sequence[TrialOutcome]) -> bisection.Seconds:
    """What a trial of a place takes: a first one may build or compile, later ones do not."""
    seen: set[int] = set()
    first: list[float] = []
    again: list[float] = []
    for one in outcomes:
        (again if {one.low, one.high} <= seen else first).append(one.seconds)
        seen |= {one.low, one.high}
    repeat = max(float(np.median(again or first or [1.0])), 1e-3)
    new = max(float(np.median(first or [repeat])), repeat)
    return lambda position: repeat if position in seen else new


# How many trials a search is expected to take: by searching a few times in noise, where a step is put on purpose.


Draw = Callable[[np.random.Generator], float]
"""The noise of one trial, a log-ratio."""

SEARCHES = 5
"""Searches that are averaged over: each takes about a quarter of a second on one core (2026-11-22)."""
NOISES = 2.5
"""Where no size is known, a step of so many times the typical noise: 1 % in 0.4 %."""
TAILS = 3.0
"""Degrees of freedom of the noise."""


def trials(labels: axes.Labels, rules: SearchRules, ratio: float | None = None, seed: int = 0) -> float:
    """Mean number of trials for a step of `ratio` (None: a moderate one); shape of the row from its labels."""
    line = Line(axes.weights(axes.same_code(labels, {})), rules.smallest, rules.noise)
    least = NOISES * rules.noise
    shift = math.log(ratio) if ratio and ratio > 0 else max(math.log1p(rules.smallest), least)
    rng = np.random.default_rng(seed)
    places = rng.choice(line.last, SEARCHES, p=line.weights) + 1
    return float(np.mean([_spent(rng, line, int(place), shift, rules) for place in places]))


def _spent(rng: np.random.Generator, line: Line, place: int, shift: float, rules: SearchRules) -> int:
    return len(simulated(rng, line, {place: shift}, lambda one: rules.noise * heavy(one, TAILS), rules.most)[0])


def simulated(
    rng: np.random.Generator, line: Line, steps: dict[int, float], noise: Draw, most: int
) -> tuple[list[PairShift], FoundSteps | None]:
    """A whole search over made-up trials: those it took, and its answer, None where they were spent before.

    steps: shift of the changes that have one.  noise: a trial's own shift.
    """
    seen: list[PairShift] = []
    while True:
        belief = bisection.believe(line, seen) if seen else None
        then = bisection.next_step(line, seen, belief)
        if isinstance(then, FoundSteps) or len(seen) >= most:
            return seen, then if isinstance(then, FoundSteps) else None
        level = math.fsum(shift for place, shift in steps.items() if then.low < place <= then.high)
        seen.append(PairShift(then.low, then.high, level + noise(rng)))


def heavy(rng: np.random.Generator, tails: float) -> float:
    """Noise from Student's t, with a standard deviation of 1; normal for tails = inf."""
    if math.isinf(tails):
        return float(rng.standard_normal())
    return float(rng.standard_t(tails)) / math.sqrt(tails / (tails - 2))
