"""The data of the first page: newest numbers of every own series of a lane, and what was not measured.

Pure: a frame in, plain dictionaries and lists out.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import numpy as np
import pandas as pd

from ci.records.rates import Rate
from dashboards.lanes import KEY, commits, natural, same_definition
from dashboards.values import count, headline, in_rate, minute, one, significant

SPARK_POINTS = 50
"""Commits in a sparkline of the overview: about two months of nightly runs."""

MOVED_BESIDE_BASELINE = 0.02
MOVED_ALONE = 0.07
"""Least change between two commits that the overview marks: of the speed and of its ratio to the baseline, both, in
the same direction; without a baseline, of the speed alone.  A hint, not a verdict.  Where nothing changed, 97 separate
runs on two H200 (default clocks, 2026-11-20), compared three with three, exceed these limits beside a baseline in 1 %
of the pairs (GEMM of 4096 cubed) and in 0.1 % (M = 64), and alone in 1 %: runs of that GEMM drift by 2.6 % (sd)."""


def overview_data(frame: pd.DataFrame) -> dict[str, Any]:
    """{"commits": [[hash, date]], "rows": one per own series, "absent": arms without a newest time}.

    static/overview.js and static/kernel.js read it.
    """
    order = commits(frame)
    index = {commit: i for i, commit in enumerate(order["commit"])}
    rows = [row for _, part in frame.groupby(["kernel", "case"], sort=True) for row in _case_rows(part, index)]
    rows.sort(key=lambda row: (row["kernel"], natural(row["case"]), row["backend"]))
    _mark_here(rows)
    _mark_headlines(rows)
    dated = [[commit, minute(date)] for commit, date, _ in order.itertuples(index=False)]
    return {"commits": dated, "rows": rows, "absent": _absent(frame, index)}


def _mark_here(rows: list[dict[str, Any]]) -> None:
    """`here`: does the backend run on this machine?  Not if it is unsupported in every case of its kernel.

    Rows of a kernel that no backend supports are all kept: that is worth seeing.
    """
    supported = (row for row in rows if row["status"] != "unsupported" or row["value"] is not None)
    runs = {(row["kernel"], row["backend"]) for row in supported}
    kernels = {kernel for kernel, _ in runs}
    for row in rows:
        row["here"] = (row["kernel"], row["backend"]) in runs or row["kernel"] not in kernels


def _mark_headlines(rows: list[dict[str, Any]]) -> None:
    """`headline`: a row of the pull-request tier, or of the first case of a kernel without any, that is here."""
    with_pr = {row["kernel"] for row in rows if row["tier"] == "pr"}
    first: dict[str, str] = {}
    for row in rows:
        is_first = first.setdefault(row["kernel"], row["case"]) == row["case"]
        row["headline"] = row["here"] and (row["tier"] == "pr" if row["kernel"] in with_pr else is_first)


def _case_rows(part: pd.DataFrame, index: dict[str, int]) -> Iterable[dict[str, Any]]:
    """One row per own backend of a case; of a case that has only baselines, one row per baseline."""
    rate = headline(part)
    own = part[~part["baseline"]]
    for _, rows in (own if len(own) else part).groupby("backend", sort=True):
        newest = rows.iloc[-1]
        yield {
            **{column: newest[column] for column in (*KEY, "tier", "dtype", "status", "why")},
            "baseline": not len(own),
            "world": count(newest["world"]),
            "rate": rate,
            "at": index[newest["commit"]],
            **_newest(rows[(rows["status"] == "ok") & rows["seconds"].notna()], rate, index),
        }


def _newest(good: pd.DataFrame, rate: Rate, index: dict[str, int]) -> dict[str, Any]:
    """The last good row in the unit of the case, its step from the good row before it, and the recent line."""
    if not len(good):
        return {"value": None, "spark": [], "step": None}
    last, recent = good.iloc[-1], good.tail(SPARK_POINTS)
    return {
        "value": significant(in_rate(good.tail(1), rate))[0],
        "us": one(last["seconds"] * 1e6),
        "share": one(last["peak_share"], 4),
        "ratio": one(last["baseline_ratio"], 4),
        "baseline_name": last["baseline_name"] or None,
        "good_at": index[last["commit"]],
        "step": _step(good),
        "spark": significant(in_rate(recent[same_definition(recent, last)], rate), 4),
    }


def _step(good: pd.DataFrame) -> dict[str, Any] | None:
    """Change of speed against the commit before, as shares: of the time alone, and of the ratio to the baseline.

    `moved` is "faster" or "slower" only if the intervals are apart and the speed has changed enough, and so has the
    ratio to the baseline where there is one: that takes out what heat does to the whole device.
    """
    if len(good) < 2:
        return None
    before, last = good.iloc[-2], good.iloc[-1]
    if not same_definition(good.tail(2), last)[0]:
        return {"redefined": True, "from": before["commit"]}
    alone = before["seconds"] / last["seconds"] - 1
    beside = last["baseline_ratio"] / before["baseline_ratio"] - 1
    return {
        "from": before["commit"],
        "speed": one(alone, 4),
        "ratio": one(beside, 4),
        "moved": _moved(alone, beside, before, last),
        "env": before["env"] != last["env"],
    }


def _moved(alone: float, beside: float, before: pd.Series, last: pd.Series) -> str | None:
    apart = last["seconds_low"] > before["seconds_high"] or last["seconds_high"] < before["seconds_low"]
    if np.isfinite(beside):
        moved = alone * beside > 0 and min(abs(alone), abs(beside)) >= MOVED_BESIDE_BASELINE
    else:
        moved = abs(alone) >= MOVED_ALONE
    return ("faster" if alone > 0 else "slower") if apart and moved else None


def _absent(frame: pd.DataFrame, index: dict[str, int]) -> list[dict[str, Any]]:
    """Arms whose newest record has no time, with the reason; baselines too."""
    newest = frame.drop_duplicates(KEY, keep="last")
    gone = newest[newest["status"] != "ok"].sort_values(["status", *KEY])
    gone = gone.assign(at=gone["commit"].map(index))
    return gone[[*KEY, "status", "why", "at"]].to_dict("records")
