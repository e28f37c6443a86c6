"""The search: what the trials so far say, what to measure next, until it is sure or its trials are spent.

Everything follows from the list of outcomes, so a search that was interrupted goes on from the trials in its file.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence

import numpy as np

from ci.bisect import classes
from ci.bisect.types import BisectError, Measure, Place, SearchRules, SearchState, TrialOutcome
from ci.stats.bisection import choosing
from ci.stats.bisection.choosing import Ask
from ci.stats.bisection.types import Line, PairShift

Tell = Callable[[SearchState], None]


def search(
    places: Sequence[Place],
    known: Sequence[str | None],
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


def state_of(
    places: Sequence[Place], known: Sequence[str | None], rules: SearchRules, outcomes: Sequence[TrialOutcome]
) -> SearchState:
    """What these outcomes say.  Raises BisectError if one of the ends cannot be measured."""
    labels = _labels(known, outcomes)
    skipped = {position: why for one in outcomes for position, why in one.failed.items()}
    _check_ends(places, skipped)
    line = Line(classes.weights(labels), rules.smallest, rules.noise, frozenset(skipped))
    seen = [
        PairShift(one.low, one.high, one.shift)
        for one in outcomes
        if one.shift is not None and not skipped.keys() & {one.low, one.high}
    ]
    belief = choosing.believe(line, seen) if seen else None
    then = choosing.next_step(line, seen, belief, _seconds(outcomes)) if belief else Ask(0, line.last)
    return SearchState(line, tuple(outcomes), belief, then, skipped, classes.count(labels))


def _labels(known: Sequence[str | None], outcomes: Sequence[TrialOutcome]) -> list[str | None]:
    """Labels before the search, and what trials said of places without one.

    The two are different alphabets: a trial's label is for all places that are known to be equal to its place.
    """
    found: dict[str | None, str] = {}
    own: dict[int, str] = {}
    for outcome in outcomes:
        for position, label in outcome.labels.items():
            own[position] = label
            if known[position] is not None:
                found[known[position]] = label
    return [own.get(n) or found.get(label) or label for n, label in enumerate(known)]


def _check_ends(places: Sequence[Place], skipped: dict[int, str]) -> None:
    for end, word in ((0, "the good end"), (len(places) - 1, "the bad end")):
        if end in skipped:
            said = f"{word}, {places[end].short}, cannot be measured: {skipped[end]}"
            raise BisectError(f"{said}; name another one that can")


def _seconds(outcomes: Sequence[TrialOutcome]) -> choosing.Seconds:
    """What a trial of a place takes: a first one may build or compile, later ones do not."""
    seen: set[int] = set()
    first, again = [], []
    for one in outcomes:
        (again if {one.low, one.high} <= seen else first).append(one.seconds)
        seen |= {one.low, one.high}
    repeat = max(float(np.median(again or first or [1.0])), 1e-3)
    new = max(float(np.median(first or [repeat])), repeat)
    return lambda position: repeat if position in seen else new
