"""Recorded trials in the order of their file, as if each had just been measured.

Either a trial file of an earlier search, or a replay file (DESIGN section 8) whose lines also say what was compared:

    {"trial": 0, "unit": "us", "places": ["v1", "v2", "v3"], "base": "v1", "head": "v3", "cases": {CASE: {...}}}

`places` is the row in its order and stands in the first line; base and head are two of it.  "machine_kind": "cpu" there
chooses the policy of a CPU.
"""

from __future__ import annotations

import dataclasses
import json
import math
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.trial_file import FORMAT
from ci.bisect.axes import Axis
from ci.bisect.reading import FEWEST_ROUNDS, outcomes_of
from ci.bisect.types import BisectError, RowPlace, TrialOutcome
from ci.stats.paired import shifts
from ci.stats.types import FloatArray
from ci.trials.file import read, unpacked
from ci.trials.replay import MACHINE_KINDS


@dataclasses.dataclass(frozen=True)
class RecordedSearch:
    """A row and the outcomes of a file, in its order.  kind: of the machine, "gpu" or "cpu"."""

    places: Sequence[RowPlace]
    outcomes: Sequence[TrialOutcome]
    kind: str


def tells_its_places(path: Path) -> bool:
    """Whether the file is a replay file that names its row: then no repository is needed.  Raises BisectError."""
    return bool(_first(path).get("format") != FORMAT)


def of_axis(path: Path, axis: Axis) -> RecordedSearch:
    """The trials of a trial file that are of places of an axis.  Raises BisectError if there is none."""
    file = read(path)
    found = outcomes_of(file.trials, axis.position)
    if not found:
        raise BisectError(f"{path} has no trial of two of these {len(axis.places)} {axis.what}s")
    return RecordedSearch(axis.places, found, file.trials[0].machine.kind)


def of_file(path: Path) -> RecordedSearch:
    """A replay file.  Raises BisectError, which names line and value."""
    first = _first(path)
    names, kind = first.get("places"), first.get("machine_kind", MACHINE_KINDS[0])
    if kind not in MACHINE_KINDS:
        raise BisectError(f"{path}:1: machine_kind is {kind!r:.80}; allowed: {' or '.join(MACHINE_KINDS)}")
    if not _is_row(names):
        allowed = 'a list of at least two different names, in their order: "places": ["v1", "v2", "v3"]'
        raise BisectError(f"{path}:1: places is {names!r:.80}; allowed: {allowed}")
    numbered = [(n, line) for n, line in enumerate(_lines(path), 1) if line.strip()]
    outcomes = [_outcome(_object(path, n, line), names, f"{path}:{n}") for n, line in numbered]
    return RecordedSearch([RowPlace(name, name) for name in names], outcomes, kind)


def _is_row(names: Any) -> bool:
    return (
        isinstance(names, list)
        and len(names) > 1
        and all(isinstance(name, str) and name for name in names)
        and len(set(names)) == len(names)
    )


def _outcome(line: Any, names: list[str], where: str) -> TrialOutcome:
    sides = []
    for role in ("base", "head"):
        if line.get(role) not in names:
            raise BisectError(f"{where}: {role} is {line.get(role)!r:.80}; allowed: one of the places of line 1")
        sides.append(names.index(line[role]))
    base, head = sides
    if base == head:
        raise BisectError(f"{where}: base and head are both {names[base]!r}; two different places are compared")
    cases = line.get("cases")
    if not isinstance(cases, dict) or not cases:
        raise BisectError(f"{where}: cases is {cases!r:.80}; allowed: an object with a case at least")
    values = [_shift(arms, f"{where}: case {name!r:.80}") for name, arms in cases.items()]
    sign = 1.0 if base < head else -1.0
    return TrialOutcome(min(sides), max(sides), sign * float(np.mean(values)))


def _shift(arms: Any, where: str) -> float:
    base, head = (_samples(arms, role, where) for role in ("base", "head"))
    if len(base) != len(head):
        raise BisectError(f"{where}: base has {len(base)} samples and head {len(head)}; they come in rounds")
    return float(shifts(base[None], head[None]).shift[0])


def _samples(arms: Any, role: str, where: str) -> FloatArray:
    samples = arms.get(role) if isinstance(arms, dict) else None
    if not isinstance(samples, list) or len(samples) < FEWEST_ROUNDS or not all(map(_is_time, samples)):
        raise BisectError(f"{where}: {role} is {samples!r:.60}; allowed: at least two finite times above 0")
    return np.array(samples, dtype=np.float64)


def _is_time(value: Any) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool) and math.isfinite(value) and value > 0


def _first(path: Path) -> Any:
    lines = _lines(path)
    if not lines:
        raise BisectError(f"{path} is empty; give the --out file of a search, or a replay file")
    return _object(path, 1, lines[0])


def _lines(path: Path) -> list[bytes]:
    try:
        content, damage = unpacked(path.read_bytes())
    except OSError as error:
        raise BisectError(f"{path} cannot be read: {error.strerror or error}") from None
    if damage:
        raise BisectError(f"{path}: {damage[0].why}")
    return content.splitlines()


def _object(path: Path, number: int, line: bytes) -> Any:
    try:
        value = json.loads(line)
    except (ValueError, RecursionError) as error:
        raise BisectError(f"{path}:{number}: not JSON ({error}); a line is one trial") from None
    if not isinstance(value, dict):
        raise BisectError(f"{path}:{number}: {value!r:.60} is no trial; a line is an object")
    return value
