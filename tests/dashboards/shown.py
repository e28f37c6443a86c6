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
    """Of the rows of a kernel in a lane."""
    return received(kernel_page.kernel_data(columns(frame)))


def received(value: Any) -> Any:
    """What the page receives of a value."""
    return json.loads(script_json(value))
