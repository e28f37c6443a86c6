"""Which numbers stand together: of one case, measured at one commit in one environment."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pandas as pd

from dashboards.columns import NO_DATE, milliseconds
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
    return _plain(rows[newest_places(rows)])


def newest_places(rows: pd.DataFrame) -> np.ndarray:
    """Which rows those are."""
    case, place = numbers(rows, CASE), numbers(rows, ["commit", "env"])
    index, combined = pd.factorize(case * (place.max(initial=0) + 1) + place)
    worth = np.minimum(np.bincount(index, weights=timed(rows), minlength=len(combined)), 2)
    case, place = np.divmod(combined, place.max(initial=0) + 1)
    order = np.lexsort((place, worth, case))
    last = np.append(np.diff(case[order]) != 0, True)[: len(order)]
    chosen = np.zeros(len(combined), bool)
    chosen[order[last]] = True
    return chosen[index]


def numbers(rows: pd.DataFrame, columns: Sequence[str]) -> np.ndarray:
    """A number per row: equal where all columns are equal, in the order in which the rows come."""
    number = np.zeros(len(rows), dtype=np.int64)
    for column in columns:
        codes, names = pd.factorize(rows[column])
        number = number * (len(names) + 1) + codes
    return pd.factorize(number)[0]


def earlier(rows: pd.DataFrame, back: int) -> pd.DataFrame:
    """Of each arm of a lane the newest timed row so many days (UTC) before the lane's newest; else its oldest one."""
    day = days(rows["date"])
    old = (day >= 0) & (day <= day.max(initial=-1) - back)
    good = timed(rows)
    rows, old = rows[good], old[good]
    arm, place = numbers(rows, KEY), np.arange(len(rows))
    order = np.lexsort((np.where(old, place, -1 - place), old, arm))
    last = np.append(np.diff(arm[order]) != 0, True)[: len(order)]
    return _plain(rows.iloc[np.sort(order[last])])


def latest(group: np.ndarray, count: int, wanted: np.ndarray | None = None) -> np.ndarray:
    """The last rows of each group, of those that are wanted."""
    at = np.arange(len(group)) if wanted is None else np.flatnonzero(wanted)
    order = at[np.argsort(group[at], kind="stable")]
    ends = np.append(np.flatnonzero(np.diff(group[order])) + 1, len(order))
    end = np.repeat(ends, np.diff(np.concatenate([[0], ends])))
    found = np.zeros(len(group), bool)
    found[order[end - np.arange(len(order)) <= count]] = True
    return found


def days(dates: pd.Series) -> np.ndarray:
    """The day of each date (UTC), counted since 1970; -1 where it is not known."""
    found = milliseconds(dates)
    return np.where(found == NO_DATE, -1, found // 86_400_000)


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
