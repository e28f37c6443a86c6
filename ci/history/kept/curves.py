"""Bandwidth against the number of CUs (SMs) that a collective takes, from trials of one case with different numbers.

Our backends take `programs` CUs; RCCL and NCCL take one per channel.  Bus bandwidth by the nccl-tests convention: bytes
over the links / median time.
"""

from __future__ import annotations

import dataclasses
import statistics
from collections import defaultdict
from collections.abc import Iterable, Iterator
from pathlib import Path

from ci.records import rates
from ci.trials.file import read
from ci.trials.trial import Arm, Checkout, Trial

FOLDER = "curves"


@dataclasses.dataclass(frozen=True)
class CurvePoint:
    """One backend with so many CUs.  busbw: GB/s (1e9).  at: start of the trial, ISO."""

    machine: str
    device: str
    kernel: str
    case: str
    world: int
    backend: str
    baseline: bool
    programs: int
    busbw: float
    commit: str
    at: str

    def order(self) -> tuple[str, str, str, str, int, str]:
        """Sort key: curve by curve, from few CUs to many."""
        return (self.machine, self.kernel, self.case, self.backend, self.programs, self.at)


def load(results_dir: Path) -> tuple[list[CurvePoint], list[str]]:
    """Every point of `results/curves`, and a sentence on each file, line or arm that gives none."""
    folder = results_dir / FOLDER
    found, problems = list[CurvePoint](), list[str]()
    for path in sorted(folder.glob("*.jsonl*")) if folder.is_dir() else []:
        file = read(path)
        problems += [f"{one.at(path)}: {one.why}; left out" for one in file.rejected]
        for trial in file.trials:
            try:
                found += points_of(trial)
            except ValueError as error:
                problems.append(f"{path}: {error}; left out")
    return sorted(
        found, key=lambda one: (one.machine, one.kernel, one.case, one.backend, one.programs, one.at)
    ), problems


def points_of(trial: Trial) -> Iterator[CurvePoint]:
    """The arms of a trial that moved something.  ValueError for one that does not state its number of CUs."""
    head = trial.checkouts["head"]
    for case, _, backend, arm in trial.arms():
        declared = head.declaration.cases.get(case) if head.declaration else None
        if arm.ok and head.declaration and declared and declared.cost.link_bytes:
            yield CurvePoint(
                trial.machine.name,
                trial.machine.device or "",
                trial.operator,
                case,
                declared.world,
                backend,
                backend in head.declaration.baselines,
                _count(arm, head, f"{backend} of {case}"),
                rates.gb_per_s(float(declared.cost.link_bytes), statistics.median(arm.seconds)),
                head.recordable or "",
                trial.started_at,
            )


def _count(arm: Arm, checkout: Checkout, where: str) -> int:
    """The CUs that an arm takes: its own knob, else the channels that the library may use."""
    count = arm.knobs.get("programs", checkout.environment.variables.get("NCCL_MAX_NCHANNELS"))
    if count is None:
        raise ValueError(f"{where} has no knob `programs`, and NCCL_MAX_NCHANNELS was not set")
    return int(count)


def points(trials: Iterable[Trial]) -> dict[str, dict[int, float]]:
    """GB/s by backend and number of CUs.  ValueError for trials of several cases, or that do not state the number."""
    found: dict[str, dict[int, float]] = defaultdict(dict)
    cases = set()
    for trial in trials:
        cases |= {f"{trial.operator}/{case}" for case in trial.cases}
        for point in points_of(trial):
            found[point.backend][point.programs] = point.busbw
    if len(cases) != 1:
        raise ValueError(f"a curve is of one case; these trials have {', '.join(sorted(cases)) or 'none'}")
    return dict(found)
