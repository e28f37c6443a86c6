"""Bursts on a made clock: what is launched, what is timed, and when the device had to wait."""

from __future__ import annotations

import time

import pytest

from benchmarks.worker import clocks


class MadeClock:
    """A device that takes call_s(n) for its n-th launch, and a host that needs host_s to make one."""

    def __init__(self, call_s, host_s: float = 0.0) -> None:
        self.call_s, self.host_s = call_s, host_s
        self.host = self.device = 0.0
        self.launches, self.met, self.furthest = 0, 0, 0
        self.barrier = self.meet
        self.marks: list[float] = []

    def stamps(self):
        return self

    def meet(self) -> None:
        assert not self.marks, "the ranks meet before the burst"
        self.met += 1

    def launch(self) -> None:
        self.host += self.host_s
        self.device = max(self.device, self.host) + self.call_s(self.launches)
        self.launches += 1

    def mark(self) -> None:
        self.marks.append(self.device)

    def idle(self) -> bool:
        return self.host >= self.marks[-1]

    def keep(self, ahead: int) -> None:
        self.furthest = max(self.furthest, sum(1 for one in self.marks if one > self.host))
        if len(self.marks) > ahead:
            self.host = max(self.host, self.marks[-1 - ahead])

    def seconds(self) -> list[float]:
        self.host = max(self.host, self.device)
        return [one - self.marks[0] for one in self.marks]


def burst_of(clock: MadeClock, launches: int, calls: int = 1) -> clocks.Burst:
    return clocks.burst(clock, clocks.Timed(clock.launch, calls), launches)


def test_only_the_second_half_is_timed():
    clock = MadeClock(lambda n: 2e-3 if n < 100 else 1e-3)
    found = burst_of(clock, 200)
    assert clock.launches == 200
    assert found.seconds == pytest.approx(1e-3)
    assert found.busy_s == pytest.approx(0.3)
    assert clock.met == 1


@pytest.mark.parametrize("launches", [2, 3, 5, 63, 64, 65, 127, 1000])
def test_every_launch_is_made_and_counted_once(launches):
    clock = MadeClock(lambda n: 1e-4)
    found = burst_of(clock, launches, calls=20)
    assert clock.launches == launches
    assert found.seconds == pytest.approx(1e-4 / 20)
    assert found.parts <= clocks.PARTS // 2


def test_the_queue_is_filled_and_bounded():
    clock = MadeClock(lambda n: 1e-3, host_s=1e-5)
    assert burst_of(clock, 640).starved == 0
    assert clock.furthest <= clocks.AHEAD + 2


def test_a_host_that_is_too_slow_is_seen():
    found = burst_of(MadeClock(lambda n: 1e-5, host_s=3e-5), 640)
    assert found.starved == found.parts == 32
    assert found.seconds == pytest.approx(3e-5, rel=0.05)


def test_on_a_cpu_the_host_s_clock_times_it():
    clock = clocks.HostClock(0, None)
    before = time.monotonic()
    found = clocks.burst(clock, clocks.Timed(lambda: time.sleep(1e-3)), 20)
    assert 1e-3 <= found.seconds < 0.05
    assert before <= found.from_s < found.to_s <= time.monotonic()
    assert found.to_s - found.from_s == pytest.approx(found.seconds * 10, rel=1e-6)
    assert found.starved == 0
