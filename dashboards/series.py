"""The rows of a lane by series: one sort puts every series in one piece, and whatever a page shows is a slice of it.

Beside it, on frames: which rows belong together, and which of them are the newest.
"""

from __future__ import annotations

import itertools
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt
import pandas as pd

from dashboards.lanes import DEFINITION, KEY, NUMBERS, commits
from dashboards.values import NO_DATE, Bools, CostRow, Ints, finite, milliseconds

CASE = ["kernel", "case"]

Arrays = Mapping[str, npt.NDArray[Any]]
"""Columns of one length, by name."""

TEXTS = ("commit", "env", *KEY, "status", "why", *DEFINITION, "dtype", "tier", "baseline_name")
MONTH = 30
"""Days before a lane's newest record from which a trail starts, where there is so old a record."""

PAIRED = ("paired_ratio", "paired_low", "paired_high")


def by_series(rows: pd.DataFrame) -> Arrays:
    """What pages show of a lane's tidy rows, by kernel, case and backend, the oldest record of each first.

    Besides, "place": of the row in the history of the lane; "at": of its commit among `lanes.commits`.
    """
    order = np.lexsort([_alphabetical(rows[name]) for name in reversed(KEY)])
    at = pd.Index(commits(rows)["commit"].astype(object)).get_indexer(rows["commit"].astype(object))
    texts = [*TEXTS, *(["paired_with"] if "paired_with" in rows else [])]
    numbers = [*NUMBERS, *(PAIRED if "paired_with" in rows else [])]
    return {
        **{name: rows[name].to_numpy(object)[order] for name in texts},
        **{name: finite(rows[name])[order] for name in numbers},
        "baseline": rows["baseline"].to_numpy(bool)[order],
        "place": order,
        "at": at[order],
    }


def _alphabetical(column: pd.Series) -> Ints:
    if isinstance(column.dtype, pd.CategoricalDtype):  # of tidy rows: its names are in order
        return column.cat.codes.to_numpy()
    return pd.factorize(column, sort=True)[0]


def stretches(*keys: npt.NDArray[Any]) -> tuple[Ints, Ints]:
    """First and last row of each stretch of rows in which none of the keys changes."""
    starts = np.ones(len(keys[0]), bool)
    starts[1:] = np.logical_or.reduce([key[1:] != key[:-1] for key in keys])
    first = np.flatnonzero(starts)
    return first, np.append(first[1:], len(starts))[: len(first)] - 1


def parts(rows: Arrays, *names: str) -> Iterator[Arrays]:
    """The rows of each stretch with the same texts in these columns."""
    for start, last in zip(*stretches(*(rows[name] for name in names)), strict=True):
        yield {name: column[start : last + 1] for name, column in rows.items()}


def costs_by_case(rows: Arrays) -> tuple[dict[tuple[str, str], list[CostRow]], Ints]:
    """What each (kernel, case) costs, each cost once, the newest that is stated last; which of them each row has."""
    fields = [np.nan_to_num(rows[name]) for name in CostRow._fields]
    first, last = stretches(*(rows[name] for name in KEY), *fields)
    cases = list(zip(*(rows[name][first].tolist() for name in CASE), strict=True))
    costs = list(itertools.starmap(CostRow, np.column_stack(fields)[first].tolist()))
    newest: dict[tuple[str, str], dict[CostRow, int]] = defaultdict(dict)
    for case, cost, place in zip(cases, costs, rows["place"][last].tolist(), strict=True):
        newest[case][cost] = max(place, newest[case].get(cost, -1))
    each = {case: sorted(found, key=lambda cost: (cost.stated, found[cost])) for case, found in newest.items()}
    number = [each[case].index(cost) for case, cost in zip(cases, costs, strict=True)]
    return each, np.repeat(np.array(number, np.int64), last - first + 1)


# ---- benchmark definitions ------------------------------------------------------------------------------------------


