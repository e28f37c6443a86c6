"""The search: what the trials so far say, what to measure next, until it is sure or its trials are spent.

Everything follows from the list of outcomes, so a search that was interrupted goes on from the trials in its file.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence

import numpy as np

from ci.bisect import classes
from ci.bisect.types import BisectError, Measure, RowPlace, SearchRules, SearchState, TrialOutcome
from ci.stats.bisection import choosing
from ci.stats.bisection.choosing import Ask
from ci.stats.bisection.types import Line, PairShift

Tell = Callable[[SearchState], None]


def search(
    places: Sequence[RowPlace],
    known: classes.Labels,
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
    known: classes.Labels,
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
    places: Sequence[RowPlace], known: classes.Labels, rules: SearchRules, outcomes: Sequence[TrialOutcome]
) -> SearchState:
    """What these outcomes say.  Raises BisectError if one of the ends cannot be measured."""
    launched = {position: label for one in outcomes for position, label in one.labels.items()}
    same = classes.same_code(known, launched)
    skipped = {position: why for one in outcomes for position, why in one.failed.items()}
    _check_ends(places, skipped)
    line = Line(classes.weights(same), rules.smallest, rules.noise, frozenset(skipped))
    seen = [
        PairShift(one.low, one.high, one.shift)
        for one in outcomes
        if one.shift is not None and not skipped.keys() & {one.low, one.high}
    ]
    belief = choosing.believe(line, seen) if seen else None
    then = choosing.next_step(line, seen, belief, _seconds(outcomes))
    return SearchState(line, tuple(outcomes), belief, then, skipped, 1 + same.count(False))


def _check_ends(places: Sequence[RowPlace], skipped: dict[int, str]) -> None:
    for end, word in ((0, "the good end"), (len(places) - 1, "the bad end")):
        if end in skipped:
            said = f"{word}, {places[end].short}, cannot be measured: {skipped[end]}"
            raise BisectError(f"{said}; name another one that can")


def _seconds(outcomes: Sequence[TrialOutcome]) -> choosing.Seconds:
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
