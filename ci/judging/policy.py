"""The policy: what counts as a regression, per kernel and machine kind, each with a reason and a date.

`load` reads `policy.toml`; a mistake in it is a PolicyError that names the file, the section, the key and what is
allowed.
"""

from __future__ import annotations

import dataclasses
import datetime
import fnmatch
import tomllib
from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Any

from benchmarks.shapes import Check, Into, Unfit, built, one_of, that, whole, with_tuples
from kernels import project

DEFAULT_FILE = Path(__file__).resolve().parents[1] / "policy.toml"

PROGRAM = "_program"
"""Behind the kind of a machine: of benchmark programs on it (ci.programs)."""

MACHINE_KINDS = ("gpu", "cpu", f"gpu{PROGRAM}", f"cpu{PROGRAM}")

Table = Mapping[str, Any]
"""A table of TOML."""


class PolicyError(ValueError):
    """The policy cannot be used; the text names the file, the section, the value and what is allowed."""


# ---- what a value may be -------------------------------------------------------------------------------------------


def day_of(value: Any) -> datetime.date:
    """A day of TOML, or as text.  ValueError, TypeError for anything else."""
    day = value if isinstance(value, datetime.date) else datetime.date.fromisoformat(value)
    return day.date() if isinstance(day, datetime.datetime) else day


def _is_day(value: Any) -> bool:
    try:
        return bool(day_of(value))
    except (TypeError, ValueError):
        return False


def _rising(value: Any) -> bool:
    numbers = isinstance(value, list) and value and all(type(v) is int and v >= 3 for v in value)
    return bool(numbers) and sorted(set(value)) == value


def _share(least: float, allowed: str, *, above: bool = False) -> Check:
    """A share below 1, from `least` on, or above it."""
    return that(lambda v: type(v) in (int, float) and least <= v < 1 and not (above and v == least), allowed)


OfTime = Annotated[float, _share(0, "a share of the time, 0 <= value < 1")]
SomeTime = Annotated[float, _share(0, "a share of the time, 0 < value < 1", above=True)]
Probability = Annotated[float, _share(0, "a probability, 0 < value < 1", above=True)]
Pattern = Annotated[str, that(lambda v: isinstance(v, str), "a name or a pattern with *")]


@dataclasses.dataclass(frozen=True, kw_only=True)
class Dated:
    """What every table of a policy says beside its values: why they hold, and since when."""

    reason: Annotated[
        str, that(lambda v: isinstance(v, str) and v.strip(), "a sentence that says why these values hold")
    ]
    date: Annotated[datetime.date, that(_is_day, "a day, such as 2026-11-20: since when it holds"), Into(day_of)]


DATED = tuple(field.name for field in dataclasses.fields(Dated))


@dataclasses.dataclass(frozen=True)
class Settings:
    """What applies to one case.  Changes and noise are shares of the time (0.01 = 1 %).

    smallest_effect: a smaller change is SAME.  same_within: SAME if the interval lies within +- this.
    arm_bias: ratios this close to 1 are no evidence of a change.  confidence: of the intervals.
    false_alarm: allowed share of false verdicts among unchanged cases.  false_share: among the findings of a run.
    trial_noise: typical difference between two starts of the same processes.
    recorded_smallest_effect, recorded_noise: smallest_effect and trial_noise of commits that were recorded apart.
    looks, confirming: live measuring, see `ci.stats.sequential`.
    least_chance: live measuring of a case stops where the chance that its budget decides it is smaller; 0: never.
    """

    smallest_effect: OfTime = 0.003
    same_within: OfTime = 0.010
    arm_bias: OfTime = 0.0005
    confidence: Annotated[float, _share(0.5, "a probability, 0.5 <= value < 1")] = 0.99
    false_alarm: Probability = 0.001
    false_share: Probability = 0.01
    trial_noise: SomeTime = 0.001
    min_trials: Annotated[int, whole(3, 10_000)] = 3
    min_rounds: Annotated[int, whole(5, 10_000)] = 8
    looks: Annotated[tuple[int, ...], that(_rising, "a rising list of numbers of trials, at least 3"), Into(tuple)] = (
        4,
        6,
        8,
        12,
    )
    confirming: Annotated[int, whole(2, 10_000)] = 3
    least_chance: Annotated[float, _share(0, "a share of at least 0 and below 1, such as 0.05")] = 0.05
    recorded_smallest_effect: OfTime = 0.02
    recorded_noise: SomeTime = 0.005

    def recorded_apart(self) -> Settings:
        """The settings for commits that were recorded apart."""
        smallest = max(self.smallest_effect, self.recorded_smallest_effect)
        within, noise = max(self.same_within, 2 * smallest), max(self.trial_noise, self.recorded_noise)
        return dataclasses.replace(self, smallest_effect=smallest, same_within=within, trial_noise=noise)

    def of_ranks(self, seconds: float) -> Settings:
        """The settings for a closure of so many seconds that ranks run together."""
        apart = RANKS_APART_S / seconds
        smallest = max(self.smallest_effect, apart)
        within = max(self.same_within + 2 * apart, RANKS_SAME_WITHIN)
        return dataclasses.replace(self, smallest_effect=smallest, same_within=within)


