"""Clocks: what is inside a sample and what is not, on the CPU and on a simulated device."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from pathlib import Path
from types import SimpleNamespace

import pytest
import torch

from benchmarks.worker import bound, clocks
from benchmarks.worker.clocks import DeviceClock, HostClock, Timed
from tests.kit import HANGS_S, ROOT
from tests.needed import absent


def test_the_host_clock_times_the_call_alone():
    events = []

    def slow_barrier():
        events.append("barrier")
        time.sleep(0.4)

    clock = HostClock(1 << 20, slow_barrier)
    taken = clock.run([Timed(lambda: events.append("a")), Timed(lambda: time.sleep(0.5), calls=2)])
    assert events == ["barrier", "a", "barrier"]
    assert taken.seconds[0] < 0.2, "waiting for the others is no part of a sample"
    assert taken.seconds[1] >= 0.25, "per call"


@pytest.mark.slow
def test_time_in_which_the_core_runs_somebody_else_is_no_part_of_a_sample():
    """Beside a process that never rests, on one core: half of the wall time is the other's."""
    if not Path("/proc/thread-self/schedstat").exists():
        absent("this kernel does not say how long a thread waits; one with CONFIG_SCHED_INFO does")
    program = (
        "import time; from benchmarks.worker import clocks, probe; probe.settle_on({core})\n"
        "def work():\n    for _ in range(4_000_000): pass\n"
        "clock = clocks.HostClock(0, None); begin = time.perf_counter()\n"
        "samples = [clock.run([clocks.Timed(work)]).seconds[0] for _ in range(5)]\n"
        "print(sorted(samples)[2], (time.perf_counter() - begin) / 5, time.process_time() / 5)"
    )
    core = min(os.sched_getaffinity(0))
    spinning = [sys.executable, "-c", f"import os; os.sched_setaffinity(0, {{{core}}})\nwhile True: pass"]
    with subprocess.Popen(spinning) as other:
        try:
            run = [sys.executable, "-c", program.format(core=core)]
            said = subprocess.run(run, capture_output=True, text=True, check=True, cwd=ROOT, timeout=HANGS_S)
        finally:
            other.kill()
    sample, wall, _ = map(float, said.stdout.split())
    assert sample < 0.75 * wall


@pytest.mark.slow
def test_a_process_has_one_core_and_keeps_its_memory():
    program = (
        "import os, resource, torch; from benchmarks.worker import probe; probe.settle_on({core})\n"
        "faults = lambda: resource.getrusage(resource.RUSAGE_SELF).ru_minflt\n"
        "make = lambda: [torch.empty(1 << 20).fill_(1.0) for _ in range(4)]\n"
        "make(); before = faults(); [make() and None for _ in range(20)]\n"
        "print(sorted(os.sched_getaffinity(0)), (faults() - before) / 20)"
    )
    core = max(os.sched_getaffinity(0))
    run = [sys.executable, "-c", program.format(core=core)]
    said = subprocess.run(run, capture_output=True, text=True, check=True, cwd=ROOT, timeout=HANGS_S).stdout.split()
    assert said[0] == f"[{core}]"
    assert float(said[1]) < 2048, "16 MB are 4096 pages"


class Device:
    """A device with a queue: work is enqueued at host time and done one after the other, in microseconds."""

    def __init__(self):
        self.host_us = self.device_us = 0.0
        self.log = []
        self.synchronisations = 0

    def enqueue(self, name, work_us, host_us=5.0):
        """Returns when the work is done."""
        self.host_us += host_us
        self.device_us = max(self.device_us, self.host_us) + work_us
        self.log.append(name)
        return self.device_us

    def synchronize(self, *_):
        self.synchronisations += 1
        self.host_us = max(self.host_us, self.device_us)

    def event(self, enable_timing=False):
        assert enable_timing
        return Event(self)


class Event:
    def __init__(self, device):
        self._device, self.at_us = device, 0.0

    def record(self):
        self.at_us = self._device.enqueue("event", 0.0, 1.0)

    def query(self):
        return self.at_us <= self._device.host_us

    def synchronize(self):
        self._device.synchronize()

    def elapsed_time(self, other):
        """Milliseconds, as torch gives them."""
        return (other.at_us - self.at_us) * 1e-3


FLUSH_US = 40.0


@pytest.fixture
def device(monkeypatch):
    simulated = Device()
    stand_in = {
        "Event": simulated.event,
        "record": Event.record,
        "query": Event.query,
        "elapsed_time": Event.elapsed_time,
        "event_synchronize": Event.synchronize,
        "synchronize": simulated.synchronize,
        "sleep_cycles": lambda cycles: simulated.enqueue("sleep", cycles * 1e-3),
        "total": lambda *_, **__: simulated.enqueue("flush", FLUSH_US),
        "perf_counter": lambda: simulated.host_us * 1e-6,
    }
    for name, value in stand_in.items():
        monkeypatch.setattr(bound, name, value)
    return simulated


