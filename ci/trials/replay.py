"""Recorded trials into comparisons: replay files (.github/ARCHITECTURE.md) and trial files, plain or gzip.

A replay file has one JSON object per line:

    {"trial": 0, "unit": "us", "cases": {CASE: {"base": [...], "head": [...]}}}

Sample i of both arms is from round i.  Other arms and keys are ignored, except `"machine_kind": "cpu"`.  A fault of one
case makes that case CANNOT TELL and leaves the others alone; a file that is not what it claims to be is a ReplayError.
"""

from __future__ import annotations

import dataclasses
import json
import re
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.shapes import Unfit, anything, one_of, record, table, whole
from benchmarks.trial_file import FORMAT, Status
from ci.stats.types import FloatArray, PairedRounds
from ci.trials.comparisons import ROLES, Comparison, comparisons
from ci.trials.file import Rejected, parse, unpacked
from ci.trials.trial import Json, Trial

UNITS = {"s": 1.0, "ms": 1e-3, "us": 1e-6, "µs": 1e-6, "ns": 1e-9}
"""Seconds per unit."""

KINDS = ("gpu", "cpu")

LINE = record(
    {"unit": one_of(*UNITS), "cases": table(anything, anything)}, {"trial": whole(), "machine_kind": one_of(*KINDS)}
)

TRIAL_FORMAT = re.compile(rb'"format":\s*"%b"' % FORMAT.encode())
"""What stands in a trial file, and in no replay file."""

MAX_PROBLEMS = 5
"""Faults of a case that are named."""


class ReplayError(ValueError):
    """A file cannot be judged; the text names file, line, value, and what is allowed."""


@dataclasses.dataclass(frozen=True)
class Recording:
    """What a file of recorded trials holds, read once.

    trials: whole trials, with machine and versions; none for a replay file.  rejected: lines that are not used.
    """

    comparisons: list[Comparison]
    trials: tuple[Trial, ...] = ()
    rejected: tuple[Rejected, ...] = ()


Line = tuple[str, Json]
"""Where an object stands in its file, and the object."""


def read(path: Path) -> Recording:
    """What a file holds, its comparisons in the order of their first appearance.  Raises ReplayError."""
    try:
        content, damage = unpacked(path.read_bytes())
    except OSError as error:
        why = f"cannot be read: {error.strerror or error}; give a file of recorded trials (.jsonl or .jsonl.gz)"
        raise ReplayError(f"{path}: {why}") from None
    if damage and not content:
        raise ReplayError(f"{path}: {damage[0].why}; nothing in it can be unpacked")
    if TRIAL_FORMAT.search(content):
        file = parse(content.split(b"\n"), 1)
        rejected = (*damage, *file.rejected)
        if rejected and not file.trials:
            raise ReplayError(f"{rejected[0].at(path)}: {rejected[0].why}; no line of the file is a trial")
        warnings = [f"{line.at(path)}: {line.why}; the other trials count" for line in rejected]
        return Recording(comparisons(file.trials, warnings), file.trials, rejected)
    lines, warnings = _lines(path, content)
    warnings = [*(f"{path}: {one.why}" for one in damage), *warnings]
    names = dict.fromkeys(name for _, line in lines for name in line["cases"])
    return Recording([_comparison(name, lines, warnings) for name in names], rejected=damage)


