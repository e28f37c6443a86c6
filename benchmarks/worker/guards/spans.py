"""The device's clock against the host's, and whether the caches were flushed: checks that need no kernel to be known.

Events and the host's clock are two clocks.  From the first event of a filled queue to its last the device's clock must
go as far as the host's does from before the first is enqueued until the device is idle, but for what enqueueing and
waiting take at both ends.
"""

from __future__ import annotations

import dataclasses
import statistics
from collections.abc import Sequence

ENDS_S = 300e-6
"""What enqueueing the first event and noticing the last may take; 20 to 60 us on H200."""

SHORTEST_S, FEWEST = 2e-3, 4
"""Spans of the host below this say nothing, nor do fewer of them: a host that others use may notice an end late."""

SLOWEST, FASTEST = 0.6, 1.1
"""The device's seconds of one of the host; halved times have been seen (`elapsed_time` patched).  Both clocks count to
some 1e-5 (2026-11-22)."""

FLUSHED = 0.3
"""Least share of the time of a flush, measured before any operator was imported, that every later one takes."""


@dataclasses.dataclass(frozen=True)
class Span:
    """Seconds of one filled queue by both clocks."""

    device_s: float
    host_s: float


def disagreement(spans: Sequence[Span]) -> str:
    """What is said if the clocks disagree in most of the spans that are long enough; "" if not, or with too few."""
    long = [one for one in spans if one.host_s >= SHORTEST_S]
    off = [one for one in long if not SLOWEST * (one.host_s - ENDS_S) <= one.device_s <= FASTEST * one.host_s]
    if len(long) < FEWEST or 2 * len(off) <= len(long):
        return ""
    device_ms, host_ms = (1e3 * sum(getattr(one, clock) for one in off) for clock in ("device_s", "host_s"))
    return (
        f"the events of the device say {device_ms:.3g} ms where the host's clock says {host_ms:.3g} ms "
        f"({len(off)} of {len(long)} spans): the time of this process cannot be trusted"
    )


def unflushed(flushes_s: Sequence[float], usual_s: float) -> str:
    """What is said if flushes take less time than they can.  usual_s: what one took at first; 0 where there is none."""
    if not usual_s or len(flushes_s) < FEWEST or statistics.median(flushes_s) >= FLUSHED * usual_s:
        return ""
    now_us, usual_us = 1e6 * statistics.median(flushes_s), 1e6 * usual_s
    return f"the caches are not flushed between calls: a flush takes {now_us:.3g} us, at first {usual_us:.3g} us"
