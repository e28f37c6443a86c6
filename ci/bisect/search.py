"""The search: what the trials so far say, what to measure next, until it is sure or its trials are spent.

Everything follows from the list of outcomes, so a search that was interrupted goes on from the trials in its file.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Sequence

from ci.bisect import axes
from ci.bisect.axes import BisectError, Measure, RowPlace, SearchRules, SearchState, TrialOutcome
from ci.stats import bisection
from ci.stats.bisection import Ask, Line, PairShift

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
    places: Sequence[RowPlace], known: axes.Labels, rules: SearchRules, outcomes: Sequence[TrialOutcome]
) -> list[SearchState]:
    """The states that outcomes lead to one by one, up to the answer or the end; before the first one if there is none.

    Raises BisectError where an end cannot be measured.
    """
    states: list[SearchState] = []
    for count in range(1, min(len(outcomes), rules.most) + 1):
        states.append(state_of(places, known, rules, outcomes[:count]))
        if states[-1].answer:
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
