"""Any two commits, environments or machines beside each other.

The times come from the data files of the kernels' pages; here is what these lack: which benchmark definition each case
had at each commit, so that numbers of different definitions are never compared, on one machine or across two.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from typing import Any

import numpy as np
import pandas as pd

from ci.records.ledger import RecordedCause, causes_in
from dashboards.lanes import BLOCK, CASE, DEFINITION, KEY, latest, numbers, timed
from dashboards.overview import SPARK_POINTS
from dashboards.sources import Counts
from dashboards.values import minute
from dashboards.views import CHARTS, Made, SiteInput, View

NEWEST_TRIED = 8
"""Commits, from the newest back, that may be the later side of the pair which the page shows at first."""


def compare_data(rows: pd.DataFrame, counts: Counts, causes: Sequence[RecordedCause] = ()) -> dict[str, Any]:
    """What static/views/compare.js reads of a lane; rows: tidy; counts: of the lane; causes: of its machine.

    {"commits": [[hash, date, env, timed series, block]], "usual": [index of the earlier, of the later] or null,
    "digests": [[of the kernel's definition, of the case's]], "definitions": [[kernel, case, [[index of the commit from
    which on, index of the digests]]]], "causes": [[base, head, explanation]], where there are any}
    """
    place = numbers(rows, ["commit"])
    first = _firsts(place)
    at = rows.iloc[first]
    of_commit = {commit: [good, n // BLOCK] for n, (commit, (_, good)) in enumerate(counts.items())}
    dates = [minute(date) for date in at["date"]]
    digests, definitions = _definitions(rows, place)
    shown = [[one.base, one.head, dataclasses.asdict(one.explanation)] for one in causes]
    return {
        "commits": [
            [commit, date, env, *of_commit[commit]]
            for commit, date, env in zip(at["commit"], dates, at["env"], strict=True)
        ],
        "usual": _usual(rows, place),
        "digests": digests,
        "definitions": definitions,
        **({"causes": shown} if shown else {}),
    }


def _firsts(number: np.ndarray) -> np.ndarray:
    """Index of the first row of each number; numbers come in the order of their first rows."""
    return np.flatnonzero(~pd.Series(number).duplicated().to_numpy())


def _definitions(rows: pd.DataFrame, place: np.ndarray) -> tuple[list[list[str]], list[list[Any]]]:
    stated = (rows[DEFINITION[0]] != "").to_numpy()
    rows, place = rows[stated], place[stated]
    case, digest = numbers(rows, CASE), numbers(rows, DEFINITION)
    names, digests = rows.iloc[_firsts(case)][CASE], rows.iloc[_firsts(digest)][DEFINITION]
    order = np.argsort(case, kind="stable")
    case, digest, place = case[order], digest[order], place[order]
    starts = np.ones(len(case), bool)
    starts[1:] = (np.diff(case) != 0) | (np.diff(digest) != 0)
    found: list[list[Any]] = [[kernel, name, []] for kernel, name in names.itertuples(index=False)]
    for n, at, number in zip(case[starts].tolist(), place[starts].tolist(), digest[starts].tolist(), strict=True):
        found[n][2].append([at, number])
    return digests.to_numpy(object).tolist(), found


def _usual(rows: pd.DataFrame, place: np.ndarray) -> list[int] | None:
    """The pair to show at first: the newest commit that shares timed series under the same definitions with an earlier
    one, and of those the one that shares most, the latest if several do.

    Of each series its last SPARK_POINTS times are looked at.
    """
    good = np.flatnonzero(latest(numbers(rows, KEY), SPARK_POINTS, timed(rows)))
    whole, own = (numbers(rows, [name]) for name in DEFINITION)
    unstated = (rows[DEFINITION[1]] == "").to_numpy()
    held = rows[KEY].assign(own=own, whole=np.where(unstated, whole, 0)).iloc[good]
    arm, place = numbers(held, held.columns), place[good]
    for later in sorted(set(place.tolist()), reverse=True)[:NEWEST_TRIED]:
        shared = np.bincount(place[np.isin(arm, arm[place == later]) & (place < later)], minlength=1)
        if shared.max():
            return [int(np.flatnonzero(shared == shared.max())[-1]), later]
    return None


def _make(site: SiteInput) -> Made:
    causes = causes_in(site.results_dir)[0] if site.results_dir else []
    for lane in site.lanes:
        own = [one for one in causes if one.machine == lane.machine]
        yield f"{lane.slug}/compare", compare_data(lane.frame, lane.counts, own)


VIEW = View(
    "compare",
    "Compare",
    _make,
    scripts=("values.js", *CHARTS, "views/event_words.js", "views/comparison.js", "views/compare.js"),
    styles=("views/views.css",),
    reads=("*/*/kernel-*", "*/*/paired"),
)
