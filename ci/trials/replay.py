"""Recorded trials into comparisons: replay files (.github/ARCHITECTURE.md) and trial files, plain or gzip.

A replay file has one JSON object per line:

    {"trial": 0, "unit": "us", "cases": {CASE: {"base": [...], "head": [...]}}}

Sample i of both arms is from round i.  Other arms and keys are ignored, except `"machine_kind": "cpu"`.  A fault of one
case makes that case CANNOT TELL and leaves the others alone; a file that is not what it claims to be is a ReplayError.
"""

from __future__ import annotations

import dataclasses
import json
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

EXAMPLE = '{"trial": 0, "unit": "us", "cases": {CASE: {"base": [...], "head": [...]}}}'
"""A line."""

LINE = record(
    {"unit": one_of(*UNITS), "cases": table(anything, anything)}, {"trial": whole(), "machine_kind": one_of(*KINDS)}
)


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


def read(path: Path | str) -> list[Comparison]:
    """The comparisons in a file, in the order of their first appearance; an empty file has none.

    Raises ReplayError.
    """
    return opened(path).comparisons


def opened(path: Path | str) -> Recording:
    """What a file holds.  Raises ReplayError."""
    path = Path(path)
    content, damage = _unpacked(path)
    if _first_format(content) == FORMAT:
        file = parse(content.split(b"\n"), 1)
        rejected = (*damage, *file.rejected)
        if rejected and not file.trials:
            raise ReplayError(f"{rejected[0].at(path)}: {rejected[0].why}; no line of the file is a trial")
        warnings = [f"{line.at(path)}: {line.why}; the other trials count" for line in rejected]
        return Recording(comparisons(file.trials, warnings), file.trials, rejected)
    lines, warnings = _trials(path, content)
    warnings = [*(f"{path}: {one.why}" for one in damage), *warnings]
    names = dict.fromkeys(name for _, line in lines for name in line["cases"])
    return Recording([_comparison(name, lines, warnings) for name in names], rejected=damage)


def objects(path: Path) -> list[Line]:
    """The JSON object of each line of a file, whatever it is.  Raises ReplayError."""
    content, damage = _unpacked(path)
    if damage:
        raise ReplayError(f"{path}: {damage[0].why}")
    return [(where, _object(line, where)) for where, line in _numbered(path, content)]


def _unpacked(path: Path) -> tuple[bytes, tuple[Rejected, ...]]:
    """The bytes of a file, unpacked as far as they can be."""
    try:
        content, damage = unpacked(path.read_bytes())
    except OSError as error:
        why = f"cannot be read: {error.strerror or error}; give a file of recorded trials (.jsonl or .jsonl.gz)"
        raise ReplayError(f"{path}: {why}") from None
    if damage and not content:
        raise ReplayError(f"{path}: {damage[0].why}; nothing in it can be unpacked")
    return content, damage


def _numbered(path: Path, content: bytes) -> list[tuple[str, bytes]]:
    return [(f"{path}:{number}", line) for number, line in enumerate(content.split(b"\n"), 1) if line.strip()]


def _first_format(content: bytes) -> str | None:
    """The format that the first JSON object of a file names."""
    for line in content.split(b"\n"):
        try:
            return _object(line, "").get("format")
        except ReplayError:
            continue
    return None


def _object(line: bytes, where: str) -> Json:
    try:
        data = json.loads(line)
    except (ValueError, RecursionError) as error:
        raise ReplayError(f"{where}: not JSON ({error}); a line is one trial: {EXAMPLE}") from None
    if not isinstance(data, dict):
        raise ReplayError(f'{where}: no trial: "cases" must be an object of cases, not {data!r:.60}')
    return data


