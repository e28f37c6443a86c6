"""Measure a sweep: rung by rung, what its file lacks, within a budget; interrupted anywhere, it goes on where it was.

The file is the only memory.  What is measured next follows from its lines (`ci.sweeps.pruning`), so a sweep that was
killed is resumed by the same command, and a finished point is not measured again.
"""

from __future__ import annotations

import contextlib
import dataclasses
import hashlib
import json
import time
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

from filelock import FileLock, Timeout
from rich.console import Console

from benchmarks.points import Batch, Point, PointsFile, UntimedPoint
from benchmarks.reach import CheckoutCode, digest
from ci import harness
from ci.git.repository import LocalCheckout
from ci.sweeps.measured import Measured, SweepError, one_sweep
from ci.sweeps.pruning import DueRung, Pruned, Rungs, due, seen_in
from ci.trials.file import read
from ci.trials.trial import Trial


@dataclasses.dataclass(frozen=True)
class Progressed:
    """What a call came to.  left: what is due next, None when all is measured; why: why it stopped before that."""

    measured: Measured | None
    left: DueRung | None
    why: str = ""


@contextlib.contextmanager
def lone_writer(out: Path) -> Iterator[None]:
    """Nobody else measures into this file meanwhile.  SweepError."""
    out.parent.mkdir(parents=True, exist_ok=True)
    try:
        with FileLock(out.with_name(f".{out.name}.lock"), timeout=0):
            yield
    except Timeout:
        raise SweepError(f"{out} is being measured by another call; wait for it, or give another --out") from None


def measure(plan: SweepPlan, console: Console, began: float | None = None) -> Progressed:
    """Measure what the file of a sweep lacks.  KeyboardInterrupt on Ctrl-C; what is finished stays in the file.

    began: when the call began whose budget it is, on the clock of time.monotonic; now, if it is not given.
    """
    began = began or time.monotonic()
    with lone_writer(plan.out):
        while True:
            measured, left = state(plan)
            if left is None:
                return Progressed(measured, None)
            spent_min = (time.monotonic() - began) / 60 * plan.world
            if plan.budget_min is not None and spent_min >= plan.budget_min:
                return Progressed(measured, left, f"the budget of {plan.budget_min:g} GPU minutes is spent")
            late = _rung(plan, left, spent_min, console)
            now = state(plan)[1]
            if not late and now and (now.rung, -now.count) <= (left.rung, -left.count):
                return Progressed(measured, left, "the measuring program wrote no line for the points that are left")


def state(plan: SweepPlan) -> tuple[Measured | None, DueRung | None]:
    """What the file of a sweep has, and what it lacks; None for nothing.

    SweepError if it has lines of another sweep or machine, which would be mixed with this one.
    """
    trials = list[Trial]()
    for trial in read(plan.out).trials if plan.out.exists() else ():
        if trial.sweep and trial.sweep.id == plan.id and trial.operator == plan.operator:
            trials.append(trial)
        elif not plan.shared:
            what = f"a line of the sweep {trial.sweep.id}" if trial.sweep else "a trial that is of no sweep"
            differs = f"this is the sweep {plan.id} of {plan.operator}: its operator, code or rounds is another"
            raise SweepError(f"{plan.out} has {what}, and {differs}; give another --out")
    left = due(plan.pruned.to_measure, plan.rungs, seen_in(trials, plan.operator), plan.anchors)
    return one_sweep(trials, str(plan.out)), left


def _rung(plan: SweepPlan, left: DueRung, spent_min: float, console: Console) -> bool:
    """One command of the measuring program, for the points that a rung lacks; whether the budget ended it."""
    asked = plan.out.with_name(f".{plan.out.name}.points.json")
    asked.write_text(json.dumps(dataclasses.asdict(plan.points_file(left))))
    limit_s = None if plan.budget_min is None else (plan.budget_min - spent_min) * 60 / plan.world
    title = f"rung {left.rung + 1} of {len(plan.rungs)}, {left.count} of {left.entered} points"
    try:
        ended = harness.follow(command(plan, asked), console, title, limit_s=limit_s)
    finally:
        asked.unlink(missing_ok=True)
    if not ended.late and (ended.code < 0 or ended.code == harness.USAGE):
        safe = f"what is finished is in {plan.out}"
        raise SweepError(f"the measuring program broke off ({ended.how}): {ended.last}; {safe}")
    return ended.late


