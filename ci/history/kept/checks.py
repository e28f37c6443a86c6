"""What was verified where and when: the checks of `ridgeline verify` that are kept in `results/checks`.

A line is one case with every backend called once and compared with the reference; nothing is timed.
"""

from __future__ import annotations

import dataclasses
import gzip
import json
import math
import zlib
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any

FOLDER = "checks"
FORMAT, VERSION = "ridgeline-check", 1

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


def load(results_dir: Path) -> tuple[list[CaseCheck], list[str]]:
    """Every check in time, and a sentence on each line or file that holds none."""
    folder = results_dir / FOLDER
    found, problems = list[CaseCheck](), list[str]()
    for path in sorted(folder.glob("*.jsonl*")) if folder.is_dir() else []:
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
    if (data["format"], data["version"]) != (FORMAT, VERSION):
        raise ValueError(f"format {data['format']!r} {data['version']!r}; expected {FORMAT!r} {VERSION}")
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
