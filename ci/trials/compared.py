"""What is known of one case on both sides, read from trials: the input of judging."""

from __future__ import annotations

import dataclasses

from benchmarks.trial_file import Status
from ci.stats.types import PairedRounds

__all__ = ["Comparison", "Status"]


@dataclasses.dataclass(frozen=True, eq=False)
class Comparison:
    """Everything known about one case on both sides: the input of :func:`ci.judging.judge.judge`.

    case: permanent name, ``kernel/backend/case`` for our own trials.
    machine_kind: "gpu" or "cpu"; it chooses the policy section.
    same_code: both sides ran the same code (code objects, or files of the kernel), or None where it is not known.
    base_status, head_status: how the arms ended; `*_why` is one sentence for a status other than ok.
    base_definition, head_definition: digest of the benchmark definition; None where it is not known.
    baseline: name of the baseline in `PairedRounds.baseline_*`, None without one.
    problems: faults of the recorded data that forbid a verdict on this case, each one sentence.
    """

    case: str
    kernel: str
    backend: str = ""
    trials: tuple[PairedRounds, ...] = ()
    machine_kind: str = "gpu"
    machine: str = ""
    same_code: bool | None = None
    base_status: Status = Status.OK
    head_status: Status = Status.OK
    base_why: str = ""
    head_why: str = ""
    base_definition: str | None = None
    head_definition: str | None = None
    baseline: str | None = None
    problems: tuple[str, ...] = ()
    warnings: tuple[str, ...] = ()
