import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy.stats import false_discovery_control

from ci.stats.sequential import adjusted, found


@given(st.lists(st.floats(0, 1), min_size=1, max_size=50))
def test_agrees_with_scipy(p_values):
    np.testing.assert_allclose(adjusted(np.array(p_values)), false_discovery_control(p_values), atol=1e-15)


def test_slow_oracle_step_up():
    p_values = np.random.default_rng(0).random(200) ** 4
    order = sorted(p_values)
    largest = max((k for k, p in enumerate(order, 1) if p <= k * 0.05 / 200), default=0)
    assert int((adjusted(p_values) <= 0.05).sum()) == largest > 0


def test_empty():
    assert len(adjusted(np.zeros(0))) == 0


@pytest.mark.parametrize(("each", "expected"), [(1e-3, [1, 0, 0]), (1e-5, [0, 0, 0])])
def test_a_finding_needs_both_bounds(each, expected):
    assert found(np.array([1e-4, 0.01, 0.9]), np.full(3, each), 0.01).tolist() == expected


def test_thousands_of_cases_raise_the_bar():
    p_values = np.concatenate([[3e-4], np.full(2999, 0.5)])
    assert found(p_values, np.full(3000, 4e-4), 0.01).sum() == 0
