"""What is shown beside the seconds: rates, shares of the peak, ratios to the vendor library.

Functions take the long frame of :func:`ci.records.store.load` and return columns aligned with it; NaN where a row has
no time or the quantity means nothing (TFLOPS of a copy).  Nothing here is ever stored.
"""

from __future__ import annotations

import contextlib
import dataclasses
import datetime
import json
import os
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any
from urllib.parse import quote

import numpy as np
import pandas as pd

from ci.records import rates, store
from ci.records.rates import Rate
from ci.trials.file import Problem, RecordError
from kernels.hardware import Hardware, UnknownHardware, by_market_name, lookup

COMPARABLE = ["machine", "commit", "env", "kernel", "case"]
"""What two rows must share to be compared with each other."""


def derive(frame: pd.DataFrame) -> pd.DataFrame:
    """The frame with more columns; `frame` itself is not changed.

    tflops, gbs, algbw, busbw: rates.  roofline_seconds, peak_share: least possible time, and its share of the time.
    baseline_name, baseline_ratio: the fastest baseline of the same machine, commit, env and case ("" without any), and
    its time / the time of the row.
    """
    seconds, roofline, best = frame["seconds"], roofline_seconds(frame), fastest_baseline(frame)
    return frame.assign(
        **{rate.value: in_rate(frame, rate) for rate in rates.AMOUNT},
        roofline_seconds=roofline,
        peak_share=rates.peak_share(roofline, seconds),
        baseline_name=best["name"],
        baseline_ratio=rates.baseline_ratio(best["seconds"], seconds),
    )


def in_rate(frame: pd.DataFrame, rate: Rate, column: str = "seconds") -> pd.Series:
    """The times of a column as a rate, NaN where that part of the cost is 0 or not known; TIME: the seconds themselves.

    column: "seconds"; "seconds_high" and "seconds_low" give the lower and the upper end of the rate's interval,
    "roofline_seconds" its peak.
    """
    if rate is Rate.TIME:
        return frame[column]
    amount = frame[rates.AMOUNT[rate]]
    return rates.value(rate, amount, frame["world"], frame[column]).where(amount > 0)


def roofline_seconds(frame: pd.DataFrame) -> pd.Series:
    """The least possible seconds of each row by the roofline of its device; NaN where device or cost is not known.

    The least time of a rank is the longest of flops / peak FLOP/s, hbm_bytes / HBM bandwidth and link_bytes / link
    bandwidth to `world - 1` peers (Williams, Waterman, Patterson, CACM 52(4), 2009; kernels.hardware.roofline_seconds).
    """
    bound = pd.Series(np.nan, index=frame.index)
    for _, rows in frame.groupby(["machine", "dtype", "world"], sort=False, dropna=False):
        hardware = hardware_of(rows.iloc[0])
        if hardware is not None:
            bound.loc[rows.index] = _least_seconds(rows, hardware)
    return bound.where(bound > 0)


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


def _least_seconds(rows: pd.DataFrame, hardware: Hardware) -> pd.Series:
    """The roofline time of rows that share a device, a dtype and a world size."""
    world = int(rows["world"].iloc[0])
    link = hardware.link_bandwidth if world < 2 else hardware.link_to(world - 1)
    try:
        peak = hardware.peak(str(rows["dtype"].iloc[0]))
    except ValueError:
        peak = np.nan
    compute = (rows["flops"] / peak).where(rows["flops"] != 0, 0.0)
    parts = [compute, rows["hbm_bytes"] / hardware.hbm_bandwidth, rows["link_bytes"] / link]
    return pd.concat(parts, axis=1).max(axis=1, skipna=False)


def _known(value: Any) -> Any:
    """None for whatever pandas holds in place of a missing value, plain Python values otherwise."""
    if value is None or value is pd.NA or value == "" or (isinstance(value, float) and np.isnan(value)):
        return None
    return int(value) if isinstance(value, (float, np.floating, np.integer)) else value


# The long frame with derived units, written for other engines.
#
# Parquet is written as a data set of one folder per machine (`machine=<name>/records.parquet`, "hive" spelling):
# DuckDB, pandas, polars and Spark read the folder as one table.  CSV and JSON lines are one file.


