"""The data of the pages of a tidy frame, as a browser gets them."""

from __future__ import annotations

import json
from typing import Any

import pandas as pd

from dashboards import overview
from dashboards.kernel_page import kernel_block
from dashboards.lanes import by_series, commits
from dashboards.values import minute, script_json


def overview_data(frame: pd.DataFrame) -> Any:
    """Of the rows of a lane."""
    return received(overview.overview_data(overview.LaneSeries.of(frame)))


def kernel_data(frame: pd.DataFrame) -> Any:
    """Of the rows of a kernel in a lane: one block of all commits, with the rows of the table."""
    dated = [(commit, minute(date), env) for commit, date, env in commits(frame).itertuples(index=False)]
    block = kernel_block(by_series(frame), dated)
    plain = [{name: value for name, value in series.items() if name != "defined"} for series in block["series"]]
    whole = {**block, "series": plain, "rows": overview.overview_data(overview.LaneSeries.of(frame))["rows"]}
    del whole["definitions"]
    return received(whole)


def received(value: Any) -> Any:
    """What the page receives of a value."""
    return json.loads(script_json(value))
