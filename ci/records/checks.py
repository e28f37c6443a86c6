"""What was verified where and when: the checks of `ridgeline verify`, in `results/checks` or where it keeps them.

A line is one case with every backend called once and compared with the reference; nothing is timed.
"""

from __future__ import annotations

import dataclasses
import math
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from benchmarks.shapes import maybe, name, number, record, table, text, whole
from ci.records.ledger import Ledger

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

    counts: cases by status.  last: the newest of the checks.  worst: the largest error among those that are right.
    failures: those that are not.
    """

    machine: str
    kernel: str
    backend: str
    world: int
    counts: Mapping[str, int]
    last: CaseCheck
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
    lambda check: (check.at, *check.key),
)


def case_checks(results_dir: Path) -> tuple[list[CaseCheck], list[str]]:
    """Every check in time, and a sentence on each line or file that holds none."""
    own = results_dir.parent / OWN
    checks, problems = CHECKS.load([*CHECKS.files(results_dir), *([own] if own.is_file() else [])])
    return sorted(checks, key=lambda check: (check.at, *check.key)), problems


def verified(checks: Iterable[CaseCheck]) -> list[Verified]:
    """One row per machine, kernel, backend and number of ranks; of a case that was checked twice the newest counts."""
    newest = {check.key: check for check in sorted(checks, key=lambda check: check.at)}
    groups: dict[tuple[str, str, str, int], list[CaseCheck]] = {}
    for check in newest.values():
        groups.setdefault((check.machine, check.kernel, check.backend, check.world), []).append(check)
    return [_verified(key, checks) for key, checks in sorted(groups.items())]


def _verified(key: tuple[str, str, str, int], checks: Sequence[CaseCheck]) -> Verified:
    failures = sorted((c for c in checks if c.status in FAILED), key=lambda check: FAILED.index(check.status))
    errors = [check.error for check in checks if check.status == GOOD and check.error is not None]
    counts = Counter(check.status for check in checks)
    last = max(checks, key=lambda check: check.at)
    return Verified(*key, counts, last, max(errors, default=None), tuple(failures))
