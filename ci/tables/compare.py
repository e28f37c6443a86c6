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

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Literal

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
    """One cell of the table of ratios.  row: place in the frame, from 0.  value, baseline: what it is made of."""

    row: int
    column: str
    ratio: float
    value: float
    baseline: float


@dataclass(frozen=True)
class RowGroup:
    """The rows that have these values in the columns that a table is grouped by."""

    key: Key
    rows: int
    columns: Mapping[str, AgainstBaseline]


@dataclass(frozen=True)
class Regret:
    """A column that was chosen (a tuner's pick) against the best of its candidates, row by row.

    against: the baseline is the best candidate of each row, so 1 - ratio is what the choice gives away.
    picks: how often each candidate is the best one; the first of equal ones counts.
    """

    column: str
    candidates: tuple[str, ...]
    against: AgainstBaseline
    groups: tuple[RowGroup, ...]
    worst: tuple[RowRatio, ...]
    picks: Mapping[str, int]


@dataclass(frozen=True, eq=False)
class TableComparison:
    """A whole table.  ratios: frame of one column for each backend, rows as in the frame that was compared."""

    keys: tuple[str, ...]
    baseline: str
    score: Direction
    ratios: pd.DataFrame
    columns: Mapping[str, AgainstBaseline]
    groups: tuple[RowGroup, ...]
    worst: tuple[RowRatio, ...]
    regrets: tuple[Regret, ...]

    @property
    def rows(self) -> int:
        return len(self.ratios)


@dataclass(frozen=True)
class _Rules:
    score: Direction
    tie: float
    bound: float
    worst: int


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
    used = list(dict.fromkeys([baseline, *columns]))
    chosen = {column: tuple(from_) for column, from_ in (regret or {}).items()}
    _known(
        frame, [*keys, *used, *(c for pair in chosen.items() for c in (pair[0], *pair[1])), *(c for b in by for c in b)]
    )
    rules = _Rules(score, math.log1p(tie_percent / 100) + ROUNDING, bound, worst)
    groupings = [_Grouping.of(frame, one) for one in by if one]
    values, base = usable(frame, used), usable(frame, [baseline])[:, 0]
    ratios = _ratios(values, base, score)
    others = [column for column in used if column != baseline]
    return TableComparison(
        keys=tuple(keys),
        baseline=baseline,
        score=score,
        ratios=pd.DataFrame(ratios, columns=used),
        columns=_whole(used, values, base, rules),
        groups=tuple(group for one in groupings for group in one.groups(used, values, base, rules)),
        worst=_worst(others, values[:, [used.index(c) for c in others]], base, rules),
        regrets=tuple(_regret(frame, column, from_, groupings, rules) for column, from_ in chosen.items()),
    )


def usable(frame: pd.DataFrame, columns: Sequence[str]) -> FloatArray:
    """(rows, columns) of the frame's numbers, NaN where a cell has no number above 0 that a time or a rate can have."""
    values = np.column_stack([np.asarray(frame[column], dtype=np.float64) for column in columns])
    return np.where((values >= SMALLEST) & (values <= LARGEST), values, np.nan)


def _known(frame: pd.DataFrame, names: Sequence[str]) -> None:
    for name in names:
        if name not in frame.columns:
            raise CompareError(f"there is no column {name!r}; the columns are {', '.join(map(str, frame.columns))}")


def _ratios(values: FloatArray, base: FloatArray, score: Direction) -> FloatArray:
    """(rows, columns), above 1 where a column is better."""
    beside = base[:, None]
    return values / beside if score == "higher" else beside / values


def _whole(
    columns: Sequence[str], values: FloatArray, base: FloatArray, rules: _Rules
) -> Mapping[str, AgainstBaseline]:
    everything = np.zeros(len(base), np.intp)
    return {c: _against(values[:, i], base, everything, 1, rules)[0] for i, c in enumerate(columns)}


