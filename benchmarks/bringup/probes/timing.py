"""What every time rests on: the clocks' resolution, and graphs that can be captured and replayed."""

from __future__ import annotations

import time
from typing import Any

import torch

from benchmarks.bringup.context import StepContext
from benchmarks.bringup.rows import Row, failed, passed
from benchmarks.worker import clocks

PAIRS = 200
"""Event pairs that the resolution is taken from."""

COARSE_US = 5.0
"""A pair around nothing takes 3.0 us on H200 (2026-11); a kernel of 50 us must stand out of it (plan.SHORT_S)."""

HEAD_START, LONGEST_HEAD_START = 10_000_000, 640_000_000
"""Cycles that the device is busy before the first pair: 5 ms of H200 at full clock, and 0.3 s."""

HOST_COARSE_NS = 1000.0
"""Linux's monotonic clock steps by tens of ns; a VM without a stable counter by microseconds."""


def timer(context: StepContext) -> list[Row]:
    """The host's clock, and the events of the device."""
    step = _host_step_ns()
    numbers = {"step": (step, "ns")}
    said = f"the host's clock steps by {step:.0f} ns"
    if step > HOST_COARSE_NS:
        next_step = "select a better clock source: /sys/devices/system/clocksource/clocksource0/current_clocksource"
        rows = [failed("host clock", said, next_step, **numbers)]
    else:
        rows = [passed("host clock", said, **numbers)]
    return [*rows, _events(context)] if context.gpu else rows


def _host_step_ns() -> float:
    """The smallest difference that two readings of perf_counter_ns ever have."""
    steps = []
    for _ in range(1000):
        first = now = time.perf_counter_ns()
        while now == first:
            now = time.perf_counter_ns()
        steps.append(now - first)
    return float(min(steps))


def _events(context: StepContext) -> Row:
    """Pairs around nothing, and the smallest difference between two times of growing work."""
    device = torch.device(context.device)
    torch.cuda.set_device(device)
    empty = sorted(_times_us(lambda index: None))[PAIRS // 2]
    times = sorted(set(_times_us(lambda index: torch.cuda._sleep(1000 + 20 * index))))
    step = min((b - a for a, b in zip(times, times[1:], strict=False)), default=float("inf"))
    numbers = {"empty_pair": (empty, "us"), "step": (step, "us")}
    said = f"an event pair around nothing takes {empty:.2f} us; times differ by {step:.3f} us at least"
    if empty > COARSE_US or step > COARSE_US:
        return failed("events", said, "update the driver; times of kernels below 50 us cannot be trusted", **numbers)
    return passed("events", said, **numbers)


def _times_us(work: Any) -> list[float]:
    """Microseconds between the events of a pair, for PAIRS pairs on a queue that is kept filled.

    A host that others keep busy may not fill it in time, and then the times are the host's: the head start grows until
    all is enqueued before the device comes to it, or is LONGEST_HEAD_START.
    """
    pairs = [[torch.cuda.Event(enable_timing=True) for _ in range(2)] for _ in range(PAIRS)]
    head_start, filled = HEAD_START, False
    while not filled and head_start <= LONGEST_HEAD_START:
        torch.cuda._sleep(head_start)
        for index, (start, end) in enumerate(pairs):
            start.record()
            work(index)
            end.record()
        filled = not pairs[0][0].query()
        torch.cuda.synchronize()
        head_start *= 4
    return [start.elapsed_time(end) * 1e3 for start, end in pairs]


def graph(context: StepContext) -> list[Row]:
    """Capture 20 products in a graph, replay it on new inputs, compare."""
    torch.cuda.set_device(torch.device(context.device))
    a, b = (torch.randn(256, 256, device=context.device, dtype=torch.float16) for _ in range(2))
    out = torch.empty_like(a)

    def call() -> Any:
        return torch.mm(a, b, out=out)

    call()
    torch.cuda.synchronize()
    try:
        captured, _ = clocks.capture([call] * 20)
    except Exception as error:
        said = f"a product of torch cannot be captured: {type(error).__name__}: {error}".splitlines()[0]
        return [failed("graph", said, "short kernels are timed by events then; try another build of torch")]
    a.normal_()
    out.zero_()
    captured.replay()
    torch.cuda.synchronize()
    if not torch.allclose(out, torch.mm(a, b)):
        return [
            failed("graph", "a replay gives other results than the call", "short kernels cannot be timed; update torch")
        ]
    return [passed("graph", "20 calls captured and replayed on new inputs, right")]
