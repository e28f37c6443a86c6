"""Clock, power, temperature and throttle reasons of the devices, read while they measure.

Read in the coordinator: NVML and AMD SMI create no context on the device.  What a driver does not report is None; a
machine without either library has no state and gives the reason.
"""

from __future__ import annotations

import contextlib
import threading
import time
from collections.abc import Callable, Iterator

from benchmarks.machine.gpus import Monitor
from benchmarks.shapes import JsonObject

PERIOD_S = 0.25
"""Time between two readings while a trial runs."""

KEPT = 40
"""Readings per trial that are recorded; those of a longer trial are thinned evenly."""


class Recorder:
    """The state before, during and after a trial, for its line in the trial file."""

    def __init__(self, monitor: Monitor | None, why_absent: str | None, count: int) -> None:
        self._monitor, self._why_absent, self._count = monitor, why_absent, count

    @contextlib.contextmanager
    def recording(self) -> Iterator[Callable[[], JsonObject]]:
        """Read in the background while inside; calling what it yields gives the `state` of the trial line."""
        readings: list[JsonObject] = []
        before, over = self._now(), threading.Event()
        thread = threading.Thread(target=self._follow, args=(readings, over), daemon=True)
        if self._monitor:
            thread.start()
        try:
            yield lambda: {
                "before": before,
                "during": thinned(readings, KEPT),
                "after": self._now(),
                "why_absent": self._why_absent,
            }
        finally:
            over.set()
            if self._monitor:
                thread.join()

    def _follow(self, readings: list[JsonObject], over: threading.Event) -> None:
        begin = time.monotonic()
        while not over.wait(PERIOD_S):
            now = self._now()
            if now is not None:
                readings.append({"at_s": round(time.monotonic() - begin, 3), **now})

    def _now(self) -> JsonObject | None:
        """The first device, and the others under "others"."""
        if self._monitor is None:
            return None
        first, *others = [self._monitor.read(index) for index in range(self._count)]
        return {**first, "others": others} if others else first


def thinned(readings: list[JsonObject], keep: int) -> list[JsonObject]:
    """At most `keep` readings, evenly spread."""
    if len(readings) <= keep:
        return list(readings)
    return [readings[i * len(readings) // keep] for i in range(keep)]
