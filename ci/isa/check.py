"""The part of `ridgeline check` that needs no GPU: the code both sides compile to for AMD, and what changed in it."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Sequence
from pathlib import Path

from rich.console import Console

from ci.git.repository import LocalCheckout
from ci.harness import MeasurePlan
from ci.isa import compiled
from ci.isa.compile import TreeCompiler, Wanted
from ci.isa.compiled import CompiledTree
from ci.isa.judge import CodeVerdict, IsaJudgement, compare
from ci.isa.policy import load_policy
from ci.judging.types import Judgement, Verdict
from ci.whole_files import replace

CODE, SIDES = Path(".ridgeline/code"), ("base.json", "head.json")
"""Where the results of compiling both sides lie."""

WORSE = {CodeVerdict.SLOWER: Verdict.SLOWER, CodeVerdict.BROKEN: Verdict.BROKEN}
"""What the code alone can turn the verdict into: a rule of policy.toml expects SLOWER, or head does not compile."""


def judged(trees: Sequence[LocalCheckout], plan: MeasurePlan, root: Path, console: Console) -> IsaJudgement:
    """Compile base and head for the AMD architectures and compare; unchanged code comes from the cache.

    What was compiled is left in .ridgeline/code, for whoever judges it elsewhere.
    """
    wanted = Wanted(tier=plan.tier, kernels=plan.kernels, cases=plan.cases, lenient=True)
    compiler = TreeCompiler(root / ".ridgeline" / "isa", console)
    for name, tree in zip(SIDES, trees, strict=True):
        replace(root / CODE / name, compiler.result(tree.path, wanted, f"code of {tree.label}"))
    return of_files(root / CODE)


def of_files(folder: Path, reading: Callable[[Path], CompiledTree] = compiled.read) -> IsaJudgement:
    """Compare what was compiled of base and head, with this tree's policy.  Raises IsaError."""
    base, head = (reading(folder / name) for name in SIDES)
    return compare(base, head, load_policy(None))


def joined(judgement: Judgement, isa: IsaJudgement) -> Judgement:
    """The judgement of the times with what the code says: its findings as warnings, its regressions as the verdict."""
    warnings = [
        f"code of {d.name} on {d.arch}: {finding.sentence}"
        for d in isa.of(CodeVerdict.BROKEN, CodeVerdict.SLOWER)
        for finding in d.alarms
    ]
    verdict, why = judgement.verdict, judgement.why
    if isa.verdict in WORSE and verdict is not Verdict.BROKEN:
        verdict, why = WORSE[isa.verdict], f"{isa.why}; by the clock: {why}"
    return dataclasses.replace(judgement, verdict=verdict, why=why, warnings=(*judgement.warnings, *warnings))
