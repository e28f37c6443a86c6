"""Measure a sweep: rung by rung, what its file lacks, within a budget; interrupted anywhere, it goes on where it was.

The file is the only memory.  What is measured next follows from its lines (`ci.sweeps.rungs`), so a sweep that was
killed is resumed by the same command, and a finished point is not measured again.
"""

from __future__ import annotations

import dataclasses
import json
import time
from collections.abc import Callable
from pathlib import Path

from rich.console import Console

from ci import harness
from ci.sweeps.alone import alone
from ci.sweeps.measured import Measured, SweepError, gathered
from ci.sweeps.plan import SweepPlan
from ci.sweeps.rungs import DueRung, due, seen_in
from ci.trials.file import read
from ci.trials.trial import Trial

Follow = Callable[..., harness.ChildExit]
"""`ci.harness.follow`, or the method of a program that runs many commands."""


@dataclasses.dataclass(frozen=True)
class Progressed:
    """What a call came to.  left: what is due next, None when all is measured; why: why it stopped before that."""

    measured: Measured | None
    left: DueRung | None
    why: str = ""


def run(plan: SweepPlan, console: Console) -> Measured:
    """Measure what the file of a sweep lacks; everything that it has then.  Raises SweepError if that is nothing.

    Use :func:`measure` to learn what is left where a budget ended it.
    """
    ended = measure(plan, console)
    if ended.measured is None:
        raise SweepError(f"nothing was measured: {ended.why or 'no point is left after pruning'}")
    return ended.measured


def measure(plan: SweepPlan, console: Console) -> Progressed:
    """As :func:`run`, with what is left.  KeyboardInterrupt on Ctrl-C; what is finished stays in the file."""
    with alone(plan.out):
        return go_on(plan, console, harness.follow)


def go_on(plan: SweepPlan, console: Console, follow: Follow) -> Progressed:
    """As :func:`measure`, where we are :func:`alone` already.  follow: runs the measuring program."""
    began = time.monotonic()
    while True:
        trials = trials_of(plan)
        found = gathered(trials)
        if len(found) > 1:
            origins = "; ".join(str(one.origin) for one in found)
            raise SweepError(
                f"{plan.out} has lines of {len(found)} origins ({origins}): ratios of two machines are not mixed"
            )
        measured = found[0] if found else None
        left = due(plan.dealt, plan.rungs_here, seen_in(trials, plan.operator, plan.regime), plan.anchors)
        if left is None:
            return Progressed(measured, None)
        spent_min = (time.monotonic() - began) / 60 * plan.world
        if plan.budget_min is not None and spent_min >= plan.budget_min:
            return Progressed(measured, left, f"the budget of {plan.budget_min:g} GPU minutes is spent")
        if not _rung(plan, left, spent_min, console, follow) and not _gained(plan, left):
            return Progressed(measured, left, "the measuring program wrote no line for the points that are left")


def _rung(plan: SweepPlan, left: DueRung, spent_min: float, console: Console, follow: Follow) -> bool:
    """One command of the measuring program, for the points that a rung lacks; whether the budget ended it."""
    asked = plan.out.with_name(f".{plan.out.name}.points.json")
    asked.write_text(json.dumps(plan.points_file(left).as_json()))
    limit_s = None if plan.budget_min is None else (plan.budget_min - spent_min) * 60 / plan.world
    title = f"rung {left.rung + 1} of {len(plan.rungs_here)}, {left.count} of {left.entered} points"
    try:
        ended = follow(command(plan, asked), console, title, limit_s=limit_s)
    finally:
        asked.unlink(missing_ok=True)
    if not ended.late and (ended.code < 0 or ended.code == harness.USAGE):
        safe = f"what is finished is in {plan.out}"
        raise SweepError(f"the measuring program broke off ({ended.how}): {ended.last}; {safe}")
    return ended.late


def command(plan: SweepPlan, asked: Path) -> list[str]:
    """The argument list that measures a points file."""
    argv = harness.program("benchmarks", "run", "--progress", "json")
    argv += harness.options(points=asked.resolve(), out=plan.out.resolve(), seed=plan.seed)
    argv += harness.of_checkout(plan.checkout)
    cache = "hot" if harness.machine_kind() == "cpu" else None  # as in `ci.options.with_rounds`
    return argv + harness.options(point_deadline=plan.deadline_s, heap=plan.heap or None, cache=cache)


def _gained(plan: SweepPlan, before: DueRung) -> bool:
    """Whether the file has more of a rung than it had."""
    seen = seen_in(trials_of(plan), plan.operator, plan.regime)
    now = due(plan.dealt, plan.rungs_here, seen, plan.anchors)
    return now is None or (now.rung, -now.count) > (before.rung, -before.count)


def trials_of(plan: SweepPlan) -> list[Trial]:
    """The lines of this sweep, in its file and in those that count as measured.

    SweepError if its file has lines of another sweep, which would be mixed with it.
    """
    found: dict[str, Trial] = {}
    for path in (plan.out, *plan.earlier):
        file = read(path) if path.exists() else None
        for trial in file.trials if file else ():
            if trial.sweep and trial.sweep.id == plan.id and trial.operator == plan.operator:
                found.setdefault(trial.id, trial)
            elif not plan.shared:
                raise SweepError(_another(path, trial, plan))
    return list(found.values())


def _another(path: Path, trial: Trial, plan: SweepPlan) -> str:
    what = f"a line of the sweep {trial.sweep.id}" if trial.sweep else "a trial that is of no sweep"
    differs = "its operator, code, rounds, regime or seed is another"
    return f"{path} has {what}, and this is the sweep {plan.id} of {plan.operator}: {differs}; give another --out"
