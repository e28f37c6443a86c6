"""The part of `ridgeline check` that needs no GPU: the code both sides compile to for AMD, and what changed in it."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Container, Mapping, Sequence
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
from ci.report.words import plural
from ci.trials.trial import Trial
from ci.whole_files import replace
from kernels import project

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
    return of_files(root / CODE, project.layout(trees[-1].path).renamed)


def of_files(
    folder: Path, renamed: Mapping[str, str], reading: Callable[[Path], CompiledTree] = compiled.read
) -> IsaJudgement:
    """Compare what was compiled of base and head, with this tree's policy.  Raises IsaError.

    renamed: what head's settings say of names of base (kernels.project).
    """
    base, head = (reading(folder / name) for name in SIDES)
    return compare(base, head, load_policy(None), renamed)


def joined(judgement: Judgement, isa: IsaJudgement) -> Judgement:
    """The judgement of the times with what the code says: all that differs in it, and its regressions as the verdict.

    Other code that no rule calls worse leaves the verdict to the clock.
    """
    verdict, why = judgement.verdict, judgement.why
    if isa.verdict in WORSE and WORSE[isa.verdict].rank < verdict.rank:
        verdict, why = WORSE[isa.verdict], f"{isa.why.rstrip('.')}; by the clock: {why}"
    imports = ("base: module ", "head: module ")
    told = any("does not import" in one for one in judgement.sentences())  # with its cases, or the operators it hides
    left = [one for one in isa.warnings if not (told and one.startswith(imports))]
    warnings = tuple(f"machine code: {warning}" for warning in left)
    nothing = isa.verdict is CodeVerdict.CANNOT_TELL and not isa.differences  # no backend declares any
    code = () if nothing else tuple(lines(isa))
    warnings = (*judgement.warnings, *warnings)
    return dataclasses.replace(judgement, verdict=verdict, why=why, warnings=warnings, machine_code=code)


def declaring_code(isa: IsaJudgement) -> set[str]:
    """The operators of which head declares code, new ones and those that do not compile as declared too."""
    return {d.kernel for d in isa.differences if d.head}


def decided(judgement: Judgement, isa: IsaJudgement | None, trials: Sequence[Trial]) -> Judgement:
    """The judgement on a machine without a GPU: the worst of what ran, what the code of the targets says, and what was
    not looked at at all.

    isa: None where no file of an operator differs.
    """
    nothing, isa = isa is None, isa or IsaJudgement(CodeVerdict.SAME, "", ())
    compiled = {(d.kernel, d.backend) for d in isa.differences if d.head and d.head.code}
    right, unseen = _looked_at(trials, compiled)
    unseen = [] if nothing else [name for name in unseen if name.partition("/")[0] not in judgement.unreached]
    verdicts = [judgement.verdict] if judgement.cases or not isa.differences or judgement.warnings else []
    parts = []
    if isa.differences:
        same, gone = len(isa.of(CodeVerdict.SAME)), len(isa.of(CodeVerdict.GONE))
        verdicts += [DECIDES.get(isa.verdict, Verdict.CANNOT_TELL), *[Verdict.GONE] * bool(gone)]
        said = isa.why.rstrip(".")
        parts = [] if isa.verdict is CodeVerdict.SAME or said in judgement.why else [said[:1].lower() + said[1:]]
        parts.append(f"machine code of {', '.join(TARGETS)} equal in {same} of {len(isa.differences)} configurations")
        parts += [f"{gone} of base {'is' if gone == 1 else 'are'} gone"] if gone else []
    elif isa.warnings and unseen:
        parts = [f"machine code was not compared: {isa.warnings[0]}"]
    parts += ["the same kernel files on both sides"] if nothing and judgement.cases else []
    parts += [f"{plural(right, 'case')} right"] if right else []
    if verdicts[:1] == [judgement.verdict] or not parts:  # what is no pass stands first
        worst = judgement.verdict.exit_code and judgement.verdict is Verdict.worst(verdicts)
        parts.insert(0 if worst else len(parts), judgement.why)
    if unseen:
        verdicts.append(Verdict.CANNOT_TELL)
        parts.append(f"not looked at, for want of a GPU and of declared code: {', '.join(unseen)}")
    return dataclasses.replace(judgement, verdict=Verdict.worst(verdicts), why="; ".join(parts))


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
