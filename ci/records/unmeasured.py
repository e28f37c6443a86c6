"""Commits of a range without a measurement of their own: whose they share, or why they have none.

`results/<machine>/unmeasured.jsonl`, a line for each commit and reason; the same beside a trial file of `ci.past`, for
those that failed.
They are no samples: nothing is judged by them.
"""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Iterable
from pathlib import Path

from benchmarks.shapes import Unfit, items, name, record, text, whole
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
    found = []
    for line in path.read_text(encoding="utf-8", errors="replace").splitlines() if path.exists() else ():
        try:
            data = json.loads(line)
            _LINE(data, "a line")
            found.append(Unmeasured(**{**data, "kernels": tuple(data["kernels"])}))
        except (ValueError, Unfit):
            continue
    return sorted(found, key=lambda one: (one.date_ms, one.commit))


def write(path: Path, rows: Iterable[Unmeasured]) -> None:
    """Put rows in place of those of the same commits.  Raises ci.whole_files.WriteError."""
    new = list(rows)
    commits = {one.commit for one in new}
    kept = [*(one for one in read(path) if one.commit not in commits), *new]
    ordered = sorted(kept, key=lambda one: (one.date_ms, one.commit, one.kernels))
    replace(path, "".join(f"{json.dumps(dataclasses.asdict(one))}\n" for one in ordered))
