"""Joules per span from counters that move in steps, on synthetic counters with a known truth."""

from __future__ import annotations

import random
import statistics
import threading
import time

import pytest

from benchmarks.coordinator import sustained
from benchmarks.coordinator.sustained import CounterStep, EnergyMeter, EnergySpan


def steps_of(watts: float, step_s: float, poll_s: float, until_s: float, phase_s: float = 0.0) -> list[CounterStep]:
    """What asking every poll_s sees of a counter that moves every step_s under a constant power."""
    found, last, asked = [], 0.0, 0.0
    for n in range(1, int(until_s / poll_s)):
        now = n * poll_s
        joules = watts * (((now - phase_s) // step_s) * step_s)
        if joules != last and n > 1:
            found.append(CounterStep(asked, now, joules))
        asked, last = now, joules
    return found


@pytest.mark.parametrize("step_s", [0.02, 0.1])
def test_a_span_is_known_within_its_doubt(step_s):
    for seed in range(20):
        phase = random.Random(seed).uniform(0, step_s)
        found = sustained.within(steps_of(500.0, step_s, 0.005, 2.0, phase), 0.5, 1.5)
        assert found.watts == pytest.approx(500.0, rel=0.005 / found.seconds)
        assert found.seconds > 1.0 - 2 * step_s - 0.01
        assert found.doubt == pytest.approx(0.776 * 0.005 / found.seconds, rel=1e-3)


def test_too_short_a_span_says_nothing():
    steps = steps_of(500.0, 0.1, 0.005, 2.0)
    assert sustained.within(steps, 0.5, 0.59) is None
    assert sustained.within([], 0.0, 1.0) is None


def test_how_long_a_span_must_be_agrees_with_reading_a_counter_at_both_ends():
    """The oracle: a counter with a step of 20 ms, read at both ends of spans at random moments, 20,000 times."""
    order, step_s = random.Random(1), 0.02
    span_s = sustained.TRIANGLE_95 * step_s / 0.01
    assert span_s == pytest.approx(1.552)
    errors = []
    for _ in range(20_000):
        begin = order.uniform(0, 100)
        read = ((begin + span_s) // step_s - begin // step_s) * step_s
        errors.append(abs(read / span_s - 1))
    independent = [abs(order.random() - order.random()) * step_s / span_s for _ in range(20_000)]
    assert max(errors) <= step_s / span_s * 1.001
    assert statistics.quantiles(independent, n=100)[94] == pytest.approx(0.01, rel=0.03)


def test_the_devices_of_a_collective_count_together_and_one_unknown_makes_all_unknown():
    one, two = EnergySpan(100.0, 0.2, 0.01), EnergySpan(180.0, 0.3, 0.02)
    both = sustained.of_all([one, two])
    assert (both.watts, both.seconds, both.doubt) == (pytest.approx(1100.0), 0.2, 0.02)
    assert sustained.of_all([one, None]) is None
    assert sustained.of_all([]) is None


class Counter:
    """A counter under 300 W that moves every 20 ms."""

    def __call__(self, device: int) -> float:
        return 300.0 * (time.monotonic() // 0.02) * 0.02


def test_the_meter_follows_a_counter_in_the_background():
    meter = EnergyMeter(Counter(), 2, None)
    with meter.running():
        begin = time.monotonic()
        time.sleep(0.35)
    found = meter.between(begin, begin + 0.35)
    assert found is not None
    assert found.watts == pytest.approx(600.0, rel=0.3)  # other processes may stop this one between two askings
    facts = meter.facts()
    assert facts["why_absent"] is None
    assert facts["step_s"] == pytest.approx(0.02, rel=0.5)


@pytest.mark.parametrize(
    ("read", "why", "said"),
    [
        (None, "no GPU", "no GPU"),
        (lambda device: None, None, "the driver of a device counts no energy"),
        (lambda device: 5.0, None, "no counter moved twice while it was asked"),
    ],
)
def test_what_cannot_be_read_is_said(read, why, said):
    meter = EnergyMeter(read, 1, why)
    before = threading.active_count()
    with meter.running():
        time.sleep(0.03)
    assert threading.active_count() == before
    assert meter.between(0.0, 1e9) is None
    assert meter.facts() == {"step_s": None, "poll_s": None, "why_absent": said}


def test_a_counter_is_left_alone_while_it_cannot_move():
    asked: list[float] = []

    def read(device: int) -> float:
        asked.append(time.monotonic())
        return 300.0 * (time.monotonic() // 0.1) * 0.1

    meter = EnergyMeter(read, 1, None)
    with meter.running():
        time.sleep(1.0)
    late = [one for one in asked if one > asked[0] + 0.4]
    assert len(late) < 0.75 * 0.6 / sustained.POLL_S
    assert meter.facts()["step_s"] == pytest.approx(0.1, rel=0.3)
