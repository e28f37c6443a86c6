"""Commits of a range without a measurement of their own: whose they share, or why they have none.

`results/<machine>/unmeasured.jsonl`, a line for each commit and reason; the same beside a trial file of `ci.past`, for
those that failed, which are recorded with its trials.
They are no samples: nothing is judged by them.
"""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Collection, Container, Iterable, Iterator
from pathlib import Path

from benchmarks.shapes import Unfit, items, name, record, text, whole
from ci.trials.file import TrialFile
from ci.whole_files import replace

NAME = "unmeasured.jsonl"

_LINE = record(
    {"commit": name, "date_ms": whole(), "kernels": items(text()), "same_as": text(), "why": text()}, {}, closed=True
)


@dataclasses.dataclass(frozen=True)
class Unmeasured:
    """A commit that was not measured for some operators.  date_ms: committer date, milliseconds since 1970 UTC.

    same_as: full hash of the commit that was, with the same files; "" where it cannot be measured, and `why` says why.
    """

    commit: str
    date_ms: int
    kernels: tuple[str, ...]
    same_as: str = ""
    why: str = ""


def read(path: Path) -> list[Unmeasured]:
    """Those of a file, oldest first; lines that are none are left out."""
    return parsed(path.read_bytes()) if path.exists() else []


def parsed(content: bytes) -> list[Unmeasured]:
    """The same, of the content of a file."""
    found = []
    for line in content.decode("utf-8", "replace").splitlines():
        try:
            data = json.loads(line)
            _LINE(data, "a line")
            found.append(Unmeasured(**{**data, "kernels": tuple(data["kernels"])}))
        except (ValueError, Unfit):
            continue
    return sorted(found, key=lambda one: (one.date_ms, one.commit))


def write(path: Path, rows: Iterable[Unmeasured]) -> None:
    """Put rows in place of what is said of the same operators and commits.  Raises ci.whole_files.WriteError."""
    new = list(rows)
    _put(path, [*_without(read(path), {(one.commit, name) for one in new for name in one.kernels}), *new])


def settle(path: Path, measured: Collection[tuple[str, str]]) -> None:
    """Take away what is said of (commit, operator) that are measured now.  Raises ci.whole_files.WriteError."""
    before = read(path)
    left = list(_without(before, {*measured, *((commit, "") for commit, _ in measured)}))
    if left != before:
        _put(path, left)


def _without(rows: Iterable[Unmeasured], gone: Container[tuple[str, str]]) -> Iterator[Unmeasured]:
    for one in rows:
        kernels = tuple(name for name in one.kernels if (one.commit, name) not in gone)
        if kernels:
            yield dataclasses.replace(one, kernels=kernels)


def _put(path: Path, rows: Iterable[Unmeasured]) -> None:
    ordered = sorted(rows, key=lambda one: (one.date_ms, one.commit, one.kernels))
    replace(path, "".join(f"{json.dumps(dataclasses.asdict(one))}\n" for one in ordered))


FAILED = ".failed.jsonl"


def beside(trials: Path) -> Path:
    """What failed of a range that is measured into a trial file; the next call tries it again."""
    return trials.with_suffix(FAILED)


def add(results: Path, file: TrialFile) -> None:
    """Record what failed beside a trial file, with the machines of its trials.  Raises ci.whole_files.WriteError."""
    rows = read(beside(file.path))
    for machine in {trial.machine.name for trial in file.trials} if rows else ():
        write(results / machine / NAME, rows)
