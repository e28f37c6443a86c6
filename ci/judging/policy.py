"""The policy: what counts as a regression, per kernel, machine kind and unit, each with a reason and a date.

`load` reads `policy.toml`; a mistake in it is a PolicyError that names the file, the section, the key and what is
allowed.
"""

from __future__ import annotations

import dataclasses
import datetime
import fnmatch
import tomllib
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

from kernels import project

DEFAULT_FILE = Path(__file__).resolve().parents[1] / "policy.toml"

UNITS = ("seconds", "bytes", "registers", "instructions")
"""Units a section may be about: times, and the exact counts of what the compiler emits."""

MACHINE_KINDS = ("gpu", "cpu")

Table = Mapping[str, Any]
"""A table of TOML."""

SECTION_TABLES = {"unit": UNITS, "machine": MACHINE_KINDS, "kernel": None}

OLD_KEYS = {"effect_floor": "smallest_effect", "recorded_floor": "recorded_smallest_effect"}
"""Keys of policies written before 2026-11-22, and what they are called now."""


class PolicyError(ValueError):
    """The policy cannot be used; the text names the file, the section, the value and what is allowed."""


@dataclasses.dataclass(frozen=True)
class Settings:
    """What applies to one case.  Changes and noise are shares of the time (0.01 = 1 %).

    smallest_effect: a smaller change is SAME.  same_within: SAME if the interval lies within +- this.
    arm_bias: ratios this close to 1 are no evidence of a change.  confidence: of the intervals.
    false_alarm: allowed share of false verdicts among unchanged cases.  false_share: among the findings of a run.
    trial_noise: typical difference between two starts of the same processes.
    recorded_smallest_effect, recorded_noise: smallest_effect and trial_noise of commits that were recorded apart.
    looks, confirming: live measuring, see `ci.stats.sequential`.  collapse: what intermittent collapse in head means.
    least_chance: live measuring of a case stops where the chance that its budget decides it is smaller; 0: never.
    """

    smallest_effect: float = 0.003
    same_within: float = 0.010
    arm_bias: float = 0.0005
    confidence: float = 0.99
    false_alarm: float = 0.001
    false_share: float = 0.01
    trial_noise: float = 0.001
    min_trials: int = 3
    min_rounds: int = 8
    looks: tuple[int, ...] = (4, 6, 8, 12)
    confirming: int = 3
    least_chance: float = 0.05
    collapse: str = "slower"
    recorded_smallest_effect: float = 0.02
    recorded_noise: float = 0.005

    def recorded_apart(self) -> Settings:
        """The settings for commits that were recorded apart."""
        smallest = max(self.smallest_effect, self.recorded_smallest_effect)
        within, noise = max(self.same_within, 2 * smallest), max(self.trial_noise, self.recorded_noise)
        return dataclasses.replace(self, smallest_effect=smallest, same_within=within, trial_noise=noise)


@dataclasses.dataclass(frozen=True)
class FloorRule:
    """A bound against the baseline: share = baseline time / our time, for cases whose names match."""

    kernel: str
    share: float
    reason: str
    date: datetime.date
    baseline: str = "*"
    backend: str = "*"
    case: str = "*"

    def applies(self, kernel: str, backend: str, case: str) -> bool:
        """Whether the rule is about this case (the last part of a long case name counts too)."""
        ours = fnmatch.fnmatchcase(kernel, self.kernel) and fnmatch.fnmatchcase(backend, self.backend)
        return ours and any(fnmatch.fnmatchcase(name, self.case) for name in (case, case.rsplit("/", 1)[-1]))