FORMATS = ("parquet", "csv", "json", "pytorch")


@dataclasses.dataclass(frozen=True)
class Exported:
    """What was written; problems: what of the records could not be read."""

    rows: int
    paths: list[Path]
    problems: Sequence[Problem] = ()


def export(
    results_dir: Path,
    out: Path,
    kind: str = "parquet",
    machines: Sequence[str] = (),
    kernels: Sequence[str] = (),
    since: datetime.datetime | None = None,
    dry_run: bool = False,
) -> Exported:
    """Write the records that match; nothing where none does.  Raises RecordError if `out` cannot be written."""
    records = store.load(results_dir)
    problems, frame = records.attrs.get("problems", ()), derive(chosen(records, machines, kernels, since))
    if not len(frame) or dry_run:
        return Exported(len(frame), [], problems)
    if kind == "parquet":
        by_machine = frame.groupby("machine", observed=True)
        groups = [(out / f"machine={quote(str(name), safe='')}" / "records.parquet", rows) for name, rows in by_machine]
    else:
        groups = [(out, frame)]
    for path, rows in groups:
        with _draft_of(path, out) as draft:
            if kind == "parquet":
                rows.drop(columns="machine").to_parquet(draft, index=False, compression="zstd")
            elif kind == "csv":
                rows.to_csv(draft, index=False)
            elif kind == "json":
                rows.to_json(draft, orient="records", lines=True, date_format="iso")
            else:
                draft.write_text("".join(f"{json.dumps(one)}\n" for one in in_benchmark_database(rows)))
    return Exported(len(frame), [path for path, _ in groups], problems)


METRICS = {"seconds": "latency (s)", "tflops": "throughput (TFLOPS)", "gbs": "bandwidth (GB/s)"}
"""Columns of the frame by the name of a metric, with the unit in it as the dashboards of PyTorch have it."""


def in_benchmark_database(frame: pd.DataFrame) -> Iterator[dict[str, Any]]:
    """An object per row and metric, as version 3 of PyTorch's benchmark database has them (pytorch/test-infra).

    A row without a time is one without values.  Times are seconds since 1970, as there.
    """
    for row in frame.to_dict("records"):
        known = [name for name in METRICS if not pd.isna(row[name])]
        about = {"name": row["kernel"], "mode": "", "dtype": row["dtype"], "extra_info": {"env": row["env"]}}
        versions = {name: {"version": row[name]} for name in ("torch", "triton", "library", "driver") if row[name]}
        runner = {"name": row["machine"], "type": row["device"] or row["kind"], "gpu_count": int(row["world"])}
        for column in known or ["seconds"]:
            yield {
                "schema_version": "v3",
                "timestamp": None if pd.isna(row["date"]) else int(row["date"].timestamp()),
                "head_sha": row["commit"],
                "benchmark": about,
                "model": {"name": row["case"], "type": "kernel", "backend": row["backend"]},
                "runners": [runner],
                "dependencies": versions,
                "metric": {
                    "name": METRICS[column],
                    "benchmark_values": [float(row[column])] if known else [],
                    "extra_info": {"status": row["status"], "why": row["why"]},
                },
            }


def chosen(
    frame: pd.DataFrame, machines: Sequence[str], kernels: Sequence[str], since: datetime.datetime | None
) -> pd.DataFrame:
    """The rows of these machines and kernels (all without any) from a day on (UTC)."""
    for column, names in (("machine", machines), ("kernel", kernels)):
        if names:
            frame = frame[frame[column].isin(list(names))]
    if since is not None:
        frame = frame[frame["date"] >= pd.Timestamp(since, tz="UTC")]
    return frame.reset_index(drop=True)


@contextlib.contextmanager
def _draft_of(path: Path, out: Path) -> Iterator[Path]:
    """A draft that takes the place of `path`, which is `out` or in it, once it is whole."""
    draft = path.with_name(f".{path.name}.{os.getpid()}")
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        yield draft
        os.replace(draft, path)
    except OSError as error:
        raise RecordError(f"{out} cannot be written ({error.strerror or error}); name another: --out") from error
    finally:
        with contextlib.suppress(OSError):
            draft.unlink()
