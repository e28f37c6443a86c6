"""Comparison tables, rows = cases and columns = backends: a CSV as a frame, and its ratios to one column, the baseline.

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

import difflib
import gzip
import io
import math
import re
import sys
import zlib
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

import numpy as np
import pandas as pd

from ci.report.words import plain

Direction = Literal["higher", "lower"]

BOUND = 0.95
"""A ratio below it is counted as a row that loses: Primus-Turbo rejects a change that costs one core shape 5 %
(agent/skills/kernel-optimize/workflow/optimize-loop.md line 100 at a6a16cd, read 2026-11-22)."""

WORST_ROWS = 10
"""Rows in a list of the worst."""

SMALLEST, LARGEST = 1e-150, 1e150
"""Numbers outside are no time and no rate; within, a ratio and a sum of 1e9 rows are finite (arithmetic)."""

ROUNDING = 1e-12
"""Relative difference up to which two numbers are equal: rounding of one division."""


class TableError(Exception):
    """A table that cannot be read or compared; the text says what was found, what is needed and what to do."""


# ---- the maths -------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, eq=False)
class Against:
    """Columns against a baseline.

    groups: statistics (`statistics`) of all rows, then by each grouping.  worst: the smallest ratios over all columns,
    as `row`, `backend`, `ratio`, `value`, `baseline`.
    """

    groups: Sequence[pd.DataFrame]
    worst: pd.DataFrame


@dataclass(frozen=True, eq=False)
class Regret:
    """A column that was chosen (a tuner's pick) against the best of its candidates, row by row.

    The baseline is the best candidate of each row, so 1 - ratio is what the choice gives away.
    picks: how often each candidate is the best one; the first of equal ones counts.
    """

    column: str
    picks: Mapping[str, int]
    against: Against


@dataclass(frozen=True, eq=False)
class TableComparison:
    """A whole table."""

    baseline: str
    against: Against
    regrets: Sequence[Regret]


def compare(
    frame: pd.DataFrame,
    columns: Sequence[str],
    baseline: str,
    *,
    score: Direction = "higher",
    by: Sequence[Sequence[str]] = (),
    regret: Mapping[str, Sequence[str]] | None = None,
) -> TableComparison:
    """Columns of a frame against one of them.

    frame: one row for each case, numbers in `columns` and in `baseline`; NaN, zero and negative cells are absent.
    score: `higher` for rates, `lower` for times.  by: groupings, each a list of columns.
    regret: column that was chosen -> the columns it was chosen from.
    """

    def against(values: pd.DataFrame, base: pd.Series) -> Against:
        cells = _cells(values, base, score)
        others = cells[cells["backend"] != baseline] if values.shape[1] > 1 else cells
        worst = others.dropna(subset=["ratio"]).sort_values("ratio", kind="stable").head(WORST_ROWS)
        columns = ["row", "backend", "ratio", "value", "baseline"]
        groups = [statistics(cells, frame[list(names)]) for names in ((), *by)]
        return Against(groups, worst.rename_axis("row").reset_index()[columns])

    def regret_of(column: str, candidates: Sequence[str]) -> Regret:
        offered = usable(frame, candidates)
        best = offered.max(axis=1) if score == "higher" else offered.min(axis=1)
        picked = offered.eq(best, axis=0).idxmax(axis=1)[best.notna()]
        picks = {name: int((picked == name).sum()) for name in candidates}
        return Regret(column, picks, against(usable(frame, [column]), best))

    values = usable(frame, list(dict.fromkeys([baseline, *columns])))
    regrets = [regret_of(column, candidates) for column, candidates in (regret or {}).items()]
    return TableComparison(baseline, against(values, values[baseline]), regrets)


def usable(frame: pd.DataFrame, columns: Sequence[str]) -> pd.DataFrame:
    """Those columns as numbers, NaN where a cell has no number above 0 that a time or a rate can have."""
    values = frame[list(columns)].astype(float)
    return values.where((values >= SMALLEST) & (values <= LARGEST))


def _cells(values: pd.DataFrame, base: pd.Series, score: Direction) -> pd.DataFrame:
    """Each cell with its `backend`, `value`, `baseline` and `ratio`, row by row; index: as of the values."""
    parts = [pd.DataFrame({"backend": name, "value": values[name], "baseline": base}) for name in values]
    cells = pd.concat(parts).sort_index(kind="stable")
    over, under = ("value", "baseline") if score == "higher" else ("baseline", "value")
    return cells.assign(ratio=cells[over] / cells[under], over=cells[over], under=cells[under])


def statistics(cells: pd.DataFrame, keys: pd.DataFrame) -> pd.DataFrame:
    """A row for each group of equal keys and each backend, in the order of their first rows.

    `size`: rows of the group; `rows` in which both have a number; `ratio_of_means`, `geometric_mean`, `mean_of_ratios`;
    how many are `wins`, `ties` and `losses`; `worst` and `best` ratio; how many are `below` the bound.
    """
    log, known = np.log(cells["ratio"]), cells["ratio"].notna()
    tied = log.abs() <= ROUNDING
    table = cells.join(keys).assign(
        log=log,
        over=cells["over"].where(known),
        under=cells["under"].where(known),
        wins=~tied & (log > 0),
        ties=tied,
        losses=~tied & (log < 0),
        below=cells["ratio"] < BOUND,
    )
    grouped = table.groupby([*keys, "backend"], sort=False, dropna=False)
    sums = grouped[["over", "under", "wins", "ties", "losses", "below"]].sum()
    ratio = grouped["ratio"]
    numbers = {
        "size": ratio.size(),
        "rows": ratio.count(),
        "ratio_of_means": sums["over"] / sums["under"].where(sums["under"] > 0),
        "geometric_mean": np.exp(grouped["log"].mean()),
        "mean_of_ratios": ratio.mean(),
        **{name: sums[name] for name in ("wins", "ties", "losses")},
        "worst": ratio.min(),
        "best": ratio.max(),
        "below": sums["below"],
    }
    return pd.DataFrame(numbers).reset_index()


# ---- a file ----------------------------------------------------------------------------------------------------------


ABSENT = frozenset({"", "-", "--", "–", "—", "n/a", "na", "nan", "null", "none"})
"""What people write into a cell that has no number, in lower case."""

SHAPE = frozenset(
    """
    B D E G H K M N S T W m n k batch batch_size bs case case_id id index row experts groups group_size heads head_dim
    hidden inter layer rank ranks world world_size seq seqlen seq_len size bytes count tokens topk top_k elements cus
    """.split()  # noqa: SIM905
)
"""Names of numbers that say which case a row is: the dimensions of this project's cases and of the tables that its
operators were taken from (kernels/, 2026-11)."""

RATIO = re.compile(r"/|\b(ratio|speed-?up)s?\b", re.IGNORECASE)
"""A column whose name says that it is a ratio of two others, and no backend unless asked for."""


@dataclass(frozen=True, eq=False)
class TableFile:
    """A table that was read.

    frame: index = row number in the file from 1; keys as text, backends as numbers, NaN where a cell has none that can
    be compared.  keys, backends: which columns those are.  unused: ratios that are printed, and numbers that nobody
    asked for.  left_out: how many cells and rows were not used, by what they are; remarks: each by name.
    """

    frame: pd.DataFrame
    keys: Sequence[str]
    backends: Sequence[str]
    unused: Sequence[str]
    left_out: Mapping[str, int]
    remarks: Sequence[str]


def read_table(path: str, columns: Sequence[str] = (), others: Sequence[str] = (), by: Sequence[str] = ()) -> TableFile:
    """The table of a file, of stdin where the path is `-`.

    The first line is a header: any key columns, then one column of numbers for each backend.  Row 1 is the first row
    below it.  columns: the backends, () for the columns of numbers behind the keys; others: more of them, such as the
    baseline; by: keys.  A cell that cannot be compared is named and left out, and so is a row that repeats the key of
    another.  TableError says why there is no table; OSError where the file cannot be opened.
    """
    cells = read_cells(path)
    header, named = list(map(str, cells)), {*columns, *others}
    for name in (*columns, *others, *by):
        if name not in header:
            near = difflib.get_close_matches(name, header, n=1, cutoff=0.5)
            hint = f"; did you mean {near[0]!r}?" if near else ""
            raise TableError(f"there is no column {name!r}; the columns are {', '.join(header)}{hint}")
    numbers = cells.apply(pd.to_numeric, errors="coerce")
    texts = numbers.isna() & ~cells.apply(lambda column: column.str.lower()).isin(ABSENT)
    numeric = numbers.notna().sum() >= texts.sum().clip(lower=1)  # at least half of the filled cells
    ratios = {name for name in header[2:] if RATIO.search(name)} - named
    behind: list[str] = []  # the last columns of numbers, with nothing but ratios between them
    for name in reversed(header):
        if numeric[name] and not (name in SHAPE or name in by or name in ratios):
            behind.append(name)
        elif behind and name not in ratios:
            break
    backends = [name for name in header if name in named or (name in behind and not columns)]
    if len(backends) < 2:
        seen = ", ".join(map(repr, backends)) or "none"
        raise TableError(
            f"a comparison needs two columns of numbers; of {', '.join(header)} there is {seen}. Give the columns by "
            "name: --columns a,b --baseline a.  Numbers are written 1234.5"
        )
    unused = [name for name in header if name in ratios or (name in behind and name not in backends)]
    keys = [name for name in header if name not in (*backends, *unused)]
    identity = [name for name in header if name not in (*backends, *ratios)]
    repeated = cells.duplicated(identity) if identity else pd.Series(False, index=cells.index)
    values = usable(numbers, backends)
    faults = [
        (number, "repeated keys", " repeats the key of a row before; left out") for number in cells.index[repeated]
    ]
    for place, column in zip(*np.nonzero(values.isna().to_numpy()), strict=True):
        number, name = cells.index[place], backends[column]
        kind, why = _cell_fault(str(cells[name][number]), float(numbers[name][number]))
        faults.append((number, kind, f", column {plain(name, 40)!r}: {why}; the cell is left out"))
    left_out = Counter(kind for _, kind, _ in faults)
    rows = {number: ", ".join(f"{name}={cells[name][number]}" for name in keys) for number, _, _ in faults}
    sentences = [f"row {n}{f' ({plain(rows[n], 120)})' if keys else ''}{text}" for n, _, text in faults]
    frame = cells.drop(columns=backends).join(values)[~repeated]
    if frame[backends].notna().sum(axis=1).max() < 2:
        raise TableError(f"no row of {plain(path)} has two numbers above 0 to compare: {'; '.join(sentences[:3])}")
    return TableFile(frame, keys, backends, unused, left_out, sentences)


def read_cells(path: str) -> pd.DataFrame:
    """The cells of a CSV as text without the space around it, "" for an empty one; index: row numbers from 1.

    Comma, semicolon or tab; UTF-8, plain or .gz; `-` for stdin.  Raises TableError for what is no table, OSError where
    the file cannot be opened.
    """
    shown = "stdin" if path == "-" else plain(path)
    raw = sys.stdin.buffer.read() if path == "-" else Path(path).read_bytes()
    try:
        text = (gzip.decompress(raw) if raw[:2] == b"\x1f\x8b" else raw).decode("utf-8-sig")
        first = next(filter(str.strip, text.splitlines()), "")
        separator = max(",;\t", key="".join(first.split('"')[::2]).count)  # outside of quotes
        rows = pd.read_csv(
            io.StringIO(text), sep=separator, header=None, dtype=str, keep_default_na=False, skipinitialspace=True
        ).fillna("")
    except (EOFError, OSError, zlib.error, ValueError) as error:  # as what is not UTF-8, and all that pandas raises
        needs = "CSV in UTF-8, plain or .gz, with a header, a row for each case, and quotes around a cell with a comma"
        raise TableError(f"{shown} cannot be read ({error}); a table is {needs}") from error
    rows = rows.apply(lambda column: column.str.strip())
    header = [plain(name, 80) or f"column {place}" for place, name in enumerate(rows.iloc[0], 1)]
    if twice := [name for name, count in Counter(header).items() if count > 1]:
        raise TableError(f"{shown} has two columns {twice[0]!r}; give each column a name of its own")
    if len(rows) == 1:
        raise TableError(f"{shown} has a header and no rows; a table has one row for each case")
    cells: pd.DataFrame = rows.iloc[1:].set_axis(header, axis=1)
    return cells


def _cell_fault(cell: str, value: float) -> tuple[str, str]:
    """(kind, sentence) of a cell that cannot be compared."""
    if cell.lower() in ABSENT:
        return "missing cells", "there is no number"
    if math.isnan(value):
        return "cells of text", f"{plain(cell, 40)!r} is not a number; write 1234.5"
    return "numbers out of range", f"{cell!r} is outside {SMALLEST:g} to {LARGEST:g}, in which times and rates lie"
