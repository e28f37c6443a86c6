"""The time of a call from the host's side: launch, work and waiting, and nothing that came before it."""

from __future__ import annotations

import time
from types import SimpleNamespace

import pytest

from benchmarks.points import Batch, PointsFile, parse
from benchmarks.shapes import Unfit
from benchmarks.worker.clocks import DeviceClock, HostClock


def test_on_a_cpu_a_call_has_ended_when_it_returns():
    naps = iter((0.002, 0.004, 0.006))
    seconds = HostClock(0, None).whole([lambda: time.sleep(next(naps))] * 3)
    assert len(seconds) == 3
    assert all(one >= least for one, least in zip(seconds, (0.002, 0.004, 0.006), strict=True))


def test_on_a_gpu_the_clock_starts_on_an_idle_device_with_cold_caches_and_stops_on_an_idle_one():
    done: list[str] = []
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


def test_a_points_file_says_how_many_calls():
    batch = Batch("m16", "triton", ())
    asked = PointsFile("f3a9", "gemm", 0, 8, (batch,), whole_calls=30)
    assert parse(asked.as_json()) == asked
    assert "whole_calls" not in PointsFile("f3a9", "gemm", 0, 8, (batch,)).as_json()
    with pytest.raises(Unfit, match="whole_calls"):
        parse(asked.as_json() | {"whole_calls": -1})