def alike(rows: Arrays | pd.DataFrame, some: Any, others: Any) -> Bools:
    """Which of some rows have the benchmark definition of the other: of the case, of the kernel where one lacks it."""
    (kernel, its), (case, own) = (
        (column[some], column[others]) for column in (np.asarray(rows[name], object) for name in DEFINITION)
    )
    return np.where((case != "") & (own != ""), case == own, kernel == its)


def redefined(rows: Arrays | pd.DataFrame, series: Ints) -> Ints:
    """Rows from which on another definition holds in their series (of each row): a line is broken before them.

    A row without a time counts too: it would have been measured so.
    """
    stated = np.flatnonzero(np.asarray(rows[DEFINITION[0]], object) != "")
    old, new = stated[:-1], stated[1:]
    return new[~alike(rows, new, old) & (series[old] == series[new])]


# ---- frames ---------------------------------------------------------------------------------------------------------


def timed(rows: pd.DataFrame) -> Bools:
    """Which rows have a time."""
    return ((rows["status"] == "ok") & rows["seconds"].notna()).to_numpy(bool)


def numbers(rows: pd.DataFrame, columns: Sequence[str]) -> Ints:
    """A number per row: equal where all columns are equal, in the order in which the rows come."""
    number = np.zeros(len(rows), dtype=np.int64)
    for column in columns:
        codes, names = pd.factorize(rows[column])
        number = number * (len(names) + 1) + codes
    return pd.factorize(number)[0]


def latest(group: Ints, count: int, wanted: Bools | None = None) -> Bools:
    """The last rows of each group, of those that are wanted."""
    at = np.arange(len(group)) if wanted is None else np.flatnonzero(wanted)
    order = at[np.argsort(group[at], kind="stable")]
    first, last = stretches(group[order])
    found = np.zeros(len(group), bool)
    found[order[np.repeat(last, last - first + 1) - np.arange(len(order)) < count]] = True
    return found


def days(dates: pd.Series) -> Ints:
    """The day of each date (UTC), counted since 1970; -1 where it is not known."""
    found = milliseconds(dates)
    return np.where(found == NO_DATE, -1, found // 86_400_000)


def together(rows: pd.DataFrame) -> pd.DataFrame:
    """The rows of each case of a lane at its newest place (commit and environment) with two or more timed backends.

    Where no place has two, the newest with one; where none has one, the newest.  rows: tidy, so in order of history.
    Failed and unsupported backends of the place stay.
    """
    return as_texts(rows[newest_places(rows)])


def newest_places(rows: pd.DataFrame) -> Bools:
    """Which rows those are."""
    case, place = numbers(rows, CASE), numbers(rows, ["commit", "env"])
    index, combined = pd.factorize(case * (place.max(initial=0) + 1) + place)
    worth = np.minimum(np.bincount(index, weights=timed(rows), minlength=len(combined)), 2)
    case, place = np.divmod(combined, place.max(initial=0) + 1)
    order = np.lexsort((place, worth, case))
    return np.isin(index, order[stretches(case[order])[1]])


def earlier(rows: pd.DataFrame, back: int) -> pd.DataFrame:
    """Of each arm of a lane the newest timed row so many days (UTC) before the lane's newest; else its oldest one."""
    day = days(rows["date"])
    old = (day >= 0) & (day <= day.max(initial=-1) - back)
    good = timed(rows)
    rows, old = rows[good], old[good]
    arm, place = numbers(rows, KEY), np.arange(len(rows))
    order = np.lexsort((np.where(old, place, -1 - place), old, arm))
    return as_texts(rows.iloc[np.sort(order[stretches(arm[order])[1]])])


def as_texts(rows: pd.DataFrame) -> pd.DataFrame:
    """The same rows with texts as texts, not as categories."""
    named = [column for column, dtype in rows.dtypes.items() if isinstance(dtype, pd.CategoricalDtype)]
    return rows.astype(dict.fromkeys(named, object))
