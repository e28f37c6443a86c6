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
    """seconds, early_s: per call in the second and in the first half.  busy_s: the whole burst.

    starved: parts of the second half that the device had begun before the host had enqueued them; parts: how many that
    half has.
    from_s, to_s: when the second half ran, by time.monotonic() of this host.
    """

    seconds: float
    early_s: float
    busy_s: float
    starved: int
    parts: int
    from_s: float
    to_s: float


def burst(clock: Any, timed: Timed, launches: int, checked_part: int = 0) -> Burst:
    """Make `launches` launches, at least 2, back to back, and time the second half of them.

    The ranks of a collective meet at a barrier before the burst, never in it.
    checked_part: before which part a spot check begins, counted through; of a collective, before the barrier.
    """
    parts, stamps = _parts(launches), clock.stamps()
    checked = 0 if clock.barrier else checked_part % len(parts)
    starved: list[bool] = []
    collecting = bound.gc_isenabled()
    bound.gc_disable()
    try:
        if clock.barrier:
            if timed.before:
                timed.before()
            clock.barrier()
        stamps.mark()
        for part, count in enumerate(parts):
            if timed.before and part == checked and not clock.barrier:
                timed.before()
            for _ in range(count):
                result = timed.launch()
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


def _parts(launches: int) -> list[int]:
    """Launches of each part: an even number of parts, as equal as can be."""
    count = min(PARTS, launches - launches % 2)
    return [launches * (part + 1) // count - launches * part // count for part in range(count)]


def _summary(reached: Sequence[float], calls: Sequence[int], starved: Sequence[bool], now_s: float) -> Burst:
    """reached: seconds at the beginning and after each part.  calls, starved: of each part.  now_s: when all ended."""
    half = len(calls) // 2
    late_s = reached[-1] - reached[half]
    return Burst(
        late_s / sum(calls[half:]),
        reached[half] / sum(calls[:half]),
        reached[-1],
        sum(starved[half:]),
        len(calls) - half,
        now_s - late_s,
        now_s,
    )
