"""A burst: calls of one arm back to back, with nothing between them, as a user's loop makes them.

The first half of a burst is not timed.  In it the device comes to the clock that its power allows this kernel, and what
the arm before left in the caches goes.  The second half is one span between two events (on a CPU: two readings of the
host's clock), so nothing is added to a call.

The number of launches is fixed before the burst: every rank of a collective makes the same calls.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from typing import Any

from .clocks import Timed
from .guards import bound

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
    from_s, to_s: when the second half ran, by time.monotonic() of this host.
    """

    seconds: float
    busy_s: float
    starved: int
    parts: int
    from_s: float
    to_s: float


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
    return _summary(reached, [count * timed.calls for count in parts], starved, bound.monotonic())


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


def _summary(reached: Sequence[float], calls: Sequence[int], starved: Sequence[bool], now_s: float) -> Burst:
    """reached: seconds at the beginning and after each part.  calls, starved: of each part.  now_s: when all ended."""
    half = len(calls) // 2
    late_s = reached[-1] - reached[half]
    late = sum(starved[half:]), len(calls) - half
    return Burst(late_s / sum(calls[half:]), reached[-1], *late, now_s - late_s, now_s)
