"""A judgement of machine code in words, and in the judgement of `ridgeline check`: what both sides compile to, what
changed in it, and what an emulator says of the changed operators."""

from __future__ import annotations

import dataclasses
import difflib
import re
from collections import Counter
from collections.abc import Callable, Container, Iterator, Mapping, Sequence
from importlib.util import find_spec
from pathlib import Path

from rich.console import Console

from benchmarks.shapes import some_of
from benchmarks.trial_file import Status
from ci.git.repository import LocalCheckout
from ci.harness import FAULTS, MEASURED, NOTHING, ChildExit, MeasurePlan, command, follow, options
from ci.isa import compiled
from ci.isa.compiled import TARGETS, CompiledTree, CompileStatus, ExecutedLaunch, Metrics, TreeCompiler, Wanted, called
from ci.isa.judge import CodeVerdict, Difference, IsaJudgement, compare
from ci.isa.rules import load_policy
from ci.judging.types import Judgement, Verdict
from ci.records.ledger import OWN
from ci.report.words import plain, plural
from ci.trials.trial import Trial
from ci.whole_files import replace
from kernels import project
from kernels.project import current_kernel, current_name

# The code of both sides as a diff of its instructions.
#
# Texts are what benchmarks.isa keeps: one instruction per line, and a line `; loop L3 depth 2` or `; no loop` where
# another innermost loop begins.


REGISTER_OR_LABEL = re.compile(r"\b(?:[vsa](?:\d+|\[\d+:\d+\])|U?[RP]\d+|L(?:_x_)?\d+)(?!\w)")
"""Of AMD (v7, s[2:3], a0, L3) and NVIDIA (R12, UR4, P0, L_x_3): noise when code is compared by eye."""


def instructions(text: str) -> list[str]:
    """The instructions of a text without registers and labels, each indented by the depth of its innermost loop."""
    lines, depth = list[str](), 0
    for line in filter(None, map(str.strip, text.splitlines())):
        if line.startswith(("; loop ", "; no loop")):
            depth = int(line.split()[-1]) if "depth" in line else 0
        elif not line.startswith(";"):
            lines.append("  " * depth + REGISTER_OR_LABEL.sub("_", line))
    return lines


def code_diff(base: str, head: str, most: int = 200) -> str:
    """A unified diff of the instructions, at most so many lines of it."""
    lines = [*difflib.unified_diff(instructions(base), instructions(head), lineterm="")][2:]
    if not lines:
        return "The instructions are the same; only registers or labels differ.\n"
    lines[most:] = [f"... {len(lines) - most} more lines"] * (len(lines) > most)
    return "\n".join(lines) + "\n"


SHOWN = tuple(verdict for verdict in CodeVerdict if verdict is not CodeVerdict.SAME)
"""Verdicts that are shown configuration by configuration; SAME is only counted."""

MOST_CASES = 4


def terminal(judgement: IsaJudgement) -> str:
    """Verdict first, then what changed; `!` marks what a rule judges."""
    out = [f"ISA: {verdict_text(judgement.verdict)}  {judgement.why}"]
    for shown, more in grouped(judgement):
        out.append(f"{shown.verdict}  {where_text(shown)}")
        for finding in shown.findings:
            out.append(
                f"    {'!' if finding.judged else ' '} {finding.sentence}{'  [follows from it]' * finding.follows}"
            )
        out += [f"    + {line}" for line in more]
    same = judgement.of(CodeVerdict.SAME)
    if same and judgement.verdict is not CodeVerdict.SAME:
        out.append(f"SAME  {plural(len(same), 'configuration')} with the same code on both sides.")
    return "".join(f"{line}\n" for line in (*out, *(f"Warning: {warning}" for warning in judgement.warnings)))


def lines(judgement: IsaJudgement) -> Iterator[str]:
    """For the report of `check`: what all of it says, then a line for each group of configurations that differ."""
    yield f"{verdict_text(judgement.verdict)}: {judgement.why}"
    for shown, more in grouped(judgement):
        sentences = "; ".join([*(finding.sentence for finding in shown.findings), *more])
        yield ": ".join(filter(None, (f"{where_text(shown)}: {shown.verdict}", sentences)))


