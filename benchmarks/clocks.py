"""How a sample is taken: seconds of one call, with nothing else inside.

Three methods, one shape of loop (make the cache cold, let the ranks meet, time the launch):

events  a pair of device events around one call, on a queue that is kept filled, so that no launch latency shows;
graph   the same pair around one replay of a graph of calls, each on its own copy of the buffers;
clock   the host's clock around one call, on a CPU.

The cache is made cold by *reading* a buffer of more than twice L2 + last-level cache: a memset would leave dirty lines
that the timed call has to write back (kernels.md 1.1).
"""

from __future__ import annotations

import dataclasses
import gc
import time
from collections.abc import Callable, Sequence
from typing import Any

import torch

QUEUE_DEPTH = 64
"""Samples that may wait on the device before the host waits for them."""

HEAD_START_S = 300e-6
"""The device first sleeps this long, so that the host gets ahead of it."""

LONGEST_SLEEP_S = 20e-3
"""No call is worth more head start than this; one that still starves the queue waits for the device by itself."""

@dataclasses.dataclass
class Timed:
    """Something to time.  launch: enqueue `calls` calls.  lead_s: how long the device sleeps before the sample."""

    launch: Callable[[], Any]
    calls: int = 1
    lead_s: float = 0.0


@dataclasses.dataclass(frozen=True)
class Samples:
    """seconds: per call, in the order asked for.  starved: the device overtook the host.  busy_s: device at work."""

    seconds: list[float]
    starved: list[bool]
    busy_s: float


class HostClock:
    """Seconds of a call on the CPU, by the host's clock."""

    method = "clock"

    def __init__(self, sweep_bytes: int, barrier: Callable[[], None] | None) -> None:
        self._sweep = torch.ones(sweep_bytes // 4) if sweep_bytes else None
        self._barrier = barrier

    def run(self, order: Sequence[Timed]) -> Samples:
        """One sample of each, in that order."""
        seconds, busy = [], 0.0
        for timed in order:
            begin = time.perf_counter()
            if self._sweep is not None:
                self._sweep.sum()
            swept = time.perf_counter()
            if self._barrier:
                self._barrier()
            start = time.perf_counter()
            timed.launch()
            end = time.perf_counter()
            seconds.append((end - start) / timed.calls)
            busy += (swept - begin) + (end - start)
        return Samples(seconds, [False] * len(seconds), busy)

    def synchronize(self) -> None:
        """Nothing runs behind the host's back here."""


class DeviceClock:
    """Seconds of a call on a GPU, by its own events."""

    def __init__(self, device: torch.device, sweep_bytes: int, barrier: Callable[[], None] | None) -> None:
        self._device = device
        self._sweep = torch.rand(sweep_bytes // 4, device=device) if sweep_bytes else None
        self._sink = torch.empty((), device=device)
        self._barrier = barrier
        self._cycles_per_s = self._calibrate()

    def run(self, order: Sequence[Timed]) -> Samples:
        """One sample of each, in that order; the host waits only once the queue is QUEUE_DEPTH samples deep."""
        marks: list[tuple[Any, Any, Any, int]] = []
        starved: list[bool] = []
        collecting = gc.isenabled()
        gc.disable()
        try:
            for index, timed in enumerate(order):
                if index % QUEUE_DEPTH == 0:
                    self.synchronize()
                    self._sleep(HEAD_START_S)
                starved.append(self._enqueue(timed, marks))
            self.synchronize()
        finally:
            if collecting:
                gc.enable()
        seconds = [start.elapsed_time(end) * 1e-3 / calls for _, start, end, calls in marks]
        busy = sum(begin.elapsed_time(end) for begin, _, end, _ in marks) * 1e-3
        return Samples(seconds, starved, busy)

    def synchronize(self) -> None:
        """Wait until the device is idle."""
        torch.cuda.synchronize(self._device)

    def _enqueue(self, timed: Timed, marks: list[tuple[Any, Any, Any, int]]) -> bool:
        """Enqueue one sample; True if the device reached it before the host had enqueued all of it."""
        begin, start, end = (torch.cuda.Event(enable_timing=True) for _ in range(3))
        if timed.lead_s:
            self._sleep(timed.lead_s)
        begin.record()
        if self._sweep is not None:
            torch.sum(self._sweep, dim=0, out=self._sink)
        if self._barrier:
            self._barrier()
        start.record()
        timed.launch()
        overtaken = start.query()
        end.record()
        marks.append((begin, start, end, timed.calls))
        return overtaken

    def _sleep(self, seconds: float) -> None:
        torch.cuda._sleep(max(1, int(seconds * self._cycles_per_s)))

    def _calibrate(self, cycles: int = 1_000_000) -> float:
        """Cycles per second of torch.cuda._sleep: it counts different clocks on AMD and NVIDIA."""
        times = []
        for _ in range(3):
            start, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
            start.record()
            torch.cuda._sleep(cycles)
            end.record()
            end.synchronize()
            times.append(start.elapsed_time(end) * 1e-3)
        return cycles / max(min(times), 1e-6)


def adapt(timed: Timed, starved: bool) -> None:
    """Give a call whose launch the device overtook a longer head start."""
    if starved:
        timed.lead_s = min(LONGEST_SLEEP_S, max(2 * timed.lead_s, 50e-6))


def capture(calls: Sequence[Callable[[], Any]]) -> tuple[torch.cuda.CUDAGraph, list[Any]]:
    """A graph of the calls, in order, and what they returned.  Raises what the capture raises."""
    graph = torch.cuda.CUDAGraph()
    gc.collect()  # unloading a module during a capture breaks it
    gc.disable()
    try:
        with torch.cuda.graph(graph, capture_error_mode="thread_local"):
            outputs = [call() for call in calls]
    finally:
        gc.enable()
    return graph, outputs
