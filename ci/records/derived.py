"""What is shown beside the seconds: rates, shares of the peak, ratios to the vendor library, and sustained times.

Functions take the long frame of :func:`ci.records.store.load` and return columns aligned with it; NaN where a row has
no time or the quantity means nothing (TFLOPS of a copy).  Nothing here is ever stored.
"""

from __future__ import annotations

import contextlib
from collections.abc import Sequence
from pathlib import Path
from typing import Any
from urllib.parse import quote

import numpy as np
import pandas as pd

from ci.records import rates, store
from ci.records.ledger import SUSTAINED, folder_of
from ci.whole_files import replace
from kernels.hardware import Hardware, UnknownHardware, by_market_name, lookup

COMPARABLE = ["machine", "commit", "env", "kernel", "case"]
"""What two rows must share to be compared with each other."""


def derive(frame: pd.DataFrame) -> pd.DataFrame:
    """The frame with more columns; `frame` itself is not changed.

    tflops, gbs, algbw, busbw: rates, NaN where that part of the cost is 0 or not known.
    roofline_seconds, peak_share: least possible time, and its share of the time.
    baseline_name, baseline_ratio: the fastest baseline of the same machine, commit, env and case ("" without any), and
    its time / the time of the row.
    """
    seconds, best = frame["seconds"], fastest_baseline(frame)
    roofline = roofline_parts(frame).max(axis=1, skipna=False)
    roofline = roofline.where(roofline > 0)
    amounts = {rate: frame[name].where(frame[name] > 0) for rate, name in rates.AMOUNT.items()}
    return frame.assign(
        **{rate.value: rates.value(rate, amount, frame["world"], seconds) for rate, amount in amounts.items()},
        roofline_seconds=roofline,
        peak_share=rates.peak_share(roofline, seconds),
        baseline_name=best["name"],
        baseline_ratio=rates.baseline_ratio(best["seconds"], seconds),
    )


def roofline_parts(frame: pd.DataFrame) -> pd.DataFrame:
    """The least seconds of each row by compute, HBM and links of its device; NaN where device or cost is not known.

    flops / peak FLOP/s, hbm_bytes / HBM bandwidth and link_bytes / link bandwidth to `world - 1` peers.  A rank takes
    the longest of them (Williams, Waterman, Patterson, CACM 52(4), 2009; kernels.hardware.roofline_seconds).
    """
    parts = pd.DataFrame(np.nan, frame.index, ["compute", "HBM", "links"])
    for _, rows in frame.groupby(["machine", "dtype", "world"], sort=False, dropna=False):
        if hardware := hardware_of(rows.iloc[0]):
            peak, world = np.nan, int(rows["world"].iloc[0])
            with contextlib.suppress(ValueError):
                peak = hardware.peak(str(rows["dtype"].iloc[0]))
            link = hardware.link_bandwidth if world < 2 else hardware.link_to(world - 1)
            compute = (rows["flops"] / peak).where(rows["flops"] != 0, 0.0)
            own = [compute, rows["hbm_bytes"] / hardware.hbm_bandwidth, rows["link_bytes"] / link]
            parts.loc[rows.index] = np.stack(own, axis=1)
    return parts


def fastest_baseline(frame: pd.DataFrame) -> pd.DataFrame:
    """name and seconds of the fastest baseline that each row may be compared with; "" and NaN without a timed one."""
    group = frame.groupby(COMPARABLE, sort=False, observed=True, dropna=False).ngroup()
    timed = frame[["backend", "seconds"]].assign(group=group)[frame["baseline"].astype(bool) & frame["seconds"].notna()]
    best = timed.sort_values("seconds", kind="stable").drop_duplicates("group").set_index("group").reindex(group)
    name = pd.Categorical(best["backend"])
    name = name.set_categories(["", *(text for text in name.categories if text)]).fillna("")
    return pd.DataFrame({"name": name, "seconds": best["seconds"].to_numpy(np.float64)}, index=frame.index)


def hardware_of(row: Any) -> Hardware | None:
    """The device of a row (anything with .get): by market name, else by what it reported; None if unknown."""
    reported = {key: _known(row.get(key)) for key in ("arch", "compute_units", "chip_id", "memory_bytes")}
    with contextlib.suppress(UnknownHardware):  # a partition has no entry of its own: what it reported decides
        return by_market_name(str(row.get("market_name")))
    with contextlib.suppress(UnknownHardware):
        return lookup(_known(row.get("device")), **reported)
    return None


def _known(value: Any) -> Any:
    """None for whatever pandas holds in place of a missing value, plain Python values otherwise."""
    if value is None or value is pd.NA or value == "" or (isinstance(value, float) and np.isnan(value)):
        return None
    return int(value) if isinstance(value, (float, np.floating, np.integer)) else value


# The long frame with derived units, written for other engines: a Parquet data set of one folder per machine
# (`machine=<name>/records.parquet`, "hive" spelling), which DuckDB, pandas, polars and Spark read as one table.


def export(
    results_dir: Path, out: Path, machines: Sequence[str] = (), kernels: Sequence[str] = (), dry_run: bool = False
) -> tuple[int, list[Path], Sequence[str]]:
    """Write the records that match; nothing where none does.  Raises WriteError if `out` cannot be written.

    Returns the number of rows, the files, and what of the records could not be read.
    """
    records = store.load(results_dir)
    problems, frame = records.attrs.get("problems", ()), derive(_of_machines_and_kernels(records, machines, kernels))
    if not len(frame) or dry_run:
        return len(frame), [], problems
    paths = []
    for machine, rows in frame.groupby("machine", observed=True):
        paths.append(out / f"machine={quote(str(machine), safe='')}" / "records.parquet")
        content = rows.drop(columns="machine").to_parquet(index=False, compression="zstd")
        replace(paths[-1], content, "name another: --out")
    return len(frame), paths, problems


def _of_machines_and_kernels(frame: pd.DataFrame, machines: Sequence[str], kernels: Sequence[str]) -> pd.DataFrame:
    """The rows of these machines and kernels (all without any)."""
    for column, names in (("machine", machines), ("kernel", kernels)):
        if names:
            frame = frame[frame[column].isin(list(names))]
    return frame.reset_index(drop=True)


# The sustained times of the newest records beside the spaced ones: the same case and backend on the same machine.


SERIES = ["machine", "kernel", "case", "backend"]
"""What a sustained and a spaced time share to stand beside each other."""

NEWEST = ["commit", "seconds", "paired_ratio", "paired_low", "paired_high"]


def sustained_vs_spaced(results: Path, spaced: pd.DataFrame | None = None) -> pd.DataFrame:
    """The newest record of every series that has a sustained time: SERIES, device, baseline, NEWEST.

    NEWEST of its spaced calls follows with the suffix `_spaced` (`seconds_spaced`), NaN where there are none; they may
    be of another commit.  spaced: the frame of `results`, if it is loaded.
    """
    sustained = _newest(store.load(folder_of(results, SUSTAINED)), ["device", "baseline", *NEWEST])
    others = _newest(store.load(results) if spaced is None else spaced, NEWEST)
    return sustained.join(others.add_suffix("_spaced")).sort_index().reset_index()


def _newest(frame: pd.DataFrame, columns: list[str]) -> pd.DataFrame:
    """The newest right row of each series."""
    right = frame[(frame["status"] == "ok") & frame["seconds"].notna()].reindex(columns=[*SERIES, "date", *columns])
    newest = right.sort_values("date", kind="stable").drop_duplicates(SERIES, keep="last")
    return newest.astype(dict.fromkeys(SERIES, str)).set_index(SERIES)[columns]
