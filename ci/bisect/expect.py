"""How many trials a search is expected to take: by searching a few times in noise, where a step is put on purpose."""

from __future__ import annotations

import math
from collections.abc import Callable

import numpy as np

from ci.bisect import classes
from ci.bisect.types import SearchRules
from ci.stats.bisection import choosing
from ci.stats.bisection.choosing import FoundSteps
from ci.stats.bisection.types import Line, PairShift

Draw = Callable[[np.random.Generator], float]
"""The noise of one trial, a log-ratio."""

SEARCHES = 5
"""Searches that are averaged over: each takes about a quarter of a second on one core (2026-11-22)."""
NOISES = 2.5
"""Where no size is known, a step of so many times the typical noise: 1 % in 0.4 %."""
TAILS = 3.0
"""Degrees of freedom of the noise."""


def trials(labels: classes.Labels, rules: SearchRules, ratio: float | None = None, seed: int = 0) -> float:
    """Mean number of trials for a step of `ratio` (None: a moderate one); shape of the row from its labels."""
    line = Line(classes.weights(classes.same_code(labels, {})), rules.smallest, rules.noise)
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
        belief = choosing.believe(line, seen) if seen else None
        then = choosing.next_step(line, seen, belief)
        if isinstance(then, FoundSteps) or len(seen) >= most:
            return seen, then if isinstance(then, FoundSteps) else None
        level = math.fsum(shift for place, shift in steps.items() if then.low < place <= then.high)
        seen.append(PairShift(then.low, then.high, level + noise(rng)))


def heavy(rng: np.random.Generator, tails: float) -> float:
    """Noise from Student's t, with a standard deviation of 1; normal for tails = inf."""
    if math.isinf(tails):
        return float(rng.standard_normal())
    return float(rng.standard_t(tails)) / math.sqrt(tails / (tails - 2))