@dataclasses.dataclass(frozen=True)
class Policy:
    """All sections of a policy file; `settings` merges those that apply to a case."""

    sections: Mapping[tuple[str, str], Table] = dataclasses.field(default_factory=dict)
    floors: tuple[FloorRule, ...] = ()
    source: str = "built-in defaults"
    apart: bool = False

    def settings(self, kernel: str = "", machine_kind: str = "gpu", unit: str = "seconds") -> Settings:
        """Default, overridden by unit, then machine kind, then kernel."""
        merged: dict[str, Any] = {}
        for key in (("default", ""), ("unit", unit), ("machine", machine_kind), ("kernel", kernel)):
            merged.update(self.sections.get(key, {}))
        settings = Settings(**merged)
        if self.apart:
            settings = settings.recorded_apart()
        if settings.smallest_effect > settings.same_within:
            raise PolicyError(
                f"{self.source}: kernel {kernel!r} on {machine_kind}: smallest_effect {settings.smallest_effect} is "
                f"above same_within {settings.same_within}; a change between them would be both a finding and SAME: "
                "raise same_within or lower smallest_effect"
            )
        return settings

    def recorded(self) -> Policy:
        """The same policy for commits recorded apart, each beside the baseline: larger effect and noise."""
        return dataclasses.replace(self, apart=True)

    def floor_rules(self, kernel: str, backend: str, case: str) -> tuple[FloorRule, ...]:
        """The floors against the baseline that apply to a case."""
        return tuple(rule for rule in self.floors if rule.applies(kernel, backend, case))


def default_file() -> Path:
    """The policy of the project around the current folder, or ours.  Raises ProjectError."""
    return project.around(Path.cwd()).policy or DEFAULT_FILE


def load(path: Path | None = None) -> Policy:
    """Read a policy file (default: the project's, else the one that we come with).  Raises PolicyError."""
    path = path or default_file()
    return parse(document(path), str(path))


def document(path: Path) -> Table:
    """What a policy file holds, not checked yet.  Raises PolicyError."""
    try:
        return tomllib.loads(path.read_text(encoding="utf-8"))
    except OSError as error:
        why = error.strerror or error
        raise PolicyError(f"{path}: cannot be read: {why}; give an existing file with --policy") from None
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise PolicyError(f"{path}: not TOML: {error}") from None


def parse(data: Table, source: str = "policy") -> Policy:
    """The policy in parsed TOML.  Raises PolicyError."""
    _known(data, ("default", *SECTION_TABLES, "floor", "isa"), source)  # [isa] is checked by ci.isa.policy
    floors = data.get("floor", [])
    if not isinstance(floors, list):
        raise PolicyError(f"{source}: floor is a list of tables, written [[floor]]")
    rules = tuple(_floor(rule, f"{source}: [[floor]] {i}") for i, rule in enumerate(floors, 1))
    policy = Policy(dict(_sections(data, source)), rules, source)
    for _, kernel in [key for key in policy.sections if key[0] == "kernel"] or [("", "")]:
        for kind in MACHINE_KINDS:
            policy.settings(kernel, kind)
    return policy


def _sections(data: Table, source: str) -> Iterator[tuple[tuple[str, str], Table]]:
    """((table, name), settings) of every section, ("default", "") first."""
    if "default" in data:
        where = f"{source}: [default]"
        yield ("default", ""), _section(_table(data["default"], where), where)
    for table, names in SECTION_TABLES.items():
        for name, section in _table(data.get(table, {}), f"{source}: [{table}]").items():
            where = f"{source}: [{table}.{name}]"
            if names and name not in names:
                raise PolicyError(f"{where}: {name!r} is not a {table}; known: {', '.join(names)}")
            yield (table, name), _section(_table(section, where), where)


def _share(value: Any) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool) and 0 <= value < 1


def _positive_share(value: Any) -> bool:
    return _share(value) and value > 0


def _count(value: Any) -> bool:
    return isinstance(value, int) and not isinstance(value, bool) and 1 <= value <= 10_000


def _looks(value: Any) -> bool:
    if not isinstance(value, list) or not value:
        return False
    return all(_count(v) and v >= 3 for v in value) and sorted(set(value)) == value


