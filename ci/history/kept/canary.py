"""How good the gate is on each machine: what it said of changes that were known, night after night.

A line of `results/canary/<machine>.jsonl` is one comparison by the gate of two trees that `ridgeline canary` made: with
nothing planted (A/A), or with a known share of additional work.  This module reads, adds and counts them.
"""

from __future__ import annotations

import dataclasses
import enum
import json
import math
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

from ci.whole_files import replace

FOLDER = "canary"
FORMAT, VERSION = "ridgeline-canary", 1


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
        if (data.get("format"), data.get("version")) != (FORMAT, VERSION):
            raise ValueError(f"format {data.get('format')!r} {data.get('version')!r}; expected {FORMAT!r} {VERSION}")
        fields = {field.name: data[field.name] for field in dataclasses.fields(cls)}
        run = cls(**{**fields, "cases": tuple(CanaryCase(**case) for case in data["cases"])})
        if not all(isinstance(share, int | float) and math.isfinite(share) for share in (run.planted, run.floor)):
            raise ValueError("planted and floor are shares of the time, such as 0.01")
        return run

    def line(self) -> str:
        """Its line in the file."""
        return json.dumps({"format": FORMAT, "version": VERSION, **dataclasses.asdict(self)}, allow_nan=False)

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


def load(results_dir: Path) -> tuple[list[CanaryRun], list[str]]:
    """Every recorded run, oldest first, and a sentence on each line that is none."""
    folder = results_dir / FOLDER
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
    known = {run.id for run in load(results_dir)[0]}
    new = [run for run in {run.id: run for run in runs}.values() if run.id not in known]
    for machine in sorted({run.machine for run in new}):
        path = results_dir / FOLDER / f"{machine}.jsonl"
        before = path.read_text(encoding="utf-8") if path.exists() else ""
        whole = before if before.endswith("\n") or not before else f"{before}\n"
        replace(path, whole + "".join(f"{run.line()}\n" for run in new if run.machine == machine))
    return new
