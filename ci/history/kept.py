"""What lies beside the records and is no record of asv: answers of the gate, checks, curves over CUs."""

from __future__ import annotations

import dataclasses
import enum
import gzip
import json
import math
import statistics
import zlib
from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from ci.records import rates
from ci.trials.file import read
from ci.trials.trial import Arm, Checkout, Trial
from ci.whole_files import replace

# How good the gate is on each machine: what it said of changes that were known, night after night.
#
# A line of `results/canary/<machine>.jsonl` is one comparison by the gate of two trees of `ridgeline ci canary`: with
# nothing planted (A/A), or with a known share of additional work.  This module reads, adds and counts them.


CANARY = "canary"
CANARY_FORMAT, CANARY_VERSION = "ridgeline-canary", 1


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

    @classmethod
    def of_json(cls, data: Mapping[str, Any]) -> CanaryRun:
        """From a line.  ValueError says what is wrong."""
        if (data.get("format"), data.get("version")) != (CANARY_FORMAT, CANARY_VERSION):
            raise ValueError(
                f"format {data.get('format')!r} {data.get('version')!r}; expected {CANARY_FORMAT!r} {CANARY_VERSION}"
            )
        fields = {field.name: data[field.name] for field in dataclasses.fields(cls)}
        run = cls(**{**fields, "cases": tuple(CanaryCase(**case) for case in data["cases"])})
        if not all(isinstance(share, int | float) and math.isfinite(share) for share in (run.planted, run.floor)):
            raise ValueError("planted and floor are shares of the time, such as 0.01")
        return run

    def line(self) -> str:
        """Its line in the file."""
        return json.dumps(
            {"format": CANARY_FORMAT, "version": CANARY_VERSION, **dataclasses.asdict(self)}, allow_nan=False
        )

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


def canary_runs(results_dir: Path) -> tuple[list[CanaryRun], list[str]]:
    """Every recorded run, oldest first, and a sentence on each line that is none."""
    folder = results_dir / CANARY
    runs, problems = dict[str, CanaryRun](), list[str]()
    for path in sorted(folder.glob("*.jsonl")) if folder.is_dir() else []:
        for number, line in enumerate(path.read_text(encoding="utf-8", errors="replace").splitlines(), 1):
            try:
                run = CanaryRun.of_json(json.loads(line))
                runs.setdefault(run.id, run)
            except (ValueError, TypeError, KeyError, AttributeError) as error:
                problems.append(f"{path}:{number}: not a run of the canary: {error}; left out")
    return sorted(runs.values(), key=lambda run: (run.at, run.machine, run.planted)), problems


def add(results_dir: Path, runs: Iterable[CanaryRun]) -> list[CanaryRun]:
    """Record runs; returns those that were not there yet.  Lines that are no runs stay in their file."""
    known = {run.id for run in canary_runs(results_dir)[0]}
    new = [run for run in {run.id: run for run in runs}.values() if run.id not in known]
    for machine in sorted({run.machine for run in new}):
        path = results_dir / CANARY / f"{machine}.jsonl"
        before = path.read_text(encoding="utf-8") if path.exists() else ""
        whole = before if before.endswith("\n") or not before else f"{before}\n"
        replace(path, whole + "".join(f"{run.line()}\n" for run in new if run.machine == machine))
    return new


# What was verified where and when: the checks of `ridgeline verify`, in `results/checks` or where it keeps them.
#
# A line is one case with every backend called once and compared with the reference; nothing is timed.


CHECKS = "checks"
OWN = ".ridgeline/checks.jsonl"
"""Where `ridgeline verify` keeps its checks without --out, beside the records."""
CHECK_FORMAT, CHECK_VERSION = "ridgeline-check", 1

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


def case_checks(results_dir: Path) -> tuple[list[CaseCheck], list[str]]:
    """Every check in time, and a sentence on each line or file that holds none."""
    folder, own = results_dir / CHECKS, results_dir.parent / OWN
    found, problems = list[CaseCheck](), list[str]()
    for path in [*sorted(folder.glob("*.jsonl*")), *([own] if own.is_file() else [])]:
        for number, line in enumerate(_lines(path, problems), 1):
            try:
                found += _checks(json.loads(line))
            except (ValueError, TypeError, KeyError, AttributeError) as error:
                problems.append(f"{path}:{number}: not a check: {type(error).__name__}: {error}; left out")
    return sorted(found, key=lambda one: (one.at, *one.key)), problems


def _lines(path: Path, problems: list[str]) -> list[str]:
    try:
        content = path.read_bytes()
        text = gzip.decompress(content) if content[:2] == b"\x1f\x8b" else content
    except (OSError, EOFError, zlib.error) as error:
        problems.append(f"{path}: cannot be read: {error}; left out")
        return []
    return [line for line in text.decode("utf-8", "replace").splitlines() if line.strip()]


def _checks(data: Any) -> Iterator[CaseCheck]:
    if (data["format"], data["version"]) != (CHECK_FORMAT, CHECK_VERSION):
        raise ValueError(f"format {data['format']!r} {data['version']!r}; expected {CHECK_FORMAT!r} {CHECK_VERSION}")
    where = (str(data["at"]), str(data["holds_for"]["machine"]), str(data["commit"] or ""), str(data["kernel"]))
    for backend, arm in data["arms"].items():
        error = (arm.get("error") or {}).get("norm")
        known = float(error) if isinstance(error, int | float) and math.isfinite(error) else None
        case = (str(data["case"]), int(data["world"]), str(data["dtype"]))
        yield CaseCheck(*where, *case, str(backend), str(arm["status"]), str(arm.get("why") or ""), known)


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
