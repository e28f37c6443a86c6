"""What differs between base and head in a case: its knobs, the files that it can come from, the environment."""

from __future__ import annotations

import dataclasses
import io
import re
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from importlib.util import find_spec
from pathlib import Path

from rich.console import Console

from benchmarks.reach.operators import compared, declared
from benchmarks.reach.tree import SourceTree
from ci.isa.compiled import TARGETS, CompiledEntry, CompiledTree, CompileError, IsaError, TreeCompiler, Wanted
from ci.isa.judge import launches, pairs
from ci.isa.rules import IsaPolicy, executed_findings, findings
from ci.trials.trial import Arm, Environment, Scalar, Trial
from ci.why import search
from ci.why.experiments import Question, Sides
from ci.why.search import Suspect, SuspectKind

# What the compiler emits differently for a slower case: metrics, and the cache modifiers of its loads and stores.


MODIFIERS = ("sc0", "sc1", "nt", "slc", "glc", "lds")
"""Of AMD's memory instructions: how far a cache may keep the line, and whether it goes straight to LDS (CDNA3 and CDNA4
ISA guides, memory instructions; slc and glc are the names before gfx942)."""

NVIDIA_MODIFIERS = ("EF", "EL", "LU", "NA", "STRONG", "GPU", "SYS", "SM", "CTA", "BYPASS", "CONSTANT")
"""Of SASS: eviction policies, how far an access is ordered, what bypasses L1 (as cuobjdump 12.9 and 13.4 name them)."""

AMD_ACCESS = re.compile(r"^\s*((?:global|buffer|flat|scratch)_(?:load|store|atomic)\w*)\s(.*)$", re.MULTILINE)
NVIDIA_ACCESS = re.compile(r"^\s*((?:LDG|STG|RED|ATOMG?|LDGSTS|UTMALDG|UTMASTG)\b[\w.]*)", re.MULTILINE)

SAME_CODE = "the machine code is the same: what differs is the launch (grid, arguments) or work on the host"


@dataclasses.dataclass(frozen=True)
class CodeDifference:
    """Compiles both sides, and executes them where the emulator is installed.

    pythons: by role, where they are others than this one; cache: of compiled results.
    """

    base: Path
    head: Path
    cache: Path
    pythons: Mapping[str, str] = dataclasses.field(default_factory=dict)

    def sentences(self, question: Question, trial: Trial) -> tuple[str, ...]:
        """For the case of a question; () where the trial's machine is none that can be compiled for."""
        if trial.machine.arch not in TARGETS:
            return ()
        try:
            base, head = (self.compiled(role, question, trial) for role in ("base", "head"))
            return tuple(differences(base, head, self.cache))
        except (CompileError, IsaError) as error:
            return (f"the machine code could not be compared: {error}",)

    def compiled(self, role: str, question: Question, trial: Trial) -> CompiledTree:
        """One side, with the knobs that were launched."""
        arm = trial.cases[question.case].arms[role, question.backend]
        wanted = Wanted(
            (trial.machine.arch or "",),
            "sweep",
            (question.operator,),
            (question.case,),
            (question.backend,),
            lenient=True,
            python=self.pythons.get(role),
            knobs=arm.knobs if question.plan.knobs else None,
            execute=not question.plan.knobs and role not in self.pythons and find_spec("tinygrad") is not None,
        )
        quiet = Console(file=io.StringIO())
        return TreeCompiler(self.cache, quiet).compile(self.base if role == "base" else self.head, wanted)


def differences(base: CompiledTree, head: CompiledTree, cache: Path) -> Iterator[str]:
    """A sentence on each thing that differs in what two trees compile to; one that says so where nothing does."""
    both = [sides for sides, _ in pairs(base, head) if all(one and one.code for one in sides)]
    if both and all(one and two and one.emitted.hash == two.emitted.hash for one, two in both):
        yield SAME_CODE
    for one, two in both:
        if one and two and one.emitted.hash != two.emitted.hash:
            label = f"[{two.label}] " if two.label and len(both) > 1 else ""
            yield from (f"{label}{sentence}" for sentence in _of_pair(one, two, cache))
    for (old, new), _ in launches(base, head):
        if old and new and old.counts and new.counts and old.at == new.at:
            yield from (
                f"executed in {new.at}: {finding.sentence}" for finding in executed_findings(old, new, IsaPolicy())
            )


def _of_pair(base: CompiledEntry, head: CompiledEntry, cache: Path) -> Iterator[str]:
    """The cache modifiers, then what the rules say, those that they judge first."""
    texts = [cache / entry.emitted.asm for entry in (base, head)]
    if all(path.is_file() for path in texts):
        yield from modifiers(*(path.read_text(encoding="utf-8") for path in texts))
    yield from (finding.sentence for finding in findings(base, head, IsaPolicy()))


def modifiers(base: str, head: str) -> Iterator[str]:
    """A sentence if loads or stores have other cache modifiers: how many of each kind there were and are."""
    old, new = _modified(base), _modified(head)
    kinds = [kind for kind in dict.fromkeys([*old, *new]) if old[kind] != new[kind]]
    if kinds:
        yield "cache modifiers: " + ", ".join(f"{kind} {old[kind]} → {new[kind]}" for kind in kinds)


def _modified(text: str) -> Counter[str]:
    """Accesses to memory that have a modifier, by kind of access and modifiers, without their width."""
    found: Counter[str] = Counter()
    for name, operands in AMD_ACCESS.findall(text):
        own = [word for word in operands.replace(",", " ").split() if word in MODIFIERS]
        kind = "load" if "_load" in name else "store" if "_store" in name else "atomic"
        found.update([" ".join([kind, *own])] if own else [])
    for name in NVIDIA_ACCESS.findall(text):
        kind, *parts = name.split(".")
        own = [part for part in parts if part in NVIDIA_MODIFIERS]
        found.update([".".join([kind, *own])] if own else [])
    return found


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
