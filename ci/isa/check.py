"""The part of `ridgeline check` that needs no GPU: the code both trees compile to for AMD, and what changed in it."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from pathlib import Path

from rich.console import Console

from ci.git.repository import LocalCheckout as Tree
from ci.harness import MeasurePlan as Plan
from ci.isa.compile import Wanted, compile_tree
from ci.isa.judge import IsaJudgement, compare
from ci.isa.judge import Verdict as IsaVerdict
from ci.isa.rules import load_policy
from ci.stats.types import Judgement, Verdict

WORSE = {IsaVerdict.SLOWER: Verdict.SLOWER, IsaVerdict.BROKEN: Verdict.BROKEN}
"""What the code alone can make of the verdict: a rule of policy.toml expects SLOWER, or head does not compile."""


def judged(trees: Sequence[Tree], plan: Plan, root: Path, console: Console) -> IsaJudgement:
    """Compile base and head for the AMD architectures and compare; what has not changed comes from the cache."""
    wanted = Wanted(tier=plan.tier, kernels=plan.kernels, cases=plan.cases, lenient=True)
    cache = root / ".ridgeline" / "isa"
    base, head = (compile_tree(tree.path, wanted, cache, console, f"code of {tree.label}") for tree in trees)
    return compare(base, head, load_policy(None))


def joined(judgement: Judgement, isa: IsaJudgement) -> Judgement:
    """The judgement of the times with what the code says: its findings as warnings, its regressions as the verdict."""
    told = [
        f"code of {d.name} on {d.arch}: {finding.sentence}"
        for d in isa.of(IsaVerdict.BROKEN, IsaVerdict.SLOWER)
        for finding in d.alarms
    ]
    verdict, why = judgement.verdict, judgement.why
    if isa.verdict in WORSE and verdict is not Verdict.BROKEN:
        verdict, why = WORSE[isa.verdict], f"{isa.why}; by the clock: {why}"
    return dataclasses.replace(judgement, verdict=verdict, why=why, warnings=(*judgement.warnings, *told))