CHECKS: dict[str, tuple[Callable[[Any], bool], str]] = {
    "smallest_effect": (_share, "a share of the time, 0 <= value < 1"),
    "same_within": (_share, "a share of the time, 0 <= value < 1"),
    "arm_bias": (_share, "a share of the time, 0 <= value < 1"),
    "confidence": (lambda v: _positive_share(v) and v >= 0.5, "a probability, 0.5 <= value < 1"),
    "false_alarm": (_positive_share, "a probability, 0 < value < 1"),
    "false_share": (_positive_share, "a probability, 0 < value < 1"),
    "trial_noise": (_positive_share, "a share of the time, 0 < value < 1"),
    "min_trials": (lambda v: _count(v) and v >= 3, "a whole number of at least 3"),
    "min_rounds": (lambda v: _count(v) and v >= 5, "a whole number of at least 5"),
    "looks": (_looks, "a rising list of numbers of trials, each at least 3"),
    "least_chance": (lambda v: v == 0 or _positive_share(v), "a share of at least 0 and below 1, such as 0.05"),
    "confirming": (lambda v: _count(v) and v >= 2, "a whole number of at least 2"),
    "recorded_smallest_effect": (_share, "a share of the time, 0 <= value < 1"),
    "recorded_noise": (_positive_share, "a share of the time, 0 < value < 1"),
    "collapse": (lambda v: v in ("slower", "warn"), '"slower" or "warn"'),
}


def _section(section: Table, where: str) -> dict[str, Any]:
    """The settings of one section, checked; reason and date are required and left out."""
    _known(section, (*CHECKS, *OLD_KEYS, "reason", "date"), where)
    _reason_and_date(section, where)
    values = {OLD_KEYS.get(key, key): value for key, value in section.items() if key not in ("reason", "date")}
    twice = [old for old, new in OLD_KEYS.items() if old in section and new in section]
    if twice:
        raise PolicyError(f"{where}: {twice[0]} is the old name of {OLD_KEYS[twice[0]]}; keep one of them")
    for key, value in values.items():
        check, allowed = CHECKS[key]
        if not check(value):
            raise PolicyError(f"{where}: {key} = {value!r}; allowed: {allowed}")
    return {key: tuple(value) if isinstance(value, list) else value for key, value in values.items()}


def _floor(rule: Any, where: str) -> FloorRule:
    rule = _table(rule, where)
    known = tuple(field.name for field in dataclasses.fields(FloorRule))
    _known(rule, known, where)
    reason, date = _reason_and_date(rule, where)
    for key in ("kernel", "share"):
        if key not in rule:
            raise PolicyError(
                f"{where}: {key} is missing; a floor has kernel, share, reason, date, and may have "
                "baseline, backend, case (patterns with *)"
            )
    share = rule["share"]
    if isinstance(share, bool) or not isinstance(share, int | float) or not 0 < share < 100:
        raise PolicyError(f"{where}: share = {share!r}; allowed: baseline time / our time, such as 0.95")
    for key in ("kernel", "baseline", "backend", "case"):
        if not isinstance(rule.get(key, ""), str):
            raise PolicyError(f"{where}: {key} = {rule[key]!r}; allowed: a name or a pattern with *")
    return FloorRule(**{**rule, "share": float(share), "reason": reason, "date": date})


def _reason_and_date(section: Table, where: str) -> tuple[str, datetime.date]:
    reason, date = section.get("reason"), section.get("date")
    if not isinstance(reason, str) or not reason.strip():
        raise PolicyError(f"{where}: reason is missing; state in one sentence why these values hold")
    if isinstance(date, str):
        try:
            date = datetime.date.fromisoformat(date)
        except ValueError:
            raise PolicyError(f"{where}: date = {date!r}; allowed: a day, such as 2026-11-20") from None
    if isinstance(date, datetime.datetime):
        date = date.date()
    if not isinstance(date, datetime.date):
        raise PolicyError(f"{where}: date is missing; state since when it holds, such as date = 2026-11-20")
    return reason, date


def _known(section: Table, known: tuple[str, ...], where: str) -> None:
    for key in section:
        if key not in known:
            names = ", ".join(name for name in known if name not in OLD_KEYS)
            raise PolicyError(f"{where}: unknown key {key!r}; known: {names}")


def _table(value: Any, where: str) -> Table:
    if not isinstance(value, Mapping):
        raise PolicyError(f"{where}: {value!r} is not a table; write it as [section] with keys below")
    return value
