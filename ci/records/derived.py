"""What is shown beside the seconds: rates, shares of the peak, ratios to the vendor library.

Every function takes the long frame of :func:`ci.records.store.load` and returns one float column aligned with it; NaN
where a row has no time or the quantity means nothing (TFLOPS of a copy).  Nothing here is ever stored.
"""

from __future__ import annotations

import contextlib
from typing import Any

import numpy as np
import pandas as pd

from kernels.hardware import Hardware, UnknownHardware, by_market_name, lookup

TERA, GIGA = 1e12, 1e9

PLACE = ["machine", "commit", "env", "kernel", "case"]
"""What two rows must share to be compared with each other."""


def derive(frame: pd.DataFrame) -> pd.DataFrame:
    """The frame with tflops, gbs, algbw, busbw, peak_share and baseline_ratio added; `frame` is left alone."""
    return frame.assign(
        tflops=tflops(frame),
        gbs=gbs(frame),
        algbw=algbw(frame),
        busbw=busbw(frame),
        peak_share=peak_share(frame),
        baseline_ratio=baseline_ratio(frame),
    )


def tflops(frame: pd.DataFrame) -> pd.Series:
    """TFLOP/s of all ranks together: flops * world / seconds / 1e12, flops per rank as the kernel's cost states."""
    return _rate(frame, "flops", TERA) * frame["world"]


def gbs(frame: pd.DataFrame) -> pd.Series:
    """HBM GB/s of one rank: hbm_bytes / seconds / 1e9.  The bytes are what the call must move at least, per rank."""
    return _rate(frame, "hbm_bytes", GIGA)


def algbw(frame: pd.DataFrame) -> pd.Series:
    """Algorithm bandwidth in GB/s: payload_bytes / seconds / 1e9 (nccl-tests doc/PERFORMANCE.md, "S / t")."""
    return _rate(frame, "payload_bytes", GIGA)


def busbw(frame: pd.DataFrame) -> pd.Series:
    """Bus bandwidth in GB/s: link_bytes / seconds / 1e9; comparable with one rank's link speed for any world size.

    link_bytes already holds nccl-tests' factor, (n-1)/n of the payload for an all-gather (doc/PERFORMANCE.md).
    """
    return _rate(frame, "link_bytes", GIGA)


def peak_share(frame: pd.DataFrame) -> pd.Series:
    """Share of the roofline bound, 0 to 1: the least possible seconds / seconds.

    The least time of a rank is the longest of flops / peak FLOP/s, hbm_bytes / HBM bandwidth and link_bytes / link
    bandwidth to `world - 1` peers (Williams, Waterman, Patterson, CACM 52(4), 2009; kernels.hardware.roofline_seconds).
    NaN on hardware that kernels/hardware.py does not know.
    """
    bound = pd.Series(np.nan, index=frame.index)
    for _, rows in frame.groupby(["machine", "dtype", "world"], sort=False, dropna=False):
        hardware = hardware_of(rows.iloc[0])
        if hardware is not None:
            bound.loc[rows.index] = _least_seconds(rows, hardware)
    return (bound / frame["seconds"]).where(bound > 0)


def baseline_ratio(frame: pd.DataFrame) -> pd.Series:
    """Seconds of the fastest baseline / seconds, at the same machine, commit, env and case: above 1 ours is faster."""
    timed = frame[frame["baseline"].astype(bool) & frame["seconds"].notna()]
    best = timed.groupby(PLACE, observed=True)["seconds"].min().rename("best").reset_index()
    joined = frame[PLACE].merge(best, on=PLACE, how="left")
    return pd.Series(joined["best"].to_numpy(), index=frame.index) / frame["seconds"]


def hardware_of(row: Any) -> Hardware | None:
    """The device of a row (anything with .get): by market name, else by what it reported; None if unknown."""
    reported = {key: _known(row.get(key)) for key in ("arch", "compute_units", "chip_id", "memory_bytes")}
    with contextlib.suppress(UnknownHardware):  # a partition has no entry of its own; what it reported tells
        return by_market_name(str(row.get("market_name")))
    with contextlib.suppress(UnknownHardware):
        return lookup(_known(row.get("device")), **reported)
    return None


def _least_seconds(rows: pd.DataFrame, hardware: Hardware) -> pd.Series:
    """The roofline bound of rows that share a device, a dtype and a world size, in seconds."""
    world = int(rows["world"].iloc[0])
    link = hardware.link_bandwidth if world < 2 else hardware.link_to(world - 1)
    try:
        peak = hardware.peak(str(rows["dtype"].iloc[0]))
    except ValueError:
        peak = np.nan
    compute = (rows["flops"] / peak).where(rows["flops"] != 0, 0.0)
    return pd.concat([compute, rows["hbm_bytes"] / hardware.hbm_bandwidth, rows["link_bytes"] / link], axis=1).max(
        axis=1, skipna=False
    )


def _rate(frame: pd.DataFrame, amount: str, scale: float) -> pd.Series:
    return (frame[amount] / frame["seconds"] / scale).where(frame[amount] > 0)


def _known(value: Any) -> Any:
    """None for whatever pandas holds in place of nothing, plain Python values otherwise."""
    if value is None or value is pd.NA or value == "" or (isinstance(value, float) and np.isnan(value)):
        return None
    return int(value) if isinstance(value, (float, np.floating, np.integer)) else value
