"""The number of rounds that tells most in a second: against a search, within its limits, and by the noise alone."""

from __future__ import annotations

import dataclasses

import numpy as np
import pytest

from ci.stats.interval import Shifts
from ci.stats.sequential import MOST_TIMES, TrialSeconds, best


def made(of_round: float, tau: float, trials: int = 400, rounds: int = 40) -> Shifts:
    """Trials whose shifts scatter as the model says."""
    random = np.random.default_rng(4)
    shift = random.normal(0.0, np.sqrt(tau**2 + of_round**2 / rounds), trials)
    return Shifts(shift, np.full(trials, of_round**2 / rounds), np.zeros(trials), np.zeros(trials))


def had(count: int, trials: int = 400) -> np.ndarray:
    return np.full(trials, float(count))


@pytest.mark.parametrize(("of_round", "tau", "start", "usual"), [(0.02, 0.004, 300, 40), (0.03, 0.003, 60, 20)])
def test_no_other_number_tells_more_in_a_second(of_round, tau, start, usual):
    def told(rounds: int) -> float:
        return 1 / ((start + rounds) * (tau**2 + of_round**2 / rounds))

    found = best(made(of_round, tau, rounds=usual), had(usual), 0.0001, TrialSeconds(start * 0.01, 0.01))
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
    assert best(made(of_round, tau), had(40), 0.001, TrialSeconds(start_s, round_s)) == wanted


def test_the_effect_has_no_part_in_it():
    cost = TrialSeconds(3.0, 0.01)
    quiet = made(0.02, 0.004)
    slower = dataclasses.replace(quiet, shift=quiet.shift + 0.05)
    assert best(quiet, had(40), 0.001, cost) == best(slower, had(40), 0.001, cost)


def test_one_trial_says_nothing_of_starts():
    assert best(made(0.1, 0.0, trials=1), had(40, 1), 0.001, TrialSeconds(100.0, 0.001)) == 40


def test_trials_of_different_lengths_agree_on_a_round():
    cost, few, many = TrialSeconds(3.0, 0.01), made(0.02, 0.004, 200, 40), made(0.02, 0.004, 200, 120)
    fields = [np.concatenate([getattr(few, f.name), getattr(many, f.name)]) for f in dataclasses.fields(Shifts)]
    mixed = best(Shifts(*fields), np.concatenate([had(40, 200), had(120, 200)]), 0.001, cost)
    assert abs(mixed - best(made(0.02, 0.004), had(40), 0.001, cost)) <= 20
