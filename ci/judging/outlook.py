"""In live measuring: whether it is worth going on with an undecided case, and what it would take to decide it."""

from __future__ import annotations

import dataclasses
import math

from ci.judging.policy import Settings
from ci.stats.budget.chance import MOST, SURE, DecisionRule, SoFar, chance, needed
from ci.stats.measured import Effect
from ci.stats.sequential import Progress


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
        return f"more than {MOST} trials would be needed"
    return f"about {more} more trials would decide it with a chance of {SURE:.0%}"
