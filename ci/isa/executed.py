"""The part of `ridgeline check` that executes the changed operators for MI300X and MI355X in an emulator."""

from __future__ import annotations

import dataclasses
import re
from collections.abc import Sequence
from importlib.util import find_spec

from rich.console import Console

from ci.git.repository import LocalCheckout
from ci.harness import FAULTS, MEASURED, NOTHING, MeasurePlan, command, follow, options
from ci.history.kept import OWN
from ci.judging.types import Judgement, Verdict
from ci.report.words import plain
from kernels import project

TARGETS = ("gfx942", "gfx950")

_FAULT = re.compile(r"^\S+ \S+ \S+: (wrong|error|crash|hang): ")
"""A line of the measuring program about an arm that is not right (benchmarks.program.ArmFault)."""


def executed(judgement: Judgement, head: LocalCheckout, kernels: Sequence[str], console: Console) -> Judgement:
    """The judgement with what the emulator says of these operators of head: BROKEN if one is wrong."""
    if not kernels:
        return judgement
    if find_spec("tinygrad") is None:
        return _said(judgement, "not executed for gfx942 and gfx950: `pip install 'ridgeline[emulate]'` makes it so")
    out = project.place(OWN)
    out.parent.mkdir(parents=True, exist_ok=True)
    argv = command([head], MeasurePlan(kernels=tuple(kernels)), out, "verify") + options(arch=TARGETS)
    ended = follow(argv, console, "executing for gfx942, gfx950", echo=False, stdout=False)
    wrong = [plain(line) for line in ended.said if _FAULT.match(line)]
    where = f"executed for gfx942 and gfx950 in an emulator: {', '.join(kernels)}"
    if wrong:
        again = f"`ridgeline verify --arch gfx942 --arch gfx950 --kernel {wrong[0].split()[0]}` says more"
        broken = dataclasses.replace(judgement, verdict=Verdict.BROKEN, why=f"{wrong[0]}; {again}")
        return _said(broken, f"{where}: {len(wrong)} not right", *wrong)
    if ended.code == MEASURED:
        return _said(judgement, f"{where}: every small case is right")
    if ended.code == NOTHING:
        return _said(judgement, f"{where}: no small case")
    how = "a module is broken" if ended.code == FAULTS else ended.last
    return dataclasses.replace(judgement, warnings=(*judgement.warnings, plain(f"not {where}: {how}")))


def _said(judgement: Judgement, *sentences: str) -> Judgement:
    return dataclasses.replace(judgement, machine_code=(*judgement.machine_code, *sentences))
