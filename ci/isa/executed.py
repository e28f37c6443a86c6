"""The part of `ridgeline check` that executes the changed operators for MI300X and MI355X in an emulator."""

from __future__ import annotations

import dataclasses
import re
from collections.abc import Mapping, Sequence
from importlib.util import find_spec

from rich.console import Console

from benchmarks.trial_file import Status
from ci.git.repository import LocalCheckout
from ci.harness import FAULTS, MEASURED, NOTHING, ChildExit, MeasurePlan, command, follow, options
from ci.judging.states import verdict_of_states
from ci.judging.types import Judgement, Verdict
from ci.records.checks import OWN
from ci.report.words import plain
from kernels import project
from kernels.project import current_kernel, current_name

TARGETS = ("gfx942", "gfx950")

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
    argv = command([alone], plan, out, "verify") + options(arch=TARGETS)
    return follow(argv, console, f"executing {side.role} for gfx942, gfx950", echo=False, stdout=False)


def _arm(line: str, renamed: Mapping[str, str]) -> tuple[str, str]:
    """Operator, backend and case of a line about a fault, by the names that they have now, and its target."""
    operator, case, backend, *target = line.partition(": ")[0].split()
    return current_name(f"{operator}/{backend}/{case}", renamed), " ".join(target)


def _with(judgement: Judgement, *sentences: str) -> Judgement:
    return dataclasses.replace(judgement, machine_code=(*judgement.machine_code, *sentences))
