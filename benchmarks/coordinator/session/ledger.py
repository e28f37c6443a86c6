"""Where the wall time of a trial goes: each second is that of the request that the processes were then doing.

The coordinator drives its processes in lock-step, so at any moment the requests in flight are of one kind.  Time in
which none is in flight is the coordinator's own, and that of starting and ending processes.
"""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Callable, Mapping
from typing import Any

PHASES = {
    "join": "start",
    "case": "inputs",
    "build": "set-up",
    "call": "first calls",
    "poison": "checks",
    "check": "checks",
    "trace": "checks",
    "truth": "inputs",
    "expect": "inputs",
    "compare": "checks",
    "capture": "set-up",
    "samples": "rounds",
    "burst": "rounds",
    "whole": "whole calls",
    "drop": "set-up",
    "quit": "end",
}
"""The phase of each request of benchmarks.worker.requests.  start: the processes take their place, open their device,
and import the operator; inputs: with the reference; capture: of a graph."""

WARM_UP, COMPILING, BETWEEN = "warm-up", "compiling", "between"
"""Phases that no request has to itself: samples that are not kept; the part of first calls that Triton says it needed;
what is left."""

LEAST_S = 5e-5
"""A phase of less is not written: it rounds to nothing."""


def phase(op: str, fields: Mapping[str, Any]) -> str:
    """The phase of a request; one that is not known is its own."""
    return WARM_UP if fields.get("warm_up") else PHASES.get(op, op)


class SecondsLedger:
    """Wall seconds by phase.  Requests that overlap count once, for the phase of the first of them."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._spent: Counter[str] = Counter()
        self._flying: set[object] = set()
        self._since, self._phase = 0.0, ""

    def sent(self, pool: object, op: str, fields: Mapping[str, Any]) -> None:
        """A request to some processes is in flight from now on."""
        if not self._flying:
            self._since, self._phase = self._clock(), phase(op, fields)
        self._flying.add(pool)

    def answered(self, pool: object) -> None:
        """It is answered, or the processes have ended."""
        if pool in self._flying:
            self._flying.remove(pool)
            self._spent[self._phase] += self._clock() - self._since if not self._flying else 0.0

    def taken(self, whole_s: float, compiling_s: float = 0.0) -> dict[str, float]:
        """The phases since the last time this was asked, in all `whole_s`; compiling_s: within first calls."""
        spent, self._spent = dict(self._spent), Counter()
        compiling_s = min(compiling_s, spent.get("first calls", 0.0))
        spent |= {COMPILING: compiling_s, BETWEEN: max(0.0, whole_s - sum(spent.values()))}
        if compiling_s:
            spent["first calls"] -= compiling_s
        return {name: round(seconds, 4) for name, seconds in spent.items() if seconds >= LEAST_S}
