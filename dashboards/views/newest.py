"""The data that three pages draw (backends, shapes, roofline): the newest numbers of every case of a lane."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

import numpy as np
import pandas as pd

from ci.records import rates
from dashboards.lanes import natural
from dashboards.values import costs, different, in_rate, significant
from dashboards.views import CHARTS, SiteInput
from dashboards.views.beside import beside
from dashboards.views.together import half_width, microseconds, minute, timed

CASES = ("values.js", *CHARTS, "views/cases.js")
"""Scripts of a view that draws these data."""


def newest_data(rows: pd.DataFrame) -> dict[str, Any]:
    """What the scripts read.  rows: of a lane, as `dashboards.views.together.together` gives them.

    {"cases": [{"kernel", "case", "tier", "dtype", "world", "commit", "date", "env", "rate", "shape": {name: value},
    "cost": {field of CostRow: value}, "arms": [{"backend", "baseline", "status", "why", "us", "low", "high", "value",
    "of_best", "standing"}]}]}

    of_best: speed / speed of the best backend, at most 1.  standing: "best", "tied" (it and the best are apart by no
    more than their 99 % intervals together) or "".
    """
    groups = [(str(kernel), str(case), part) for (kernel, case), part in rows.groupby(["kernel", "case"], sort=True)]
    groups.sort(key=lambda group: (group[0], natural(group[1])))
    return {"cases": [_case(kernel, case, part) for kernel, case, part in groups]}


def _case(kernel: str, case: str, rows: pd.DataFrame) -> dict[str, Any]:
    newest, cost = rows.iloc[-1], different(costs(rows))[-1]
    rate, rows = rates.headline(cost), rows.sort_values(["baseline", "backend"], kind="stable")
    return {
        "kernel": kernel,
        "case": case,
        "tier": newest["tier"],
        "dtype": newest["dtype"],
        "world": int(newest["world"]),
        "commit": newest["commit"],
        "date": minute(newest["date"]),
        "env": newest["env"],
        "rate": rate.value,
        "shape": shape_of(newest),
        "cost": {name: value for name, value in cost._asdict().items() if value},
        "arms": _arms(rows, rate),
    }


def shape_of(row: pd.Series) -> dict[str, Any]:
    """The dimensions of a case as its declaration states them, {} where the record does not tell."""
    text = row.get("shape")
    return json.loads(text) if isinstance(text, str) and text else {}


def _arms(rows: pd.DataFrame, rate: rates.Rate) -> list[dict[str, Any]]:
    of_best, standing = standings(rows)
    columns = {
        "backend": rows["backend"],
        "baseline": map(bool, rows["baseline"]),
        "status": rows["status"],
        "why": rows["why"],
        "us": microseconds(rows),
        "low": microseconds(rows, "seconds_low"),
        "high": microseconds(rows, "seconds_high"),
        "value": significant(in_rate(rows, rate)),
        "of_best": significant(of_best, 4),
        "standing": standing,
    }
    return [dict(zip(columns, values, strict=True)) for values in zip(*columns.values(), strict=True)]


# ---- who is best -----------------------------------------------------------------------------------------------------


def standings(rows: pd.DataFrame) -> tuple[np.ndarray, list[str]]:
    """Speed relative to the best backend, NaN without a time, and "best", "tied" or "" of each row of one case.

    Where two rows were timed round by round beside the same baseline, their ratios to it are compared: what the device
    does to all backends is not in them.  Else their times are.  Two estimates are tied if their logarithms are apart by
    no more than the root of the sum of the squared half-widths (Zou and Donner, Statistics in Medicine 27(10), 2008).
    """
    seconds = np.where(timed(rows), rows["seconds"], np.nan)
    if not np.isfinite(seconds).any():
        return seconds, [""] * len(rows)
    best = int(np.nanargmin(seconds))
    apart, reach = np.log(seconds / seconds[best]), _together(half_width(rows), best)
    place, half = _beside_baseline(rows)
    paired = np.isfinite(place) & np.isfinite(place[best])
    apart = np.where(paired, place[best] - place, apart)
    reach = np.where(paired, _together(half, best), reach)
    standing = ["best" if i == best else "tied" if apart[i] <= reach[i] else "" for i in range(len(rows))]
    return seconds[best] / seconds, standing


def _together(half: np.ndarray, best: int) -> np.ndarray:
    half = np.nan_to_num(half)
    return np.hypot(half, half[best])


def _beside_baseline(rows: pd.DataFrame) -> tuple[np.ndarray, np.ndarray]:
    """Logarithm of the speed relative to the baseline that most rows were paired with, and half of its interval."""
    nothing = np.full(len(rows), np.nan)
    names = rows["paired_with"] if "paired_with" in rows else pd.Series("", rows.index)
    known = names[names.astype(str) != ""]
    if known.empty:
        return nothing, nothing
    name = known.mode().iloc[0]
    ratio, low, high = (rows[f"paired_{end}"].to_numpy(float) for end in ("ratio", "low", "high"))
    mine, itself = (names == name).to_numpy(), (rows["backend"] == name).to_numpy()
    with np.errstate(divide="ignore", invalid="ignore"):
        place, half = np.log(ratio), np.log(high / low) / 2
    return np.where(itself, 0.0, np.where(mine, place, np.nan)), np.where(itself, 0.0, np.where(mine, half, np.nan))


# ---- files -----------------------------------------------------------------------------------------------------------


def newest_files(site: SiteInput) -> Iterator[tuple[str, Any]]:
    """The data file of each lane."""
    for lane in site.lanes:
        yield f"{lane.slug}/newest", newest_data(site.newest[lane.slug])


def newest_beside(site: SiteInput) -> Iterator[tuple[str, bytes]]:
    """The same numbers for other programs, one row per case and backend."""
    for path, data in newest_files(site):
        yield from beside(path, [_flat(case, arm) for case in data["cases"] for arm in case["arms"]])


def _flat(case: dict[str, Any], arm: dict[str, Any]) -> dict[str, Any]:
    cost = {name: case["cost"].get(name) for name in ("flops", "hbm_bytes", "link_bytes", "payload_bytes")}
    kept = {key: value for key, value in case.items() if key not in ("arms", "cost", "shape")}
    return kept | cost | {"shape": " ".join(f"{k}={v}" for k, v in case["shape"].items())} | arm
