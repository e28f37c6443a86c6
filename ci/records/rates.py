"""Every formula of a rate, once: from the cost of a call and its seconds, for single numbers and pandas columns alike.

It imports nothing but the standard library, because `ridgeline run --out` prints rates on nodes where start-up counts.
"""

from __future__ import annotations

import enum
from typing import TYPE_CHECKING, Any, Protocol, TypeVar

if TYPE_CHECKING:
    import pandas as pd

Number = TypeVar("Number", float, "pd.Series[Any]")

TERA, GIGA = 1e12, 1e9

LEAST_FLOP_PER_BYTE_FOR_TFLOPS = 12
"""From this intensity on, a kernel is quoted in TFLOPS, below it in GB/s.  A 16-bit GEMM of M rows does about M FLOP
per byte, and M = 16 is the least that fills an MFMA tile; norms, copies and decode attention do less than 10.
Chosen by this arithmetic, 2026-11."""


class Rate(enum.StrEnum):
    """A unit in which speed is quoted.  The values are columns of :mod:`ci.records.derived` and keys of the page."""

    TFLOPS = "tflops"
    """TFLOP/s of all ranks together."""
    GBS = "gbs"
    """HBM GB/s of one rank; the bytes are the least that the call must move."""
    ALGBW = "algbw"
    """Algorithm bandwidth in GB/s: payload / time (nccl-tests doc/PERFORMANCE.md, "S / t")."""
    BUSBW = "busbw"
    """Bus bandwidth in GB/s: bytes that one rank sends over its links / time; comparable with the speed of a link for
    any world size, because link_bytes holds nccl-tests' factor ((n-1)/n of the payload for an all-gather)."""
    TIME = "time"
    """No rate: the time itself, of a call whose cost is not known."""


AMOUNT = {Rate.TFLOPS: "flops", Rate.GBS: "hbm_bytes", Rate.ALGBW: "payload_bytes", Rate.BUSBW: "link_bytes"}
"""The field of the cost that a rate divides by the time (kernels.spec.Cost, per rank)."""


class PerRankCost(Protocol):
    """What decides the unit of a case: its FLOP and bytes per rank; 0 or NaN where they are not known."""

    @property
    def flops(self) -> float: ...
    @property
    def hbm_bytes(self) -> float: ...
    @property
    def link_bytes(self) -> float: ...


def headline(cost: PerRankCost) -> Rate:
    """The unit in which a case is quoted."""
    if not cost.flops > 0:
        return Rate.BUSBW if cost.link_bytes > 0 else Rate.GBS if cost.hbm_bytes > 0 else Rate.TIME
    return Rate.GBS if cost.flops < LEAST_FLOP_PER_BYTE_FOR_TFLOPS * cost.hbm_bytes else Rate.TFLOPS


def value(rate: Rate, amount: Number, world: Number, seconds: Number) -> Number:
    """A rate other than TIME, from the cost's field `AMOUNT[rate]`, the number of ranks and the seconds."""
    return tflops(amount, world, seconds) if rate is Rate.TFLOPS else gb_per_s(amount, seconds)


def tflops(flops: Number, world: Number, seconds: Number) -> Number:
    """TFLOP/s of all ranks together; flops: FLOP per rank."""
    return flops / seconds / TERA * world


def gb_per_s(amount: Number, seconds: Number) -> Number:
    """GB/s (1e9 bytes) of one rank; amount: its bytes."""
    return amount / seconds / GIGA


def peak_share(roofline_seconds: Number, seconds: Number) -> Number:
    """Share of the peak, 0 to 1: the time that the roofline allows / the time it took."""
    return roofline_seconds / seconds


def baseline_ratio(baseline_seconds: Number, seconds: Number) -> Number:
    """Time of the fastest baseline / our time: above 1 ours is faster."""
    return baseline_seconds / seconds
