"""Which closures are timed within a budget, and what that takes.  Pure."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping, Sequence

from benchmarks.adopted.survey import SeenClosure, Survey

CALLS_BESIDE = 6
"""Calls of a closure in a trial beside its samples: the first ones, two that warm up, one that is checked after."""

SAMPLE_S = 5e-4
"""Seconds of a sample of a short call on a host's clock, which is called as often as that takes."""

TURN_S = 2e-3
"""Seconds that a sample costs beside its calls: asking, flushing the caches (2026-11)."""


@dataclasses.dataclass(frozen=True)
class Chosen:
    """timed: names of closures, in order.  left_out: by name, why another is not timed.  trial_s: of one trial."""

    timed: tuple[str, ...]
    left_out: Mapping[str, str]
    trial_s: float


def choose(survey: Survey, rounds: int, trials: int, budget_s: float | None) -> Chosen:
    """All pairs, or a sample of them that fits the budget.

    A script's own work (imports, inputs, its checks) is in every trial, as far as the last closure that is timed.
    The sample is spread evenly: of every backend it keeps some, over the whole range of its cases.
    """
    sides = [side.by_key for side in survey.sides.values()]
    good = [key for key in survey.paired if all(side[key].status == "ok" for side in sides)]
    cost = {key: sum(case_s(side[key], rounds) for side in sides) for key in good}
    if budget_s is None:
        return Chosen(tuple(good), {}, own_s(survey, good) + sum(cost.values()))
    groups: dict[str, list[str]] = {}
    for key in good:
        groups.setdefault(key.partition("/")[0], []).append(key)
    share = budget_s / max(trials, 1)
    for most in range(max(map(len, groups.values()), default=0), 0, -1):
        kept = {key for group in groups.values() for key in spread(group, most)}
        timed = [key for key in good if key in kept]
        if own_s(survey, timed) + sum(cost[key] for key in timed) <= share:
            break
    else:
        timed = _cheapest(good, cost, share - own_s(survey, good[:1]))
    trial_s = own_s(survey, timed) + sum(cost[key] for key in timed)
    why = f"left out: {len(timed)} of {len(good)} cases fit the budget of {budget_s / 60:g} min for {trials} trials"
    return Chosen(tuple(timed), {key: why for key in good if key not in timed}, trial_s)


def case_s(one: SeenClosure, rounds: int) -> float:
    """Seconds that one side of a case takes in a trial."""
    return CALLS_BESIDE * one.expected_s + one.first_call_s + rounds * (max(one.expected_s, SAMPLE_S) + TURN_S)


def own_s(survey: Survey, timed: Sequence[str]) -> float:
    """Seconds of the script itself up to the last of these closures, on the slower side."""
    found = [0.0]
    for side in survey.sides.values():
        before = 0.0
        for one in side.closures:
            if one.key in timed:
                found.append(one.at_s - before)
            before += one.took_s
    return max(found)


def spread(items: Sequence[str], most: int) -> list[str]:
    """At most so many, evenly over the whole sequence, both ends among them."""
    if len(items) <= most:
        return list(items)
    if most == 1:
        return [items[len(items) // 2]]
    return [items[round(index * (len(items) - 1) / (most - 1))] for index in range(most)]


def _cheapest(good: Sequence[str], cost: Mapping[str, float], left_s: float) -> list[str]:
    """Where not even one of each fits: the cheapest, as many as fit, and one at least."""
    kept: set[str] = set()
    for key in sorted(good, key=lambda one: cost[one]):
        left_s -= cost[key]
        if kept and left_s < 0:
            break
        kept.add(key)
    return [key for key in good if key in kept]
