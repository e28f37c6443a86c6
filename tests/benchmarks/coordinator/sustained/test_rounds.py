"""Rounds of bursts on a made device, whose clock follows the power of what ran in the last 200 ms."""

from __future__ import annotations

import random
import statistics

import pytest

from benchmarks.coordinator.sustained import SETTLING_BURSTS, BurstRounds, EnergyMeter

NO_METER = EnergyMeter(None, 1, "no GPU")


class MadeDevice:
    """A device whose calls take longer the warmer it is; heat follows with a time constant of 200 ms.

    cold_s: seconds of a call of each arm on a cold device.  hot: share by which it is slower at its settled power.
    """

    def __init__(self, cold_s: dict[str, float], hot: float, ranks: int = 1) -> None:
        self.cold_s, self.hot, self.ranks, self.heat, self.now_s = cold_s, hot, ranks, 0.0, 0.0
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
        return [one | {"seconds": halves[1] * (1 + 0.01 * rank)} for rank in range(self.ranks)]


def bursts(device: MadeDevice, burst_s: float = 0.3, meter=NO_METER) -> BurstRounds[str]:
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


def test_of_a_collective_every_rank_is_kept():
    device = MadeDevice({"a": 1e-3}, hot=0.0, ranks=3)
    timed = bursts(device)
    timed.calibrate("a", 1e-3)
    [one] = timed.take(["a"], 1)
    assert one.by_rank == pytest.approx([1e-3, 1.01e-3, 1.02e-3])


def test_a_call_longer_than_a_burst_is_made_twice():
    device = MadeDevice({"a": 2.0}, hot=0.0)
    timed = bursts(device)
    timed.calibrate("a", 2.0)
    [one] = timed.take(["a"], 1)
    assert device.asked[-1] == ("a", 2)
    assert one.by_rank == pytest.approx([2.0])


def test_joules_are_the_power_of_the_burst_times_its_seconds_per_call():
    class Meter(EnergyMeter):
        def between(self, from_s, to_s):
            assert to_s > from_s
            return type("Span", (), {"watts": 700.0, "seconds": to_s - from_s})()

    device = MadeDevice({"a": 1e-3}, hot=0.0)
    timed = bursts(device, meter=Meter(None, 1, ""))
    timed.calibrate("a", 1e-3)
    [one] = timed.take(["a"], 1)
    assert one.joules == pytest.approx(0.7)
    [unknown] = bursts_of(device)
    assert unknown.joules is None


def bursts_of(device: MadeDevice):
    timed = bursts(device)
    timed.calibrate("a", 1e-3)
    return timed.take(["a"], 1)
