"""What the pages show of a lane's past beside its charts is decided by a few of its rows: which these are.

Newest numbers, sparklines, marks, trails, definitions: each looks at the last rows of a series, or at those where
something changed.  `lasting` finds rows from which every one of them comes out as from all rows; with newer rows added
it does so again.  So a history that only grows need not be read again: `Past` is what is carried on.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence

import numpy as np
import numpy.typing as npt
import pandas as pd
from pandas.api.types import union_categoricals

from ci.records import rates
from dashboards.columns import Bools, Ints
from dashboards.lanes import DEFINITION, KEY, CommitCounts
from dashboards.overview import SPARK_POINTS
from dashboards.views.roofline import MONTH
from dashboards.views.together import CASE, days, latest, newest_places, numbers, timed


@dataclasses.dataclass(frozen=True, eq=False)
class Past:
    """A lane's first blocks of commits.  rows: the tidy ones that last; counts: of all rows that there were."""

    rows: pd.DataFrame
    counts: CommitCounts = CommitCounts()


def and_then(past: Past | None, newer: pd.DataFrame, lasting_only: bool) -> Past:
    """With the tidy rows of newer commits; all of them, or what lasts of all."""
    counts = CommitCounts.of(newer)
    rows = stacked([past.rows, newer]) if past else newer
    kept = rows[lasting(rows)].reset_index(drop=True) if lasting_only else rows
    return Past(kept, past.counts.and_then(counts) if past else counts)


def stacked(frames: Sequence[pd.DataFrame]) -> pd.DataFrame:
    """Frames one below the other; texts that are categories stay so, in alphabetical order."""
    found = [frame for frame in frames if len(frame)] or list(frames[:1])
    if len(found) < 2:
        return found[0]
    names = dict.fromkeys(name for frame in found for name in frame)
    return pd.DataFrame(
        {name: _stacked([frame[name] for frame in found if name in frame]) for name in names}, copy=False
    )


def _stacked(columns: Sequence[pd.Series]) -> object:
    if all(isinstance(one.dtype, pd.CategoricalDtype) for one in columns):
        return union_categoricals([one.array for one in columns], sort_categories=True)
    return pd.concat(columns, ignore_index=True).array


def lasting(rows: pd.DataFrame) -> Bools:
    """Which rows of a lane (tidy, of all its commits or of what lasted and newer ones) say all that its pages show."""
    arm, place = numbers(rows, KEY), numbers(rows, ["commit", "env"])
    ok, good = (rows["status"] == "ok").to_numpy(bool), timed(rows)
    stated = (rows[list(rates.AMOUNT.values())].fillna(0) != 0).any(axis=1).to_numpy()
    found = newest_places(rows)
    for group, wanted in ((arm, None), (arm, ok), (arm, stated), (place, None), (place, ok)):
        found |= latest(group, 1, wanted)
    found |= latest(arm, SPARK_POINTS, good) | _first(arm, good) | _trail(rows, arm, good)
    found |= _redefined(rows)
    return found


def _first(group: Ints, wanted: Bools) -> Bools:
    return latest(group[::-1], 1, wanted[::-1])[::-1]


def _trail(rows: pd.DataFrame, arm: Ints, good: Bools) -> Bools:
    """The last time of each series on each day of the last month, and the last one before."""
    day = days(rows["date"])
    since = day.max(initial=0) - MONTH
    return latest(arm * (MONTH + 1) + np.maximum(day - since, 0), 1, good & (day >= 0))


def _redefined(rows: pd.DataFrame) -> Bools:
    """Where the benchmark definition of a case is not that of the row before."""
    stated = np.flatnonzero((rows[DEFINITION[0]] != "").to_numpy())
    case, digest = numbers(rows, CASE)[stated], numbers(rows, DEFINITION)[stated]
    order = np.argsort(case, kind="stable")
    starts: npt.NDArray[np.bool_] = np.ones(len(order), bool)
    starts[1:] = (np.diff(case[order]) != 0) | (np.diff(digest[order]) != 0)
    found = np.zeros(len(rows), bool)
    found[stated[order[starts]]] = True
    return found
