"""What lies beside the records and is no record of asv: answers of the gate, checks, curves over CUs."""

from __future__ import annotations

import dataclasses
import enum
import math
import statistics
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from benchmarks.shapes import items, maybe, name, number, record, table, text, whole
from ci.records import rates
from ci.records.ledger import Ledger, left_out
from ci.trials.file import read
from ci.trials.trial import Arm, Checkout, Trial

# How good the gate is on each machine: what it said of changes that were known, night after night.
#
# A line of `results/canary/<machine>.jsonl`, of nights until 2026-11, is one comparison by the gate of two trees: with
# nothing planted (A/A), or with a known share of additional work.


class CanaryOutcome(enum.StrEnum):
    """What one answer of the gate was worth.

    right: it said SAME of an A/A.  below the floor: SAME of a change that the policy does not look for on this machine.
    That and "cannot tell" say nothing against it: it did not claim to know.
    """

    FOUND = "found"
    RIGHT = "right"
    FALSE = "false"
    MISSED = "missed"
    BELOW = "below the floor"
    UNDECIDED = "cannot tell"


@dataclasses.dataclass(frozen=True)
class CanaryCase:
    """The gate's answer on one case.  ratio: measured head / base with its interval, None where nothing was timed."""

    case: str
    verdict: str
    ratio: float | None = None
    low: float | None = None
    high: float | None = None
    trials: int = 0


@dataclasses.dataclass(frozen=True)
class CanaryRun:
    """One comparison.  planted: share of additional work in head, 0 for A/A.

    floor: the least change that the policy calls one on this machine.  at: start of its first trial, ISO, UTC.
    id: digest of its trials.
    """

    id: str
    at: str
    machine: str
    product: str
    commit: str
    planted: float
    floor: float
    cases: tuple[CanaryCase, ...]

    def outcome(self, case: CanaryCase) -> CanaryOutcome:
        """What the gate's answer on a case was worth."""
        if case.verdict == "SLOWER":
            return CanaryOutcome.FOUND if self.planted else CanaryOutcome.FALSE
        if case.verdict == "FASTER":
            return CanaryOutcome.FALSE
        if case.verdict != "SAME":
            return CanaryOutcome.UNDECIDED
        if not self.planted:
            return CanaryOutcome.RIGHT
        return CanaryOutcome.BELOW if self.planted <= self.floor else CanaryOutcome.MISSED


@dataclasses.dataclass(frozen=True)
class GateQuality:
    """Answers of the gate on one machine to one planted share.  counts: by outcome, those that occurred."""

    machine: str
    planted: float
    runs: int
    counts: Mapping[CanaryOutcome, int]
    worst: float
    """Largest |measured / planted - 1| among the answers, nan without any: how far off the measured sizes were."""


def quality(runs: Iterable[CanaryRun]) -> list[GateQuality]:
    """By machine and planted share."""
    groups: dict[tuple[str, float], list[CanaryRun]] = {}
    for run in runs:
        groups.setdefault((run.machine, run.planted), []).append(run)
    return [_quality(machine, planted, those) for (machine, planted), those in sorted(groups.items())]


def _quality(machine: str, planted: float, runs: Sequence[CanaryRun]) -> GateQuality:
    said = [run.outcome(case) for run in runs for case in run.cases]
    off = [abs(case.ratio / (1 + planted) - 1) for run in runs for case in run.cases if case.ratio is not None]
    counts = {outcome: said.count(outcome) for outcome in CanaryOutcome if outcome in said}
    return GateQuality(machine, planted, len(runs), counts, max(off, default=math.nan))


def _run_of(line: Mapping[str, Any]) -> Iterator[CanaryRun]:
    fields = {field.name: line[field.name] for field in dataclasses.fields(CanaryRun)}
    known = [field.name for field in dataclasses.fields(CanaryCase)]
    cases = tuple(CanaryCase(**{key: case[key] for key in known if key in case}) for case in line["cases"])
    yield CanaryRun(**fields | {"cases": cases})


CANARY = Ledger(
    "canary",
    "a run of the canary",
    "ridgeline-canary",
    {
        **dict.fromkeys(("id", "at", "machine", "product", "commit"), name),
        **dict.fromkeys(("planted", "floor"), number()),
        "cases": items(
            record(
                {"case": name, "verdict": name},
                {**dict.fromkeys(("ratio", "low", "high"), maybe(number())), "trials": whole()},
            )
        ),
    },
    _run_of,
    lambda run: run.id,
)


def canary_runs(results_dir: Path) -> tuple[list[CanaryRun], list[str]]:
    """Every recorded run, oldest first, and a sentence on each line that is none."""
    runs, problems = CANARY.load(CANARY.files(results_dir))
    return sorted(runs, key=lambda run: (run.at, run.machine, run.planted)), problems


