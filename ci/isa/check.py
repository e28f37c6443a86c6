"""The part of `ridgeline check` that needs no GPU: what both sides compile to, what changed in it, and what an emulator
says of the changed operators."""

from __future__ import annotations

import dataclasses
import re
from collections.abc import Callable, Container, Mapping, Sequence
from importlib.util import find_spec
from pathlib import Path

from rich.console import Console

from benchmarks.trial_file import Status
from ci.git.repository import LocalCheckout
from ci.harness import FAULTS, MEASURED, NOTHING, ChildExit, MeasurePlan, command, follow, options
from ci.isa import compiled
from ci.isa.compiled import TARGETS, CompiledTree, TreeCompiler, Wanted
from ci.isa.judge import CodeVerdict, IsaJudgement, compare
from ci.isa.rules import load_policy
from ci.isa.text import lines
from ci.judging.states import verdict_of_states
from ci.judging.types import Judgement, Verdict
from ci.records.ledger import OWN
from ci.report.words import plain, plural
from ci.trials.trial import Trial
from ci.whole_files import replace
from kernels import project
from kernels.project import current_kernel, current_name

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


# The changed operators executed for MI300X and MI355X in an emulator.


EXECUTED_ON = ("gfx942", "gfx950")

_ON = re.compile(r" on (gfx\d+): ")
"""The target, in a line about an arm."""

_FAULT = re.compile(r"^\S+ \S+ \S+ on gfx\d+: (wrong|error|crash|hang): ")
"""A line of the measuring program about an arm that is not right (benchmarks.program.ArmFault)."""

_LEFT = re.compile(r"^not executed: ")
"""A line of the measuring program about an arm, or an operator, that is not executed."""

MAX_REASONS = 4
"""Reasons not to execute that are shown."""


def executed(
    judgement: Judgement, base: LocalCheckout, head: LocalCheckout, kernels: Sequence[str], console: Console
) -> Judgement:
    """The judgement with what the emulator says of these operators of head: BROKEN if one is not right that is right,
    or is not executed, in base; no pass where neither is right."""
    if not kernels:
        return judgement
    if find_spec("tinygrad") is None:
        return _with(judgement, "not executed for gfx942 and gfx950: `pip install 'ridgeline[emulate]'` makes it so")
    ended = _verified(head, kernels, console)
    faults = [plain(line) for line in ended.said if _FAULT.match(line)]
    reasons = merged_by_target([plain(line) for line in ended.said if _LEFT.match(line)])
    left = (*reasons[:MAX_REASONS], *[f"not executed: {len(reasons) - MAX_REASONS} more"][: len(reasons) > MAX_REASONS])
    where = f"executed for gfx942 and gfx950 in an emulator: {', '.join(kernels)}"
    if faults:
        named = list(dict.fromkeys(line.split()[0] for line in faults))
        renamed = project.layout(head.path).renamed
        before = {current_kernel(old, renamed): old for old in renamed if "/" not in old}
        of_base = (_verified(base, [before.get(name, name)], console) for name in named)  # it may lack one of them
        known = {_arm(line, renamed) for ended in of_base for line in ended.said if _FAULT.match(line)}
        new = merged_by_target([line for line in faults if _arm(line, {}) not in known])
        both = merged_by_target([line for line in faults if _arm(line, {}) in known])
        old = [f"not right in base either: {line}" for line in both]
        told = _with(judgement, f"{where}: {len(new) + len(old)} not right", *new, *old, *left)
        decided = verdict_of_states(Status.UNTIMED if new else Status.WRONG, Status.WRONG)
        verdict = Verdict.worst([told.verdict, Verdict(decided)])
        again = f"`ridgeline verify --arch gfx942 --arch gfx950 --kernel {named[0]}` says more"
        if new:
            return dataclasses.replace(told, verdict=verdict, why=f"{new[0]}; {again}")
        why = told.why if verdict is told.verdict else f"{old[0]}; {again}; {told.why}"
        return dataclasses.replace(told, verdict=verdict, why=why, warnings=(*told.warnings, old[0]))
    if ended.code == MEASURED:
        return _with(judgement, f"{where}: {'what was executed' if left else 'every small case'} is right", *left)
    if ended.code == NOTHING:
        return _with(judgement, *(left or [f"not {where}: no small case"]))
    how = "a module is broken" if ended.code == FAULTS else ended.last
    return dataclasses.replace(judgement, warnings=(*judgement.warnings, plain(f"not {where}: {how}")))


def merged_by_target(lines: Sequence[str]) -> list[str]:
    """Lines that differ in their target alone as one that names all targets: "... on gfx942, gfx950: wrong: ..."."""
    targets: dict[str, list[str]] = {}
    for line in lines:
        found = _ON.search(line)
        targets.setdefault(_ON.sub(" on \0: ", line, count=1), []).extend([found[1]] if found else [])
    return [line.replace("\0", ", ".join(dict.fromkeys(of_line))) for line, of_line in targets.items()]


def _verified(side: LocalCheckout, kernels: Sequence[str], console: Console) -> ChildExit:
    """What `verify --arch` says of a side's operators."""
    out = project.place(OWN)
    out.parent.mkdir(parents=True, exist_ok=True)
    plan, alone = MeasurePlan(kernels=tuple(kernels)), dataclasses.replace(side, role="head")
    argv = command([alone], plan, out, "verify") + options(arch=EXECUTED_ON)
    return follow(argv, console, f"executing {side.role} for gfx942, gfx950", echo=False, stdout=False)


def _arm(line: str, renamed: Mapping[str, str]) -> tuple[str, str]:
    """Operator, backend and case of a line about a fault, by the names that they have now, and its target."""
    operator, case, backend, *target = line.partition(": ")[0].split()
    return current_name(f"{operator}/{backend}/{case}", renamed), " ".join(target)


def _with(judgement: Judgement, *sentences: str) -> Judgement:
    return dataclasses.replace(judgement, machine_code=(*judgement.machine_code, *sentences))
