"""The data that three pages draw (backends, shapes, roofline): the newest numbers of every case of a lane."""

from __future__ import annotations

import dataclasses
import functools
import json
import math
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt
import pandas as pd

from ci.records import rates
from ci.stats.types import FloatArray
from dashboards.lanes import KEY, natural
from dashboards.series import timed
from dashboards.values import CostRow, costs, different, half_width, in_rate, microseconds, minute, significant
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
    lane = _LaneColumns.of(rows)
    groups = sorted(lane.groups().items(), key=lambda group: (group[0][0], natural(group[0][1])))
    return {"cases": [_case(lane, at) for _, at in groups]}


@dataclasses.dataclass(frozen=True, eq=False)
class _LaneColumns:
    """The columns of a lane's rows as lists and arrays, each made once."""

    columns: Mapping[str, Sequence[Any]]
    cost: Sequence[CostRow]
    rates: Mapping[rates.Rate, Sequence[float | None]]
    times: Contenders

    @classmethod
    def of(cls, rows: pd.DataFrame) -> _LaneColumns:
        texts = (*KEY, "tier", "dtype", "world", "commit", "env", "status", "why", "baseline")
        columns: dict[str, Sequence[Any]] = {name: rows[name].tolist() for name in texts}
        columns |= {"date": [minute(date) for date in rows["date"]]}
        columns |= {"shape": rows["shape"].tolist() if "shape" in rows else [""] * len(rows)}
        columns |= {"us": microseconds(rows), "low": microseconds(rows, "seconds_low")}
        columns |= {"high": microseconds(rows, "seconds_high")}
        in_rates = {rate: significant(in_rate(rows, rate)) for rate in rates.Rate}
        return cls(columns, costs(rows), in_rates, Contenders.of(rows))

    def groups(self) -> dict[tuple[str, str], list[int]]:
        """Indices of the rows of each (kernel, case): own backends first, then baselines, by name."""
        found: dict[tuple[str, str], list[int]] = {}
        own = zip(self.columns["baseline"], self.columns["backend"], range(len(self.cost)), strict=True)
        for _, _, i in sorted(own):
            found.setdefault((self.columns["kernel"][i], self.columns["case"][i]), []).append(i)
        return found


def _case(lane: _LaneColumns, at: list[int]) -> dict[str, Any]:
    cost = different(lane.cost[i] for i in sorted(at))[-1]
    newest, rate = {name: values[max(at)] for name, values in lane.columns.items()}, rates.headline(cost)
    told = ("kernel", "case", "tier", "dtype", "world", "commit", "date", "env")
    return {
        **{name: newest[name] for name in told},
        "rate": rate.value,
        "shape": shape_of(newest["shape"]),
        "cost": {name: value for name, value in cost._asdict().items() if value},
        "arms": _arms(lane, at, rate),
    }


def shape_of(text: str) -> dict[str, Any]:
    """The dimensions of a case; what is no number that JSON knows is left out."""
    values = json.loads(text or "{}")
    return {name: value for name, value in values.items() if not isinstance(value, float) or math.isfinite(value)}


def _arms(lane: _LaneColumns, at: list[int], rate: rates.Rate) -> list[dict[str, Any]]:
    of_best, standing = standings(lane.times.at(at))
    told = ("backend", "baseline", "status", "why", "us", "low", "high")
    shares = significant(of_best, 4)
    return [
        {name: lane.columns[name][i] for name in told}
        | {"value": lane.rates[rate][i], "of_best": shares[n], "standing": standing[n]}
        for n, i in enumerate(at)
    ]


# ---- who is best -----------------------------------------------------------------------------------------------------


@dataclasses.dataclass(frozen=True, eq=False)
class Contenders:
    """Times of rows and where they lie beside a baseline, for `standings`; NaN where not known.

    seconds; half: half of the 99 % interval of the time, as a logarithm.  backend; paired_with: the baseline that was
    timed round by round beside the row ("" without); ratio, ratio_half: baseline's time / time, as logarithms.
    """

    seconds: FloatArray
    half: FloatArray
    backend: npt.NDArray[np.object_]
    paired_with: npt.NDArray[np.object_]
    ratio: FloatArray
    ratio_half: FloatArray

    @classmethod
    def of(cls, rows: pd.DataFrame) -> Contenders:
        """From columns of the frame; `paired_*` may be absent."""
        seconds, nothing = np.where(timed(rows), rows["seconds"], np.nan), np.full(len(rows), np.nan)
        backend, names = rows["backend"].to_numpy(object), np.full(len(rows), "", object)
        if "paired_with" not in rows:
            return cls(seconds, half_width(rows), backend, names, nothing, nothing)
        ratio, low, high = (rows[f"paired_{end}"].to_numpy(float) for end in ("ratio", "low", "high"))
        with np.errstate(divide="ignore", invalid="ignore"):
            place, half = np.log(ratio), np.log(high / low) / 2
        return cls(seconds, half_width(rows), backend, rows["paired_with"].to_numpy(object), place, half)

    def at(self, index: list[int]) -> Contenders:
        """Some of the rows."""
        return Contenders(*(getattr(self, field.name)[index] for field in dataclasses.fields(self)))

    def beside(self, name: str) -> tuple[FloatArray, FloatArray]:
        """Logarithm of the speed relative to a baseline, and half of its interval; 0 for the baseline itself."""
        mine, itself = self.paired_with == name, self.backend == name
        return tuple(np.where(itself, 0.0, np.where(mine, one, np.nan)) for one in (self.ratio, self.ratio_half))


def standings(rows: Contenders) -> tuple[FloatArray, list[str]]:
    """Speed relative to the best backend, NaN without a time, and "best", "tied" or "" of each row of one case.

    Where two rows were timed round by round beside the same baseline, their ratios to it are compared: what the device
    does to all backends is not in them.  Else their times are.  Two estimates are tied if their logarithms are apart by
    no more than the root of the sum of the squared half-widths (Zou and Donner, Statistics in Medicine 27(10), 2008).
    """
    seconds = rows.seconds
    if not np.isfinite(seconds).any():
        return seconds, [""] * len(seconds)
    best = int(np.nanargmin(seconds))
    apart, reach = np.log(seconds / seconds[best]), _together(rows.half, best)
    name = rows.paired_with[best] or rows.backend[best]
    place, half = rows.beside(name)
    paired = np.isfinite(place) & np.isfinite(place[best])
    apart = np.where(paired, place[best] - place, apart)
    reach = np.where(paired, _together(half, best), reach)
    standing = ["best" if i == best else "tied" if apart[i] <= reach[i] else "" for i in range(len(seconds))]
    return seconds[best] / seconds, standing


def _together(half: FloatArray, best: int) -> FloatArray:
    half = np.nan_to_num(half)
    return np.hypot(half, half[best])


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
