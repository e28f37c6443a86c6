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
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.trial_file import FORMAT, Status
from ci.stats.types import Clocks, FloatArray, PairedRounds, Role
from ci.trials import compact
from ci.trials.comparisons import ROLES, Comparison, comparisons
from ci.trials.file import Rejected, parse_record, unpacked
from ci.trials.trial import Trial

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


def opened(path: Path | str, complete: Callable[[Sequence[Trial]], Sequence[Trial]] = tuple) -> Recording:
    """What a file holds.  Raises ReplayError.

    complete: gives trials whose samples are elsewhere with their samples.
    """
    path = Path(path)
    content, damage = content_of(path)
    lines = [(number, line) for number, line in enumerate(content.split(b"\n"), 1) if line.strip()]
    first = next((value for value in (_parsed(line) for _, line in lines) if isinstance(value, dict)), {})
    if first.get("format") in (FORMAT, compact.FORMAT):
        found = parse_record(path, content.split(b"\n"), 1)
        return _whole_trials(path, complete(found.trials), (*damage, *found.rejected))
    reader = _Reader(path)
    for number, line in lines:
        reader.add(number, line, last=number == lines[-1][0])
    return Recording(reader.comparisons([f"{path}: {one.why}" for one in damage]), rejected=damage)


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
    if any(trial.samples for trial in trials):
        raise ReplayError(
            f"{path}: the samples of its trials are elsewhere; `ridgeline gate --help`: how recorded commits are judged"
        )
    warnings = [f"{one.at(path)}: {one.why}; the other trials count" for one in rejected]
    return Recording(comparisons(trials, warnings), tuple(trials), rejected)


@dataclasses.dataclass
class _Case:
    """What has been read of one case so far.  without: trials that lack an arm, by role."""

    trials: list[PairedRounds] = dataclasses.field(default_factory=list)
    seen: int = 0
    without: Counter[str] = dataclasses.field(default_factory=Counter)
    arms: set[str] = dataclasses.field(default_factory=set)
    problems: list[str] = dataclasses.field(default_factory=list)
    warnings: list[str] = dataclasses.field(default_factory=list)
    control: bool = False


def value_of(line: bytes, where: str) -> dict[str, Any]:
    """The JSON object of a line.  Raises ReplayError."""
    try:
        data = json.loads(line)
    except (ValueError, RecursionError) as error:
        raise ReplayError(f"{where}: not JSON ({error}); a line is one trial: {EXAMPLE}") from None
    if not isinstance(data, dict):
        raise ReplayError(f'{where}: no trial: "cases" must be an object of cases, not {data!r:.60}')
    return data


class _Reader:
    """Collects the lines of a replay file."""

    def __init__(self, path: Path) -> None:
        self.path, self.cases, self.unit, self.kind, self.trials = path, dict[str, _Case](), "", "", 0
        self.numbers: dict[int, int] = {}
        self.contents: dict[int, int] = {}
        self.warnings: list[str] = []

    def add(self, number: int, line: bytes, *, last: bool) -> None:
        """Take in one line.  Raises ReplayError for a line that is not a trial, except a torn last one."""
        where = f"{self.path}:{number}"
        if last and number > 1 and line.lstrip()[:1] == b"{" and _parsed(line) is None:
            said = f"the last line is torn, its writer was interrupted; the {self.trials} trials before it count"
            self.warnings.append(f"{where}: {said}")
            return
        data = value_of(line, where)
        self._check(data, where)
        if not self._repeated(data, number):
            self.trials += 1
            self._cases(data, where)

    def _check(self, data: Mapping[str, Any], where: str) -> None:
        if not isinstance(data.get("cases"), dict):
            raise ReplayError(f'{where}: no trial: "cases" must be an object of cases, not {data.get("cases")}')
        unit = data.get("unit")
        if not isinstance(unit, str) or unit not in UNITS:
            raise ReplayError(f"{where}: unit {unit!r}; allowed: {', '.join(UNITS)}")
        if self.unit and unit != self.unit:
            raise ReplayError(
                f"{where}: unit {unit!r}, but the lines before have {self.unit!r}; a file has one unit: "
                "convert one of the two, or judge two files"
            )
        kind = data.get("machine_kind", MACHINE_KINDS[0])
        if kind not in MACHINE_KINDS or (self.kind and kind != self.kind):
            raise ReplayError(f"{where}: machine_kind {kind!r}; allowed: {self.kind or ' or '.join(MACHINE_KINDS)}")
        self.unit, self.kind = unit, kind

    def _repeated(self, data: Mapping[str, Any], number: int) -> bool:
        """Whether the samples of this line have been read before; a trial counts once."""
        trial, where = data.get("trial", number - 1), f"{self.path}:{number}"
        if isinstance(trial, bool) or not isinstance(trial, int):
            raise ReplayError(f"{where}: trial {trial!r}; allowed: a whole number")
        earlier = self.contents.setdefault(hash(repr(data["cases"])), number)
        if earlier != number and data["cases"]:
            self.warnings.append(f"{where}: trial {trial} repeats the samples of line {earlier}; it counts once")
            return True
        earlier = self.numbers.setdefault(trial, number)
        if earlier != number:
            self.warnings.append(
                f"{where}: trial {trial} is also the number of line {earlier}; the samples differ, so both count"
            )
        return False

    def _cases(self, data: Mapping[str, Any], where: str) -> None:
        scale, clocks = UNITS[data["unit"]], _clocks(data.get("clocks"))
        for name, arms in data["cases"].items():
            case, place = self.cases.setdefault(name, _Case()), f"{where}: case {name!r}"
            case.seen += 1
            pair = _pair(case, arms, place)
            if pair is None:
                continue
            control = _control(case, arms, len(pair[0]), place)
            one, two = (control[0] * scale, control[1] * scale) if control else (None, None)
            case.trials.append(PairedRounds(self.trials - 1, pair[0] * scale, pair[1] * scale, one, two, clocks))

    def comparisons(self, warnings: list[str]) -> list[Comparison]:
        """The cases read, each with what was wrong with it."""
        shared = (*warnings, *self.warnings)
        return [_comparison(name, case, self.trials, self.kind, shared) for name, case in self.cases.items()]


