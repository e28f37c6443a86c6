"""Which points are measured next: pure, from what the lines of a sweep say already.

A rung is a process start with a number of rounds: all points few, those that may still be the best more, and the
finalists in several fresh trials.  Backends are judged apart, so a library that is faster than all of our points drops
none of them; the anchor counts as a point of its backend.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import numpy as np

from benchmarks.points import Point, label
from ci.judging import policy
from ci.sweeps.measured import MISS, Observation, estimates, observations, shifts_of
from ci.sweeps.measured import survivors as surviving
from ci.trials.trial import Trial

GPU_ROUNDS = (8, 20, 40, 40, 40)
"""All points; those that may be the best; finalists in three fresh trials, as many as a verdict needs (policy:
min_trials) and with the rounds that repeat a median to 0.1 % (`ci.options`)."""

CPU_ROUNDS = (8, 12, 20, 20)
"""The same where a call takes milliseconds and the machine is shared."""


@dataclasses.dataclass(frozen=True)
class Rungs:
    """rounds: of each rung.  halving: False measures every point in every rung.

    least: the smallest spread between trials (policy: trial_noise).  stay: (case, label of a point) of those that are
    measured in every rung however slow they are, because the others are compared with them in the end.
    """

    rounds: tuple[int, ...] = GPU_ROUNDS
    halving: bool = True
    least: float = 0.001
    stay: frozenset[tuple[str, str]] = frozenset()

    @classmethod
    def of(cls, operator: str, kind: str, rounds: tuple[int, ...] = (), **more: Any) -> Rungs:
        """Those of an operator on a kind of machine.  rounds: () for the usual ones."""
        usual = CPU_ROUNDS if kind == "cpu" else GPU_ROUNDS
        return cls(rounds or usual, least=policy.load().settings(operator, kind).trial_noise, **more)

    def __len__(self) -> int:
        return len(self.rounds)


Wanted = Mapping[str, Sequence[Point]]
"""By case, points that each have code of their own."""

Seen = Mapping[tuple[str, str], Sequence[Observation]]
"""By (case, label of a point): what was seen of it."""


def seen_in(trials: Iterable[Trial], operator: str) -> dict[tuple[str, str], list[Observation]]:
    """What lines say of the points of an operator."""
    observed = observations(trial for trial in trials if trial.sweep and trial.operator == operator)
    return {(case, label(backend, point)): own for (_, case, backend, point, _), own in observed.items()}


@dataclasses.dataclass(frozen=True)
class DueRung:
    """What comes next: a rung, the points that it lacks, and how many it has in all."""

    rung: int
    points: Wanted
    entered: int

    @property
    def count(self) -> int:
        """How many points it lacks."""
        return sum(map(len, self.points.values()))


def due(wanted: Wanted, rungs: Rungs, seen: Seen, anchors: Mapping[str, str]) -> DueRung | None:
    """The first rung that lacks a point; None when all are done.  anchors: backend by case."""
    entered: Wanted = wanted
    for rung in range(len(rungs)):
        entered = survivors(entered, rung, rungs, seen, anchors) if rung else entered
        lacking = {
            case: [point for point in own if not _done(point, rung, rungs, seen)] for case, own in entered.items()
        }
        lacking = {case: own for case, own in lacking.items() if own}
        if lacking:
            return DueRung(rung, lacking, sum(map(len, entered.values())))
    return None


def _done(point: Point, rung: int, rungs: Rungs, seen: Seen) -> bool:
    """Whether a rung has it; one that failed is never tried again."""
    own = seen.get((point.case, point.label), ())
    return any(
        not observation.arm.ok or (_rung(observation) == rung and observation.arm.rounds >= rungs.rounds[rung])
        for observation in own
    )


def _rung(observation: Observation) -> int:
    return observation.trial.sweep.rung if observation.trial.sweep else 0


def survivors(entered: Wanted, rung: int, rungs: Rungs, seen: Seen, anchors: Mapping[str, str]) -> Wanted:
    """Of the points that entered the rung before, those that enter `rung`: by what the earlier rungs say."""
    return {case: _of_case(case, own, rung, rungs, seen, anchors.get(case, "")) for case, own in entered.items()}


def _of_case(case: str, own: Sequence[Point], rung: int, rungs: Rungs, seen: Seen, anchor: str) -> list[Point]:
    right = [point for point in own if all(each.arm.ok for each in seen.get((case, point.label), ()))]
    if not rungs.halving:
        return right
    backends = dict.fromkeys(point.backend for point in right)
    survivors_of = [
        _of_backend([point for point in right if point.backend == b], rung, rungs, seen, b == anchor) for b in backends
    ]
    chosen = {point.label for own in survivors_of for point in own} | {label for c, label in rungs.stay if c == case}
    return [point for point in right if point.label in chosen]


def _of_backend(own: Sequence[Point], rung: int, rungs: Rungs, seen: Seen, has_anchor: bool) -> list[Point]:
    """Those that may be the best of their backend.  A point without a ratio, whose anchor failed, ends here."""
    before = [[one for one in seen.get((p.case, p.label), ()) if one.pair and _rung(one) < rung] for p in own]
    timed = [(point, found) for point, found in zip(own, before, strict=True) if found]
    if not timed:
        return []
    made = estimates(shifts_of([found for _, found in timed]), rungs.least)
    mean, sd = (np.append(values, 0.0) for values in (made.mean, made.sd)) if has_anchor else (made.mean, made.sd)
    stay = surviving(mean, sd, MISS / max(1, len(rungs) - 1))
    return [point for (point, _), one in zip(timed, stay, strict=False) if one]
