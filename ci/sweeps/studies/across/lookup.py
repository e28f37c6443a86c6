"""Find the row that another row is compared with."""

from __future__ import annotations

import math
from collections.abc import Hashable, Iterable

import pandas as pd

PLACE = ("machine", "regime", "operator")
"""Columns in which rows must agree before they are compared."""


def timed(frame: pd.DataFrame) -> pd.Series:
    """Whether a row has a time."""
    return frame["status"] == "ok"


def seconds_by(frame: pd.DataFrame, keys: Iterable[Hashable], rows: pd.Series) -> dict[Hashable, float]:
    """Seconds of the chosen rows that have a time, by key; of several the shortest.

    keys: one for each row of the frame.  rows: which of them.
    """
    found: dict[Hashable, float] = {}
    for key, use, seconds in zip(keys, rows & timed(frame), frame["seconds"], strict=True):
        if use and not math.isnan(seconds):
            found[key] = min(float(seconds), found.get(key, math.inf))
    return found


def looked_up(frame: pd.DataFrame, known: dict[Hashable, float], keys: Iterable[Hashable]) -> pd.Series:
    """What is known of each row's key, NaN for nothing."""
    return pd.Series([known.get(key, math.nan) for key in keys], index=frame.index, dtype=float)


def placed(frame: pd.DataFrame) -> list[tuple[Hashable, ...]]:
    """Machine, regime and operator of each row."""
    return list(zip(*(frame[name].astype(str) for name in PLACE), strict=True))
