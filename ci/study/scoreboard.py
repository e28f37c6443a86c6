"""Where our kernels stand against the vendor libraries: one row per machine, kernel and backend, as Markdown.

    python -m ci.study.scoreboard results

The ratio is baseline time / our time in the newest record of a kernel, against the fastest baseline of each case.
Cases whose only timed baseline is one of NO_PEERS are left out: a comparison is fair, or it is not shown.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pandas as pd

from ci.records import derived as derive
from ci.records import store as records
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


def table(results: Path) -> str:
    """The whole table of a results folder."""
    return "\n".join([*HEADER, *rows(records.load(results))]) + "\n"


if __name__ == "__main__":
    print(table(Path(sys.argv[1] if len(sys.argv) > 1 else "results")), end="")
