"""Which numbers stand together: of one case, measured at one commit in one environment."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pandas as pd

from dashboards.lanes import KEY
from dashboards.values import significant

CASE = ["kernel", "case"]


def timed(rows: pd.DataFrame) -> np.ndarray:
    """Which rows have a time."""
    return ((rows["status"] == "ok") & rows["seconds"].notna()).to_numpy(bool)


def together(rows: pd.DataFrame) -> pd.DataFrame:
    """The rows of each case of a lane at its newest place (commit and environment) with two or more timed backends.

    Where no place has two, the newest with one; where none has one, the newest.  rows: tidy, so in order of history.
    Failed and unsupported backends of the place stay.
    """
    case, place = numbers(rows, CASE), numbers(rows, ["commit", "env"])
    index, combined = pd.factorize(case * (place.max(initial=0) + 1) + place)
    worth = np.minimum(np.bincount(index, weights=timed(rows), minlength=len(combined)), 2)
    case, place = np.divmod(combined, place.max(initial=0) + 1)
    order = np.lexsort((place, worth, case))
    last = np.append(np.diff(case[order]) != 0, True)[: len(order)]
    chosen = np.zeros(len(combined), bool)
    chosen[order[last]] = True
    return _plain(rows[chosen[index]])


def numbers(rows: pd.DataFrame, columns: Sequence[str]) -> np.ndarray:
    """A number per row: equal where all columns are equal, in the order in which the rows come."""
    number = np.zeros(len(rows), dtype=np.int64)
    for column in columns:
        codes, names = pd.factorize(rows[column])
        number = number * (len(names) + 1) + codes
    return pd.factorize(number)[0]


def earlier(rows: pd.DataFrame, days: int) -> pd.DataFrame:
    """Of each arm of a lane the newest timed row at least `days` older than the lane's newest; else its oldest one."""
    rows = rows[timed(rows)]
    arm, old = numbers(rows, KEY), (rows["date"] <= rows["date"].max() - pd.Timedelta(days=days)).to_numpy()
    place = np.arange(len(rows))
    order = np.lexsort((np.where(old, place, -1 - place), old, arm))
    last = np.append(np.diff(arm[order]) != 0, True)[: len(order)]
    return _plain(rows.iloc[np.sort(order[last])])


def _plain(rows: pd.DataFrame) -> pd.DataFrame:
    """The same rows with texts as texts, not as categories."""
    named = [column for column, dtype in rows.dtypes.items() if isinstance(dtype, pd.CategoricalDtype)]
    return rows.astype(dict.fromkeys(named, object))


def half_width(rows: pd.DataFrame) -> np.ndarray:
    """Half of the width of the 99 % interval of each time, as a logarithm; NaN without one."""
    low, high = rows["seconds_low"].to_numpy(float), rows["seconds_high"].to_numpy(float)
    known = (low > 0) & (high >= low)
    return np.where(known, np.log(np.where(known, high, 1.0) / np.where(known, low, 1.0)) / 2, np.nan)


def microseconds(rows: pd.DataFrame, column: str = "seconds") -> list[float | None]:
    """Times as they travel: six significant digits, None where there is none."""
    return significant(rows[column].to_numpy(float) * 1e6)


def minute(date: pd.Timestamp) -> str:
    """A date as "2026-11-20 09:30", "" where it is not known."""
    return "" if pd.isna(date) else date.strftime("%Y-%m-%d %H:%M")
