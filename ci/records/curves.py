"""Bandwidth against the number of CUs (SMs) that a collective takes, from trials of one case with different numbers.

Our backends take `programs` CUs; RCCL and NCCL take one per channel.  Bus bandwidth by the nccl-tests convention: bytes
over the links / median time.
"""

from __future__ import annotations

import dataclasses
import statistics
from collections.abc import Iterator
from pathlib import Path

from ci.records import rates
from ci.records.ledger import left_out
from ci.trials.file import read
from ci.trials.trial import Arm, Checkout, Trial

CURVES = "curves"


@dataclasses.dataclass(frozen=True)
class CurvePoint:
    """One backend with so many CUs.  busbw: GB/s (1e9).  at: start of the trial, ISO."""

    machine: str
    kernel: str
    case: str
    backend: str
    baseline: bool
    programs: int
    busbw: float
    at: str

    def order(self) -> tuple[str, str, str, str, int, str]:
        """Sort key: curve by curve, from few CUs to many."""
        return (self.machine, self.kernel, self.case, self.backend, self.programs, self.at)


def curve_points(results_dir: Path) -> tuple[list[CurvePoint], list[str]]:
    """Every point of `results/curves`, and a sentence on each file, line or arm that gives none."""
    folder = results_dir / CURVES
    points, problems = list[CurvePoint](), list[str]()
    for path in sorted(folder.glob("*.jsonl*")) if folder.is_dir() else []:
        file = read(path)
        problems += left_out(file)
        for trial in file.trials:
            try:
                points += points_of(trial)
            except ValueError as error:
                problems.append(f"{path}: {error}; left out")
    return sorted(points, key=CurvePoint.order), problems


def points_of(trial: Trial) -> Iterator[CurvePoint]:
    """The arms of a trial that moved something.  ValueError for one that does not state its number of CUs."""
    head = trial.checkouts["head"]
    for case, _, backend, arm in trial.arms():
        declared = head.declaration.cases.get(case) if head.declaration else None
        if arm.ok and head.declaration and declared and declared.cost.link_bytes:
            yield CurvePoint(
                trial.machine.name,
                trial.operator,
                case,
                backend,
                backend in head.declaration.baselines,
                _cus(arm, head, f"{backend} of {case}"),
                rates.gb_per_s(float(declared.cost.link_bytes), statistics.median(arm.seconds)),
                trial.started_at,
            )


def _cus(arm: Arm, checkout: Checkout, where: str) -> int:
    """The CUs that an arm takes: its own knob, else the channels that the library may use."""
    count = arm.knobs.get("programs", checkout.environment.variables.get("NCCL_MAX_NCHANNELS"))
    if count is None:
        raise ValueError(f"{where} has no knob `programs`, and NCCL_MAX_NCHANNELS was not set")
    return int(count)
