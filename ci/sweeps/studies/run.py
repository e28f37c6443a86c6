"""Measure a study: every part as a sweep of its own, and the parts that are not timed as checks."""

from __future__ import annotations

import dataclasses
import time
from collections.abc import Iterator, Sequence
from pathlib import Path

from rich.console import Console

from benchmarks.studies.types import Study
from ci.git.repository import LocalCheckout
from ci.harness import FAULTS, MEASURED, NOTHING, MeasureError, MeasurePlan, OneProgram, measure
from ci.sweeps.plan import SweepPlan, sweep_id
from ci.sweeps.run import go_on
from ci.sweeps.studies.folder import CHECKS
from ci.sweeps.studies.ready import ReadyPart, StudyAsked

WHOLE_CALLS = 30
"""Calls timed from the host's side: a launch from Python scatters by some 5 % and the median of 30 by 1 % (1.25 * 5 % /
sqrt(30), the standard error of a median), and at 50 us a call they cost 5 ms with their flushes."""


@dataclasses.dataclass(frozen=True)
class Left:
    """What one call did not measure, and why, by operator."""

    operator: str
    points: int
    why: str


def measured(
    study: Study,
    parts: Sequence[ReadyPart],
    checkout: LocalCheckout,
    asked: StudyAsked,
    out: Path,
    program: OneProgram,
    console: Console,
) -> list[Left]:
    """Measure what the file lacks, part by part; what is left then.  KeyboardInterrupt on Ctrl-C.

    Nobody else may measure into the file meanwhile (ci.sweeps.run.alone).
    """
    left, spent_min = list[Left](), 0.0
    for number, part in enumerate(parts, 1):
        console.print(f"{study.name}, part {number} of {len(parts)}: {part.part.operator}, {len(part.asked)} cases")
        count, began = part.pruned.count, time.monotonic()
        if part.part.check:
            _check(part, checkout, out.parent / CHECKS / f"{study.name}.jsonl", program, console)
        elif count:
            left += _sweep(_plan(study, part, checkout, asked, out, spent_min), program, console)
        spent_min += (time.monotonic() - began) / 60 * part.world
    return left


def _plan(
    study: Study, part: ReadyPart, checkout: LocalCheckout, asked: StudyAsked, out: Path, spent_min: float
) -> SweepPlan:
    operator, regime = part.part.operator, asked.regime or study.regime
    budget = None if asked.budget_min is None else max(asked.budget_min - spent_min, 0.0)
    name = sweep_id(operator, checkout, part.rungs, regime)
    made = SweepPlan(name, operator, checkout, part.pruned, part.anchors, out, part.rungs, regime)
    whole = WHOLE_CALLS if study.whole_call else 0
    return dataclasses.replace(made, budget_min=budget, world=part.world, shared=True, whole_calls=whole)


def _sweep(plan: SweepPlan, program: OneProgram, console: Console) -> Iterator[Left]:
    ended = go_on(plan, console, program.follow)
    if ended.left is not None:
        yield Left(plan.operator, ended.left.count, ended.why)


def _check(part: ReadyPart, checkout: LocalCheckout, out: Path, program: OneProgram, console: Console) -> None:
    """Compare every arm with the reference; MeasureError if that could not be done."""
    backends = list(dict.fromkeys(point.backend for own in part.asked.values() for point in own))
    plan = MeasurePlan("sweep", [part.part.operator], list(part.asked), backends)
    if measure([checkout], plan, out, console, "verify", by=program) not in (MEASURED, FAULTS, NOTHING):
        raise MeasureError(f"the checks of {part.part.operator} broke off; what is finished is in {out}")
