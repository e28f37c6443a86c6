"""Findings about rows of samples: seen where they are, silent where they are not."""

from __future__ import annotations

import random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from benchmarks.coordinator import samples


def noisy(count: int, level: float = 1e-3, spread: float = 0.01, seed: int = 0) -> list[float]:
    draw = random.Random(seed)
    return [level * (1 + draw.gauss(0, spread)) for _ in range(count)]


@pytest.mark.parametrize("seed", range(20))
def test_ordinary_noise_has_no_symptom(seed):
    assert samples.symptoms_of(noisy(40, seed=seed), first_call_s=2e-3) == []


def test_first_call_work():
    [found] = samples.symptoms_of(noisy(40), first_call_s=2.4)
    assert found == "first call ran 2404 times longer than the median: work that belongs to set-up"
    assert samples.symptoms_of(noisy(40, level=1e-5), first_call_s=0.16) == [], "loading a module is not a search"


def test_a_slow_first_sample():
    [found] = samples.symptoms_of([4e-3, *noisy(39)])
    assert "first timed sample ran 4.0 times longer" in found


def test_a_clock_that_cannot_resolve():
    assert "cannot resolve" in samples.symptoms_of([0.0] * 5)[0]


@given(st.lists(st.floats(min_value=1e-9, max_value=10), min_size=1, max_size=60))
def test_any_row_of_samples_can_be_looked_at(samples):
    assert all(isinstance(finding, str) for finding in samples.symptoms_of(samples, samples[0]))
