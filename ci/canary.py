"""The canary: the gate is asked about changes that are known, by the same way on which it judges a pull request.

Two source trees are made of `benchmarks/canary.py`.  They are compared as two commits are: own processes, lock-step,
looks, policy, confirmation.  Head's tree does a planted share more of the same work; for A/A it differs in a comment.
"""

from __future__ import annotations

import hashlib
from pathlib import Path

from rich.console import Console

from ci.git.repository import Commit, LocalCheckout
from ci.harness import HARNESS, MeasurePlan
from ci.history.kept import CanaryCase, CanaryRun
from ci.judging.live import Measure, Outcome, compare, in_session
from ci.judging.policy import Policy, Settings

PLANTED = 0.01
"""Share of additional work: three times what the policy calls a change on a GPU (0.3 %, 2026-11)."""

CLEAR = 2.0
"""Where PLANTED is less than this multiple of what the policy looks for, as on a CPU, a change of this size is planted
too: a gate that cannot be asked for 1 % is asked for what it promises."""

TREE = '[tool.ridgeline]\nkernels = ["canary"]\n'


def shares(settings: Settings) -> tuple[float, ...]:
    """What is planted on a kind of machine: nothing, PLANTED, and more where the policy promises less."""
    clear = CLEAR * settings.smallest_effect
    return (0.0, PLANTED) if clear <= PLANTED else (0.0, PLANTED, clear)


def trees(folder: Path, share: float, commit: Commit) -> tuple[LocalCheckout, LocalCheckout]:
    """Base and head in `folder`, made anew: the same module, and the one line in which they differ."""
    source = (HARNESS / "benchmarks" / "canary.py").read_text()
    lines = {"base": "SHARE = 0.0  # base\n", "head": f"SHARE = {share!r}  # head\n"}
    for role, line in lines.items():
        (folder / role).mkdir(parents=True, exist_ok=True)
        (folder / role / "canary.py").write_text(source.replace("SHARE = 0.0\n", line))
        (folder / role / "pyproject.toml").write_text(TREE)
    base, head = (LocalCheckout(role, folder / role, commit) for role in lines)
    return base, head


def run(
    share: float,
    commit: Commit,
    policy: Policy,
    kind: str,
    plan: MeasurePlan,
    folder: Path,
    console: Console,
    measuring: Measure = in_session,
) -> CanaryRun:
    """Compare the trees of one share; trials that `folder` has already count.  Raises as `live.compare`."""
    name = f"{commit.short}-{share:g}"
    checkouts = trees(folder / name, share, commit)
    outcome = compare(checkouts, plan, policy, kind, folder / f"{name}.jsonl", console, measuring)
    return canary_run(share, commit, policy.settings(machine_kind=kind).smallest_effect, outcome)


def canary_run(share: float, commit: Commit, floor: float, outcome: Outcome) -> CanaryRun:
    """The gate's answer as a record.  Where `compare` raises MeasureError there is no answer to record."""
    trials = outcome.file.trials
    first = min(trials, key=lambda trial: trial.order)
    digest = hashlib.sha256("".join(sorted(trial.id for trial in trials)).encode()).hexdigest()[:16]
    product = f"{first.machine.count} × {first.machine.device or first.machine.name}"
    cases = tuple(
        CanaryCase(one.case.rsplit("/", 1)[-1], str(one.verdict), one.ratio, one.ci_low, one.ci_high, one.trials)
        for one in outcome.judgement.cases
    )
    return CanaryRun(digest, first.started_at, first.machine.name, product, commit.hash, share, floor, cases)
