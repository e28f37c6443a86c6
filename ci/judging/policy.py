"""The policy: what counts as a regression, per kernel, machine kind and unit, each with a reason and a date.

`load` reads `policy.toml`; a mistake in it is a PolicyError that names the file, the section, the key and what is
allowed.
"""

from __future__ import annotations

import dataclasses
import datetime
import fnmatch
import tomllib
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

DEFAULT_FILE = Path(__file__).resolve().parents[1] / "policy.toml"

UNITS = ("seconds", "bytes", "registers", "instructions")
"""Units a section may be about: times, and the exact counts of what the compiler emits."""

MACHINE_KINDS = ("gpu", "cpu")

SECTION_TABLES = {"unit": UNITS, "machine": MACHINE_KINDS, "kernel": None}


class PolicyError(ValueError):
    """The policy cannot be used; the text names file, section, value, what is allowed."""


@dataclasses.dataclass(frozen=True)
class Settings:
    """What holds for one case.  Changes and noise are shares of the time (0.01 = 1 %).

    effect_floor: a change below it is SAME.  same_within: SAME if the interval lies within +- this.
    arm_bias: ratios this close to 1 are no evidence of a change.  confidence: of the intervals.
    false_alarm: allowed share of false verdicts among unchanged cases.  false_share: among the findings of a run.
    trial_noise: typical difference between two starts of the same processes.
    recorded_floor, recorded_noise: effect_floor and trial_noise of commits that were recorded apart.
    looks, confirming: live measuring, see `ci.stats.sequential`.  collapse: what intermittent collapse in head means.
    """

    effect_floor: float = 0.003
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
    collapse: str = "slower"
    recorded_floor: float = 0.02
    recorded_noise: float = 0.005


@dataclasses.dataclass(frozen=True)
class FloorRule:
    """A bound against the vendor baseline: share = baseline time / our time, for cases whose names match."""

    kernel: str
    share: float
    reason: str
    date: datetime.date
    baseline: str = "*"
    backend: str = "*"
    case: str = "*"

    def applies(self, kernel: str, backend: str, case: str) -> bool:
        """Whether the rule is about this case (the last part of a long case name counts too)."""
        return (
            fnmatch.fnmatchcase(kernel, self.kernel)
            and fnmatch.fnmatchcase(backend, self.backend)
            and (fnmatch.fnmatchcase(case, self.case) or fnmatch.fnmatchcase(case.rsplit("/", 1)[-1], self.case))
        )


@dataclasses.dataclass(frozen=True)
class Policy:
    """All sections of a policy file; `settings` merges those that apply to a case."""

    sections: Mapping[tuple[str, str], Mapping[str, Any]] = dataclasses.field(default_factory=dict)
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
            floor = max(settings.effect_floor, settings.recorded_floor)
            settings = dataclasses.replace(
                settings,
                effect_floor=floor,
                same_within=max(settings.same_within, 2 * floor),
                trial_noise=max(settings.trial_noise, settings.recorded_noise),
            )
        if settings.effect_floor > settings.same_within:
            raise PolicyError(
                f"{self.source}: kernel {kernel!r} on {machine_kind}: effect_floor {settings.effect_floor} is above "
                f"same_within {settings.same_within}; a change between them would be something and nothing at once: "
                "raise same_within or lower effect_floor"
            )
        return settings

    def recorded(self) -> Policy:
        """The same policy for commits recorded apart, each beside the vendor baseline: wider floor and noise."""
        return dataclasses.replace(self, apart=True)

    def floor_rules(self, kernel: str, backend: str, case: str) -> tuple[FloorRule, ...]:
        """The floors against the baseline that apply to a case."""
        return tuple(rule for rule in self.floors if rule.applies(kernel, backend, case))


def load(path: Path | None = None) -> Policy:
    """Read a policy file (default: the one beside this module).  Raises PolicyError."""
    path = path or DEFAULT_FILE
    try:
        data = tomllib.loads(path.read_text(encoding="utf-8"))
    except OSError as error:
        why = error.strerror or error
        raise PolicyError(f"{path}: cannot be read: {why}; give an existing file with --policy") from None
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise PolicyError(f"{path}: not TOML: {error}") from None
    return parse(data, str(path))


