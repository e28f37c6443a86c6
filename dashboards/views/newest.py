"""Cases of a lane beside each other: backends, shapes, the roofline, and any two commits."""

from __future__ import annotations

import contextlib
import dataclasses
import json
import math
from collections.abc import Sequence
from typing import Any

import numpy as np
import pandas as pd

from ci.records import derived, rates
from ci.records.ledger import RecordedCause, causes_in
from ci.stats.types import FloatArray
from dashboards.lanes import (
    BLOCK,
    CASE,
    DEFINITION,
    KEY,
    MONTH,
    PAIRED,
    Arrays,
    alike,
    definitions,
    earlier,
    latest,
    natural,
    numbers,
    timed,
)
from dashboards.overview import SPARK_POINTS
from dashboards.sources import Counts
from dashboards.values import costs, half_width, in_rate, minute, newest_stated, told
from dashboards.views import CHARTS, Made, SiteInput, View, beside
from kernels.hardware import Hardware

CASES = ("values.js", *CHARTS, "views/cases.js")
"""Scripts of a view that draws these data."""


def newest_data(rows: pd.DataFrame) -> dict[str, Any]:
    """What the scripts read.  rows: of a lane, as `dashboards.lanes.together` gives them.

    {"cases": [{"kernel", "case", "tier", "dtype", "world", "commit", "date", "env", "rate", "shape": {name: value},
    "cost": {field of CostRow: value}, "arms": [{"backend", "baseline", "status", "why", "us", "low", "high", "value",
    "of_best", "standing"}]}]}

    of_best: speed / speed of the best backend, at most 1.  standing: "best", "tied" (it and the best are apart by no
    more than their 99 % intervals together) or "".
    """
    ends = {"us": "seconds", "low": "seconds_low", "high": "seconds_high"}
    rows = rows.assign(shape=rows.get("shape", ""), date=[minute(date) for date in rows["date"]])
    rows = rows.assign(**{name: rows[column].astype(float) * 1e6 for name, column in ends.items()})
    speeds = {rate: in_rate(rows, rate) for rate in rates.Rate}
    times, columns = contenders(rows), {name: rows[name].tolist() for name in (*_OF_CASE, *_OF_ARM, "shape")}
    cost = costs(rows)
    found = []
    cases = rows.groupby(["kernel", "case"], observed=True).indices
    for _, at in sorted(cases.items(), key=lambda case: (case[0][0], natural(case[0][1]))):
        own, newest = newest_stated([cost[i] for i in at]), at[-1]
        at = sorted(at, key=lambda i: (columns["baseline"][i], columns["backend"][i]))  # ours first
        rate = rates.headline(own)
        of_best, standing = standings({name: column[at] for name, column in times.items()})
        arms = [
            {name: columns[name][i] for name in _OF_ARM}
            | {"value": speeds[rate][i], "of_best": share, "standing": word}
            for i, share, word in zip(at, of_best, standing, strict=True)
        ]
        about = {name: columns[name][newest] for name in _OF_CASE}
        about |= {"rate": rate, "shape": shape_of(columns["shape"][newest]), "cost": own.known()}
        found.append(about | {"arms": arms})
    return {"cases": found}


_OF_CASE = ("kernel", "case", "tier", "dtype", "world", "commit", "date", "env")
_OF_ARM = ("backend", "baseline", "status", "why", "us", "low", "high")


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


def newest(site: SiteInput) -> Made:
    """The data file of each lane; the same numbers for other programs, one row per case and backend."""
    for lane in site.lanes:
        data = told(newest_data(site.newest[lane.slug]))
        yield f"{lane.slug}/newest", data
        yield from beside(f"{lane.slug}/newest", [_flat(case, arm) for case in data["cases"] for arm in case["arms"]])


def _flat(case: dict[str, Any], arm: dict[str, Any]) -> dict[str, Any]:
    cost = {name: case["cost"].get(name) for name in ("flops", "hbm_bytes", "link_bytes", "payload_bytes")}
    kept = {key: value for key, value in case.items() if key not in ("arms", "cost", "shape")}
    return kept | cost | {"shape": " ".join(f"{k}={v}" for k, v in case["shape"].items())} | arm


# Backends beside each other: every case with every backend, which is best, and which are as good within the noise.


BACKENDS = View("backends", "Backends", newest, scripts=(*CASES, "views/backends.js"), styles=("views/views.css",))


# Speed over the shape of a case, drawn from the same files.


SHAPES = View("shapes", "Shapes", scripts=(*CASES, "views/shapes.js"), styles=("views/views.css",), reads=("*/newest",))


# The roofline of a machine: what cases achieve over their intensity, under the roofs, and where they were before.


def roofline_data(newest: pd.DataFrame, before: pd.DataFrame) -> dict[str, Any]:
    """What static/views/roofline.js reads beside the newest numbers; rows as `dashboards.lanes` gives them.

    {"roofs": {"device", "hbm": bytes/s, "peaks": {dtype: FLOP/s}} or null, "before": [{"kernel", "case", "backend",
    "us", "commit", "date"}]}, before: older times under the same benchmark definition, of another commit.
    """
    return {"roofs": roofs(newest), "before": _before(newest, before)}


def roofs(rows: pd.DataFrame) -> dict[str, Any] | None:
    """The peaks of one device of the machine (kernels.hardware) for the dtypes of its cases; None if it is unknown."""
    hardware = derived.hardware_of(rows.iloc[-1])
    if hardware is None:
        return None
    return {"device": hardware.market_name, "hbm": hardware.hbm_bandwidth, "peaks": _peaks(hardware, rows["dtype"])}


