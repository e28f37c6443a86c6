"""The part of `ridgeline check` that needs no GPU: the code both sides compile to for AMD, and what changed in it."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Container, Sequence
from pathlib import Path

from rich.console import Console

from benchmarks.trial_file import Status
from ci.git.repository import LocalCheckout
from ci.harness import MeasurePlan
from ci.isa import compiled
from ci.isa.compiled import TARGETS, CompiledTree, TreeCompiler, Wanted
from ci.isa.judge import CodeVerdict, IsaJudgement, compare
from ci.isa.rules import load_policy
from ci.isa.text import lines
from ci.judging.types import Judgement, Verdict
from ci.trials.trial import Trial
from ci.whole_files import replace

CODE, SIDES = Path(".ridgeline/code"), ("base.json", "head.json")
"""Where the results of compiling both sides lie."""

WORSE = {CodeVerdict.SLOWER: Verdict.SLOWER, CodeVerdict.BROKEN: Verdict.BROKEN}
"""What the code alone can turn the verdict into: a rule of policy.toml expects SLOWER, or head does not compile."""

DECIDES = {CodeVerdict.SAME: Verdict.SAME, CodeVerdict.NEW: Verdict.SAME, **WORSE}
"""What the code alone makes of the verdict where nothing can time it; other code is CANNOT TELL."""


def judged(
    trees: Sequence[LocalCheckout], plan: MeasurePlan, root: Path, console: Console, arches: Sequence[str] = TARGETS
) -> IsaJudgement:
    """Compile base and head for architectures and compare; unchanged code comes from the cache.

    What was compiled is left in .ridgeline/code, for whoever judges it elsewhere.
    """
    wanted = Wanted(arches, tier=plan.tier, kernels=plan.kernels, cases=plan.cases, lenient=True)
    compiler = TreeCompiler(root / ".ridgeline" / "isa", console)
    for name, tree in zip(SIDES, trees, strict=True):
        replace(root / CODE / name, compiler.result(tree.path, wanted, f"code of {tree.label}"))
    return of_files(root / CODE)


def of_files(folder: Path, reading: Callable[[Path], CompiledTree] = compiled.read) -> IsaJudgement:
    """Compare what was compiled of base and head, with this tree's policy.  Raises IsaError."""
    base, head = (reading(folder / name) for name in SIDES)
    return compare(base, head, load_policy(None))


def joined(judgement: Judgement, isa: IsaJudgement) -> Judgement:
    """The judgement of the times with what the code says: all that differs in it, and its regressions as the verdict.

    Other code that no rule calls worse leaves the verdict to the clock.
    """
    verdict, why = judgement.verdict, judgement.why
    if isa.verdict in WORSE and verdict is not Verdict.BROKEN:
        verdict, why = WORSE[isa.verdict], f"{isa.why}; by the clock: {why}"
    warnings = tuple(f"machine code: {warning}" for warning in isa.warnings)
    return dataclasses.replace(
        judgement, verdict=verdict, why=why, warnings=(*judgement.warnings, *warnings), machine_code=tuple(lines(isa))
    )


def compiled_in(isa: IsaJudgement) -> set[str]:
    """The operators of which some code was compared."""
    return {d.kernel for d in isa.differences if d.compared}


def decided(judgement: Judgement, isa: IsaJudgement | None, trials: Sequence[Trial]) -> Judgement:
    """The judgement on a machine without a GPU: what the code of the targets says, and that the cases are right.

    isa: None where no file of an operator differs.  The clock of a CPU judges operators that have no such code.  Of the
    others it says only what is beyond doubt, which is a change of a backend that runs on CPUs; the rest is shown.
    """
    nothing, isa = isa is None, isa or IsaJudgement(CodeVerdict.SAME, "", ())
    compiled = {(d.kernel, d.backend) for d in isa.differences if d.head and d.head.code}
    kernels, certain = compiled_in(isa), (Verdict.BROKEN, Verdict.SLOWER, Verdict.NOT_COMPARABLE)
    clock = [c for c in judgement.cases if c.kernel not in kernels or c.verdict in certain or not c.trials]
    said = [c.verdict for c in clock] + [Verdict.SLOWER for floor in judgement.floors if floor.new]
    right, unseen = _looked_at(trials, compiled)
    same, parts = len(isa.of(CodeVerdict.SAME)), []
    if isa.differences:
        said.append(DECIDES.get(isa.verdict, Verdict.CANNOT_TELL))
        parts = [] if isa.verdict is CodeVerdict.SAME else [isa.why.rstrip(".")]
        parts.append(f"machine code of {', '.join(TARGETS)} equal in {same} of {len(isa.differences)} configurations")
    elif isa.warnings and unseen:
        said.append(Verdict.CANNOT_TELL)
        parts = [f"machine code was not compared: {isa.warnings[0]}"]
    parts += ["the same kernel files on both sides"] if nothing and judgement.cases else []
    parts += [f"{right} cases right"] if right else []
    parts += [judgement.why] if clock or not parts else []
    parts += (
        [f"not looked at, for want of a GPU and of declared code: {', '.join(unseen)}"]
        if unseen and not nothing
        else []
    )
    return dataclasses.replace(judgement, verdict=Verdict.worst(said or [judgement.verdict]), why="; ".join(parts))


def _looked_at(trials: Sequence[Trial], compiled: Container[tuple[str, str]]) -> tuple[int, list[str]]:
    """How many cases of head are right; its backends that neither ran nor have code that was compared."""
    right, unseen = set(), set()
    for trial in trials:
        declared = trial.declaration()
        for case, role, backend, arm in trial.arms():
            name = f"{trial.operator}/{backend}"
            if role == "head" and arm.ok:
                right.add(f"{name}/{case}")
            elif role == "head" and arm.status is Status.UNSUPPORTED and (trial.operator, backend) not in compiled:
                unseen |= {name} if declared and backend not in declared.baselines else set()
    return len(right), sorted(unseen)
