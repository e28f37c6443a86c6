"""The maths of a comparison table: a row is a case, a column is a backend, one column is the baseline.

A ratio is above 1 where a backend beats the baseline, whatever is scored: value / baseline of a rate (`higher`),
baseline / value of a time (`lower`).  Averages of a column answer different questions, so each has its own name:

- ratio of means: mean of the column over mean of the baseline (of times, the other way round).  What somebody gets who
  runs every row once; rows of large values weigh more.  What most published tables print as their "average".
- mean of ratios: every row weighs the same, but 2 and 1/2 average to 1.25, so swapping the columns changes the answer.
- geometric mean of ratios, which is also the ratio of geometric means: every row weighs the same, and swapping the
  columns gives the reciprocal.

They all take the rows in which both the column and the baseline have a number above 0; any other cell counts as absent.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Literal, cast

import numpy as np
import pandas as pd

from ci.stats.steps import IntArray
from ci.stats.types import FloatArray

Direction = Literal["higher", "lower"]
Key = Mapping[str, object]

BOUND = 0.95
"""A ratio below it is counted as a row that loses: Primus-Turbo rejects a change that costs one core shape 5 %
(agent/skills/kernel-optimize/workflow/optimize-loop.md line 100 at a6a16cd, read 2026-11-22)."""

SMALLEST, LARGEST = 1e-150, 1e150
"""Numbers outside are no time and no rate; within, a ratio and a sum of 1e9 rows are finite (arithmetic)."""

MOST_GROUPS = 10_000
"""Groups of one grouping: of more than these nobody reads the means, and 100,000 of 20 columns take 20 s of CPU time
(2026-11-22)."""

ROUNDING = 1e-12
"""Relative difference up to which two numbers are equal: rounding of one division."""


class CompareError(Exception):
    """A comparison that cannot be made; the text names what is wrong and what is there."""


@dataclass(frozen=True)
class AgainstBaseline:
    """A column against the baseline; ratios are above 1 where the column is better, NaN where there are no rows.

    rows: rows in which both have a number; wins, ties and losses add up to it.  below: rows with a ratio below the
    bound.  worst, best: the smallest and the largest ratio.
    """

    rows: int
    ratio_of_means: float
    mean_of_ratios: float
    geometric_mean: float
    wins: int
    ties: int
    below: int
    worst: float
    best: float

    @property
    def losses(self) -> int:
        return self.rows - self.wins - self.ties


@dataclass(frozen=True)
class RowRatio:
    """One cell of the table of ratios.  row: as the frame calls it.  value, baseline: what it is made of."""

    row: int
    backend: str
    ratio: float
    value: float
    baseline: float


@dataclass(frozen=True)
class RowGroup:
    """The rows that have these values in the columns that a table is grouped by; all rows, without any."""

    key: Key
    rows: int
    columns: Mapping[str, AgainstBaseline]


@dataclass(frozen=True, eq=False)
class AgainstOne:
    """Columns against a baseline.  groups: all rows, then those of each grouping.  worst: over all columns."""

    groups: tuple[RowGroup, ...]
    worst: tuple[RowRatio, ...]

    @property
    def columns(self) -> Mapping[str, AgainstBaseline]:
        """Over all rows."""
        return self.groups[0].columns


@dataclass(frozen=True, eq=False)
class Regret(AgainstOne):
    """A column that was chosen (a tuner's pick) against the best of its candidates, row by row.

    The baseline is the best candidate of each row, so 1 - ratio is what the choice gives away.
    picks: how often each candidate is the best one; the first of equal ones counts.
    """

    column: str
    picks: Mapping[str, int]

    @property
    def against(self) -> AgainstBaseline:
        """Over all rows."""
        return self.columns[self.column]


@dataclass(frozen=True, eq=False)
class TableComparison(AgainstOne):
    """A whole table.  ratios: frame of one column for each backend, rows as in the frame that was compared."""

    keys: tuple[str, ...]
    baseline: str
    score: Direction
    ratios: pd.DataFrame
    regrets: tuple[Regret, ...]


def compare(
    frame: pd.DataFrame,
    keys: Sequence[str],
    columns: Sequence[str],
    baseline: str,
    *,
    score: Direction = "higher",
    by: Sequence[Sequence[str]] = (),
    regret: Mapping[str, Sequence[str]] | None = None,
    tie_percent: float = 0.0,
    bound: float = BOUND,
    worst: int = 10,
) -> TableComparison:
    """Columns of a frame against one of them.

    frame: one row for each case, numbers in `columns` and in `baseline`; NaN, zero and negative cells are absent.
    keys: columns that say which case a row is.  score: `higher` for rates, `lower` for times.
    by: groupings, each a list of columns; the rows with the same values in all of them are one group.
    regret: column that was chosen -> the columns it was chosen from.
    tie_percent: two numbers closer than this are a tie; 0 = only equal numbers are.  worst: rows in a list of worst.
    Raises CompareError if a column is not in the frame, or would make more groups than anybody reads.
    """
    used, chosen = list(dict.fromkeys([baseline, *columns])), regret or {}
    for name in [*keys, *used, *chosen, *itertools.chain(*chosen.values(), *by)]:
        if name not in frame.columns:
            raise CompareError(f"there is no column {name!r}; the columns are {', '.join(map(str, frame.columns))}")
    groupings = [_grouping(frame, one) for one in ((), *filter(None, by))]
    tie, labels = math.log1p(tie_percent / 100) + ROUNDING, frame.index.tolist()

    def ratios(values: FloatArray, base: FloatArray) -> FloatArray:
        """Above 1 where a column is better."""
        return values / base[:, None] if score == "higher" else base[:, None] / values

    def against(names: Sequence[str], values: FloatArray, base: FloatArray) -> Iterator[RowGroup]:
        better, worse = (values, base[:, None]) if score == "higher" else (base[:, None], values)
        for codes, group_keys, sizes in groupings:
            pairs = zip(names, *np.broadcast_arrays(better.T, worse.T), strict=True)
            found = {name: _statistics(one, other, codes, len(sizes), tie, bound) for name, one, other in pairs}
            for i, (key, size) in enumerate(zip(group_keys, sizes, strict=True)):
                yield RowGroup(key, size, {name: each[i] for name, each in found.items()})

    def smallest(names: Sequence[str], values: FloatArray, base: FloatArray) -> Iterator[RowRatio]:
        """Of all columns; equal ones in the order of the rows."""
        for at, ratio in pd.Series(ratios(values, base).ravel()).dropna().nsmallest(worst).items():
            i, j = divmod(cast(int, at), len(names))
            yield RowRatio(labels[i], names[j], float(ratio), float(values[i, j]), float(base[i]))

    def regretted(column: str, candidates: Sequence[str]) -> Regret:
        values, offered = usable(frame, [column]), usable(frame, candidates)
        filled = np.where(np.isnan(offered), -np.inf, offered if score == "higher" else -offered)
        pick = filled.argmax(axis=1)
        best = offered[np.arange(len(offered)), pick]
        counts = np.bincount(pick[np.isfinite(best)], minlength=len(candidates))
        asked = [column], values, best
        picks = dict(zip(candidates, counts.tolist(), strict=True))
        return Regret(tuple(against(*asked)), tuple(smallest(*asked)), column, picks)

    values, base = usable(frame, used), usable(frame, [baseline])[:, 0]
    others = [column for column in used if column != baseline]
    return TableComparison(
        tuple(against(used, values, base)),
        tuple(smallest(others, usable(frame, others), base)) if others else (),
        tuple(keys),
        baseline,
        score,
        pd.DataFrame(ratios(values, base), columns=used),
        tuple(regretted(column, candidates) for column, candidates in chosen.items()),
    )


def usable(frame: pd.DataFrame, columns: Sequence[str]) -> FloatArray:
    """(rows, columns) of the frame's numbers, NaN where a cell has no number above 0 that a time or a rate can have."""
    values = np.column_stack([np.asarray(frame[column], dtype=np.float64) for column in columns])
    return np.where((values >= SMALLEST) & (values <= LARGEST), values, np.nan)


def _statistics(
    better: FloatArray, worse: FloatArray, codes: IntArray, groups: int, tie: float, bound: float
) -> list[AgainstBaseline]:
    """One column against the baseline in each group; ratio = better / worse, `codes` says which group a row is in."""
    both = np.isfinite(better) & np.isfinite(worse)
    better, worse = better[both], worse[both]
    ratio = better / worse
    log = np.log(ratio)
    ties = np.abs(log) <= tie
    counts = {"wins": ~ties & (ratio > 1), "ties": ties, "below": ratio < bound}
    rows = pd.DataFrame({"better": better, "worse": worse, "ratio": ratio, "log": log, **counts})
    by = rows.groupby(codes[both])
    sums = by[["better", "worse", *counts]].sum()
    said = by["ratio"].agg(rows="size", mean_of_ratios="mean", worst="min", best="max").join(sums[[*counts]])
    said = said.assign(ratio_of_means=sums["better"] / sums["worse"], geometric_mean=np.exp(by["log"].mean()))
    said = said.reindex(range(groups)).fillna(dict.fromkeys(("rows", *counts), 0))
    return [AgainstBaseline(**row) for row in said.astype(dict.fromkeys(("rows", *counts), int)).to_dict("records")]


def _grouping(frame: pd.DataFrame, by: Sequence[str]) -> tuple[IntArray, list[Key], list[int]]:
    """Which group each row is in, and keys and sizes of the groups, in the order of their first rows."""
    if not by:
        return np.zeros(len(frame), np.intp), [{}], [len(frame)]
    grouped = frame.groupby(list(by), sort=False, dropna=False, observed=True)
    if grouped.ngroups > MOST_GROUPS:
        many = f"{', '.join(by)} would make {grouped.ngroups:,} groups of {len(frame):,} rows"
        raise CompareError(f"{many}; at most {MOST_GROUPS:,} are made: group by a key that has fewer values")
    firsts = grouped.head(1)[list(by)].to_dict("records")
    keys: list[Key] = [{str(name): value for name, value in row.items()} for row in firsts]
    return np.asarray(grouped.ngroup(), np.intp), keys, grouped.size().tolist()
