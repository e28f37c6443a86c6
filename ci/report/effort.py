"""How long a run will take, from how long recorded trials took.

A trial's seconds (processes, compiling, checks, rounds) are shared out evenly over its timed arms.  The first trial of
a session compiles; the later ones find what it compiled.
"""

from __future__ import annotations

import dataclasses
import statistics
from collections.abc import Iterable, Mapping, Sequence

from rich.table import Table

from ci.trials.trial import Trial

NIGHTLY_LIMIT_MIN = 240
"""timeout-minutes of the measuring job of .github/workflows/nightly.yml."""

DOUBLING = 1.4
"""Factor from one number of ranks to twice as many, where no record says: 7.7 to 10.3 s for gemm_all_scatter and 7.8
to 10.0 s for all_reduce, from two to four ranks on H200 with equal cases and arms (results/, 2026-11), rounded up."""


@dataclasses.dataclass(frozen=True)
class Pace:
    """What a timed arm of an operator took with some ranks.  first_s, later_s: seconds in a first and a later trial."""

    arms_per_case: float
    first_s: float
    later_s: float
    machine: str


@dataclasses.dataclass(frozen=True)
class Effort:
    """What the cases of an operator with some ranks will take.  source: the record that says so, "" if none does."""

    operator: str
    world: int
    cases: int
    arms: float
    seconds: float
    source: str


Paces = Mapping[tuple[str, int], Pace]
"""By operator and the most ranks that a trial of it used."""


def paces(trials: Iterable[Trial]) -> dict[tuple[str, int], Pace]:
    """The pace of every operator by its newest commit and machine: earlier ones had other backends."""
    found: dict[tuple[str, int], list[Trial]] = {}
    for trial in sorted(trials, key=lambda one: one.order):
        if _arms(trial) and list(trial.checkouts) == ["head"] and trial.machine.kind == "gpu":
            found.setdefault((trial.operator, _world(trial)), []).append(trial)
    return {key: _pace([one for one in of if _where(one) == _where(of[-1])]) for key, of in found.items()}


def expected(planned: Mapping[str, Mapping[int, int]], known: Paces, trials: int) -> list[Effort]:
    """What a run takes; planned: by operator and ranks, how many cases."""
    return [
        _effort(operator, world, cases, known, trials)
        for operator, worlds in planned.items()
        for world, cases in sorted(worlds.items())
    ]


def table(efforts: Sequence[Effort], gpus: int, trials: int) -> Table:
    """The arithmetic, a row for each operator and number of ranks, and the sum."""
    shown = Table(box=None, pad_edge=False, header_style="bold", title=f"expected on {gpus} GPUs, {trials} trials")
    for column in ("operator", "ranks", "cases", "arms", "minutes", "by the record of"):
        shown.add_column(column, justify="left" if column in ("operator", "by the record of") else "right")
    for one in efforts:
        minutes = f"{one.seconds / 60:.1f}"
        shown.add_row(one.operator, str(one.world), str(one.cases), f"{one.arms:.0f}", minutes, one.source or "none")
    return shown


def verdict(efforts: Sequence[Effort]) -> str:
    """The sum against the limit of the nightly job, and what to do if it does not fit."""
    minutes = sum(one.seconds for one in efforts) / 60
    said = f"{minutes:.0f} minutes in all; the nightly job may take {NIGHTLY_LIMIT_MIN}"
    if minutes > NIGHTLY_LIMIT_MIN:
        return f"{said}: too long; run it in parts (--kernel NAME), or move cases to the tier sweep"
    unknown = sorted({one.operator for one in efforts if not one.source})
    return f"{said}; not counted, because no record says: {', '.join(unknown)}" if unknown else said


def _effort(operator: str, world: int, cases: int, known: Paces, trials: int) -> Effort:
    recorded = sorted(ranks for name, ranks in known if name == operator)
    if not recorded:
        return Effort(operator, world, cases, 0.0, 0.0, "")
    near = max((ranks for ranks in recorded if ranks <= world), default=recorded[0])
    pace = known[operator, near]
    arms = cases * pace.arms_per_case
    slower = DOUBLING ** max(0, (world // near).bit_length() - 1)
    source = pace.machine if near == world else f"{pace.machine} (w{near} x {slower:.2f})"
    return Effort(operator, world, cases, arms, arms * slower * (pace.first_s + (trials - 1) * pace.later_s), source)


def _pace(trials: Sequence[Trial]) -> Pace:
    """The medians over trials of one machine."""
    first = [one.duration_s / _arms(one) for one in trials if one.number == 0]
    later = [one.duration_s / _arms(one) for one in trials if one.number] or first
    per_case = statistics.median(_arms(one) / len(_timed(one)) for one in trials)
    return Pace(per_case, statistics.median(first or later), statistics.median(later), trials[-1].machine.name)


def _where(trial: Trial) -> tuple[str, str | None]:
    return trial.machine.name, trial.checkouts["head"].commit


def _timed(trial: Trial) -> list[str]:
    """Cases with at least one time."""
    return [name for name, case in trial.cases.items() if any(arm.ok for arm in case.arms.values())]


def _arms(trial: Trial) -> int:
    return sum(arm.ok for _, _, _, arm in trial.arms())


def _world(trial: Trial) -> int:
    declared = trial.declaration()
    return max((declared.cases[name].world for name in _timed(trial)), default=1) if declared else 1
