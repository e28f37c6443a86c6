"""Joules per span from counters that move in steps, on synthetic counters with a known truth."""

from __future__ import annotations

import itertools
import random
import statistics
import threading
import time
from collections import Counter

import pytest

from benchmarks.coordinator import sustained
from benchmarks.coordinator.sustained import (
    SETTLING_BURSTS,
    BurstRounds,
    CounterStep,
    EnergyMeter,
    EnergySpan,
    balanced,
)


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


def test_the_devices_of_a_collective_count_together_and_one_unknown_makes_all_unknown():
    one, two = EnergySpan(100.0, 0.2, 0.01), EnergySpan(180.0, 0.3, 0.02)
    both = sustained.of_all([one, two])
    assert (both.watts, both.seconds, both.doubt) == (pytest.approx(1100.0), 0.2, 0.02)
    assert sustained.of_all([one, None]) is None
    assert sustained.of_all([]) is None


class PlayedCounter:
    """A counter under 300 W that moves every `step_s`, and the clock that it is asked by, for a second."""

    def __init__(self, step_s: float) -> None:
        self.step_s, self.now_s, self.asked = step_s, 0.0, list[float]()

    def __call__(self, device: int) -> float:
        self.asked.append(self.now_s)
        return 300.0 * (self.now_s // self.step_s) * self.step_s

    def monotonic(self) -> float:
        return self.now_s

    def wait(self, seconds: float) -> bool:
        """As that of the event that ends the asking."""
        self.now_s += seconds
        return self.now_s >= 1.0


def test_the_meter_follows_a_counter(monkeypatch):
    counter = PlayedCounter(0.02)
    monkeypatch.setattr(sustained, "time", counter)
    meter = EnergyMeter(counter, 2, None)
    meter._follow(counter)
    found = meter.between(0.1, 0.9)
    assert found is not None
    assert found.watts == pytest.approx(600.0, rel=0.03)
    facts = meter.facts()
    assert facts["why_absent"] is None
    assert facts["step_s"] == pytest.approx(0.02, rel=0.1)


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


def test_a_counter_is_left_alone_while_it_cannot_move(monkeypatch):
    counter = PlayedCounter(0.1)
    monkeypatch.setattr(sustained, "time", counter)
    meter = EnergyMeter(counter, 1, None)
    meter._follow(counter)
    late = [one for one in counter.asked if one > 0.4]
    assert len(late) < 0.75 * 0.6 / sustained.POLL_S
    assert meter.facts()["step_s"] == pytest.approx(0.1, rel=0.1)


# The order of bursts: balanced neighbours and places, next to an exhaustive search and to plain shuffling.


def spread(counts: Counter, keys: list) -> int:
    return max(counts[key] for key in keys) - min(counts[key] for key in keys)


def neighbours(rounds: list[list[str]]) -> tuple[int, int]:
    """By how much the most frequent follower and place exceed the rarest, counted one by one."""
    flat = [arm for those in rounds for arm in those]
    arms = sorted(set(flat))
    follows = Counter((a, b) for a, b in zip(flat, flat[1:], strict=False) if a != b)
    places = Counter((arm, those.index(arm)) for those in rounds for arm in those)
    pairs = list(itertools.permutations(arms, 2))
    return spread(follows, pairs), spread(places, list(itertools.product(arms, range(len(arms)))))


@pytest.mark.parametrize("arms", [2, 3, 4, 5, 6])
@pytest.mark.parametrize("seed", range(2))
def test_every_round_has_every_arm_and_neighbours_and_places_balance(arms, seed):
    names = list("abcdef"[:arms])
    rounds = balanced(names, 12, random.Random(seed))
    assert [sorted(those) for those in rounds] == [names] * 12
    follows, places = neighbours(rounds)
    assert follows <= 3
    assert places <= 3
    if arms == 2:
        assert (follows, places) == (0, 0)


def test_one_arm_and_no_rounds():
    assert balanced(["a"], 3, random.Random(0)) == [["a"]] * 3
    assert balanced(["a", "b"], 0, random.Random(0)) == []


# Rounds of bursts on a made device, whose clock follows the power of what ran in the last 200 ms.


NO_METER = EnergyMeter(None, 1, "no GPU")


class MadeDevice:
    """A device whose calls take longer the warmer it is; heat follows with a time constant of 200 ms.

    cold_s: seconds of a call of each arm on a cold device.  hot: share by which it is slower at its settled power.
    """

    def __init__(self, cold_s: dict[str, float], hot: float) -> None:
        self.cold_s, self.hot, self.heat, self.now_s = cold_s, hot, 0.0, 0.0
        self.asked: list[tuple[str, int]] = []

    def burst(self, arm: str, launches: int):
        self.asked.append((arm, launches))
        halves, spent = [], 0.0
        for _ in range(2):
            call_s = self.cold_s[arm] * (1 + self.hot * self.heat)
            half_s = launches / 2 * call_s
            self.heat = min(1.0, self.heat + half_s / 0.2)
            halves.append(call_s)
            spent += half_s
        self.now_s += spent
        span = {"from_s": self.now_s - spent / 2, "to_s": self.now_s}
        one = {"seconds": halves[1], "busy_s": spent, "starved": 0, "parts": 32, **span}
        return [one]


def bursts(device: MadeDevice, burst_s: float = 0.3, meter=NO_METER) -> BurstRounds:
    return BurstRounds(device.burst, burst_s, random.Random(0), meter)


def test_a_calibrated_burst_is_as_long_as_asked_however_wrong_the_first_guess():
    device = MadeDevice({"a": 1e-5, "b": 2e-3}, hot=0.0)
    timed = bursts(device)
    timed.calibrate("a", 5e-3)  # 500 times too long
    timed.calibrate("b", 2e-3)
    before = device.now_s
    bursts_taken = len(list(timed.take(["a", "b"], 3)))
    assert 0.3 <= (device.now_s - before) / bursts_taken <= 0.36
    assert timed.busy_s == pytest.approx(device.now_s)


def test_the_device_is_settled_when_two_bursts_agree_and_every_round_is_then_hot():
    device = MadeDevice({"a": 1e-3, "b": 1.5e-3}, hot=0.2)
    timed = bursts(device)
    for arm in "ab":
        timed.calibrate(arm, 1e-3)
    assert timed.settle("a", 0.005) == ""
    assert len(device.asked) <= 2 + 4
    taken = list(timed.take(["a", "b"], 8))
    median = {arm: statistics.median(max(one.by_rank) for one in taken if one.arm == arm) for arm in "ab"}
    assert median == {"a": pytest.approx(1.2e-3), "b": pytest.approx(1.8e-3)}


def test_a_device_that_never_settles_is_said():
    class Wandering(MadeDevice):
        def burst(self, arm, launches):
            self.cold_s[arm] *= 1.02
            return super().burst(arm, launches)

    device = Wandering({"a": 1e-3}, hot=0.0)
    timed = bursts(device)
    timed.calibrate("a", 1e-3)
    before = len(device.asked)
    assert "did not settle: after 10 bursts of 0.3 s" in timed.settle("a", 0.005)
    assert len(device.asked) - before == SETTLING_BURSTS
