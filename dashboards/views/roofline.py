"""The roofline of a machine: what cases achieve over their intensity, under the roofs, and where they were before."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from typing import Any

import numpy as np
import pandas as pd

from ci.records import derived
from dashboards.lanes import DEFINITION, KEY
from dashboards.series import MONTH, earlier, timed
from dashboards.values import microseconds, minute
from dashboards.views import SiteInput, View
from dashboards.views.newest import CASES
from kernels.hardware import Hardware


def roofline_data(newest: pd.DataFrame, before: pd.DataFrame) -> dict[str, Any]:
    """What static/views/roofline.js reads beside the newest numbers; rows as `dashboards.series` gives them.

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
    pairs = pairs[_same_definition(pairs) & (pairs["commit"] != pairs["commit_now"])].reset_index(drop=True)
    pairs = pairs.assign(us=microseconds(pairs), date=[minute(date) for date in pairs["date"]])
    found: list[dict[str, Any]] = pairs[[*KEY, "us", "commit", "date"]].to_dict("records")
    return found


def _same_definition(pairs: pd.DataFrame) -> np.ndarray:
    """Of the case, or of the kernel where one side lacks notes."""
    kernel, case = ((pairs[f"{name}_now"] == pairs[name]).to_numpy() for name in DEFINITION)
    known = ((pairs[DEFINITION[1]] != "") & (pairs[f"{DEFINITION[1]}_now"] != "")).to_numpy()
    return np.where(known, case, kernel)


def _data(site: SiteInput) -> Iterator[tuple[str, Any]]:
    for lane in site.lanes:
        yield f"{lane.slug}/roofline", roofline_data(site.newest[lane.slug], earlier(lane.frame, MONTH))


VIEW = View(
    "roofline",
    "Roofline",
    scripts=(*CASES, "views/roofline.js"),
    styles=("views/views.css",),
    reads=("*/newest",),
    data=_data,
)
