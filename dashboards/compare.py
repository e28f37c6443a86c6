"""Any two commits, on one machine or on two: what each file of a commit says, and how their table looks.

The quotient of two ratios is the one number that a page computes itself, because there are as many pairs as commits
squared; `dashboards.frame.change` is the same.  A verdict on two commits is the gate's.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from typing import Any

import numpy as np
import pandas as pd

from dashboards.files import slug
from dashboards.frame import UNITS, Site
from dashboards.kernel import CHANGE_HELP, RATIO_HELP
from dashboards.table import BACKEND, CASE, OPERATOR, Column, Table, text

NEWEST_TRIED = 8
"""Commits, from the newest back, that may be the later side of the pair which the page shows at first."""

COLUMNS = (
    OPERATOR,
    CASE,
    BACKEND,
    Column("change", "longer by", "change", CHANGE_HELP),
    Column("verdict", "", "status", "Beyond or within the 99 % interval of both ratios. The gate decides."),
    Column("old_ratio", "ratio before", "ratio", RATIO_HELP),
    Column("new_ratio", "ratio after", "ratio", RATIO_HELP),
    Column("old", "speed before", "rate"),
    Column("new", "speed after", "rate"),
)

WORDS = {
    "slower": "slower",
    "faster": "faster",
    "within": "within the interval",
    "unsure": "one trial, no interval",
    "definition": "NOT COMPARABLE: another benchmark definition",
    "library": "another library beside it",
    "alone": "no library beside it",
    "one": "only on one side",
}
"""What the page says of a pair."""


def compare_files(site: Site) -> Iterator[tuple[str, Any]]:
    """compare: all lanes; LANE/at-N, of commit N: columns of series, value, ratio, low, high, library, definition."""
    shape = Table("compare", "two commits beside each other", COLUMNS, []).piece(filter=True, group="kernel")
    listed = []
    for lane in site.lanes:
        rows = lane.columns
        series = np.zeros(len(rows["at"]), np.int64)
        for n, one in enumerate(lane.series):
            series[one.rows] = n
        timed = np.flatnonzero((rows["status"] == "ok") & np.isfinite(rows["seconds"]))
        timed = timed[np.argsort(rows["at"][timed], kind="stable")]
        bounds = np.searchsorted(rows["at"][timed], np.arange(len(lane.commits) + 1))
        of_commit = [timed[start:stop] for start, stop in itertools.pairwise(bounds.tolist())]
        coded = {name: pd.factorize(rows[name]) for name in ("library", "definition")}
        shown = [lane.drawn[name] for name in ("value", "ratio", "ratio_low", "ratio_high")]
        columns = [series, *shown, *(codes for codes, _ in coded.values())]
        for at, part in enumerate(of_commit):
            yield f"{lane.slug}/at-{at}", [column[part] for column in columns]
        listed.append(
            {
                "slug": lane.slug,
                "machine": lane.machine,
                "commits": [[*commit, len(part)] for commit, part in zip(lane.commits, of_commit, strict=True)],
                "usual": usual(of_commit, series),
                **{name: texts.tolist() for name, (_, texts) in coded.items()},
                "series": [
                    [one.kernel, one.case, one.backend, UNITS[lane.rate[one.kernel, one.case]], slug(one.kernel)]
                    for one in lane.series
                ],
            }
        )
    if not listed:
        nothing = text("There are no records yet, so there is nothing to compare.", "notice")
        yield "compare", {"title": "Compare two commits", "pieces": [nothing]}
        return
    words = "A call takes longer by the quotient of the two ratios to the library, which cancels clocks and heat."
    piece = {"kind": "compare", "lanes": listed, "table": shape, "words": WORDS, "said": words}
    yield "compare", {"title": "Compare two commits", "pieces": [piece]}


def usual(of_commit: list[Any], series: Any) -> list[int] | None:
    """The pair to show at first: the newest commit that shares series with an earlier one, and the one that shares
    most of them, the latest if several do."""
    for later in range(len(of_commit) - 1, max(-1, len(of_commit) - 1 - NEWEST_TRIED), -1):
        own = set(series[of_commit[later]].tolist())
        shared = [len(own & set(series[part].tolist())) for part in of_commit[max(0, later - 50) : later]]
        if shared and max(shared):
            return [max(0, later - 50) + max(n for n, count in enumerate(shared) if count == max(shared)), later]
    return None
