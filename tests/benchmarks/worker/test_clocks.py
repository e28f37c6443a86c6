"""Clocks: what is inside a sample and what is not, on the CPU and on a simulated device."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from pathlib import Path

import pytest
import torch

from benchmarks.worker import bound, clocks
from benchmarks.worker.clocks import DeviceClock, HostClock, Timed

ROOT = Path(__file__).parents[3]


def test_the_host_clock_times_the_call_alone():
    events = []

    def slow_barrier() -> None:
        events.append("barrier")
        time.sleep(0.4)

    clock = HostClock(1 << 20, slow_barrier)
    taken = clock.run([Timed(lambda: events.append("a")), Timed(lambda: time.sleep(0.5), calls=2)])
    assert events == ["barrier", "a", "barrier"]
    assert taken.seconds[0] < 0.2, "waiting for the others is no part of a sample"
    assert taken.seconds[1] >= 0.25, "per call"
    assert taken.busy_s < 0.5 + 2 * 0.2, "waiting for the others is not work"


needs_schedstat = pytest.mark.skipif(
    not Path("/proc/thread-self/schedstat").exists(), reason="this kernel does not say how long a thread waits"
)


@pytest.mark.slow
@needs_schedstat
def test_time_in_which_the_core_runs_somebody_else_is_no_part_of_a_sample():
    """Beside a process that never rests, on one core: half of the wall time is the other's."""
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
            said = subprocess.run(run, capture_output=True, text=True, check=True, cwd=ROOT, timeout=120)
        finally:
            other.kill()
    sample, wall, _ = map(float, said.stdout.split())
    assert sample < 0.75 * wall


def test_sleeping_is_a_part_of_it():
    assert HostClock(0, None).run([Timed(lambda: time.sleep(0.2))]).seconds[0] >= 0.2


@pytest.mark.slow
@pytest.mark.skipif(not hasattr(os, "sched_getaffinity"), reason="cores of a process are Linux's")
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
    said = subprocess.run(run, capture_output=True, text=True, check=True, cwd=ROOT, timeout=120).stdout.split()
    assert said[0] == f"[{core}]"
    assert float(said[1]) < 2048, "16 MB are 4096 pages"


class Device:
    """A device with a queue: work is enqueued at host time and done one after the other, in microseconds."""

    def __init__(self) -> None:
        self.host_us = self.device_us = 0.0
        self.log: list[str] = []
        self.synchronisations = 0

    def enqueue(self, name: str, work_us: float, host_us: float = 5.0) -> float:
        """Returns when the work is done."""
        self.host_us += host_us
        self.device_us = max(self.device_us, self.host_us) + work_us
        self.log.append(name)
        return self.device_us

    def synchronize(self, *_: object) -> None:
        self.synchronisations += 1
        self.host_us = max(self.host_us, self.device_us)

    def event(self, enable_timing: bool = False) -> Event:
        assert enable_timing
        return Event(self)


class Event:
    def __init__(self, device: Device) -> None:
        self._device, self.at_us = device, 0.0

    def record(self) -> None:
        self.at_us = self._device.enqueue("event", 0.0, 1.0)

    def query(self) -> bool:
        return self.at_us <= self._device.host_us

    def synchronize(self) -> None:
        self._device.synchronize()

    def elapsed_time(self, other: Event) -> float:
        """Milliseconds, as torch gives them."""
        return (other.at_us - self.at_us) * 1e-3


FLUSH_US = 40.0


@pytest.fixture
def device(monkeypatch: pytest.MonkeyPatch) -> Device:
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


def call(device: Device, work_us: float, host_us: float = 5.0) -> Timed:
    return Timed(lambda: device.enqueue("call", work_us, host_us))


def test_a_sample_on_a_device_is_the_call_alone_behind_a_flush(device):
    clock = DeviceClock(torch.device("cpu"), 64, lambda: device.enqueue("barrier", 7.0))
    device.log.clear()
    taken = clock.run([call(device, 100.0), call(device, 60.0)])
    assert taken.seconds == pytest.approx([100e-6, 60e-6])
    assert taken.starved == [False, False]
    assert device.log[-6:] == ["event", "flush", "barrier", "event", "call", "event"]
    assert device.log[:7] == ["event", *["flush"] * 6], "a head start of 200 us, then the flush of the sample"
    assert taken.busy_s >= 3 * FLUSH_US * 1e-6 + 160e-6


def test_a_graph_counts_its_calls(device):
    clock = DeviceClock(torch.device("cpu"), 64, None)
    graph = Timed(lambda: device.enqueue("replay", 200.0), calls=20)
    assert clock.run([graph]).seconds == pytest.approx([10e-6])


def test_launch_latency_is_seen_and_then_hidden(device):
    clock = DeviceClock(torch.device("cpu"), 64, None)

    def two_launches() -> None:
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

    def waits() -> None:
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


def test_the_host_waits_once_per_queue(device):
    clock = DeviceClock(torch.device("cpu"), 64, None)
    device.synchronisations = 0
    clock.run([call(device, 30.0)] * (2 * clocks.QUEUE_DEPTH))
    assert device.synchronisations == 3
