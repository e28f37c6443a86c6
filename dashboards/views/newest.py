"""The data that three pages draw (backends, shapes, roofline): the newest numbers of every case of a lane."""

from __future__ import annotations

import functools
import json
import math
from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np
import pandas as pd

from ci.records import rates
from ci.stats.types import FloatArray
from dashboards.lanes import KEY, natural
from dashboards.series import PAIRED, Arrays, timed
from dashboards.values import costs, different, half_width, in_rate, microseconds, minute, significant
from dashboards.views import CHARTS, SiteInput
from dashboards.views.beside import beside

CASES = ("values.js", *CHARTS, "views/cases.js")
"""Scripts of a view that draws these data."""


def newest_data(rows: pd.DataFrame) -> dict[str, Any]:
    """What the scripts read.  rows: of a lane, as `dashboards.series.together` gives them.

    {"cases": [{"kernel", "case", "tier", "dtype", "world", "commit", "date", "env", "rate", "shape": {name: value},
    "cost": {field of CostRow: value}, "arms": [{"backend", "baseline", "status", "why", "us", "low", "high", "value",
    "of_best", "standing"}]}]}

    of_best: speed / speed of the best backend, at most 1.  standing: "best", "tied" (it and the best are apart by no
    more than their 99 % intervals together) or "".
    """
    texts = (*KEY, "tier", "dtype", "world", "commit", "env", "status", "why", "baseline")
    columns: dict[str, Sequence[Any]] = {name: rows[name].tolist() for name in texts}
    columns["date"] = [minute(date) for date in rows["date"]]
    columns["shape"] = rows["shape"].tolist() if "shape" in rows else [""] * len(rows)
    ends = (("us", "seconds"), ("low", "seconds_low"), ("high", "seconds_high"))
    columns |= {name: microseconds(rows, column) for name, column in ends}
    speeds = {rate: significant(in_rate(rows, rate)) for rate in rates.Rate}
    times, cost = contenders(rows), costs(rows)
    cases: dict[tuple[str, str], list[int]] = {}
    for _, _, i in sorted(zip(columns["baseline"], columns["backend"], range(len(rows)), strict=True)):  # ours first
        cases.setdefault((columns["kernel"][i], columns["case"][i]), []).append(i)
    found = []
    for _, at in sorted(cases.items(), key=lambda case: (case[0][0], natural(case[0][1]))):
        own, newest = (
            different(cost[i] for i in sorted(at))[-1],
            {name: column[max(at)] for name, column in columns.items()},
        )
        rate = rates.headline(own)
        of_best, standing = standings({name: column[at] for name, column in times.items()})
        told = ("kernel", "case", "tier", "dtype", "world", "commit", "date", "env")
        arms = [
            {name: columns[name][i] for name in ("backend", "baseline", "status", "why", "us", "low", "high")}
            | {"value": speeds[rate][i], "of_best": share, "standing": word}
            for i, share, word in zip(at, significant(of_best, 4), standing, strict=True)
        ]
        about = {name: newest[name] for name in told} | {"rate": rate.value, "shape": shape_of(newest["shape"])}
        found.append(about | {"cost": {name: value for name, value in own._asdict().items() if value}, "arms": arms})
    return {"cases": found}


def shape_of(text: str) -> dict[str, Any]:
    """The dimensions of a case; what is no number that JSON knows is left out."""
    values = json.loads(text or "{}")
    return {name: value for name, value in values.items() if not isinstance(value, float) or math.isfinite(value)}


# ---- who is best -----------------------------------------------------------------------------------------------------


def contenders(rows: pd.DataFrame) -> Arrays:
    """Times of rows and where they lie beside a baseline, for `standings`; NaN where not known.

    seconds; half: half of the 99 % interval of the time, as a logarithm.  backend; paired_with: the baseline that was
    timed round by round beside the row ("" without); ratio, ratio_half: baseline's time / time, as logarithms.
    """
    names, nothing = np.full(len(rows), "", object), np.full(len(rows), np.nan)
    told: Arrays = {"paired_with": names, "ratio": nothing, "ratio_half": nothing}
    if "paired_with" in rows:
        ratio, low, high = (rows[name].to_numpy(float) for name in PAIRED)
        with np.errstate(divide="ignore", invalid="ignore"):
            told = {"ratio": np.log(ratio), "ratio_half": np.log(high / low) / 2}
        told |= {"paired_with": rows["paired_with"].to_numpy(object)}
    own = {"seconds": np.where(timed(rows), rows["seconds"], np.nan), "half": half_width(rows)}
    return {**told, **own, "backend": rows["backend"].to_numpy(object)}


def standings(rows: Arrays) -> tuple[FloatArray, list[str]]:
    """Speed relative to the best backend, NaN without a time, and "best", "tied" or "" of each row of one case.

    Where two rows were timed round by round beside the same baseline, their ratios to it are compared: what the device
    does to all backends is not in them.  Else their times are.  Two estimates are tied if their logarithms are apart by
    no more than the root of the sum of the squared half-widths (Zou and Donner, Statistics in Medicine 27(10), 2008).
    """
    seconds = rows["seconds"]
    if not np.isfinite(seconds).any():
        return seconds, [""] * len(seconds)
    best = int(np.nanargmin(seconds))
    name = rows["paired_with"][best] or rows["backend"][best]
    mine, itself = rows["paired_with"] == name, rows["backend"] == name
    place, half = (np.where(itself, 0.0, np.where(mine, rows[end], np.nan)) for end in ("ratio", "ratio_half"))
    paired = np.isfinite(place) & np.isfinite(place[best])
    apart = np.where(paired, place[best] - place, np.log(seconds / seconds[best]))
    half, alone = np.nan_to_num(half), np.nan_to_num(rows["half"])
    reach = np.where(paired, np.hypot(half, half[best]), np.hypot(alone, alone[best]))
    standing = ["best" if i == best else "tied" if apart[i] <= reach[i] else "" for i in range(len(seconds))]
    return seconds[best] / seconds, standing


# ---- files -----------------------------------------------------------------------------------------------------------


@functools.lru_cache(maxsize=1)
def _newest(site: SiteInput) -> dict[str, Any]:
    return {f"{lane.slug}/newest": newest_data(site.newest[lane.slug]) for lane in site.lanes}


def newest_files(site: SiteInput) -> Iterator[tuple[str, Any]]:
    """The data file of each lane."""
    return iter(_newest(site).items())


def newest_beside(site: SiteInput) -> Iterator[tuple[str, bytes]]:
    """The same numbers for other programs, one row per case and backend."""
    for path, data in newest_files(site):
        yield from beside(path, [_flat(case, arm) for case in data["cases"] for arm in case["arms"]])


def _flat(case: dict[str, Any], arm: dict[str, Any]) -> dict[str, Any]:
    cost = {name: case["cost"].get(name) for name in ("flops", "hbm_bytes", "link_bytes", "payload_bytes")}
    kept = {key: value for key, value in case.items() if key not in ("arms", "cost", "shape")}
    return kept | cost | {"shape": " ".join(f"{k}={v}" for k, v in case["shape"].items())} | arm
