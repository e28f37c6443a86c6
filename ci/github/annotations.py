"""Which lines of a pull request a moved kernel is shown on: the changed lines of its operator, else its declaration.

Pure but for reading our own checkout.  Paths and patches come from GitHub's list of changed files.
"""

from __future__ import annotations

import dataclasses
import itertools
import re
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path, PurePosixPath

from ci.judging.types import CaseVerdict, Group, Verdict
from ci.report import words
from ci.report.model import Report
from kernels.project import listed_packages

LEVEL = {
    Verdict.BROKEN: "failure",
    Verdict.SLOWER: "failure",
    Verdict.NOT_COMPARABLE: "warning",
    Verdict.FASTER: "notice",
}
CASES = 20
"""Cases that one annotation names; the report has all."""
MOST = 200
"""Annotations of one check run; a report of 20,000 kernels is no help."""
FILES = 3
"""Changed files of an operator that one cause is shown in."""
_HUNK = re.compile(r"@@ -\d+(?:,\d+)? \+(\d+)(?:,\d+)? @@")


@dataclasses.dataclass(frozen=True)
class ChangedLines:
    """A file of the pull request and its first changed lines in the new version, counted from 1."""

    path: str
    first: int = 1
    last: int = 1


@dataclasses.dataclass(frozen=True)
class Annotation:
    """A remark on lines of a file, as a check run has it."""

    path: str
    start_line: int
    end_line: int
    annotation_level: str
    title: str
    message: str


def remarks(report: Report, changed: Sequence[ChangedLines], root: Path) -> list[Annotation]:
    """For each cause, worst first, where it is to be looked for.  root: our own checkout, for declarations."""
    packages = [package.replace(".", "/") for package in listed_packages(root)]
    ours = (path.relative_to(root).as_posix() for package in packages for path in (root / package).glob("**/*.py"))
    homes = {home for path in (*(one.path for one in changed), *ours) for home in _homes(path, packages)}
    found = (
        _annotation(group, [case for case in cases if case.kernel == kernel], place)
        for group, cases in words.groups_of(report)
        for kernel in dict.fromkeys(case.kernel for case in cases)
        for place in _places(kernel, changed, homes, root)
    )
    return list(itertools.islice(found, MOST))


def _places(kernel: str, changed: Sequence[ChangedLines], homes: Iterable[str], root: Path) -> list[ChangedLines]:
    """Where a kernel is: `grouped_gemm_wgrad` is in the folder or module `grouped_gemm`, the longest name that fits."""
    fitting = [home for home in homes if f"{kernel}_".startswith(f"{home.rpartition('/')[2]}_")]
    home = max(fitting, key=lambda home: (len(home.rpartition("/")[2]), home), default="")
    own = sorted((one for one in changed if home and _within(one.path, home)), key=lambda one: one.path)
    return own[:FILES] or (_declaration(kernel, home, root) if home else [])


def _homes(path: str, packages: Sequence[str]) -> Iterator[str]:
    """Of a file of a package with kernels, the folder or module just below the package that it is in."""
    for package in packages:
        if path.startswith(f"{package}/"):
            below = PurePosixPath(path[len(package) + 1 :])
            name = below.parts[0].removesuffix(".py")
            if name and not name.startswith("_"):
                yield f"{package}/{name}"


def _within(path: str, home: str) -> bool:
    return path == f"{home}.py" or path.startswith(f"{home}/")


def _declaration(kernel: str, home: str, root: Path) -> list[ChangedLines]:
    """The line of our checkout that names the kernel, else the first line of its file."""
    for path in (root / f"{home}.py", root / home / "__init__.py"):
        if path.is_file():
            lines = path.read_text(encoding="utf-8", errors="replace").splitlines()
            named = re.compile(rf"""["']{re.escape(kernel)}["']""")
            line = next((number for number, text in enumerate(lines, 1) if named.search(text)), 1)
            return [ChangedLines(path.relative_to(root).as_posix(), line, line)]
    return []


def _annotation(group: Group | None, cases: Sequence[CaseVerdict], place: ChangedLines) -> Annotation:
    verdict = cases[0].verdict
    what = words.cause(group) if group else words.plural(len(cases), "case")
    listed = [_line(case) for case in cases[:CASES]]
    more = [f"and {len(cases) - CASES} more, in the report"] if len(cases) > CASES else []
    title = words.plain(f"{verdict}: {what}", 250)
    return Annotation(place.path, place.first, place.last, LEVEL[verdict], title, "\n".join(listed + more))


def _line(case: CaseVerdict) -> str:
    measured = f"{words.percent(case.ratio)} {words.interval(case.ci_low, case.ci_high)}"
    said = measured if case.ratio is not None else words.plain(words.all_evidence(case), 400)
    return f"{words.plain(case.case, 160)}: {said}"


def changed_lines(path: str, patch: str) -> ChangedLines:
    """The first run of added lines of a file's patch in the unified format; its first line where none was added."""
    hunk = _HUNK.search(patch)
    if not hunk:
        return ChangedLines(path)
    number, first = int(hunk[1]), 0
    for line in patch[hunk.end() :].split("\n")[1:]:
        if line.startswith("+"):
            first = first or number
        elif first or line.startswith("@@"):
            break
        number += not line.startswith(("-", "\\"))
    last = number - 1 if first else int(hunk[1])
    return ChangedLines(path, max(first or int(hunk[1]), 1), max(last, 1))