def _peaks(hardware: Hardware, dtypes: pd.Series) -> dict[str, float]:
    found = {}
    for dtype in sorted(map(str, dtypes.unique())):
        with contextlib.suppress(ValueError):  # a dtype without matrix units has no roof
            found[dtype] = hardware.peak(dtype)
    return found


def _before(newest: pd.DataFrame, before: pd.DataFrame) -> list[dict[str, Any]]:
    columns = [*KEY, *DEFINITION, "commit"]
    pairs = before.merge(newest.loc[timed(newest), columns], on=KEY, suffixes=("", "_now"))
    now = {name: pairs[f"{name}_now"] for name in DEFINITION}
    pairs = pairs[alike(pairs, slice(None), beside=now) & (pairs["commit"] != pairs["commit_now"])]
    pairs = pairs.assign(us=pairs["seconds"] * 1e6, date=[minute(date) for date in pairs["date"]])
    found: list[dict[str, Any]] = pairs[[*KEY, "us", "commit", "date"]].to_dict("records")
    return found


def _roofline(site: SiteInput) -> Made:
    for lane in site.lanes:
        yield f"{lane.slug}/roofline", roofline_data(site.newest[lane.slug], earlier(lane.frame, MONTH))


ROOFLINE = View(
    "roofline",
    "Roofline",
    _roofline,
    scripts=(*CASES, "views/roofline.js"),
    styles=("views/views.css",),
    reads=("*/newest",),
)


# Any two commits, environments or machines beside each other.
#
# The times come from the data files of the kernels' pages; here is what these lack: which benchmark definition each
# case had at each commit, so that numbers of different definitions are never compared, on one machine or across two.


NEWEST_TRIED = 8
"""Commits, from the newest back, that may be the later side of the pair which the page shows at first."""


def compare_data(rows: pd.DataFrame, counts: Counts, causes: Sequence[RecordedCause] = ()) -> dict[str, Any]:
    """What static/views/compare.js reads of a lane; rows: tidy; counts: of the lane; causes: of its machine.

    {"commits": [[hash, date, env, timed series, block]], "usual": [index of the earlier, of the later] or null,
    "digests": [[of the kernel's definition, of the case's]], "definitions": [[kernel, case, [[index of the commit from
    which on, index of the digests]]]], "causes": [[base, head, explanation]], where there are any}
    """
    place = numbers(rows, ["commit"])
    first = _firsts(place)
    at = rows.iloc[first]
    of_commit = {commit: [good, n // BLOCK] for n, (commit, (_, good)) in enumerate(counts.items())}
    dates = [minute(date) for date in at["date"]]
    digests, definitions = _definitions(rows, place)
    shown = [[one.base, one.head, dataclasses.asdict(one.explanation)] for one in causes]
    return {
        "commits": [
            [commit, date, env, *of_commit[commit]]
            for commit, date, env in zip(at["commit"], dates, at["env"], strict=True)
        ],
        "usual": _usual(rows, place),
        "digests": digests,
        "definitions": definitions,
        **({"causes": shown} if shown else {}),
    }


def _firsts(number: np.ndarray) -> np.ndarray:
    """Index of the first row of each number; numbers come in the order of their first rows."""
    return np.flatnonzero(~pd.Series(number).duplicated().to_numpy())


def _definitions(rows: pd.DataFrame, place: np.ndarray) -> tuple[list[list[str]], list[list[Any]]]:
    row, case, digest = definitions(rows)
    digests: dict[int, list[str]] = {}
    found: dict[int, list[Any]] = {}
    columns = (rows[name].iloc[row] for name in (*CASE, *DEFINITION))
    for n, number, at, kernel, name, *both in zip(case, digest, place[row].tolist(), *columns, strict=True):
        digests[number] = both
        found.setdefault(n, [kernel, name, []])[2].append([at, int(number)])
    return [digests[number] for number in sorted(digests)], list(found.values())


def _usual(rows: pd.DataFrame, place: np.ndarray) -> list[int] | None:
    """The pair to show at first: the newest commit that shares timed series under the same definitions with an earlier
    one, and of those the one that shares most, the latest if several do.

    Of each series its last SPARK_POINTS times are looked at.
    """
    good = np.flatnonzero(latest(numbers(rows, KEY), SPARK_POINTS, timed(rows)))
    whole, own = (numbers(rows, [name]) for name in DEFINITION)
    unstated = (rows[DEFINITION[1]] == "").to_numpy()
    held = rows[KEY].assign(own=own, whole=np.where(unstated, whole, 0)).iloc[good]
    arm, place = numbers(held, held.columns), place[good]
    for later in sorted(set(place.tolist()), reverse=True)[:NEWEST_TRIED]:
        shared = np.bincount(place[np.isin(arm, arm[place == later]) & (place < later)], minlength=1)
        if shared.max():
            return [int(np.flatnonzero(shared == shared.max())[-1]), later]
    return None


def _compare(site: SiteInput) -> Made:
    causes = causes_in(site.results)[0]
    for lane in site.lanes:
        own = [one for one in causes if one.machine == lane.machine]
        yield f"{lane.slug}/compare", compare_data(lane.frame, lane.counts, own)


COMPARE = View(
    "compare",
    "Compare",
    _compare,
    scripts=("values.js", *CHARTS, "views/event_words.js", "views/comparison.js", "views/compare.js"),
    styles=("views/views.css",),
    reads=("*/*/kernel-*", "*/*/paired"),
)
