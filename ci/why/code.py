"""What the compiler emits differently for a slower case: metrics, and the cache modifiers of its loads and stores."""

from __future__ import annotations

import dataclasses
import io
import re
from collections import Counter
from collections.abc import Iterator, Mapping
from pathlib import Path

from rich.console import Console

from ci.isa.compile import CompileError, TreeCompiler, Wanted
from ci.isa.compiled import CompiledEntry, CompiledTree, IsaError
from ci.isa.judge import pairs
from ci.isa.policy import IsaPolicy
from ci.isa.rules import findings
from ci.trials.trial import Trial
from ci.why.experiments import Question

ARCHES = ("gfx942", "gfx950", "sm_90")
"""For which a source tree can be compiled ahead of time (benchmarks.isa.targets)."""

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
    """Compiles both sides.  pythons: by role, where they are others than this one; cache: of compiled results."""

    base: Path
    head: Path
    cache: Path
    pythons: Mapping[str, str] = dataclasses.field(default_factory=dict)

    def sentences(self, question: Question, trial: Trial) -> tuple[str, ...]:
        """For the case of a question; () where the trial's machine is none that can be compiled for."""
        if trial.machine.arch not in ARCHES:
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