def call(device, work_us, host_us=5.0):
    return Timed(lambda: device.enqueue("call", work_us, host_us))


def test_a_sample_on_a_device_is_the_call_alone_behind_a_flush(device):
    clock = DeviceClock(torch.device("cpu"), 64, lambda: device.enqueue("barrier", 7.0))
    device.log.clear()
    taken = clock.run([call(device, 100.0), call(device, 60.0)])
    assert taken.seconds == pytest.approx([100e-6, 60e-6])
    assert taken.starved == [False, False]
    assert device.log[-6:] == ["event", "flush", "barrier", "event", "call", "event"]
    assert device.log[:7] == ["event", *["flush"] * 6], "a head start of 200 us, then the flush of the sample"


def test_launch_latency_is_seen_and_then_hidden(device):
    clock = DeviceClock(torch.device("cpu"), 64, None)

    def two_launches():
        device.enqueue("first", 5.0, 150.0)
        device.enqueue("second", 5.0, 150.0)

    timed = Timed(two_launches)
    first = clock.run([timed] * 5)
    assert first.starved[-1]
    assert first.seconds[-1] > 100e-6, "the device waited for the second launch"
    for enqueue_s, starved in zip(first.enqueue_s, first.starved, strict=True):
        clock.adapt(timed, enqueue_s, starved)
    second = clock.run([timed] * 50)
    assert not any(second.starved)
    assert second.seconds == pytest.approx([10e-6] * 50)


def test_a_call_that_waits_for_the_device_never_gets_endless_leads(device):
    clock = DeviceClock(torch.device("cpu"), 64, None)

    def waits():
        device.enqueue("call", 10.0)
        device.synchronize()

    timed = Timed(waits)
    for _ in range(20):
        taken = clock.run([timed])
        clock.adapt(timed, taken.enqueue_s[0], taken.starved[0])
    assert taken.starved == [True]
    assert timed.lead_s <= clocks.LONGEST_LEAD_S


def test_hot_samples_are_led_by_sleep_and_never_flushed(device):
    clock = DeviceClock(torch.device("cpu"), 0, None)
    device.log.clear()
    assert clock.run([call(device, 30.0)]).seconds == pytest.approx([30e-6])
    assert device.log == ["event", "sleep", "event", "call", "event"]


# Bursts on a made clock: what is launched, what is timed, and when the device had to wait.


class MadeClock:
    """A device that takes call_s(n) for its n-th launch, and a host that needs host_s to make one."""

    def __init__(self, call_s, host_s=0.0):
        self.call_s, self.host_s = call_s, host_s
        self.host = self.device = 0.0
        self.launches, self.met, self.furthest = 0, 0, 0
        self.barrier = self.meet
        self.marks = []

    def stamps(self):
        return self

    def meet(self):
        assert not self.marks, "the ranks meet before the burst"
        self.met += 1

    def launch(self):
        self.host += self.host_s
        self.device = max(self.device, self.host) + self.call_s(self.launches)
        self.launches += 1

    def mark(self):
        self.marks.append(self.device)

    def idle(self):
        return self.host >= self.marks[-1]

    def keep(self, ahead):
        self.furthest = max(self.furthest, sum(1 for one in self.marks if one > self.host))
        if len(self.marks) > ahead:
            self.host = max(self.host, self.marks[-1 - ahead])

    def seconds(self):
        self.host = max(self.host, self.device)
        return [one - self.marks[0] for one in self.marks]


def burst_of(clock, launches, calls=1):
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
    found = clocks.burst(clock, clocks.Timed(lambda: time.sleep(1e-3)), 20)
    assert 1e-3 <= found.seconds < 0.05
    assert found.starved == 0


# The time of a call from the host's side: launch, work and waiting, and nothing that came before it.


def test_on_a_gpu_the_clock_starts_on_an_idle_device_with_cold_caches_and_stops_on_an_idle_one():
    done = []
    clock = SimpleNamespace(
        _flush=object(),
        _read=lambda: done.append("flush"),
        barrier=lambda: done.append("barrier"),
        synchronize=lambda: done.append("wait"),
    )
    clock._whole = lambda call: DeviceClock._whole(clock, call)
    [seconds] = DeviceClock.whole(clock, [lambda: (done.append("call"), time.sleep(0.002))])
    assert done == ["flush", "barrier", "wait", "call", "wait"]
    assert seconds >= 0.002
