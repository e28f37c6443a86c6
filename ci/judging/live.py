"""Live comparison: trials until every case has a verdict, confirmed where it is SLOWER, or the budget is spent."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

from rich.console import Console

from ci.git.repository import LocalCheckout as Tree
from ci.harness import INTERRUPTED, NOTHING, USAGE, MeasureError, measure
from ci.harness import MeasurePlan as Plan
from ci.judging.judge import judge
from ci.judging.policy import Policy
from ci.stats.sequential import Progress, decide
from ci.stats.types import Judgement
from ci.trials import replay
from ci.trials.comparisons import comparisons
from ci.trials.file import TrialLine, read_trials

Measure = Callable[[Sequence[Tree], Plan, Path, Console], int]


class Interrupted(Exception):
    """Ctrl-C: the finished trials are in the trial file and can be resumed."""


@dataclasses.dataclass(frozen=True)
class Outcome:
    """What a live comparison came to: the judgement, and all its trials."""

    judgement: Judgement
    lines: tuple[TrialLine, ...]


def compare(
    trees: Sequence[Tree],
    plan: Plan,
    policy: Policy,
    kind: str,
    out: Path,
    console: Console,
    measuring: Measure = measure,
) -> Outcome:
    """Measure and judge, look by look; `plan.trials` is the budget (0: the policy's).

    A knob without a role is head's: base keeps what its config() says.
    Trials that `out` holds already count: an interrupted comparison goes on where it stopped.
    Raises MeasureError if measuring cannot start, Interrupted on Ctrl-C.
    """
    knobs = (knob if "." in knob.split("=")[0] else f"head.{knob}" for knob in plan.knobs)
    plan = dataclasses.replace(plan, knobs=tuple(knobs))
    settings = policy.settings(machine_kind=kind)
    progress = Progress(_looks(settings.looks, plan.trials), settings.confirming)
    target, wanted = 1, plan  # one trial shows which cases launch equal code and need no time
    while True:
        missing = target - _finished(out, wanted)
        if missing > 0:
            _measured(measuring(trees, dataclasses.replace(wanted, trials=missing), out, console), out)
        judgement = judge(replay.read(out), policy, progress)
        progress = progress.advanced(judgement.cases)
        decision = decide(progress, judgement.cases)
        if decision.action == "stop" or missing <= 0 and decision.trials <= target:
            return Outcome(judgement, tuple(read_trials(out)[0]))
        target, wanted = decision.trials, narrowed(plan, decision.cases)
        console.print(
            f"{len(decision.cases)} of {len(judgement.cases)} cases are not settled; "
            f"measuring them until they have {target} trials"
        )


def identical(
    trees: Sequence[Tree], plan: Plan, policy: Policy, out: Path, console: Console, measuring: Measure = measure
) -> Outcome:
    """Two trees with the same kernel files: measure head once, for its numbers; base is what head is.

    The verdict on every case that head can run is SAME, without timing; a case that fails, fails on both sides.
    """
    base, head = trees
    console.print(
        "the kernels are the same files in both commits: nothing can have changed; measuring head for the record"
    )
    _measured(measuring([head], dataclasses.replace(plan, trials=plan.trials or 1), out, console), out)
    lines = tuple(read_trials(out)[0])
    mirrored = [mirror(line.data, base.commit.hash if base.commit else None) for line in lines]
    same = [dataclasses.replace(c, trials=(), same_code=True) for c in comparisons(mirrored)]
    return Outcome(judge(same, policy), lines)


def mirror(trial: Mapping[str, Any], commit: str | None) -> dict[str, Any]:
    """The trial as if the base, with the same files, had been there and had done what head did."""
    head = trial["trees"]["head"]
    cases = {
        name: {
            **case,
            "arms": {
                key: result for arm, result in case["arms"].items() for key in (arm, arm.replace("head/", "base/", 1))
            },
        }
        for name, case in trial["cases"].items()
    }
    return {**trial, "trees": {"base": {**head, "commit": commit}, "head": head}, "cases": cases}


def narrowed(plan: Plan, cases: Sequence[str]) -> Plan:
    """The plan for some of its cases, named kernel/backend/case; every backend of a case is timed again with it."""
    parts = [case.split("/", 2) for case in cases]
    return dataclasses.replace(
        plan,
        kernels=tuple(dict.fromkeys(kernel for kernel, _, _ in parts)),
        cases=tuple(dict.fromkeys(f"{kernel}/{case}" for kernel, _, case in parts)),
    )


def _looks(looks: tuple[int, ...], budget: int) -> tuple[int, ...]:
    """The policy's looks within a budget of trials, which is the last look; 0: as the policy says."""
    if not budget:
        return looks
    return (*(look for look in looks if look < budget), budget)


def _finished(out: Path, plan: Plan) -> int:
    """Trials that every wanted case has in `out` already; 0 for a case that was never tried."""
    counts: dict[str, int] = dict.fromkeys((case for case in plan.cases if "/" in case), 0)
    for line in read_trials(out)[0] if out.exists() else []:
        for case in line.data["cases"]:
            name = f"{line.data['kernel']}/{case}"
            if not counts or name in counts or not any("/" in case for case in plan.cases):
                counts[name] = counts.get(name, 0) + 1
    return min(counts.values(), default=0)


def _measured(code: int, out: Path) -> None:
    if code == INTERRUPTED:
        raise Interrupted(f"interrupted; the finished trials are in {out}, the same command with --out {out} goes on")
    if code == USAGE:
        raise MeasureError(
            "measuring broke off; the reason is printed above"
            + (f"; finished trials are in {out}" if out.exists() else "")
        )
    if code == NOTHING and not out.exists():
        raise MeasureError("nothing was measured; the reason is printed above")
