"""Recorded trials into comparisons: replay files (.github/ARCHITECTURE.md) and trial files, plain or gzip.

A replay file has one JSON object per line:

    {"trial": 0, "unit": "us", "cases": {CASE: {"base": [...], "head": [...]}}}

Sample i of both arms is from round i.  Other arms and keys are ignored, except per case `"control": {"base": [...],
"head": [...]}` (the baseline in the same rounds) and per line `"clocks": {"base": {...}, "head": {...}}` and
`"machine_kind": "cpu"`.  A fault of one case makes that case CANNOT TELL and leaves the others alone; a file that is
not what it claims to be is a ReplayError.
"""

from __future__ import annotations

import dataclasses
import json
import math
from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.trial_file import FORMAT, Status
from ci.stats.types import Clocks, FloatArray, PairedRounds, Role
from ci.trials.comparisons import ROLES, Comparison, comparisons
from ci.trials.file import Rejected, parse, unpacked
from ci.trials.trial import Json, Trial

UNITS = {"s": 1.0, "ms": 1e-3, "us": 1e-6, "µs": 1e-6, "ns": 1e-9}
"""Seconds per unit."""

MACHINE_KINDS = ("gpu", "cpu")

EXAMPLE = '{"trial": 0, "unit": "us", "cases": {CASE: {"base": [...], "head": [...]}}}'
"""A line."""


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


def read(path: Path | str) -> list[Comparison]:
    """The comparisons in a file, in the order of their first appearance; an empty file has none.

    Raises ReplayError.
    """
    return opened(path).comparisons


def opened(path: Path | str) -> Recording:
    """What a file holds.  Raises ReplayError."""
    path = Path(path)
    content, damage = content_of(path)
    lines = [(number, line) for number, line in enumerate(content.split(b"\n"), 1) if line.strip()]
    first = next((value for value in (_parsed(line) for _, line in lines) if isinstance(value, dict)), {})
    if first.get("format") == FORMAT:
        found = parse(content.split(b"\n"), 1)
        return _whole_trials(path, found.trials, (*damage, *found.rejected))
    warnings = [f"{path}: {one.why}" for one in damage]
    trials = _replayed(path, lines, warnings)
    names = dict.fromkeys(name for _, data in trials for name in data["cases"])
    return Recording([_comparison(name, trials, warnings) for name in names], rejected=damage)


def content_of(path: Path) -> tuple[bytes, tuple[Rejected, ...]]:
    """The bytes of a file, unpacked as far as they can be."""
    try:
        content, damage = unpacked(path.read_bytes())
    except OSError as error:
        why = f"cannot be read: {error.strerror or error}; give a file of recorded trials (.jsonl or .jsonl.gz)"
        raise ReplayError(f"{path}: {why}") from None
    if damage and not content:
        raise ReplayError(f"{path}: {damage[0].why}; nothing in it can be unpacked")
    return content, damage


def _parsed(line: bytes) -> Any:
    """The value of a line, None if it is torn or not JSON."""
    try:
        return json.loads(line)
    except (ValueError, RecursionError):
        return None


def _whole_trials(path: Path, trials: Sequence[Trial], rejected: tuple[Rejected, ...]) -> Recording:
    """The lines that are trials are used; every other one is named, and an error if nothing is left."""
    if rejected and not trials:
        raise ReplayError(f"{rejected[0].at(path)}: {rejected[0].why}; no line of the file is a trial")
    warnings = [f"{one.at(path)}: {one.why}; the other trials count" for one in rejected]
    return Recording(comparisons(trials, warnings), tuple(trials), rejected)


def value_of(line: bytes, where: str) -> Json:
    """The JSON object of a line.  Raises ReplayError."""
    try:
        data = json.loads(line)
    except (ValueError, RecursionError) as error:
        raise ReplayError(f"{where}: not JSON ({error}); a line is one trial: {EXAMPLE}") from None
    if not isinstance(data, dict):
        raise ReplayError(f'{where}: no trial: "cases" must be an object of cases, not {data!r:.60}')
    return data


Line = tuple[str, Json]
"""Where a trial stands in its file, and its value."""


def _replayed(path: Path, lines: Sequence[tuple[int, bytes]], warnings: list[str]) -> list[Line]:
    """The trials of a replay file, each once.  Raises ReplayError for a line that is none, except a torn last one."""
    found: list[Line] = []
    by_content, by_number = dict[int, int](), dict[int, int]()
    for number, line in lines:
        where = f"{path}:{number}"
        if number == lines[-1][0] > 1 and line.lstrip()[:1] == b"{" and _parsed(line) is None:
            said = f"the last line is torn, its writer was interrupted; the {len(found)} trials before it count"
            warnings.append(f"{where}: {said}")
            break
        data = value_of(line, where)
        _check(data, where, found[0][1] if found else data)
        trial = data.get("trial", number - 1)
        if type(trial) is not int:
            raise ReplayError(f"{where}: trial {trial!r}; allowed: a whole number")
        earlier = by_content.setdefault(hash(repr(data["cases"])), number)
        if earlier != number and data["cases"]:
            warnings.append(f"{where}: trial {trial} repeats the samples of line {earlier}; it counts once")
            continue
        earlier = by_number.setdefault(trial, number)
        if earlier != number:
            warnings.append(
                f"{where}: trial {trial} is also the number of line {earlier}; the samples differ, so both count"
            )
        found.append((where, data))
    return found