RANKS_APART_S = 0.5e-6
"""Seconds by which two sides of one code differ where a script runs as several ranks: how far apart a barrier lets
ranks begin, and where signals lie in memory, is of a process for as long as it lives.  2 H200, 24 closures of 11 to
78 us: 0.1 to 0.5 us, of either sign, the same in trial after trial (2026-11-28)."""

RANKS_SAME_WITHIN = 0.03
"""Of ranks nothing is SAME within less: a call of ten collectives has ten times that difference (vLLM's graphs of
12 to 35 us each differed by 1 to 6 % from trial to trial; 2 H200, 2026-11-28)."""

PROGRAM_ROUNDS = 3
"""Runs of each side in a trial of a program.  Each is a fresh process, so that trials differ by no more than rounds do,
and of as many runs more trials tell more; 3 still have a median where one run was disturbed."""

_LOOKS = {"min_rounds": PROGRAM_ROUNDS, "confirming": 3, "looks": (4, 6, 9, 16)}
OF_PROGRAMS: Mapping[str, Table] = {
    f"gpu{PROGRAM}": {**_LOOKS, "same_within": 0.02, "smallest_effect": 0.005},
    f"cpu{PROGRAM}": {**_LOOKS, "same_within": 0.03, "smallest_effect": 0.02, "arm_bias": 0.005, "trial_noise": 0.003},
}
"""What holds of programs by kind of machine.  4 trials of one of a second take 24 s, 9 take 54 s.  Its rows differ by
0.5 to 1.5 % from run to run, so that SAME within 1 % would take minutes; a program on a CPU is what is meant to be
measured, no stand-in for a GPU, and 3 % of it are to be seen (2026-11-28)."""


@dataclasses.dataclass(frozen=True)
class FloorRule(Dated):
    """A bound against the baseline: share = baseline time / our time, for cases whose names match."""

    kernel: Pattern
    share: Annotated[
        float,
        that(lambda v: type(v) in (int, float) and 0 < v < 100, "baseline time / our time, such as 0.95, below 100"),
        Into(float),
    ]
    baseline: Pattern = "*"
    backend: Pattern = "*"
    case: Pattern = "*"

    def applies(self, kernel: str, backend: str, case: str) -> bool:
        """Whether the rule is about this case (the last part of a long case name counts too)."""
        ours = fnmatch.fnmatchcase(kernel, self.kernel) and fnmatch.fnmatchcase(backend, self.backend)
        return ours and any(fnmatch.fnmatchcase(name, self.case) for name in (case, case.rsplit("/", 1)[-1]))


@dataclasses.dataclass(frozen=True)
class Section(Settings, Dated):
    """A table of settings."""


@dataclasses.dataclass(frozen=True)
class PolicyFile:
    """The tables of a policy file.  isa: see ci.isa.rules."""

    default: Section | None = None
    machine: Mapping[Annotated[str, one_of(*MACHINE_KINDS)], Section] = dataclasses.field(default_factory=dict)
    kernel: Mapping[str, Section] = dataclasses.field(default_factory=dict)
    floor: tuple[FloorRule, ...] = ()
    isa: Any = None


@dataclasses.dataclass(frozen=True)
class Policy:
    """All sections of a policy file; `settings` merges those that apply to a case.

    renamed: what head's settings say of names that it gave up (kernels.project), which is for the judge, too.
    """

    sections: Mapping[tuple[str, str], Table] = dataclasses.field(default_factory=dict)
    floors: tuple[FloorRule, ...] = ()
    source: str = "built-in defaults"
    apart: bool = False
    renamed: Mapping[str, str] = dataclasses.field(default_factory=dict)

    def settings(self, kernel: str = "", machine_kind: str = "gpu") -> Settings:
        """Default, overridden by machine kind, then kernel.

        Of programs on a kind of machine: that kind, then OF_PROGRAMS, which a section of its own overrides.
        """
        merged: dict[str, Any] = {}
        machine = machine_kind.removesuffix(PROGRAM)
        for key in (("default", ""), ("machine", machine)):
            merged.update(self.sections.get(key, {}))
        merged.update(OF_PROGRAMS.get(machine_kind, {}))
        for key in (("machine", machine_kind), ("kernel", kernel)):
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
        raise PolicyError(f"{path}: cannot be read: {why}; name a file that is there") from None
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise PolicyError(f"{path}: not TOML: {error}") from None


def parse(data: Table, source: str = "policy") -> Policy:
    """The policy in parsed TOML.  Raises PolicyError."""
    try:
        file = built(PolicyFile, data, closed=True)
    except Unfit as error:
        raise PolicyError(f"{source}: {error}") from None
    tables = {("default", ""): data.get("default", {})}
    tables |= {(table, name): one for table in ("machine", "kernel") for name, one in data.get(table, {}).items()}
    sections = {
        where: with_tuples({key: value for key, value in section.items() if key not in DATED})
        for where, section in tables.items()
    }
    policy = Policy(sections, file.floor, source)
    for kernel in file.kernel or [""]:
        for kind in MACHINE_KINDS:
            policy.settings(kernel, kind)
    return policy