def where_text(shown: Difference) -> str:
    """kernel/backend [label] on gfx942 (one, two)"""
    return f"{shown.name} on {shown.arch} ({some_of(shown.cases, MOST_CASES)})"


def grouped(judgement: IsaJudgement) -> Iterator[tuple[Difference, list[str]]]:
    """What differs, by backend, verdict and the rules that judge it: the first configuration, which is shown in full,
    and a line that counts the others, so that a change to a function that all kernels share can still be read."""
    groups: dict[tuple[object, ...], list[Difference]] = {}
    for d in judgement.of(*SHOWN):
        groups.setdefault((d.verdict, d.kernel, d.backend, *(f.rule for f in d.alarms)), []).append(d)
    for shown, *others in groups.values():
        counts = Counter(other.arch for other in others)
        targets = ", ".join(f"{count} on {arch}" for arch, count in counts.items())
        yield shown, [f"by the same rules {len(others)} more: {targets}"] if others else []


def verdict_text(verdict: CodeVerdict) -> str:
    """What a verdict by code alone is called."""
    names = {CodeVerdict.SLOWER: "SLOWER expected", CodeVerdict.CHANGED: "CHANGED, not judged"}
    return names.get(verdict, str(verdict))


def listing(tree: CompiledTree) -> str:
    """One line per compiled configuration: what a person looks at first; then what failed, and why."""
    out = []
    for entry in tree.entries:
        emitted = summary(entry.code.metrics) if entry.code else f"{entry.status}: {entry.why}"
        out.append(f"{entry.name} on {entry.arch} ({some_of(entry.cases, MOST_CASES)}): {emitted}")
        if entry.code:
            out += [f"    ! does not load: {entry.code.will_not_load}"] * bool(entry.code.will_not_load)
            out += [f"    note: {note}" for note in entry.code.notes]
    for launch in tree.executed:
        name = called(launch.kernel, launch.backend, launch.label)
        out.append(f"{name} on {launch.arch} ({some_of(launch.cases, MOST_CASES)}): {executed_summary(launch)}")
    out += [f"module {module} cannot be imported: {why}" for module, why in tree.broken.items()]
    return "".join(f"{line}\n" for line in (*out, *tree.failures.values()))


def executed_summary(launch: ExecutedLaunch) -> str:
    """20320 instructions, 16384 matrix cycles, 6144 requests of 64 B (86 % used), 0 bank conflicts; at most ..."""
    counts = launch.counts
    if counts is None:
        how = "not executed" if launch.status is CompileStatus.UNSUPPORTED else "failed"
        return f"{how}: {launch.why}"
    parts = [
        f"{counts.total} instructions",
        f"{counts.matrix_cycles} matrix cycles" if counts.matrix_cycles else "",
        f"{counts.all_requests} requests of 64 B ({100 * counts.used:.0f} % used)" if counts.used is not None else "",
        f"{counts.lds_cycles} LDS cycles ({counts.bank_conflicts} of bank conflicts)" if counts.lds_cycles else "",
        f"at most {launch.bound.percent:g} % of the roofline by {launch.bound.unit}" if launch.bound else "",
    ]
    return ", ".join(filter(None, parts))


def summary(metrics: Metrics) -> str:
    """128 VGPRs, 0 spilled, 32768 B LDS, 4 waves per SIMD (registers allow 4, LDS 5), stores 16 B per lane, hot loop
    of 70 instructions, 46 % of them matrix ones"""
    remote, stores, loop = metrics.bytes_per_remote_store, metrics.bytes_per_store, metrics.loop
    share = f"{100 * loop.matrix_share:.0f} % of them matrix ones" if loop else ""
    allowed = f"registers allow {metrics.occupancy_by_registers}, LDS {metrics.occupancy_by_lds}"
    parts = [
        f"{metrics.lane_registers} {'VGPRs' if metrics.is_amd else 'registers'}",
        f"{metrics.vgpr_spills} spilled" if metrics.is_amd else "",
        f"{metrics.scratch_bytes} B scratch" if metrics.scratch_bytes else "",
        f"{metrics.lds_bytes} B LDS" if metrics.lds_bytes else "",
        f"{metrics.occupancy} {'waves per SIMD' if metrics.is_amd else 'warps per scheduler'} ({allowed})",
        f"remote stores {remote:g} B per lane" if remote else "",
        f"{metrics.remote_store_drains} drains of them" if metrics.remote_store_drains else "",
        f"stores {stores:g} B per lane" if stores else "",
        f"hot loop of {loop.instructions} instructions, {share}" if loop else "",
    ]
    return ", ".join(filter(None, parts))


