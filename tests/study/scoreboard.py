"""Where our kernels stand against the vendor libraries: one row per machine, kernel and backend, as Markdown.

    python -m tests.study.scoreboard results
    python -m tests.study.scoreboard --sustained --until 2026-11-28 results

With --until: as of the end of that day (UTC).  With --sustained: calls back to back in bursts beside spaced ones, over
the cases that have both.

The ratio is baseline time / our time in the newest record of a kernel, against the fastest baseline of each case.
Cases whose only timed baseline is one of NO_PEERS are left out: a comparison is fair, or it is not shown.
"""

from __future__ import annotations

import argparse
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pandas as pd

from ci.records import derived as derive
from ci.records import store as records
from ci.records.derived import sustained_vs_spaced
from ci.report.markdown import code, text

HEADER = (
    "| machine | kernel | backend | cases | baseline / ours, geometric mean | worst case | best case |",
    "|---|---|---|---:|---:|---:|---:|",
)

NO_PEERS = ("dequant+torch",)
"""Baselines of old records that nobody would call: MXFP4 weights dequantised in each call, a baseline up to 2026-11."""


def rows(frame: pd.DataFrame) -> Iterator[str]:
    """The rows of the table, from the records of GPUs in `frame` (see `ci.records.store.load`)."""
    timed = derive.derive(frame[(frame["status"] == "ok") & (frame["kind"] == "gpu")].reset_index(drop=True))
    ours = timed[~timed["baseline"] & timed["baseline_ratio"].notna() & ~timed["baseline_name"].isin(NO_PEERS)]
    for (machine, kernel), group in ours.groupby(["machine", "kernel"], sort=True):
        newest = group[group["commit"] == group.sort_values("date")["commit"].iloc[-1]]
        for backend, cases in newest.groupby("backend", sort=True):
            ratio = cases["baseline_ratio"].to_numpy(dtype=np.float64)
            first = cases.iloc[0]
            name = text(f"{int(first['count'])} x {first['device']} ({machine})")
            numbers = (np.exp(np.log(ratio).mean()), ratio.min(), ratio.max())
            shown = " | ".join(f"{number:.2f}" for number in numbers)
            yield f"| {name} | {code(kernel)} | {code(backend)} | {len(ratio)} | {shown} |"


SUSTAINED_HEADER = (
    "| machine | kernel | backend | cases | baseline / ours, spaced | sustained |",
    "|---|---|---|---:|---:|---:|",
)


def sustained_rows(series: pd.DataFrame) -> Iterator[str]:
    """Geometric means over the cases of a backend that were timed in both regimes."""
    ratios = ["paired_ratio_spaced", "paired_ratio"]
    both = series[~series["baseline"]].dropna(subset=ratios)
    for (machine, device, kernel, backend), cases in both.groupby(
        ["machine", "device", "kernel", "backend"], observed=True
    ):
        shown = " | ".join(f"{mean:.3f}" for mean in np.exp(np.log(cases[ratios]).mean()))
        name = text(f"{device} ({machine})")
        yield f"| {name} | {code(kernel)} | {code(backend)} | {len(cases)} | {shown} |"


def sustained_table(results: Path, until: str | None = None) -> str:
    """The table of both regimes."""
    return "\n".join([*SUSTAINED_HEADER, *sustained_rows(sustained_vs_spaced(results, of_days(results, until)))]) + "\n"


def table(results: Path, until: str | None = None) -> str:
    """The whole table of a results folder."""
    return "\n".join([*HEADER, *rows(of_days(results, until))]) + "\n"


def of_days(results: Path, until: str | None) -> pd.DataFrame:
    """The records of a folder, those of days after `until` left out."""
    frame = records.load(results)
    return frame if until is None else frame[frame["date"] < pd.Timestamp(until, tz="UTC") + pd.Timedelta(days=1)]


if __name__ == "__main__":
    parser = argparse.ArgumentParser(prog="python -m tests.study.scoreboard")
    parser.add_argument("results", nargs="?", type=Path, default=Path("results"))
    parser.add_argument("--sustained", action="store_true")
    parser.add_argument("--until", metavar="YYYY-MM-DD")
    asked = parser.parse_args()
    print((sustained_table if asked.sustained else table)(asked.results, asked.until), end="")
