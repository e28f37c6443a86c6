"""Judge a finished file as the live comparison would have: look by look, with the policy's looks and confirmation.

Whoever measured stopped when its own judgement was content.  Judging the whole file at once would give that stopping
the full rate of false alarms at every look; so the looks are taken again here, by the policy of this tree, and a trial
beyond what a look asks for is not used: measuring on until the answer pleases gains nothing.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable, Mapping, Sequence

from ci.judging.judge import judge
from ci.judging.policy import Policy
from ci.judging.types import Judgement
from ci.stats.sequential import Progress, decide
from ci.trials.comparisons import comparisons
from ci.trials.trial import Trial


def judged(trials: Sequence[Trial], policy: Policy, kind: str, warnings: Iterable[str] = ()) -> Judgement:
    """The judgement at the last look that the trials (in the order they were measured) allow.

    kind: of the machine, "gpu" or "cpu".  An open case whose trials ran out stays what it was at its last look.
    """
    settings, remarks = policy.settings(machine_kind=kind), tuple(warnings)
    progress = Progress(settings.looks, settings.confirming)
    there = _counts(trials)
    allowed = dict.fromkeys(there, 1)
    while True:
        judgement = judge(comparisons(_first(trials, allowed), remarks), policy, progress)
        progress = progress.advanced(judgement.cases)
        decision = decide(progress, judgement.cases)
        asked = {operator_case(name) for name in decision.cases}
        more = {case: decision.trials for case in asked if there.get(case, 0) > allowed.get(case, 0)}
        if decision.action == "stop" or not more:
            return judgement
        allowed |= more


def operator_case(name: str) -> str:
    """ "gemm/m64" of "gemm/triton/m64": every backend of a case is timed in the same trials."""
    operator, _, case = name.split("/", 2)
    return f"{operator}/{case}"


def _counts(trials: Iterable[Trial]) -> dict[str, int]:
    """How many trials each case has."""
    counts: dict[str, int] = {}
    for name in (f"{trial.operator}/{case}" for trial in trials for case in trial.cases):
        counts[name] = counts.get(name, 0) + 1
    return counts


def _first(trials: Iterable[Trial], allowed: Mapping[str, int]) -> list[Trial]:
    """The trials with the first results of each case, as many as allowed."""
    taken: dict[str, int] = {}
    first = []
    for trial in trials:
        kept = {}
        for case, result in trial.cases.items():
            name = f"{trial.operator}/{case}"
            taken[name] = taken.get(name, 0) + 1
            if taken[name] <= allowed[name]:
                kept[case] = result
        if kept:
            first.append(dataclasses.replace(trial, cases=kept))
    return first
