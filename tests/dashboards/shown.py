"""The data of the pages of a tidy frame, as a browser gets them."""

from __future__ import annotations

import json
from typing import Any

import pandas as pd

from dashboards import kernel_page, overview
from dashboards.columns import columns
from dashboards.script import script_json


def overview_data(frame: pd.DataFrame) -> Any:
    """Of the rows of a lane."""
    return received(overview.overview_data(columns(frame)))


def kernel_data(frame: pd.DataFrame) -> Any:
    """Of the rows of a kernel in a lane: one block of all commits, with the rows of the table."""
    rows = columns(frame)
    block = kernel_page.kernel_block(rows)
    plain = [{name: value for name, value in series.items() if name != "defined"} for series in block["series"]]
    whole = {**block, "series": plain, "rows": overview.overview_data(rows)["rows"]}
    del whole["definitions"]
    return received(whole)


def received(value: Any) -> Any:
    """What the page receives of a value."""
    return json.loads(script_json(value))