def _pair(case: _Case, arms: Any, where: str) -> tuple[FloatArray, FloatArray] | None:
    """Both arms of a case in one trial, None if it has no such pair; what is wrong is noted in the case."""
    if not isinstance(arms, dict):
        case.problems.append(f"{where}: {arms!r:.60} is no object of arms")
        return None
    case.arms.update(map(str, arms))
    absent = [role for role in ROLES if arms.get(role) is None]
    case.without.update(absent)
    if absent:
        return None
    for role in ROLES:
        if not isinstance(arms[role], list) or not arms[role]:
            case.problems.append(f"{where}: {role} is {arms[role]!r:.60}; allowed: a list of times, one for each round")
            return None
    counts = [len(arms[role]) for role in ROLES]
    if counts[0] != counts[1]:
        said = f"base has {counts[0]} samples and head {counts[1]}; sample i of both is from round i"
        case.problems.append(f"{where}: {said}, so they must be equally many")
        return None
    base, head = (times(arms[role]) for role in ROLES)
    if base is None or head is None:
        role = ROLES[0] if base is None else ROLES[1]
        i, value = next((i, value) for i, value in enumerate(arms[role]) if times([value]) is None)
        case.problems.append(f"{where}: {role} sample {i} is {value!r:.60}; allowed: a finite number above 0")
        return None
    return base, head


def times(flat: list[Any]) -> FloatArray | None:
    """All values as an array if every one is a finite number above 0, else None."""
    if not set(map(type, flat)) <= {float, int}:
        return None
    try:
        values = np.array(flat, dtype=np.float64)
    except OverflowError:
        return None
    return values if bool(np.all((values > 0) & (values < math.inf))) else None


def _control(case: _Case, arms: Mapping[str, Any], rounds: int, where: str) -> tuple[FloatArray, FloatArray] | None:
    """The baseline of both trees in the same rounds, if there is one; a faulty one is left out with a warning."""
    control = arms.get("control")
    if control is None:
        return None
    pair = [control.get(role) if isinstance(control, dict) else None for role in ROLES]
    found = [times(one) if isinstance(one, list) and len(one) == rounds else None for one in pair]
    if found[0] is not None and found[1] is not None:
        case.control = True
        return found[0], found[1]
    case.warnings.append(
        f"{where}: the control is left out: allowed are base and head, {rounds} finite numbers above 0 each"
    )
    return None


def _clocks(value: Any) -> dict[Role, Clocks] | None:
    if not isinstance(value, dict) or not all(isinstance(value.get(role), dict) for role in ROLES):
        return None
    return {role: _clock(value[role]) for role in ROLES}


def _clock(said: Mapping[str, Any]) -> Clocks:
    mhz, watts, degrees = (_number(said.get(name)) for name in ("sm_clock_mhz", "power_w", "temperature_c"))
    return Clocks(mhz, watts, degrees, str(said.get("throttle") or ""))


def _number(value: Any) -> float | None:
    number = isinstance(value, int | float) and not isinstance(value, bool)
    return float(value) if number and math.isfinite(value) else None


def _comparison(name: str, case: _Case, trials: int, kind: str, shared: tuple[str, ...]) -> Comparison:
    kernel, _, rest = name.partition("/")
    backend = rest.partition("/")[0] if rest.count("/") >= 1 else ""
    warnings = [*shared, *dict.fromkeys(case.warnings)]
    if case.seen < trials:
        warnings.append(f"missing in {trials - case.seen} of {trials} trials; the others are used")
    if case.trials and all(np.array_equal(t.base, t.head) for t in case.trials):
        warnings.append("base and head are the same numbers in every trial: one recording twice?")
    ended = {role: Status.MISSING if case.without[role] == case.seen else Status.OK for role in ROLES}
    lacking = [
        f"the arm {role!r} is missing in {case.without[role]} of {case.seen} trials of this case"
        for role in ROLES
        if 0 < case.without[role] < case.seen
    ]
    why = f"the file has no arm of that name; there are: {', '.join(sorted(case.arms)) or 'none'}"
    base_why, head_why = (why if ended[role] is Status.MISSING else "" for role in ROLES)
    return Comparison(
        name,
        kernel,
        backend,
        tuple(case.trials),
        machine_kind=kind,
        base_status=ended["base"],
        base_why=base_why,
        head_status=ended["head"],
        head_why=head_why,
        baseline="control" if case.control else None,
        problems=(*case.problems, *lacking)[:5],
        warnings=tuple(warnings),
    )