def command(plan: SweepPlan, asked: Path) -> list[str]:
    """The argument list that measures a points file."""
    cache = "hot" if harness.machine_kind() == "cpu" else None  # as in `ci.options.with_rounds`
    argv = harness.program("benchmarks", "run", "--progress", "json")
    argv += harness.options(points=asked.resolve(), out=plan.out.resolve(), cache=cache)
    return argv + harness.of_checkout(plan.checkout)


# One sweep, ready to be measured: its points, its anchors, its rungs, and the name under which it is resumed.


BATCH = 24
"""Points of a batch: the anchor costs 1 call in 25, and a killed run loses half a minute at most."""

FOLDER = ".ridgeline/sweeps"
"""Below the root of the project: where the lines of a sweep go unless --out says otherwise."""


@dataclasses.dataclass(frozen=True, eq=False)
class SweepPlan:
    """What is measured.  id: see `sweep_id`.  anchors: backend by case.  out: trial file, appended to.

    budget_min: GPU minutes that one call may take, None: any.  world: the most ranks of its cases.
    shared: the file has lines of other sweeps too, which are left alone.
    whole_calls: of every point, timed from the host's side too.
    """

    id: str
    operator: str
    checkout: LocalCheckout
    pruned: Pruned
    anchors: Mapping[str, str]
    out: Path
    rungs: Rungs = Rungs()
    budget_min: float | None = None
    world: int = 1
    shared: bool = False
    whole_calls: int = 0
    batch: int = BATCH

    def points_file(self, due: DueRung) -> PointsFile:
        """What the measuring program is asked for."""
        batches = [batch for case, own in due.points.items() for batch in self._batches(case, own, due.rung == 0)]
        rounds, whole_calls = self.rungs.rounds[due.rung], self.whole_calls
        return PointsFile(self.id, self.operator, due.rung, rounds, tuple(batches), whole_calls=whole_calls)

    def _batches(self, case: str, own: Sequence[Point], first: bool) -> Iterator[Batch]:
        """first: whether it is the first rung, whose lines say what became of the points that are not timed too."""
        mixed, anchor = sorted(own, key=_digest), self.anchors[case]
        gone = (UntimedPoint(point.point, "", f"{point.kind}: {point.why}") for point in self.pruned.dropped)
        untimed = [point for point in (*self.pruned.twins, *gone) if first and point.point.case == case]
        for start in range(0, len(mixed), self.batch):
            part = tuple(mixed[start : start + self.batch])
            labels = {point.label for point in part} | (set() if start else {anchor, ""})
            yield Batch(case, anchor, part, tuple(point for point in untimed if point.same_as in labels))


def sweep_id(operator: str, checkout: LocalCheckout, rungs: Rungs, out: Path | None = None) -> str:
    """The same for all sweeps whose lines may be put together: operator, code and rounds are the same.

    out: the file of lines and what lies beside it by its name are no code, where every file of the checkout counts.
    """
    commit = checkout.commit.hash if checkout.commit else ""
    code = CheckoutCode(checkout.path)
    files = {path for path in code.files() if out is None or not _is_of_sweep(checkout.path / path, out)}
    parts = [operator, commit, digest(code.tree, files), rungs.rounds]
    return hashlib.sha256(json.dumps(parts).encode()).hexdigest()[:12]


def _is_of_sweep(path: Path, out: Path) -> bool:
    """Whether a file is out, or its table, lock or draft."""
    name = path.name.lstrip(".")
    return path.parent.resolve() == out.parent.resolve() and name.startswith(out.name.partition(".")[0] + ".")


def _digest(point: Point) -> str:
    """The same for a point everywhere; neighbours in a grid have nothing in common."""
    return hashlib.sha256(json.dumps([point.case, point.label]).encode()).hexdigest()
