"""Backends beside each other: every case with every backend, which one is best, and which are as good within the noise."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
import pandas as pd

from ci.records.rates import Rate, headline
from dashboards.lanes import natural
from dashboards.values import costs, count, different, in_rate, minute, one, significant
from dashboards.views import SiteInput, View
from dashboards.views.beside import beside
from dashboards.views.newest import half_width, microseconds, timed


def backends_data(rows: pd.DataFrame) -> dict[str, Any]:
    """What static/views/backends.js reads.  rows: of a lane, as `dashboards.views.newest.together` gives them.

    {"cases": [{"kernel", "case", "tier", "dtype", "world", "commit", "date", "env", "rate", "arms": [{"backend",
    "baseline", "status", "why", "us", "low", "high", "value", "of_best", "standing"}]}]}

    of_best: speed / speed of the best backend, at most 1.  standing: "best", "tied" (its time and the best's are apart
    by no more than their 99 % intervals together) or "".
    """
    groups = [(str(kernel), str(case), part) for (kernel, case), part in rows.groupby(["kernel", "case"], sort=True)]
    groups.sort(key=lambda group: (group[0], natural(group[1])))
    return {"cases": [_case(kernel, case, part) for kernel, case, part in groups]}


def _case(kernel: str, case: str, rows: pd.DataFrame) -> dict[str, Any]:
    newest, rate = rows.iloc[-1], headline(different(costs(rows))[-1])
    rows = rows.sort_values(["baseline", "backend"], kind="stable")
    return {
        "kernel": kernel,
        "case": case,
        "tier": newest["tier"],
        "dtype": newest["dtype"],
        "world": count(newest["world"]),
        "commit": newest["commit"],
        "date": minute(newest["date"]),
        "env": newest["env"],
        "rate": rate.value,
        "arms": _arms(rows, rate),
    }


def _arms(rows: pd.DataFrame, rate: Rate) -> list[dict[str, Any]]:
    ok = timed(rows)
    of_best, standing = standings(np.where(ok, rows["seconds"], np.nan), half_width(rows))
    columns = {
        "backend": rows["backend"],
        "baseline": map(bool, rows["baseline"]),
        "status": rows["status"],
        "why": rows["why"],
        "us": microseconds(rows),
        "low": microseconds(rows, "seconds_low"),
        "high": microseconds(rows, "seconds_high"),
        "value": significant(in_rate(rows, rate)),
        "of_best": [one(share, 4) for share in of_best],
        "standing": standing,
    }
    return [dict(zip(columns, values, strict=True)) for values in zip(*columns.values(), strict=True)]


def standings(seconds: np.ndarray, half: np.ndarray) -> tuple[np.ndarray, list[str]]:
    """Speed relative to the best, and "best", "tied" or "" of each; seconds: NaN where it has no time.

    half: half of each 99 % interval as a logarithm.  Two independent estimates differ if their logarithms are apart by
    more than the root of the sum of the squared half-widths (Zou and Donner, Statistics in Medicine 27(10), 2008).
    """
    if not np.isfinite(seconds).any():
        return np.full(len(seconds), np.nan), [""] * len(seconds)
    best = int(np.nanargmin(seconds))
    apart = np.log(seconds / seconds[best])
    tied = apart <= np.hypot(np.nan_to_num(half), np.nan_to_num(half[best]))
    standing = ["best" if i == best else "tied" if tied[i] else "" for i in range(len(seconds))]
    return seconds[best] / seconds, standing


def _data(site: SiteInput) -> Iterator[tuple[str, Any]]:
    for lane in site.lanes:
        yield f"{lane.slug}/backends", backends_data(site.newest[lane.slug])


def _files(site: SiteInput) -> Iterator[tuple[str, bytes]]:
    for path, data in _data(site):
        yield from beside(path, [_flat(case, arm) for case in data["cases"] for arm in case["arms"]])


def _flat(case: dict[str, Any], arm: dict[str, Any]) -> dict[str, Any]:
    return {key: value for key, value in case.items() if key != "arms"} | arm


VIEW = View(
    "backends",
    "Backends",
    scripts=("numbers.js", "echarts/charts.min.js", "views/plot.js", "views/page.js", "views/backends.js"),
    styles=("views/views.css",),
    data=_data,
    files=_files,
)