def _against(
    values: FloatArray, base: FloatArray, codes: IntArray, groups: int, rules: _Rules
) -> list[AgainstBaseline]:
    """One column against the baseline in each group; `codes` says which group a row is in."""
    both = np.isfinite(values) & np.isfinite(base)
    better, worse = (values[both], base[both]) if rules.score == "higher" else (base[both], values[both])
    ratio = better / worse
    log = np.log(ratio)
    ties = np.abs(log) <= rules.tie
    counts = {"wins": ~ties & (ratio > 1), "ties": ties, "below": ratio < rules.bound}
    rows = pd.DataFrame({"better": better, "worse": worse, "ratio": ratio, "log": log, **counts})
    by = rows.groupby(codes[both])
    sums = by[["better", "worse", *counts]].sum()
    said = by["ratio"].agg(rows="size", mean_of_ratios="mean", worst="min", best="max").join(sums[[*counts]])
    said = said.assign(ratio_of_means=sums["better"] / sums["worse"], geometric_mean=np.exp(by["log"].mean()))
    said = said.reindex(range(groups)).fillna(dict.fromkeys(("rows", *counts), 0))
    return [AgainstBaseline(**row) for row in said.astype(dict.fromkeys(("rows", *counts), int)).to_dict("records")]


def _worst(columns: Sequence[str], values: FloatArray, base: FloatArray, rules: _Rules) -> tuple[RowRatio, ...]:
    """The smallest ratios of all columns; equal ones in the order of the rows."""
    smallest = pd.Series(_ratios(values, base, rules.score).ravel()).dropna().nsmallest(rules.worst)
    places = [(*divmod(int(at), len(columns)), ratio) for at, ratio in zip(smallest.index, smallest, strict=True)]
    return tuple(RowRatio(i, columns[j], float(ratio), float(values[i, j]), float(base[i])) for i, j, ratio in places)


def _regret(
    frame: pd.DataFrame, column: str, candidates: tuple[str, ...], groupings: Sequence[_Grouping], rules: _Rules
) -> Regret:
    values, offered = usable(frame, [column]), usable(frame, candidates)
    worst_case = -np.inf if rules.score == "higher" else np.inf
    filled = np.where(np.isnan(offered), worst_case, offered)
    pick = filled.argmax(axis=1) if rules.score == "higher" else filled.argmin(axis=1)
    best = offered[np.arange(len(offered)), pick]
    counts = np.bincount(pick[np.isfinite(best)], minlength=len(candidates))
    return Regret(
        column=column,
        candidates=candidates,
        against=_whole([column], values, best, rules)[column],
        groups=tuple(group for one in groupings for group in one.groups([column], values, best, rules)),
        worst=_worst([column], values, best, rules),
        picks={candidate: int(n) for candidate, n in zip(candidates, counts, strict=True)},
    )


@dataclass(frozen=True, eq=False)
class _Grouping:
    """Which group each row is in, groups in the order of their first rows."""

    codes: IntArray
    keys: tuple[Key, ...]
    sizes: tuple[int, ...]

    @classmethod
    def of(cls, frame: pd.DataFrame, by: Sequence[str]) -> _Grouping:
        grouped = frame.groupby(list(by), sort=False, dropna=False, observed=True)
        if grouped.ngroups > MOST_GROUPS:
            many = f"{', '.join(by)} would make {grouped.ngroups:,} groups of {len(frame):,} rows"
            raise CompareError(f"{many}; at most {MOST_GROUPS:,} are made: group by a key that has fewer values")
        keys = tuple({str(k): v for k, v in row.items()} for row in grouped.head(1)[list(by)].to_dict("records"))
        return cls(np.asarray(grouped.ngroup(), np.intp), keys, tuple(grouped.size().tolist()))

    def groups(self, columns: Sequence[str], values: FloatArray, base: FloatArray, rules: _Rules) -> Iterator[RowGroup]:
        found = {c: _against(values[:, i], base, self.codes, len(self.keys), rules) for i, c in enumerate(columns)}
        for i, (key, size) in enumerate(zip(self.keys, self.sizes, strict=True)):
            yield RowGroup(key, size, {column: found[column][i] for column in columns})