def _lines(path: Path, content: bytes) -> tuple[list[Line], list[str]]:
    """The trials of a replay file, each once, and warnings; a line that is none is an error, except a torn last one."""
    lines, warnings = dict[str, Line](), list[str]()
    for number, text in enumerate(content.rstrip().split(b"\n"), 1):
        where = f"{path}:{number}"
        if not text.strip():
            continue
        try:
            line = json.loads(text)
            LINE(line, "")
        except Unfit as error:
            raise ReplayError(f"{where}: {error}") from None
        except (ValueError, RecursionError) as error:
            if not lines or not text.lstrip().startswith(b"{") or not content.rstrip().endswith(text):
                raise ReplayError(f"{where}: not JSON ({error}); a line is one trial") from None
            warnings.append(f"{where}: the last line is torn, its writer was interrupted; {len(lines)} trials count")
            break
        first = next(iter(lines.values()), (where, line))[1]
        for name in ("unit", "machine_kind"):
            if line.get(name) != first.get(name):
                known = f"the lines before have {first.get(name)!r}; a file has one: judge two files"
                raise ReplayError(f"{where}: {name} {line.get(name)!r}, but {known}")
        if line["cases"] and (earlier := lines.setdefault(repr(line["cases"]), (where, line)))[0] != where:
            warnings.append(f"{where}: repeats the samples of {earlier[0]}; it counts once")
    return list(lines.values()), warnings


def _comparison(name: str, lines: Sequence[Line], shared: Sequence[str]) -> Comparison:
    """One case of a replay file; what is wrong with it is its problem and nobody else's."""
    trials, problems, warnings, arm_names = list[PairedRounds](), list[str](), [*shared], list[set[str]]()
    for number, (where, line) in enumerate(lines):
        arms = line["cases"].get(name, {})
        if name in line["cases"]:
            arm_names.append({arm for arm in arms if arms[arm] is not None} if isinstance(arms, dict) else {*ROLES})
        if name in line["cases"] and arm_names[-1].issuperset(ROLES):
            try:
                base, head = _pair(arms, f"{where}: case {name!r}", UNITS[line["unit"]])
                trials.append(PairedRounds(number, base, head))
            except Unfit as error:
                problems.append(str(error))
    count, known = len(arm_names), ", ".join(sorted(set().union(*arm_names))) or "none"
    lacking = {role: sum(role not in names for names in arm_names) for role in ROLES}
    absent = {role: f"the file has no arm of that name; there are: {known}" for role in ROLES if lacking[role] == count}
    problems += [
        f"the arm {role!r} is missing in {number} of {count} trials of this case"
        for role, number in lacking.items()
        if 0 < number < count
    ]
    if count < len(lines):
        warnings.append(f"missing in {len(lines) - count} of {len(lines)} trials; the others are used")
    if trials and all(np.array_equal(t.base, t.head) for t in trials):
        warnings.append("base and head are the same numbers in every trial: one recording twice?")
    kernel, _, rest = name.partition("/")
    base_status, head_status = (Status.MISSING if role in absent else Status.OK for role in ROLES)
    return Comparison(
        *(name, kernel, rest.rpartition("/")[0].partition("/")[0], tuple(trials)),
        machine_kind=lines[0][1].get("machine_kind", KINDS[0]),
        base_status=base_status,
        head_status=head_status,
        base_why=absent.get("base", ""),
        head_why=absent.get("head", ""),
        problems=tuple(problems[:MAX_PROBLEMS]),
        warnings=tuple(warnings),
    )


def _pair(arms: Any, where: str, unit_s: float) -> tuple[FloatArray, FloatArray]:
    """The seconds of base and head.  Raises Unfit."""
    if not isinstance(arms, dict):
        raise Unfit(f"{where}: the case", arms, "an object of arms")
    for role in ROLES:
        _check_samples(arms[role], f"{where}: {role}")
    base, head = (np.array(arms[role], dtype=np.float64) * unit_s for role in ROLES)
    if len(base) != len(head):
        counts = [len(base), len(head)]
        raise Unfit(f"{where}: samples of base and head", counts, "equally many, for sample i of both is from round i")
    return base, head


def _check_samples(values: Any, where: str) -> None:
    if not isinstance(values, list) or not values:
        raise Unfit(where, values, "a list of times, one for each round")
    for index, value in enumerate(values):
        if type(value) not in (float, int) or not 0 < value <= sys.float_info.max:
            raise Unfit(f"{where} sample {index}", value, "a finite number above 0")