def _trials(path: Path, content: bytes) -> tuple[list[Line], list[str]]:
    """The trials of a replay file, each once, and warnings; a line that is none is an error, except a torn last one."""
    lines, warnings = dict[str, Line](), list[str]()
    numbered = _numbered(path, content)
    for where, line in numbered:
        try:
            data = _object(line, where)
        except ReplayError:
            if where != numbered[-1][0] or not lines or not line.lstrip().startswith(b"{"):
                raise
            said = f"the last line is torn, its writer was interrupted; the {len(lines)} trials before it count"
            warnings.append(f"{where}: {said}")
            break
        try:
            LINE(data, "")
        except Unfit as error:
            raise ReplayError(f"{where}: {error}") from None
        first = next(iter(lines.values()), (where, data))[1]
        for name in ("unit", "machine_kind"):
            if data.get(name) != first.get(name):
                said = f"{name} {data.get(name)!r}, but the lines before have {first.get(name)!r}; a file has one"
                raise ReplayError(f"{where}: {said}: judge two files")
        if data["cases"] and (earlier := lines.setdefault(repr(data["cases"]), (where, data)))[0] != where:
            warnings.append(f"{where}: repeats the samples of {earlier[0]}; it counts once")
    return list(lines.values()), warnings


class Unusable(ValueError):
    """A case of a trial cannot be used; the text says why."""


def _comparison(name: str, lines: Sequence[Line], shared: Sequence[str]) -> Comparison:
    """One case of a replay file; what is wrong with it is its problem and nobody else's."""
    trials, problems, warnings, arm_names = list[PairedRounds](), list[str](), [*shared], list[set[str]]()
    for number, (where, line) in enumerate(lines):
        if name not in line["cases"]:
            continue
        arms = line["cases"][name]
        arm_names.append({arm for arm in arms if arms[arm] is not None} if isinstance(arms, dict) else {*ROLES})
        if arm_names[-1].issuperset(ROLES):
            try:
                base, head = pair(arms, f"{where}: case {name!r}")
                trials.append(PairedRounds(number, base, head).scaled(UNITS[line["unit"]], UNITS[line["unit"]]))
            except Unusable as error:
                problems.append(str(error))
    count, known = len(arm_names), ", ".join(sorted(set().union(*arm_names))) or "none"
    without = {role: sum(role not in names for names in arm_names) for role in ROLES}
    absent = {role: f"the file has no arm of that name; there are: {known}" for role in ROLES if without[role] == count}
    problems += [
        f"the arm {role!r} is missing in {number} of {count} trials of this case"
        for role, number in without.items()
        if 0 < number < count
    ]
    if count < len(lines):
        warnings.append(f"missing in {len(lines) - count} of {len(lines)} trials; the others are used")
    if trials and all(np.array_equal(t.base, t.head) for t in trials):
        warnings.append("base and head are the same numbers in every trial: one recording twice?")
    kernel, _, rest = name.partition("/")
    base_status, head_status = (Status.MISSING if role in absent else Status.OK for role in ROLES)
    return Comparison(
        name,
        kernel,
        rest.rpartition("/")[0].partition("/")[0],
        tuple(trials),
        machine_kind=lines[0][1].get("machine_kind", KINDS[0]),
        base_status=base_status,
        head_status=head_status,
        base_why=absent.get("base", ""),
        head_why=absent.get("head", ""),
        problems=tuple(problems[:5]),
        warnings=tuple(warnings),
    )


def pair(arms: Any, where: str) -> tuple[FloatArray, FloatArray]:
    """The times of base and head, in the unit of the file.  Raises Unusable."""
    if not isinstance(arms, dict):
        raise Unusable(f"{where}: {arms!r:.60} is no object of arms")
    base, head = (_samples(arms.get(role), f"{where}: {role}") for role in ROLES)
    if len(base) != len(head):
        said = f"base has {len(base)} samples and head {len(head)}; sample i of both is from round i"
        raise Unusable(f"{where}: {said}, so they must be equally many")
    return base, head


def _samples(values: Any, what: str) -> FloatArray:
    if not isinstance(values, list) or not values:
        raise Unusable(f"{what} is {values!r:.60}; allowed: a list of times, one for each round")
    for index, value in enumerate(values):
        if type(value) not in (float, int) or not 0 < value <= sys.float_info.max:
            raise Unusable(f"{what} sample {index} is {value!r:.60}; allowed: a finite number above 0")
    return np.array(values, dtype=np.float64)
