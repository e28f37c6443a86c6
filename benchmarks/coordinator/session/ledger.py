"""Where the wall time of a trial goes: each second is that of the request that the processes were then doing.

The coordinator drives the processes of a trial in lock-step, so at any moment its requests in flight are of one kind.
Time in which none is in flight is the coordinator's own, and that of starting and ending processes.  Trials that are
prepared side by side, each by a thread, share the seconds in which several wait for an answer, so that the seconds of
all trials add up to those of the clock.
"""

from __future__ import annotations

import threading
import time
from collections import Counter
from collections.abc import Callable, Mapping
from typing import Any

PHASES = {
    "join": "start",
    "case": "inputs",
    "build": "set-up",
    "tune": "set-up",
    "call": "first calls",
    "poison": "checks",
    "check": "checks",
    "trace": "checks",
    "capture": "set-up",
    "samples": "rounds",
    "burst": "rounds",
    "whole": "whole calls",
    "drop": "set-up",
    "launches": "compiling",
    "fill": "compiling",
    "quit": "end",
}
"""The phase of each request of benchmarks.worker.requests.  start: the processes take their place, open their device,
and import the operator; inputs: with the reference; capture: of a graph."""

WARM_UP, COMPILING, BETWEEN = "warm-up", "compiling", "between"
"""Phases that no request has to itself: samples that are not kept; the part of first calls that Triton says it needed;
what is left."""


def phase(op: str, fields: Mapping[str, Any]) -> str:
    """The phase of a request; one that is not known is its own."""
    return WARM_UP if fields.get("warm_up") else PHASES.get(op, op)


class SecondsLedger:
    """Wall seconds by phase, of the trial that the calling thread has opened; others are ahead of the next trial.

    Requests of a trial that overlap count once, for the phase of the first of them.  Who waits for what is compiled
    ahead has no share in seconds in which others are at work.
    """

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock, self._since, self._ahead = clock, clock(), 0.0
        self._lock = threading.Lock()
        self._open: dict[int, Counter[str]] = {}
        self._flying: dict[object, tuple[int, str]] = {}

    def open(self) -> float:
        """Begin a trial; returns the seconds without any since the last one."""
        with self._lock:
            self._count()
            self._open[threading.get_ident()] = Counter()
            ahead, self._ahead = self._ahead, 0.0
            return ahead

    def close(self, compiling_s: float = 0.0) -> tuple[float, dict[str, float]]:
        """End the trial: its seconds in all, and by phase.  compiling_s: of them, within first calls."""
        with self._lock:
            self._count()
            spent = self._open.pop(threading.get_ident())
        compiling = min(compiling_s, spent["first calls"])
        spent.update({"first calls": -compiling, COMPILING: compiling})
        return spent.total(), {name: round(seconds, 4) for name, seconds in spent.items() if seconds >= LEAST_S}

    def lost(self, seconds: float) -> None:
        """Count seconds of a trial that is measured again as ahead of the next one."""
        with self._lock:
            self._ahead += seconds

    def sent(self, pool: object, op: str, fields: Mapping[str, Any]) -> None:
        """A request to some processes is in flight from now on."""
        with self._lock:
            self._count()
            self._flying[pool] = threading.get_ident(), phase(op, fields)

    def answered(self, pool: object) -> None:
        """It is answered, or the processes have ended."""
        with self._lock:
            self._count()
            self._flying.pop(pool, None)

    def _count(self) -> None:
        """Share out the seconds since the last event."""
        since, self._since = self._since, self._clock()
        seconds = self._since - since
        asked: dict[int, str] = {}
        for thread, what in self._flying.values():
            if thread in self._open:
                asked.setdefault(thread, what)
        at_work = {thread: what for thread, what in asked.items() if what != COMPILING}
        share = at_work or asked or dict.fromkeys(self._open, BETWEEN)
        for thread, what in share.items():
            self._open[thread][what] += seconds / len(share)
        self._ahead += 0.0 if share else seconds


LEAST_S = 5e-5
"""A phase of less is not written: it rounds to nothing."""