def parse(data: Mapping[str, Any], source: str = "policy") -> Policy:
    """The policy in parsed TOML.  Raises PolicyError."""
    _known(data, ("default", *SECTION_TABLES, "floor", "isa"), source)  # [isa] is checked by ci.isa.policy
    sections: dict[tuple[str, str], Mapping[str, Any]] = {}
    if "default" in data:
        sections["default", ""] = _section(_table(data["default"], f"{source}: [default]"), f"{source}: [default]")
    for table, names in SECTION_TABLES.items():
        for name, section in _table(data.get(table, {}), f"{source}: [{table}]").items():
            where = f"{source}: [{table}.{name}]"
            if names and name not in names:
                raise PolicyError(f"{where}: {name!r} is no {table}; known: {', '.join(names)}")
            sections[table, name] = _section(_table(section, where), where)
    floors = data.get("floor", [])
    if not isinstance(floors, list):
        raise PolicyError(f"{source}: floor is a list of tables, written [[floor]]")
    policy = Policy(sections, tuple(_floor(f, f"{source}: [[floor]] {i}") for i, f in enumerate(floors, 1)), source)
    for _, kernel in [key for key in sections if key[0] == "kernel"] or [("", "")]:
        for kind in MACHINE_KINDS:
            policy.settings(kernel, kind)
    return policy


def _share(value: Any) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool) and 0 <= value < 1


def _positive_share(value: Any) -> bool:
    return _share(value) and value > 0


def _count(value: Any) -> bool:
    return isinstance(value, int) and not isinstance(value, bool) and 1 <= value <= 10_000


def _looks(value: Any) -> bool:
    return (
        isinstance(value, list)
        and bool(value)
        and all(_count(v) and v >= 3 for v in value)
        and sorted(set(value)) == value
    )


CHECKS: dict[str, tuple[Callable[[Any], bool], str]] = {
    "effect_floor": (_share, "a share of the time, 0 <= value < 1"),
    "same_within": (_share, "a share of the time, 0 <= value < 1"),
    "arm_bias": (_share, "a share of the time, 0 <= value < 1"),
    "confidence": (lambda v: _positive_share(v) and v >= 0.5, "a probability, 0.5 <= value < 1"),
    "false_alarm": (_positive_share, "a probability, 0 < value < 1"),
    "false_share": (_positive_share, "a probability, 0 < value < 1"),
    "trial_noise": (_positive_share, "a share of the time, 0 < value < 1"),
    "min_trials": (lambda v: _count(v) and v >= 3, "a whole number of at least 3"),
    "min_rounds": (lambda v: _count(v) and v >= 5, "a whole number of at least 5"),
    "looks": (_looks, "a rising list of numbers of trials, each at least 3"),
    "confirming": (lambda v: _count(v) and v >= 2, "a whole number of at least 2"),
    "recorded_floor": (_share, "a share of the time, 0 <= value < 1"),
    "recorded_noise": (_positive_share, "a share of the time, 0 < value < 1"),
    "collapse": (lambda v: v in ("slower", "warn"), '"slower" or "warn"'),
}


def _section(section: Mapping[str, Any], where: str) -> dict[str, Any]:
    """The settings of one section, checked; reason and date are required and left out."""
    _known(section, (*CHECKS, "reason", "date"), where)
    _reason_and_date(section, where)
    values = {key: value for key, value in section.items() if key not in ("reason", "date")}
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


def _reason_and_date(section: Mapping[str, Any], where: str) -> tuple[str, datetime.date]:
    reason, date = section.get("reason"), section.get("date")
    if not isinstance(reason, str) or not reason.strip():
        raise PolicyError(f"{where}: reason is missing; say in one sentence why these values hold")
    if isinstance(date, str):
        try:
            date = datetime.date.fromisoformat(date)
        except ValueError:
            raise PolicyError(f"{where}: date = {date!r}; allowed: a day, such as 2026-11-20") from None
    if isinstance(date, datetime.datetime):
        date = date.date()
    if not isinstance(date, datetime.date):
        raise PolicyError(f"{where}: date is missing; say since when, such as date = 2026-11-20")
    return reason, date


def _known(section: Mapping[str, Any], known: tuple[str, ...], where: str) -> None:
    for key in section:
        if key not in known:
            raise PolicyError(f"{where}: unknown key {key!r}; known: {', '.join(known)}")


def _table(value: Any, where: str) -> Mapping[str, Any]:
    if not isinstance(value, Mapping):
        raise PolicyError(f"{where}: {value!r} is no table; write it as [section] with keys below")
    return value
