"""In live measuring: whether it is worth going on with an undecided case, what it would take, and with which rounds."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Mapping, Sequence

import numpy as np

from benchmarks import trial_file
from ci.judging.policy import Policy, Settings
from ci.stats import budget
from ci.stats.budget import MOST_TRIALS, SURE, DecisionRule, SoFar, TrialSeconds, chance, needed
from ci.stats.measured import Effect, samples
from ci.stats.sequential import Progress
from ci.trials.comparisons import Comparison
from ci.trials.trial import Trial


@dataclasses.dataclass(frozen=True)
class Outlook:
    """What is to be expected of more trials.  going_on: the budget may decide it.

    more_trials: how many would probably decide it, where they are not measured.  said: why it stops, "" if it goes on.
    """

    going_on: bool
    more_trials: int | None = None
    said: str = ""


def of(effect: Effect, trials: int, settings: Settings, tail: float, progress: Progress) -> Outlook:
    """Of a case that is CANNOT TELL after so many trials.  tail: the two-sided one at which a change is real."""
    if trials < progress.looks[0]:
        return Outlook(True)
    limits = (settings.same_within, settings.smallest_effect, settings.arm_bias)
    within, smallest, bias = map(math.log1p, limits)
    rule = DecisionRule(within, smallest, bias, tail / 2, settings.confidence)
    now = SoFar(effect.log_ratio, (effect.high - effect.low) / 2, trials)
    later = [look for look in progress.looks if look > trials]
    likely = max((chance(now, look, rule) for look in later), default=0.0)
    if later and likely >= settings.least_chance:
        return Outlook(True)
    more = needed(now, rule)
    stopped = f"stopped early: the chance that {progress.budget} trials decide it is {likely:.0%}; " if later else ""
    return Outlook(False, more, f"{stopped}{_would(more)}")


def _would(more: int | None) -> str:
    if more is None:
        return f"more than {MOST_TRIALS} trials would be needed"
    return f"about {more} more trials would decide it with a chance of {SURE:.0%}"


SHARED = ("start", "end", "between")
"""Phases that a trial has once, however many cases it measures (benchmarks.coordinator.lanes)."""


def rounds(
    operator: str, cases: Sequence[str], compared: Sequence[Comparison], trials: Sequence[Trial], policy: Policy
) -> dict[str, int]:
    """By case of an operator that is measured on, how many rounds tell most in a second; none: as many as before.

    cases: those that its next trials have.
    """
    cost = _cost([trial for trial in trials if trial.operator == operator], len(cases))
    found: dict[str, int] = {}
    if cost is None:
        return found
    for one in compared:
        case = one.case.split("/", 2)[-1]
        if one.kernel == operator and case in cases and one.trials and not one.same_code:
            settings = policy.settings(one.kernel, one.machine_kind)
            had = np.array([len(trial.base) for trial in one.trials], dtype=np.float64)
            [sample] = samples([one.trials])
            assert sample
            wanted = budget.best(sample.shifts, had, settings.trial_noise, cost)
            if wanted > had.min():
                found[case] = max(wanted, found.get(case, 0))
    return found


def _cost(trials: Sequence[Trial], cases: int) -> TrialSeconds | None:
    """Of one of so many cases, by the newest of an operator's trials; None where nothing says so, and of bursts."""
    newest = trials[-1] if trials else None
    had = [len(arm.seconds) for _, _, _, arm in newest.arms() if len(arm.seconds)] if newest else []
    phases: Mapping[str, float] = newest.spent.phases if newest and newest.spent else {}
    if not newest or not phases or not had or newest.regime != trial_file.REGIMES[0]:
        return None
    timed = sum(any(len(arm.seconds) for arm in case.arms.values()) for case in newest.cases.values())
    once, samples_s = sum(phases.get(name, 0.0) for name in SHARED), phases.get("rounds", 0.0)
    of_each = sum(phases.values()) - once - samples_s
    return TrialSeconds(once / cases + of_each / timed, samples_s / timed / float(np.median(had)))