# The part of `ridgeline check` that needs no GPU.

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
    differences = isa.differences if isa else ()
    compiled = {(d.kernel, d.backend) for d in differences if d.head and d.head.code}
    right, unseen = _looked_at(trials, compiled)
    unseen = [name for name in unseen if isa and name.partition("/")[0] not in judgement.unreached]
    parts = [(judgement.verdict, judgement.why)] if judgement.cases or judgement.warnings or not differences else []
    if isa and differences:
        same, gone = len(isa.of(CodeVerdict.SAME)), len(isa.of(CodeVerdict.GONE))
        by_code = DECIDES.get(isa.verdict, Verdict.CANNOT_TELL)
        if isa.verdict is not CodeVerdict.SAME and isa.why.rstrip(".") not in judgement.why:
            parts.append((by_code, isa.why.rstrip(".")))
        equal = f"machine code of {', '.join(TARGETS)} equal in {same} of {len(differences)} configurations"
        parts.append((by_code, equal))
        parts += [(Verdict.CANNOT_TELL, f"{gone} of base gone")] if gone else []
    elif isa and isa.warnings and unseen:
        parts.append((Verdict.CANNOT_TELL, f"machine code was not compared: {isa.warnings[0]}"))
    parts += [(Verdict.SAME, f"{plural(right, 'case')} right")] if right else []
    if unseen:
        nobody = "not looked at, for want of a GPU and of declared code"
        parts.append((Verdict.CANNOT_TELL, f"{nobody}: {', '.join(unseen)}"))
    parts.sort(key=lambda part: part[0].exit_code == 0)  # what does not pass stands first
    verdict = Verdict.worst(verdict for verdict, _ in parts)
    return dataclasses.replace(judgement, verdict=verdict, why="; ".join(why for _, why in parts))


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

_FAULT = re.compile(r"^\S+ \S+ \S+ on gfx\d+: (wrong|error|crash|hang): ")
"""A line of the measuring program about an arm that is not right (benchmarks.program.ArmFault)."""

NOT_EXECUTED = "not executed: "
"""Begins a line of the measuring program about an arm, or an operator, that is not executed."""


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
    reasons = [plain(line) for line in ended.said if line.startswith(NOT_EXECUTED)]
    where = f"executed for gfx942 and gfx950 in an emulator: {', '.join(kernels)}"
    if faults:
        faulty = list(dict.fromkeys(line.split()[0] for line in faults))
        renamed = project.layout(head.path).renamed
        names_in_base = {current_kernel(old, renamed): old for old in renamed if "/" not in old}
        of_base = (_verified(base, [names_in_base.get(name, name)], console) for name in faulty)  # it may lack one
        known = {_arm(line, renamed) for ended in of_base for line in ended.said if _FAULT.match(line)}
        new = [line for line in faults if _arm(line, {}) not in known]
        old = [f"not right in base either: {line}" for line in faults if line not in new]
        verdict = Verdict.worst([judgement.verdict, Verdict.BROKEN if new else Verdict.CANNOT_TELL])
        why = judgement.why
        if new or verdict is not judgement.verdict:
            more = f"`ridgeline verify --arch gfx942 --arch gfx950 --kernel {faulty[0]}` says more"
            why = f"{[*new, *old][0]}; {more}; {why}"
        judgement = dataclasses.replace(judgement, verdict=verdict, why=why, warnings=(*judgement.warnings, *old[:1]))
        return _with(judgement, f"{where}: {len(faults)} not right", *new, *old, *reasons)
    if ended.code == MEASURED:
        return _with(judgement, f"{where}: {'what was executed' if reasons else 'every small case'} is right", *reasons)
    if ended.code == NOTHING:
        return _with(judgement, *(reasons or [f"not {where}: no small case"]))
    how = "a module is broken" if ended.code == FAULTS else ended.last
    return dataclasses.replace(judgement, warnings=(*judgement.warnings, plain(f"not {where}: {how}")))


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
