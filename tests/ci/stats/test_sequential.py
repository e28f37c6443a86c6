"""The chance that more trials decide a case: against playing them, and at its limits."""

from __future__ import annotations

import dataclasses
import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy import stats
from scipy.stats import false_discovery_control

from ci.stats import PairedRounds
from ci.stats import interval as measured
from ci.stats import sequential as grouping
from ci.stats.interval import Shifts
from ci.stats.sequential import (
    MOST_TIMES,
    SURE,
    DecisionRule,
    SoFar,
    TrialSeconds,
    adjusted,
    error_share,
    next_rounds,
    probability_decided,
    significant,
    trials_needed,
)

LOOKS = (4, 6, 8, 12)


def test_the_shares_of_all_looks_add_up_to_the_whole_rate():
    assert sum(error_share(n, LOOKS) for n in LOOKS) == pytest.approx(1)
    assert error_share(3, LOOKS) == 0


@given(st.lists(st.floats(0, 1), min_size=1, max_size=50))
def test_agrees_with_scipy(p_values):
    np.testing.assert_allclose(adjusted(np.array(p_values)), false_discovery_control(p_values), atol=1e-15)


@pytest.mark.parametrize(("each", "expected"), [(1e-3, [1, 0, 0]), (1e-5, [0, 0, 0])])
def test_a_finding_needs_both_bounds(each, expected):
    assert significant(np.array([1e-4, 0.01, 0.9]), np.full(3, each), 0.01).tolist() == expected


def test_thousands_of_cases_raise_the_bar():
    p_values = np.concatenate([[3e-4], np.full(2999, 0.5)])
    assert significant(p_values, np.full(3000, 4e-4), 0.01).sum() == 0


# The chance that more trials decide a case: against playing them, and at its limits.


RULE = DecisionRule(within=0.01, smallest=0.003, bias=0.0005, tail=5e-5, confidence=0.99)


def played(now, later, rule, draws=200_000):
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
def test_the_chance_is_that_of_playing_the_trials(effect, half, trials, later):
    now = SoFar(effect, half, trials)
    assert probability_decided(now, later, RULE) == pytest.approx(played(now, later, RULE), abs=0.08)


def test_needed_is_the_first_number_of_trials_that_is_sure_enough():
    now = SoFar(0.0, 0.03, 4)
    more = trials_needed(now, RULE)
    assert more
    assert probability_decided(now, 4 + more, RULE) >= SURE > probability_decided(now, 4 + more - 1, RULE)
    assert trials_needed(SoFar(0.0, 5.0, 4), RULE) is None


# The number of rounds that tells most in a second: against a search, within its limits, and by the noise alone.


def made(of_round, tau, trials=400, rounds=40):
    """Trials whose shifts scatter as the model says."""
    random = np.random.default_rng(4)
    shift = random.normal(0.0, np.sqrt(tau**2 + of_round**2 / rounds), trials)
    return Shifts(shift, np.full(trials, of_round**2 / rounds), np.zeros(trials), np.zeros(trials))


def had(count, trials=400):
    return np.full(trials, float(count))


@pytest.mark.parametrize(("of_round", "tau", "start", "usual"), [(0.02, 0.004, 300, 40), (0.03, 0.003, 60, 20)])
def test_no_other_number_tells_more_in_a_second(of_round, tau, start, usual):
    def told(rounds):
        return 1 / ((start + rounds) * (tau**2 + of_round**2 / rounds))

    found = next_rounds(made(of_round, tau, rounds=usual), had(usual), 0.0001, TrialSeconds(start * 0.01, 0.01))
    most = max(range(usual, MOST_TIMES * usual + 1, 10), key=told)
    assert abs(found - most) <= 20, "tau is estimated"
    assert told(found) > 0.98 * told(most)
    assert told(found) >= told(usual)


@pytest.mark.parametrize(
    ("of_round", "tau", "start_s", "round_s", "wanted"),
    [
        (0.001, 0.01, 1.0, 0.01, 40),  # starts differ by more than rounds do
        (0.1, 0.0, 100.0, 0.001, 40 * MOST_TIMES),
        (0.02, 0.004, 0.0, 0.01, 40),
        (0.02, 0.004, 1.0, 0.0, 40),
        (0.0, 0.004, 1.0, 0.01, 40),
    ],
)
def test_never_fewer_than_usual_and_never_many_more(of_round, tau, start_s, round_s, wanted):
    assert next_rounds(made(of_round, tau), had(40), 0.001, TrialSeconds(start_s, round_s)) == wanted


def test_the_effect_has_no_part_in_it():
    cost = TrialSeconds(3.0, 0.01)
    quiet = made(0.02, 0.004)
    slower = dataclasses.replace(quiet, shift=quiet.shift + 0.05)
    assert next_rounds(quiet, had(40), 0.001, cost) == next_rounds(slower, had(40), 0.001, cost)


def test_one_trial_says_nothing_of_starts():
    assert next_rounds(made(0.1, 0.0, trials=1), had(40, 1), 0.001, TrialSeconds(100.0, 0.001)) == 40


def test_trials_of_different_lengths_agree_on_a_round():
    cost, few, many = TrialSeconds(3.0, 0.01), made(0.02, 0.004, 200, 40), made(0.02, 0.004, 200, 120)
    fields = [np.concatenate([getattr(few, f.name), getattr(many, f.name)]) for f in dataclasses.fields(Shifts)]
    mixed = next_rounds(Shifts(*fields), np.concatenate([had(40, 200), had(120, 200)]), 0.001, cost)
    assert abs(mixed - next_rounds(made(0.02, 0.004), had(40), 0.001, cost)) <= 20


RNG = np.random.default_rng(8)


def sample(effect, numbers=range(6)):
    trials = [
        PairedRounds(n, np.exp(0.01 * RNG.standard_normal(40)), np.exp(0.01 * RNG.standard_normal(40) + effect))
        for n in numbers
    ]
    return measured.samples([trials])[0]


def test_mean_and_median_over_shapes_within_each_trial():
    members = [sample(e) for e in (0.01, 0.02, 0.03, 0.9)]
    mean, median = grouping.joined_sample(members, robust=False), grouping.joined_sample(members, robust=True)
    for i in range(6):
        values = [m.shifts.shift[i] for m in members]
        assert mean.shifts.shift[i] == pytest.approx(np.mean(values))
        assert median.shifts.shift[i] == pytest.approx(np.median(values))
    assert mean.shifts.variance[0] == pytest.approx(np.sum([m.shifts.variance[0] for m in members]) / 16)


def test_only_common_trials_are_used_and_too_few_are_refused():
    joined = grouping.joined_sample([sample(0, range(6)), sample(0, range(2, 8))], robust=False)
    assert joined.numbers == (2, 3, 4, 5)
    assert grouping.joined_sample([sample(0, range(4)), sample(0, range(2, 8))], robust=False) is None


def test_neighbours_need_four():
    assert grouping.groups_of_equal(list("aabbbbaac")) == [[0, 1, 6, 7], [2, 3, 4, 5]]
    assert grouping.groups_of_equal(list("aaab")) == []


@pytest.mark.parametrize(("slower", "faster", "said"), [(8, 0, True), (0, 9, True), (7, 0, False), (20, 1, False)])
def test_one_sided_findings_raise_a_doubt(slower, faster, said):
    assert bool(grouping.one_sided(slower, faster)) is said
