"""The block shift against a slow oracle, and what it must not be moved by."""

import statistics

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ci.stats.interval import CHUNK, RESOLUTION, SPREAD, blocks_of, shifts

RNG = np.random.default_rng(3)


def noisy(trials, rounds, effect=0.0, scale=0.02, rng=RNG):
    base = np.exp(scale * rng.standard_normal((trials, rounds))) * 5e-5
    return base, np.exp(scale * rng.standard_normal((trials, rounds)) + effect) * 5e-5


def slow_shift(base, head):
    """(shift, variance) of one trial, by loops."""
    count, width = blocks_of(len(base))
    start = len(base) - count * width
    ratios = []
    for block in range(count):
        rows = range(start + block * width, start + (block + 1) * width)
        ratios += [np.log(head[i]) - np.log(base[j]) for i in rows for j in rows]
    ratios.sort()
    reach = SPREAD * (count * width * width * (2 * width + 1) / 12) ** 0.5
    middle = (len(ratios) - 1) / 2
    low, high = max(0, round(middle - reach)), min(len(ratios) - 1, round(middle + reach))
    return statistics.median(ratios), max((ratios[high] - ratios[low]) / (2 * SPREAD), RESOLUTION) ** 2


@pytest.mark.parametrize("rounds", [5, 8, 12, 19, 20, 25, 40, 47])
def test_agrees_with_the_oracle(rounds):
    base, head = noisy(6, rounds, 0.01)
    fast = shifts(base, head)
    for i in range(6):
        assert (fast.shift[i], fast.variance[i]) == pytest.approx(slow_shift(base[i], head[i]), rel=1e-12)


def test_many_trials_are_cut_into_chunks_without_a_trace():
    base, head = noisy(CHUNK + 3, 10)
    whole, part = shifts(base, head), shifts(base[CHUNK - 1 :], head[CHUNK - 1 :])
    np.testing.assert_array_equal(whole.shift[CHUNK - 1 :], part.shift)
    np.testing.assert_array_equal(whole.variance[CHUNK - 1 :], part.variance)


@given(st.integers(5, 45), st.floats(0.5, 2.0), st.floats(1e-7, 10.0))
@settings(max_examples=40, deadline=None)
def test_swapping_arms_negates_and_units_do_not_matter(rounds, ratio, unit):
    base, head = noisy(2, rounds, rng=np.random.default_rng(rounds))
    one, back, scaled = shifts(base, head), shifts(head, base), shifts(base * unit, head * unit * ratio)
    np.testing.assert_allclose(back.shift, -one.shift, atol=1e-12)
    np.testing.assert_allclose(scaled.shift, one.shift + np.log(ratio), atol=1e-9)
    np.testing.assert_allclose(scaled.variance, one.variance, rtol=1e-6)


def test_the_variance_is_that_of_the_shift_over_many_trials():
    base, head = noisy(3000, 40)
    found = shifts(base, head)
    assert found.shift.var() == pytest.approx(found.variance.mean(), rel=0.15)


def test_a_quarter_of_spoiled_rounds_does_not_move_the_shift():
    base, head = noisy(200, 40, 0.01, 0.005)
    spoiled = head.copy()
    spoiled[:, ::5] *= 10
    assert abs(np.mean(shifts(base, spoiled).shift) - 0.01) < 0.005


def test_common_drift_over_the_trial_cancels():
    base, head = noisy(50, 40, 0.0, 0.001)
    ramp = np.linspace(1.0, 1.2, 40)
    assert np.std(shifts(base * ramp, head * ramp).shift) < 0.004 < np.std(np.log(ramp))


def test_identical_samples_keep_a_least_variance():
    flat = np.full((3, 40), 5e-5)
    found = shifts(flat, flat)
    assert np.all(found.shift == 0)
    assert np.all(found.variance == RESOLUTION**2)


def test_drift_of_one_arm_shows_as_serial_correlation():
    base, head = noisy(50, 40, 0.0, 0.003)
    assert abs(shifts(base, head).serial.mean()) < 0.1
    assert shifts(base, head * np.linspace(1, 1.1, 40)).serial.mean() > 0.8