def _check(data: Json, where: str, first: Json) -> None:
    """Hold a line against what a trial has, and against the first line of its file."""
    if not isinstance(data.get("cases"), dict):
        raise ReplayError(f'{where}: no trial: "cases" must be an object of cases, not {data.get("cases")}')
    unit, kind = data.get("unit"), data.get("machine_kind", MACHINE_KINDS[0])
    if not isinstance(unit, str) or unit not in UNITS:
        raise ReplayError(f"{where}: unit {unit!r}; allowed: {', '.join(UNITS)}")
    if unit != first["unit"]:
        raise ReplayError(
            f"{where}: unit {unit!r}, but the lines before have {first['unit']!r}; a file has one unit: "
            "convert one of the two, or judge two files"
        )
    kinds = MACHINE_KINDS if data is first else (first.get("machine_kind", MACHINE_KINDS[0]),)
    if kind not in kinds:
        raise ReplayError(f"{where}: machine_kind {kind!r}; allowed: {' or '.join(kinds)}")


class Unusable(ValueError):
    """A case of a trial cannot be used; the text says why."""


def _comparison(name: str, lines: Sequence[Line], shared: Sequence[str]) -> Comparison:
    """One case of a replay file; what is wrong with it is its problem and nobody else's."""
    trials, problems, warnings = list[PairedRounds](), list[str](), dict[str, None]()
    seen, without, there, unit_s = 0, Counter[str](), set[str](), UNITS[lines[0][1]["unit"]]
    for number, (where, data) in enumerate(lines):
        if name not in data["cases"]:
            continue
        arms, place, seen = data["cases"][name], f"{where}: case {name!r}", seen + 1
        absent = [role for role in ROLES if isinstance(arms, dict) and arms.get(role) is None]
        without.update(absent)
        there.update(map(str, arms) if isinstance(arms, dict) else ())
        if absent:
            continue
        try:
            base, head = both(arms, place)
        except Unusable as error:
            problems.append(str(error))
            continue
        one, two = _control(arms, len(base), place, warnings) or (None, None)
        rounds = PairedRounds(number, base, head, one, two, _clocks(data.get("clocks")))
        trials.append(rounds.scaled(unit_s, unit_s))
    ended = {role: Status.MISSING if without[role] == seen else Status.OK for role in ROLES}
    problems += [
        f"the arm {role!r} is missing in {without[role]} of {seen} trials of this case"
        for role in ROLES
        if 0 < without[role] < seen
    ]
    said = [*shared, *warnings]
    if seen < len(lines):
        said.append(f"missing in {len(lines) - seen} of {len(lines)} trials; the others are used")
    if trials and all(np.array_equal(t.base, t.head) for t in trials):
        said.append("base and head are the same numbers in every trial: one recording twice?")
    why = f"the file has no arm of that name; there are: {', '.join(sorted(there)) or 'none'}"
    base_why, head_why = (why if ended[role] is Status.MISSING else "" for role in ROLES)
    kernel, _, rest = name.partition("/")
    return Comparison(
        name,
        kernel,
        rest.rpartition("/")[0].partition("/")[0],
        tuple(trials),
        machine_kind=lines[0][1].get("machine_kind", MACHINE_KINDS[0]),
        base_status=ended["base"],
        base_why=base_why,
        head_status=ended["head"],
        head_why=head_why,
        baseline="control" if any(t.baseline_base is not None for t in trials) else None,
        problems=tuple(problems[:5]),
        warnings=tuple(said),
    )


def both(arms: Any, where: str) -> tuple[FloatArray, FloatArray]:
    """The times of both arms, in the unit of the file.  Raises Unusable."""
    if not isinstance(arms, dict):
        raise Unusable(f"{where}: {arms!r:.60} is no object of arms")
    base, head = (_times(arms.get(role), f"{where}: {role}") for role in ROLES)
    if len(base) != len(head):
        said = f"base has {len(base)} samples and head {len(head)}; sample i of both is from round i"
        raise Unusable(f"{where}: {said}, so they must be equally many")
    return base, head


def _times(values: Any, what: str) -> FloatArray:
    if not isinstance(values, list) or not values:
        raise Unusable(f"{what} is {values!r:.60}; allowed: a list of times, one for each round")
    found = times(values)
    if found is None:
        i, value = next((i, value) for i, value in enumerate(values) if times([value]) is None)
        raise Unusable(f"{what} sample {i} is {value!r:.60}; allowed: a finite number above 0")
    return found


def times(flat: list[Any]) -> FloatArray | None:
    """All values as an array if every one is a finite number above 0, else None."""
    if not set(map(type, flat)) <= {float, int}:
        return None
    try:
        values = np.array(flat, dtype=np.float64)
    except OverflowError:
        return None
    return values if bool(np.all((values > 0) & (values < math.inf))) else None


def _control(arms: Json, rounds: int, where: str, warnings: dict[str, None]) -> tuple[FloatArray, FloatArray] | None:
    """The baseline of both trees in the same rounds, None if there is none; a faulty one is left out with a warning."""
    control = arms.get("control")
    if control is None:
        return None
    pair = [control.get(role) if isinstance(control, dict) else None for role in ROLES]
    base, head = (times(one) if isinstance(one, list) and len(one) == rounds else None for one in pair)
    if base is not None and head is not None:
        return base, head
    said = f"the control is left out: allowed are base and head, {rounds} finite numbers above 0 each"
    warnings[f"{where}: {said}"] = None
    return None


def _clocks(value: Any) -> dict[Role, Clocks] | None:
    if not isinstance(value, dict) or not all(isinstance(value.get(role), dict) for role in ROLES):
        return None
    return {role: _clock(value[role]) for role in ROLES}


def _clock(said: Json) -> Clocks:
    mhz, watts, degrees = (_number(said.get(name)) for name in ("sm_clock_mhz", "power_w", "temperature_c"))
    return Clocks(mhz, watts, degrees, str(said.get("throttle") or ""))


def _number(value: Any) -> float | None:
    return float(value) if type(value) in (int, float) and math.isfinite(value) else None
