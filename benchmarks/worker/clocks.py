"""How a sample is taken: seconds of one call, with nothing else inside.

Three methods, one shape of loop (make the cache cold, synchronise the ranks, time the launch):

events  a pair of device events around one call, on a queue that is kept filled, so that no launch latency shows;
graph   the same pair around one replay of a graph of calls, each on its own copy of the buffers;
clock   the host's clock around one call, on a CPU, without the time in which the core ran somebody else.

The cache is made cold by *reading* a buffer of more than twice L2 + last-level cache: a memset would leave dirty lines
that the timed call has to write back.
"""

from __future__ import annotations

import contextlib
import dataclasses
import gc
import math
import os
from collections.abc import Callable, Sequence
from typing import Any

import torch

from . import bound, guards

QUEUE_DEPTH = 64
"""Samples that may wait on the device before the host waits for them."""

HEAD_START_S = 200e-6
"""Flushes of this length come first, so that the host gets ahead of the device."""

LONGEST_LEAD_S = 20e-3
"""Longest head start of a call; a call that still starves the queue waits for the device itself."""

FLUSH_CHANGED = "the buffer by which the caches are flushed is another one than the harness made"

LEAD_MARGIN = 1.3
"""The device must be busy this many times longer than the host takes to enqueue a sample."""


@dataclasses.dataclass
class Timed:
    """Something to time.  launch: enqueue `calls` calls.  lead_s: how long the device is kept busy before them.

    before, after: what a spot check enqueues ahead of the call, before the ranks meet, and behind its end, with what
    the call returned.
    """

    launch: Callable[[], Any]
    calls: int = 1
    lead_s: float = 0.0
    before: Callable[[], None] | None = None
    after: Callable[[Any], None] | None = None


@dataclasses.dataclass(frozen=True)
class Samples:
    """seconds: per call, in the order asked for.  enqueue_s: the host's part of each sample.

    starved: the device overtook the host.
    """

    seconds: list[float]
    enqueue_s: list[float]
    starved: list[bool]


class HostStamps:
    """Moments on the host's clock: a call on a CPU has ended when it returns."""

    def __init__(self) -> None:
        self._times: list[float] = []

    def mark(self) -> None:
        """A stamp behind all that was launched so far."""
        self._times.append(bound.perf_counter())

    def idle(self) -> bool:
        """Whether the device has reached the last stamp: what was launched behind it came too late to wait."""
        return False

    def keep(self, ahead: int) -> None:
        """Wait until at most so many stamps are not reached; nothing runs asynchronously here."""

    def seconds(self) -> list[float]:
        """Seconds from the first stamp to each."""
        return [one - self._times[0] for one in self._times]


class DeviceStamps:
    """Moments on a GPU: events of its current stream."""

    def __init__(self) -> None:
        self._events: list[Any] = []

    def mark(self) -> None:
        """A stamp behind all that was launched so far."""
        event = bound.Event(enable_timing=True)
        bound.record(event)
        self._events.append(event)

    def idle(self) -> bool:
        """Whether the device has reached the last stamp: what was launched behind it came too late to wait."""
        return bool(bound.query(self._events[-1]))

    def keep(self, ahead: int) -> None:
        """Wait until at most so many stamps are not reached."""
        if len(self._events) > ahead:
            bound.event_synchronize(self._events[-1 - ahead])

    def seconds(self) -> list[float]:
        """Seconds from the first stamp to each, once the last is reached."""
        bound.event_synchronize(self._events[-1])
        return [bound.elapsed_time(self._events[0], one) * 1e-3 for one in self._events]


