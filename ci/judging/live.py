"""Live comparison: trials until every case has a verdict, confirmed where it is SLOWER, or the budget is spent."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Sequence
from pathlib import Path

from rich.console import Console

from ci.git.repository import LocalCheckout
from ci.harness import INTERRUPTED, NOTHING, USAGE, MeasureError, MeasurePlan, measure
from ci.judging.judge import judge
from ci.judging.policy import Policy
from ci.judging.types import Judgement
from ci.stats.sequential import Progress, decide
from ci.trials.comparisons import comparisons
from ci.trials.file import Followed, TrialFile
from ci.trials.trial import Trial

Measure = Callable[[Sequence[LocalCheckout], MeasurePlan, Path, Console], int]


class Interrupted(Exception):
    """Ctrl-C: the finished trials are in the trial file and can be resumed."""


@dataclasses.dataclass(frozen=True)
class Outcome:
    """What a live comparison came to: the judgement, and the file with all its trials."""

    judgement: Judgement
    file: TrialFile


def compare(
    checkouts: Sequence[LocalCheckout],
    plan: MeasurePlan,
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
    plan = dataclasses.replace(plan, knobs=tuple(map(_of_head, plan.knobs)))
    settings = policy.settings(machine_kind=kind)
    progress = Progress(_looks(settings.looks, plan.trials), settings.confirming)
    log = Followed(out)
    refuse_other_regime(log.read(), plan)
    target, wanted = 1, plan  # one trial shows which cases launch equal code and need no time
    while True:
        missing = target - _finished(log.read().trials, wanted)
        if missing > 0:
            measured(measuring(checkouts, dataclasses.replace(wanted, trials=missing), out, console), out)
        file = log.read()
        judgement = judge(comparisons(file.trials, remarks(file)), policy, progress)
        progress = progress.advanced(judgement.cases)
        decision = decide(progress, judgement.cases)
        if decision.action == "stop" or missing <= 0 and decision.trials <= target:
            return Outcome(judgement, file)
        target, wanted = decision.trials, narrowed(plan, decision.cases)
        unsettled = f"{len(decision.cases)} of {len(judgement.cases)} cases are not settled"
        console.print(f"{unsettled}; measuring them until they have {target} trials")


def identical(
    checkouts: Sequence[LocalCheckout],
    plan: MeasurePlan,
    policy: Policy,
    out: Path,
    console: Console,
    measuring: Measure = measure,
) -> Outcome:
    """Two checkouts with the same kernel files: measure head once, for its numbers; base is what head is.

    The verdict on every case that head can run is SAME, without timing; a case that fails, fails on both sides.
    """
    base, head = checkouts
    refuse_other_regime(Followed(out).read(), plan)
    console.print("both commits have the same kernel files: nothing can have changed; measuring head for the record")
    measured(measuring([head], dataclasses.replace(plan, trials=plan.trials or 1), out, console), out)
    file = Followed(out).read()
    mirrored = [trial.mirrored(base.commit.hash if base.commit else None) for trial in file.trials]
    same = [dataclasses.replace(c, trials=(), same_code=True) for c in comparisons(mirrored, remarks(file))]
    return Outcome(judge(same, policy), file)


def refuse_other_regime(file: TrialFile, plan: MeasurePlan) -> None:
    """MeasureError if a file that is to be gone on with has trials of another regime than the plan's."""
    other = next((trial.regime for trial in file.trials if trial.regime != plan.regime), None)
    if other:
        said = f"{file.path} holds trials of the {other} regime, and times of two regimes are never compared"
        raise MeasureError(f"{said}: give another file with --out, or --regime {other}")


def remarks(file: TrialFile) -> list[str]:
    """A sentence on every line of a file that is not used."""
    return [f"{one.at(file.path)}: {one.why}; the other trials count" for one in file.rejected]


def narrowed(plan: MeasurePlan, cases: Sequence[str]) -> MeasurePlan:
    """The plan for some of its cases, named operator/backend/case; every backend of a case is timed again with it."""
    parts = [case.split("/", 2) for case in cases]
    operators = tuple(dict.fromkeys(operator for operator, _, _ in parts))
    named = tuple(dict.fromkeys(f"{operator}/{case}" for operator, _, case in parts))
    return dataclasses.replace(plan, kernels=operators, cases=named)


def measured(code: int, out: Path) -> None:
    """Raise what the exit code of the measuring program means, if it means that measuring did not come to its end."""
    if code == INTERRUPTED:
        raise Interrupted(f"interrupted; the finished trials are in {out}, the same command with --out {out} goes on")
    if code == USAGE:
        kept = f"; finished trials are in {out}" if out.exists() else ""
        raise MeasureError(f"measuring broke off; the reason is printed above{kept}")
    if code == NOTHING and not out.exists():
        raise MeasureError("nothing was measured; the reason is printed above")


def _of_head(knob: str) -> str:
    return knob if "." in knob.split("=")[0] else f"head.{knob}"


def _looks(looks: tuple[int, ...], budget: int) -> tuple[int, ...]:
    """The policy's looks within a budget of trials, which is the last look; 0: as the policy says."""
    if not budget:
        return looks
    return (*(look for look in looks if look < budget), budget)


def _finished(trials: Sequence[Trial], plan: MeasurePlan) -> int:
    """Trials that every wanted case has already; 0 for a case that was never tried."""
    named = [case for case in plan.cases if "/" in case]
    counts = dict.fromkeys(named, 0)
    for name in (f"{trial.operator}/{case}" for trial in trials for case in trial.cases):
        if not named or name in counts:
            counts[name] = counts.get(name, 0) + 1
    return min(counts.values(), default=0)
