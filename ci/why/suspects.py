"""What differs between base and head in a case: its knobs, the files that it can come from, the environment."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

from benchmarks.reach import compared, declared
from benchmarks.sources import SourceTree
from ci.trials.trial import Arm, Environment, Scalar, Trial
from ci.why import search
from ci.why.experiments import Sides
from ci.why.search import Suspect, SuspectKind

KNOBS, ENVIRONMENT = 9.0, 9.0
"""Weights: a knob of this very case that differs, and another compiler or library, are there for their effect; a file
can differ for any reason.  Only the order of all weights counts (2026-11)."""

OWN, USED, UNSEEN = 3.0, 1.0, 0.1
"""Weights: a file of the operator's own folder; one that it imports, directly or not; any other file of the packages
with kernels, where it is not known what imports what."""

MOST_PARTS = 8
"""Parts of a file that are told apart; where more lines differ, all of one function are one part."""

LONGEST = 60
"""Characters of a line of source that a report shows."""


def of_case(trial: Trial, case: str, backend: str, sides: Sides, other_python: bool) -> list[Suspect]:
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


def of_files(operator: str, sides: Sides) -> list[Suspect]:
    """The files that differ and that the operator can depend on."""
    found = weights(operator, sides.changed, *sides.sources)
    return [Suspect(SuspectKind.FILE, name, path=name, weight=weight) for name, weight in found.items()]


def weights(operator: str, changed: Sequence[str], base: SourceTree, head: SourceTree) -> dict[str, float]:
    """By path, for the changed files (from the root) that the operator can come from in base or head."""
    sides, reach = (base, head), compared(base, head)
    if reach.unknown or operator not in {*reach.same, *reach.differing}:
        return {name: UNSEEN for name in changed if any(side.listed(name) for side in sides)}
    homes = {part for side in sides for part in declared(side).get(operator, ())}
    folders = tuple(f"{part}/" for part in homes)
    own = {name for name in changed if name.startswith(folders) or name.removesuffix(".py") in homes}
    return {name: OWN if name in own else USED for name in changed if name in reach.differing.get(operator, ())}


def of_environment(base: Environment, head: Environment) -> tuple[Suspect, ...]:
    """The Python of base, with everything in it that has another version."""
    old, new = base.versions, head.versions
    names = [name for name in dict.fromkeys([*old, *new]) if name != "executable" and old.get(name) != new.get(name)]
    change = ", ".join(f"{name} {_shown(old.get(name))} → {_shown(new.get(name))}" for name in names)
    named = "compiler" if "triton" in names else "environment"
    return (Suspect(SuspectKind.ENVIRONMENT, named, change, weight=ENVIRONMENT),) if names else ()


def parts_of(name: str, sides: Sides) -> list[Suspect]:
    """The parts of a file that can be put back one by one; those that only read differently are left out."""
    base, head = sides.texts(name)
    places = [one for one in search.hunks(base, head) if not _idle(name, base, head, one)]
    groups: dict[object, list[search.Hunk]] = {}
    for one in places:
        groups.setdefault(one.number if len(places) <= MOST_PARTS else one.where, []).append(one)
    return [_part(name, base, head, group) for group in groups.values()]


def _idle(name: str, base: str, head: str, hunk: search.Hunk) -> bool:
    """Whether a part differs in comments and blank space only."""
    return name.endswith(".py") and search.same_program(search.put_back(base, head, {hunk.number}), head)


def _part(name: str, base: str, head: str, group: Sequence[search.Hunk]) -> Suspect:
    first, numbers = group[0], tuple(one.number for one in group)
    old, new = search.changed_lines(base, head, first)
    where = f"{name}:{first.head[0] + 1}" + (f", {first.where}" if first.where else "")
    more = f" and {len(group) - 1} more" if len(group) > 1 else ""
    return Suspect(
        SuspectKind.PART, where, f"{_source(old)} → {_source(new)}{more}", path=name, hunks=numbers, weight=OWN
    )


def _source(line: str) -> str:
    short = line if len(line) <= LONGEST else line[: LONGEST - 1] + "…"
    return f"`{short}`" if short else "nothing"


def _shown(value: Scalar) -> str:
    return "none" if value is None else str(value)


def signature(arms: Mapping[tuple[str, str], Arm], backend: str) -> tuple[str, ...]:
    """What tells groups of cases with different knobs apart: the settings that would be put back."""
    return tuple(one.setting for one in of_knobs(arms["base", backend], arms["head", backend]))