class HostClock:
    """Seconds of a call on the CPU.  flush_s: of a flush of the caches, which each sample has.

    Time in which this thread was ready and its core ran somebody else is not the call's; where Linux does not say how
    long that was, it is.  Sleeping and waiting for others are.
    """

    method = "clock"
    stamps = HostStamps

    def __init__(self, flush_bytes: int, barrier: Callable[[], None] | None) -> None:
        self._flush = torch.ones(flush_bytes // 4) if flush_bytes else None
        self._place = _place(self._flush)
        self.flush_s = self._flushed() if flush_bytes else 0.0
        self.barrier = barrier
        self._waits: int | None = None
        with contextlib.suppress(OSError):
            self._waits = os.open("/proc/thread-self/schedstat", os.O_RDONLY | os.O_CLOEXEC)

    def __del__(self) -> None:
        if self._waits is not None:
            os.close(self._waits)

    def disturbed(self) -> str:
        """What is said if somebody changed what the cache is flushed with."""
        return "" if _place(self._flush) == self._place else FLUSH_CHANGED

    def run(self, order: Sequence[Timed]) -> Samples:
        """One sample of each, in that order."""
        seconds = []
        for timed in order:
            if self._flush is not None:
                bound.total(self._flush)
            if timed.before:
                timed.before()
            if self.barrier:
                self.barrier()
            waited, start, worked = self._waited(), bound.perf_counter(), bound.process_time()
            result = timed.launch()
            worked, end = bound.process_time() - worked, bound.perf_counter()
            waited = self._waited() - waited
            if timed.after:
                timed.after(result)
            own = min(end - start, max(worked, end - start - waited))  # it may have waited between two clocks
            seconds.append(own / timed.calls)
        return Samples(seconds, [0.0] * len(seconds), [False] * len(seconds))

    def _waited(self) -> float:
        """Seconds that this thread has waited for its core so far (Documentation/scheduler/sched-stats.rst)."""
        return int(bound.pread(self._waits, 64, 0).split()[1]) * 1e-9 if self._waits is not None else 0.0

    def _flushed(self) -> float:
        """Seconds of a flush of the caches."""
        begin = bound.perf_counter()
        bound.total(self._flush)
        return float(bound.perf_counter() - begin)

    def adapt(self, timed: Timed, enqueue_s: float, starved: bool) -> None:
        """There is no queue to keep filled."""

    def synchronize(self) -> None:
        """Nothing runs asynchronously here."""

    def whole(self, calls: Sequence[Callable[[], Any]]) -> list[float]:
        """Seconds of each call, as a sample takes them: here a call has ended when it returns."""
        return [self.run([Timed(call)]).seconds[0] for call in calls]


class DeviceClock:
    """Seconds of a call on a GPU, by its own events.  flush_s: of a flush of the caches, which each sample has."""

    method = "events"
    stamps = DeviceStamps

    def __init__(self, device: torch.device, flush_bytes: int, barrier: Callable[[], None] | None) -> None:
        self._device = device
        self._flush = torch.rand(flush_bytes // 4, device=device) if flush_bytes else None
        self._sink = torch.empty((), device=device)
        self.barrier = barrier
        self._place = _place(self._flush)
        self._cycles_per_s = 1_000_000 / self._measured(lambda: bound.sleep_cycles(1_000_000))
        self.flush_s = self._measured(self._read) if flush_bytes else 0.0
        self._spans: list[guards.Span] = []
        self._flushes_s: list[float] = []

    def run(self, order: Sequence[Timed]) -> Samples:
        """One sample of each, in that order; the host waits only once the queue is QUEUE_DEPTH samples deep."""
        marks: list[tuple[Any, Any, Any, int]] = []
        enqueue_s: list[float] = []
        starved: list[bool] = []
        collecting = bound.gc_isenabled()
        bound.gc_disable()
        begun: list[tuple[int, float]] = []
        try:
            for index, timed in enumerate(order):
                first = index % QUEUE_DEPTH == 0
                if first:
                    self.synchronize()
                    begun.append((index, bound.perf_counter()))
                before = bound.perf_counter()
                starved.append(self._enqueue(timed, max(timed.lead_s, HEAD_START_S if first else 0.0), marks))
                enqueue_s.append(bound.perf_counter() - before)
            self.synchronize()
            begun.append((len(order), bound.perf_counter()))
        finally:
            if collecting:
                bound.gc_enable()
        self._compare_clocks(marks, begun)
        seconds = [bound.elapsed_time(start, end) * 1e-3 / calls for _, start, end, calls in marks]
        return Samples(seconds, enqueue_s, starved)

    def disturbed(self) -> str:
        """What is said if the clocks of device and host disagree so far, or the caches were not flushed."""
        changed = "" if _place(self._flush) == self._place else FLUSH_CHANGED
        found = changed or guards.disagreement(self._spans) or guards.unflushed(self._flushes_s, self.flush_s)
        self._spans = [] if found else self._spans[-guards.KEPT :]
        self._flushes_s = [] if found else self._flushes_s[-guards.KEPT :]
        return found

    def _compare_clocks(self, marks: Sequence[Any], begun: Sequence[tuple[int, float]]) -> None:
        """Note what both clocks say of every filled queue, and how long its flushes took.

        begun: the first sample of each queue and the host's time then, and at last how many there are and the time when
        the device was idle; a queue ends when the next has begun.
        """
        for (first, from_s), (behind, to_s) in zip(begun, begun[1:], strict=False):
            device_s = bound.elapsed_time(marks[first][0], marks[behind - 1][2]) * 1e-3
            self._spans.append((device_s, to_s - from_s))
        self._flushes_s += [bound.elapsed_time(begin, start) * 1e-3 for begin, start, _, _ in marks]

    def adapt(self, timed: Timed, enqueue_s: float, starved: bool) -> None:
        """Keep the device busy longer than the host needs for the next sample of this call."""
        wanted = LEAD_MARGIN * enqueue_s - self.flush_s
        if starved:
            wanted = max(wanted, 2 * timed.lead_s, 50e-6)
        timed.lead_s = min(LONGEST_LEAD_S, max(timed.lead_s, wanted))

    def synchronize(self) -> None:
        """Wait until the device is idle."""
        bound.synchronize(self._device)

    def whole(self, calls: Sequence[Callable[[], Any]]) -> list[float]:
        """Seconds of each call from the host's side: from before it is enqueued until an idle device has finished it.

        The caches are as before a sample, and the ranks meet at the barrier; both have ended when the time begins.
        """
        return [self._whole(call) for call in calls]

    def _whole(self, call: Callable[[], Any]) -> float:
        if self._flush is not None:
            self._read()
        if self.barrier:
            self.barrier()
        self.synchronize()
        start = bound.perf_counter()
        call()
        self.synchronize()
        return bound.perf_counter() - start

    def _enqueue(self, timed: Timed, lead_s: float, marks: list[tuple[Any, Any, Any, int]]) -> bool:
        """Enqueue one sample; True if the device reached it before the host had enqueued all of it."""
        begin, start, end = (bound.Event(enable_timing=True) for _ in range(3))
        bound.record(begin)
        self._lead(lead_s)
        if self._flush is not None:
            self._read()
        if timed.before:
            timed.before()
        if self.barrier:
            self.barrier()
        bound.record(start)
        result = timed.launch()
        overtaken = bound.query(start)
        bound.record(end)
        if timed.after:
            timed.after(result)
        marks.append((begin, start, end, timed.calls))
        return overtaken

    def _lead(self, seconds: float) -> None:
        """Keep the device busy: with more flushes, which hold clock and power; asleep only if the cache stays hot."""
        if self._flush is None:
            if seconds > 0:
                bound.sleep_cycles(int(seconds * self._cycles_per_s))
            return
        for _ in range(math.ceil(seconds / self.flush_s)):
            self._read()

    def _read(self) -> None:
        bound.total(self._flush, dim=0, out=self._sink)

    def _measured(self, work: Callable[[], None]) -> float:
        """Shortest seconds of some work on the device; torch.cuda._sleep counts different clocks on AMD and NVIDIA."""
        times = []
        for _ in range(4):
            start, end = (bound.Event(enable_timing=True) for _ in range(2))
            bound.record(start)
            work()
            bound.record(end)
            bound.event_synchronize(end)
            times.append(bound.elapsed_time(start, end) * 1e-3)
        return max(min(times), 1e-6)


def _place(tensor: torch.Tensor | None) -> tuple[int, int]:
    """Address and elements of a buffer; zeros for none."""
    return (tensor.data_ptr(), tensor.numel()) if tensor is not None else (0, 0)


def capture(calls: Sequence[Callable[[], Any]]) -> tuple[torch.cuda.CUDAGraph, list[Any]]:
    """A graph of the calls, in order, and what they returned.  Raises what the capture raises."""
    graph = torch.cuda.CUDAGraph()
    before = bound.current_stream()
    gc.collect()  # unloading a module during a capture breaks it
    gc.disable()
    try:
        with torch.cuda.graph(graph, capture_error_mode="thread_local"):
            outputs = [call() for call in calls]
    finally:
        gc.enable()
        bound.set_stream(before)  # torch leaves that of a capture that failed
    return graph, outputs


# A burst: calls of one arm back to back, with nothing between them, as a user's loop makes them.
#
# The first half of a burst is not timed. In it the device comes to the clock that its power allows this kernel, and
# what the arm before left in the caches goes. The second half is one span between two events (on a CPU: two readings
# of the host's clock), so nothing is added to a call.
#
# The number of launches is fixed before the burst: every rank of a collective makes the same calls.


PARTS = 64
"""Most parts of a burst; after each the device leaves a stamp: 8 ms in a burst of 0.5 s."""

AHEAD = 8
"""Parts that may wait on the device before the host waits for them: 64 ms of a burst of 0.5 s, and far fewer launches
than a stream takes (1,024 on CUDA)."""


@dataclasses.dataclass(frozen=True)
class Burst:
    """seconds: per call in the second half.  busy_s: of the whole burst.

    starved: parts of the second half that the device had begun before the host had enqueued them; parts: how many that
    half has.
    """

    seconds: float
    busy_s: float
    starved: int
    parts: int


def burst(clock: Any, timed: Timed, launches: int) -> Burst:
    """Make `launches` launches, at least 2, back to back, and time the second half of them.

    The ranks of a collective meet at a barrier before the burst, never in it.
    A spot check is of the last launch; of a collective it begins before the barrier, and so with the first.
    """
    parts, stamps = _parts(launches), clock.stamps()
    starved: list[bool] = []
    collecting = bound.gc_isenabled()
    bound.gc_disable()
    try:
        if clock.barrier:
            if timed.before:
                timed.before()
            clock.barrier()
        stamps.mark()
        for part, count in enumerate(parts, 1):
            result = _launched(timed, count, part == len(parts) and not clock.barrier)
            starved.append(stamps.idle())
            stamps.mark()
            stamps.keep(AHEAD)
        if timed.after:
            timed.after(result)
        reached = stamps.seconds()
    finally:
        if collecting:
            bound.gc_enable()
    return _summary(reached, [count * timed.calls for count in parts], starved)


def _launched(timed: Timed, count: int, checked: bool) -> Any:
    """Make launches; checked: the last of them is a spot check, if it is to be one.  What the last returned."""
    for _ in range(count - 1):
        timed.launch()
    if checked and timed.before:
        timed.before()
    return timed.launch()


def _parts(launches: int) -> list[int]:
    """Launches of each part: an even number of parts, as equal as can be."""
    count = min(PARTS, launches - launches % 2)
    return [launches * (part + 1) // count - launches * part // count for part in range(count)]


def _summary(reached: Sequence[float], calls: Sequence[int], starved: Sequence[bool]) -> Burst:
    """reached: seconds at the beginning and after each part.  calls, starved: of each part."""
    half = len(calls) // 2
    late_s = reached[-1] - reached[half]
    return Burst(late_s / sum(calls[half:]), reached[-1], sum(starved[half:]), len(calls) - half)