# What was verified where and when: the checks of `ridgeline verify`, in `results/checks` or where it keeps them.
#
# A line is one case with every backend called once and compared with the reference; nothing is timed.


OWN = ".ridgeline/checks.jsonl"
"""Where `ridgeline verify` keeps its checks without --out, beside the records."""

GOOD = "ok"
FAILED = ("wrong", "crash", "hang", "error")
"""Worst first (benchmarks.trial_file.FAILED)."""


@dataclasses.dataclass(frozen=True)
class CaseCheck:
    """One backend in one case.  at: ISO, UTC.  error: rms error relative to the reference's rms, None without one."""

    at: str
    machine: str
    commit: str
    kernel: str
    case: str
    world: int
    dtype: str
    backend: str
    status: str
    why: str
    error: float | None

    @property
    def key(self) -> tuple[str, str, str, str]:
        """What is checked where."""
        return (self.machine, self.kernel, self.case, self.backend)


@dataclasses.dataclass(frozen=True)
class Verified:
    """The newest checks of one backend of a kernel on one machine with one number of ranks.

    counts: cases by status.  last, first: when the newest and the oldest of them were made; commits: their hashes,
    newest first.  worst: the largest error among those that are right.  failures: those that are not.
    """

    machine: str
    kernel: str
    backend: str
    world: int
    counts: Mapping[str, int]
    first: str
    last: str
    commits: tuple[str, ...]
    worst: float | None
    failures: tuple[CaseCheck, ...]


def _checks_of(line: Mapping[str, Any]) -> Iterator[CaseCheck]:
    where = line["at"], line["holds_for"]["machine"], line["commit"] or "", line["kernel"]
    for backend, arm in line["arms"].items():
        error = (arm.get("error") or {}).get("norm")
        case = line["case"], line["world"], line["dtype"]
        yield CaseCheck(*where, *case, backend, arm["status"], arm.get("why") or "", error)


_ERROR = record({}, {"norm": maybe(number(0, math.inf))})
_ARM = record({"status": name}, {"why": maybe(text()), "error": maybe(_ERROR)})
CHECKS = Ledger(
    "checks",
    "a check",
    "ridgeline-check",
    {
        **dict.fromkeys(("at", "kernel", "case"), name),
        "holds_for": record({"machine": name}, {}),
        "commit": maybe(name),
        "world": whole(),
        "dtype": text(),
        "arms": table(name, _ARM),
    },
    _checks_of,
    lambda one: (one.at, *one.key),
)


def case_checks(results_dir: Path) -> tuple[list[CaseCheck], list[str]]:
    """Every check in time, and a sentence on each line or file that holds none."""
    own = results_dir.parent / OWN
    found, problems = CHECKS.load([*CHECKS.files(results_dir), *([own] if own.is_file() else [])])
    return sorted(found, key=lambda one: (one.at, *one.key)), problems


def verified(checks: Iterable[CaseCheck]) -> list[Verified]:
    """One row per machine, kernel, backend and number of ranks; of a case that was checked twice the newest counts."""
    newest = {one.key: one for one in sorted(checks, key=lambda one: one.at)}
    groups: dict[tuple[str, str, str, int], list[CaseCheck]] = {}
    for one in newest.values():
        groups.setdefault((one.machine, one.kernel, one.backend, one.world), []).append(one)
    return [_verified(key, those) for key, those in sorted(groups.items())]


def _verified(key: tuple[str, str, str, int], checks: list[CaseCheck]) -> Verified:
    moments = sorted(one.at for one in checks)
    commits = tuple({one.commit: None for one in sorted(checks, key=lambda one: one.at, reverse=True)})
    failures = sorted((one for one in checks if one.status in FAILED), key=lambda one: FAILED.index(one.status))
    errors = [one.error for one in checks if one.status == GOOD and one.error is not None]
    counts = Counter(one.status for one in checks)
    return Verified(*key, dict(counts), moments[0], moments[-1], commits, max(errors, default=None), tuple(failures))


# Bandwidth against the number of CUs (SMs) that a collective takes, from trials of one case with different numbers.
#
# Our backends take `programs` CUs; RCCL and NCCL take one per channel. Bus bandwidth by the nccl-tests convention:
# bytes over the links / median time.


CURVES = "curves"


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


def curve_points(results_dir: Path) -> tuple[list[CurvePoint], list[str]]:
    """Every point of `results/curves`, and a sentence on each file, line or arm that gives none."""
    folder = results_dir / CURVES
    found, problems = list[CurvePoint](), list[str]()
    for path in sorted(folder.glob("*.jsonl*")) if folder.is_dir() else []:
        file = read(path)
        problems += left_out(file)
        for trial in file.trials:
            try:
                found += points_of(trial)
            except ValueError as error:
                problems.append(f"{path}: {error}; left out")
    return sorted(found, key=CurvePoint.order), problems


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
