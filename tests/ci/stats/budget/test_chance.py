"""The chance that more trials decide a case: against playing them, and at its limits."""

from __future__ import annotations

import dataclasses
import math

import numpy as np
import pytest
from scipy import stats

from ci.stats.sequential import MOST_TRIALS, SURE, DecisionRule, SoFar, chance, needed

RULE = DecisionRule(within=0.01, smallest=0.003, bias=0.0005, tail=5e-5, confidence=0.99)


def played(now: SoFar, later: int, rule: DecisionRule, draws: int = 200_000) -> float:
    """The oracle: draw an effect, how much trials differ, and the estimate after all trials; decide by the words."""
    rng = np.random.default_rng(5)
    width = stats.norm.ppf(0.5 + rule.confidence / 2)
    error = now.half / width
    log_sd = math.sqrt(0.5 / (now.trials - 1) - 0.5 / (later - 1))
    then = error * math.sqrt(now.trials / later) * np.exp(log_sd * rng.standard_normal(draws))
    estimate = now.effect + rng.standard_normal(draws) * np.sqrt(np.maximum(error**2 - then**2, 1e-24))
    within = np.abs(estimate) + width * then <= rule.within
    real = stats.norm.sf((np.abs(estimate) - rule.bias) / then) <= rule.tail
    return float(np.mean(within | (real & (np.abs(estimate) >= rule.smallest))))


@pytest.mark.parametrize("effect", [0.0, 0.002, 0.008, 0.015, -0.03])
@pytest.mark.parametrize("half", [0.004, 0.012, 0.03, 0.1])
@pytest.mark.parametrize(("trials", "later"), [(4, 12), (8, 12), (6, 40)])
def test_the_chance_is_that_of_playing_the_trials(effect: float, half: float, trials: int, later: int) -> None:
    now = SoFar(effect, half, trials)
    assert chance(now, later, RULE) == pytest.approx(played(now, later, RULE), abs=0.08)


def test_what_is_nearly_decided_is_likely_and_noise_is_not() -> None:
    assert chance(SoFar(0.0, 0.0101, 4), 12, RULE) > 0.7
    assert chance(SoFar(0.0, 0.0101, 12), 60, RULE) > 0.9
    assert chance(SoFar(0.02, 0.02, 4), 12, RULE) > 0.5
    assert chance(SoFar(0.0, 0.2, 4), 12, RULE) < 0.05
    assert 0 <= chance(SoFar(0.0, 1e-9, 4), 5, RULE) <= 1


def test_the_sign_of_an_effect_does_not_matter() -> None:
    assert chance(SoFar(0.01, 0.02, 6), 12, RULE) == pytest.approx(chance(SoFar(-0.01, 0.02, 6), 12, RULE))


def test_needed_is_the_first_number_of_trials_that_is_sure_enough() -> None:
    now = SoFar(0.0, 0.03, 4)
    more = needed(now, RULE)
    assert more
    assert chance(now, 4 + more, RULE) >= SURE > chance(now, 4 + more - 1, RULE)
    assert needed(SoFar(0.0, 5.0, 4), RULE) is None
    wide = dataclasses.replace(now, half=0.06)
    assert more < (needed(wide, RULE) or MOST_TRIALS)
