"""The values that judging works on: what was timed, what was decided, and why.

Everything here is frozen and free of I/O.  Times are **seconds**; a ratio is head time / base time, so a
ratio above 1 is slower.  `ci.trials.replay` builds :class:`Comparison` values from files, `ci.judging.judge` makes a
:class:`Judgement` of them, `ci.report` renders it.
"""

from __future__ import annotations

import dataclasses
import enum
from collections.abc import Mapping
from typing import Literal

import numpy as np
import numpy.typing as npt

FloatArray = npt.NDArray[np.float64]

Role = Literal["base", "head"]


class Verdict(enum.StrEnum):
    """What is said about one case, or about all of them together.

    NEW is said of a case only, never of a whole judgement: the base lacks it, so there is nothing to compare.
    """

    FASTER = "FASTER"
    SAME = "SAME"
    SLOWER = "SLOWER"
    CANNOT_TELL = "CANNOT TELL"
    BROKEN = "BROKEN"
    YARDSTICK_CHANGED = "YARDSTICK CHANGED"
    NEW = "NEW"


class Status(enum.StrEnum):
    """How one arm of a case ended, as a trial file says it; `missing`: that tree does not have it."""

    OK = "ok"
    WRONG = "wrong"
    ERROR = "error"
    HANG = "hang"
    CRASH = "crash"
    UNSUPPORTED = "unsupported"
    SKIPPED = "skipped"
    MISSING = "missing"

    @property
    def failed(self) -> bool:
        """True for an arm that ran and must not have: wrong, error, hang, crash."""
        return self in (Status.WRONG, Status.ERROR, Status.HANG, Status.CRASH)


@dataclasses.dataclass(frozen=True)
class Clocks:
    """What the device reported around one arm of one trial; None where it reported nothing.

    sm_clock_mhz: MHz; power_w: W; temperature_c: degrees Celsius; throttle: the device's own words, "" for none.
    """

    sm_clock_mhz: float | None = None
    power_w: float | None = None
    temperature_c: float | None = None
    throttle: str = ""


@dataclasses.dataclass(frozen=True, eq=False)
class Trial:
    """One trial of one case: fresh processes, then rounds.  Arrays have shape (rounds,), in seconds.

    Sample i of every array belongs to round i.  `control_*` is the vendor baseline timed in the same rounds
    by the same tree's process, None where there is none.
    """

    number: int
    base: FloatArray
    head: FloatArray
    control_base: FloatArray | None = None
    control_head: FloatArray | None = None
    clocks: Mapping[Role, Clocks] | None = None


@dataclasses.dataclass(frozen=True, eq=False)
class Comparison:
    """Everything known about one case on both sides: the input of :func:`ci.judging.judge.judge`.

    case: permanent name, ``kernel/backend/case`` for our own trials.
    machine_kind: "gpu" or "cpu"; it chooses the policy section.
    same_code: both sides ran the same code (code objects, or files of the kernel), or None where it is not known.
    base_status, head_status: how the arms ended; `*_why` is one sentence for a status other than ok.
    base_yardstick, head_yardstick: digest of what defines the number; None where it is not known.
    control: name of the vendor baseline in `Trial.control_*`, None without one.
    problems: faults of the recorded data that forbid a verdict on this case, each one sentence.
    """

    case: str
    kernel: str
    backend: str = ""
    trials: tuple[Trial, ...] = ()
    machine_kind: str = "gpu"
    machine: str = ""
    same_code: bool | None = None
    base_status: Status = Status.OK
    head_status: Status = Status.OK
    base_why: str = ""
    head_why: str = ""
    base_yardstick: str | None = None
    head_yardstick: str | None = None
    control: str | None = None
    problems: tuple[str, ...] = ()
    warnings: tuple[str, ...] = ()


@dataclasses.dataclass(frozen=True)
class Floor:
    """A bound against the vendor baseline and what was found: share = baseline time / head time (> 1: ours is faster).

    state: "met", "missed" (the whole interval lies below the bound), "cannot tell", or "absent" (not timed).
    """

    case: str
    baseline: str
    bound: float
    reason: str
    state: Literal["met", "missed", "cannot tell", "absent"]
    share: float | None = None
    share_low: float | None = None
    share_high: float | None = None
    base_share: float | None = None

    @property
    def new(self) -> bool:
        """True for a floor that head misses and base did not (or base was not timed)."""
        return self.state == "missed" and (self.base_share is None or self.base_share >= self.bound)


@dataclasses.dataclass(frozen=True)
class CaseVerdict:
    """What was decided about one case.

    ratio, ci_low, ci_high: head time / base time with its confidence interval; None where nothing was compared.
    p_value: two-sided, of a true change of nothing, before the control over all cases; None as above.
    trials, rounds: how many trials were used, and the median number of rounds in them.
    wants_more: further trials could change a CANNOT TELL (or must confirm a SLOWER) and the budget allows them.
    evidence: sentences on why; warnings: sentences on what makes it less sure.
    """

    case: str
    kernel: str
    backend: str
    verdict: Verdict
    ratio: float | None = None
    ci_low: float | None = None
    ci_high: float | None = None
    p_value: float | None = None
    trials: int = 0
    rounds: int = 0
    base_seconds: float | None = None
    head_seconds: float | None = None
    wants_more: bool = False
    evidence: tuple[str, ...] = ()
    warnings: tuple[str, ...] = ()


@dataclasses.dataclass(frozen=True)
class Group:
    """Neighbouring cases of one kernel and backend that moved the same way: one cause, many shapes.

    ratio: the geometric mean over `cases`; ci_low, ci_high: its confidence interval.
    """

    kernel: str
    backend: str
    direction: Literal["slower", "faster"]
    cases: tuple[str, ...]
    ratio: float
    ci_low: float
    ci_high: float
    evidence: str


@dataclasses.dataclass(frozen=True)
class Judgement:
    """The verdict on all cases together.

    verdict: the worst of the cases, NEW left aside; CANNOT TELL where nothing was compared.
    why: one sentence for the heading.  warnings concern the whole run (the machine, one-sided findings).
    """

    verdict: Verdict
    why: str
    cases: tuple[CaseVerdict, ...] = ()
    groups: tuple[Group, ...] = ()
    floors: tuple[Floor, ...] = ()
    warnings: tuple[str, ...] = ()

    def of(self, *verdicts: Verdict) -> tuple[CaseVerdict, ...]:
        """The cases with one of these verdicts, in order."""
        return tuple(case for case in self.cases if case.verdict in verdicts)
