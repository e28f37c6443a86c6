"""What differs between base and head in a case: its knobs, the files that it can come from, the environment."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

from ci.trials.trial import Arm, Environment, Scalar, Trial
from ci.why import hunks, reach
from ci.why.trees import BothSides
from ci.why.types import Suspect, SuspectKind

KNOBS, ENVIRONMENT = 9.0, 9.0
"""Weights: a knob of this very case that differs, and another compiler or library, are there for their effect; a file
can differ for any reason.  Only their order against ci.why.reach counts (2026-11)."""

MOST_PARTS = 8
"""Parts of a file that are told apart; where more lines differ, all of one function are one part."""

LONGEST = 60
"""Characters of a line of source that a report shows."""


def of_case(trial: Trial, case: str, backend: str, sides: BothSides, other_python: bool) -> list[Suspect]:
    """Everything that may make a backend slower in a case that the trial has on both sides.

    other_python: base was run by a Python of its own, so that head can be run by it.
    """
    arms = trial.cases[case].arms
    found = list(of_knobs(arms["base", backend], arms["head", backend]))
    found += of_files(trial.operator, sides)
    environments = (trial.checkouts[role].environment for role in ("base", "head"))
    return [*found, *(of_environment(*environments) if other_python else ())]


def of_knobs(base: Arm, head: Arm) -> Iterator[Suspect]:
    """The knobs that have another value; one that only one side knows cannot be put back by its value."""
    for name, old in base.knobs.items():
        if name in head.knobs and head.knobs[name] != old:
            change = f"{_shown(old)} → {_shown(head.knobs[name])}"
            yield Suspect(SuspectKind.KNOB, name, change, setting=f"{name}={old!r}", weight=KNOBS)


def of_files(operator: str, sides: BothSides) -> list[Suspect]:
    """The files that differ and that the operator can depend on."""
    weights = reach.weights(operator, sides.changed, *sides.sources)
    return [Suspect(SuspectKind.FILE, name, path=name, weight=weight) for name, weight in weights.items()]


def of_environment(base: Environment, head: Environment) -> tuple[Suspect, ...]:
    """The Python of base, with everything in it that has another version."""
    old, new = base.versions, head.versions
    names = [name for name in dict.fromkeys([*old, *new]) if name != "executable" and old.get(name) != new.get(name)]
    change = ", ".join(f"{name} {_shown(old.get(name))} → {_shown(new.get(name))}" for name in names)
    named = "compiler" if "triton" in names else "environment"
    return (Suspect(SuspectKind.ENVIRONMENT, named, change, weight=ENVIRONMENT),) if names else ()


def parts_of(name: str, sides: BothSides) -> list[Suspect]:
    """The parts of a file that can be put back one by one; those that only read differently are left out."""
    base, head = sides.texts(name)
    places = [one for one in hunks.hunks(base, head) if not _idle(name, base, head, one)]
    groups: dict[object, list[hunks.Hunk]] = {}
    for one in places:
        groups.setdefault(one.number if len(places) <= MOST_PARTS else one.where, []).append(one)
    return [_part(name, base, head, group) for group in groups.values()]


def _idle(name: str, base: str, head: str, hunk: hunks.Hunk) -> bool:
    """Whether a part differs in comments and blank space only."""
    return name.endswith(".py") and hunks.same_program(hunks.put_back(base, head, {hunk.number}), head)


def _part(name: str, base: str, head: str, group: Sequence[hunks.Hunk]) -> Suspect:
    first, numbers = group[0], tuple(one.number for one in group)
    old, new = hunks.changed_lines(base, head, first)
    where = f"{name}:{first.head[0] + 1}" + (f", {first.where}" if first.where else "")
    more = f" and {len(group) - 1} more" if len(group) > 1 else ""
    return Suspect(
        SuspectKind.PART, where, f"{_source(old)} → {_source(new)}{more}", path=name, hunks=numbers, weight=reach.OWN
    )


def _source(line: str) -> str:
    short = line if len(line) <= LONGEST else line[: LONGEST - 1] + "…"
    return f"`{short}`" if short else "nothing"


def _shown(value: Scalar) -> str:
    return "none" if value is None else str(value)


def signature(arms: Mapping[tuple[str, str], Arm], backend: str) -> tuple[str, ...]:
    """What tells groups of cases with different knobs apart: the settings that would be put back."""
    return tuple(one.setting for one in of_knobs(arms["base", backend], arms["head", backend]))
