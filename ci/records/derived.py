"""What is shown beside the seconds: rates, shares of the peak, ratios to the vendor library.

Functions take the long frame of :func:`ci.records.store.load` and return columns aligned with it; NaN where a row has
no time or the quantity means nothing (TFLOPS of a copy).  Nothing here is ever stored.
"""

from __future__ import annotations

import contextlib
import dataclasses
import datetime
import os
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any
from urllib.parse import quote

import numpy as np
import numpy.typing as npt
import pandas as pd

from ci.records import rates, samples, store
from ci.records.rates import Rate
from ci.trials.file import RecordError, read
from ci.trials.trial import Trial
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
    keys, seconds = _comparable(frame), frame["seconds"].to_numpy(np.float64)
    timed = np.flatnonzero(frame["baseline"].to_numpy(bool) & ~np.isnan(seconds))
    timed = timed[np.lexsort((seconds[timed], keys[timed]))]
    with_baseline, first = np.unique(keys[timed], return_index=True)
    at = np.searchsorted(with_baseline, keys)
    found = np.append(with_baseline, -1)[at] == keys
    rows = np.where(found, np.append(timed[first], 0)[at], -1)
    backends = pd.Categorical(frame["backend"])
    texts = pd.Index(["", *(text for text in backends.categories if text)])
    codes = np.append(texts.get_indexer(backends.categories)[backends.codes], 0)[rows]
    names = pd.Categorical.from_codes(codes, categories=texts)
    return pd.DataFrame({"name": names, "seconds": np.append(seconds, np.nan)[rows]}, index=frame.index)


def _comparable(frame: pd.DataFrame) -> npt.NDArray[np.int64]:
    """One number for all rows that may be compared with each other."""
    keys = np.zeros(len(frame), np.int64)
    for column in COMPARABLE:
        texts = pd.Categorical(frame[column])
        if keys.size and int(keys.max()) > np.iinfo(np.int64).max // (len(texts.categories) + 1):
            keys = np.unique(keys, return_inverse=True)[1]
        keys = keys * (len(texts.categories) + 1) + texts.codes
    return keys


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


FORMATS = ("parquet", "csv", "json")


@dataclasses.dataclass(frozen=True)
class Exported:
    """What was written."""

    rows: int
    paths: list[Path]


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
    frame = derive(chosen(store.load(results_dir), machines, kernels, since))
    if not len(frame) or dry_run:
        return Exported(len(frame), [])
    with _written(out):
        paths = _parquet(frame, out) if kind == "parquet" else [_file(frame, out, kind)]
    return Exported(len(frame), paths)


def export_samples(
    results_dir: Path,
    out: Path,
    machines: Sequence[str] = (),
    kernels: Sequence[str] = (),
    since: datetime.datetime | None = None,
    dry_run: bool = False,
) -> Exported:
    """Write every sample of the trials that match, a row each (`ci.records.samples.SCHEMA`), wherever they are.

    A trial of two commits counts once.  since: of trials that started on this day or later.  One file per machine,
    operator and month.  Raises RecordError.
    """
    groups: dict[str, dict[str, Trial]] = {}
    for path in sorted(results_dir.glob("*/*.notes.jsonl")):
        for trial in read(path).trials if not machines or path.parent.name in machines else ():
            if (not kernels or trial.operator in kernels) and (since is None or trial.started_ms >= _ms(since)):
                groups.setdefault(samples.folder(trial), {})[trial.id] = trial
    rows, paths = 0, []
    for folder, trials in sorted(groups.items()):
        ordered = sorted(trials.values(), key=lambda trial: trial.order)
        if dry_run:
            rows += sum(arm.rounds for trial in ordered for *_, arm in trial.arms())
            continue
        found = samples.table(samples.whole_in(ordered, results_dir))
        rows, path = rows + len(found), out / folder / "samples.parquet"
        with _written(out), _replaced(path) as draft:
            draft.write_bytes(samples.written(found))
        paths.append(path)
    return Exported(rows, paths)


def _ms(day: datetime.datetime) -> int:
    return round(day.replace(tzinfo=datetime.UTC).timestamp() * 1000)


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


def _parquet(frame: pd.DataFrame, out: Path) -> list[Path]:
    paths = []
    for machine, rows in frame.groupby("machine", observed=True):
        path = out / f"machine={quote(str(machine), safe='')}" / "records.parquet"
        with _replaced(path) as draft:
            rows.drop(columns="machine").to_parquet(draft, index=False, compression="zstd")
        paths.append(path)
    return paths


def _file(frame: pd.DataFrame, out: Path, kind: str) -> Path:
    write: dict[str, Callable[[Path], object]] = {
        "csv": lambda draft: frame.to_csv(draft, index=False),
        "json": lambda draft: frame.to_json(draft, orient="records", lines=True, date_format="iso"),
    }
    with _replaced(out) as draft:
        write[kind](draft)
    return out


@contextlib.contextmanager
def _written(out: Path) -> Iterator[None]:
    try:
        yield
    except OSError as error:
        raise RecordError(f"{out} cannot be written ({error.strerror or error}); name another: --out") from error


@contextlib.contextmanager
def _replaced(path: Path) -> Iterator[Path]:
    """A draft that takes the place of `path` once it is whole."""
    path.parent.mkdir(parents=True, exist_ok=True)
    draft = path.with_name(f".{path.name}.{os.getpid()}")
    try:
        yield draft
        os.replace(draft, path)
    finally:
        draft.unlink(missing_ok=True)
