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
import io
import math
import re
import sys
import zlib
from collections import Counter
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Literal, cast

import numpy as np
import pandas as pd

from ci.report.words import plain

Direction = Literal["higher", "lower"]

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


class TableError(Exception):
    """A table that cannot be read or compared; the text says what was found, what is needed and what to do."""


# ---- the maths -------------------------------------------------------------------------------------------------------


Statistics = Mapping[str, float]
"""A column against the baseline: `rows` in which both have a number; `ratio_of_means`, `mean_of_ratios`,
`geometric_mean`; the smallest and the largest ratio, `worst` and `best` (NaN without rows); and how many rows are
`wins`, `ties` and `losses`, and how many `below` the bound."""


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

    key: Mapping[str, object]
    rows: int
    columns: Mapping[str, Statistics]


@dataclass(frozen=True, eq=False)
class Against:
    """Columns against a baseline.  groups: all rows, then those of each grouping.  worst: over all columns.

    ratios: a column for each of them, rows as in the frame that was compared.
    """

    groups: Sequence[RowGroup]
    worst: Sequence[RowRatio]
    ratios: pd.DataFrame

    @property
    def columns(self) -> Mapping[str, Statistics]:
        """Over all rows."""
        return self.groups[0].columns


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

    keys: Sequence[str]
    baseline: str
    score: Direction
    against: Against
    regrets: Sequence[Regret]


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
    Raises TableError if a column is not in the frame, or would make more groups than anybody reads.
    """
    names = [baseline, *keys, *columns, *(name for grouping in by for name in grouping)]
    for name in [*names, *(name for column, others in (regret or {}).items() for name in (column, *others))]:
        if name not in frame.columns:
            raise TableError(f"there is no column {name!r}; the columns are {', '.join(map(str, frame.columns))}")
    groupings = [_grouping(frame, grouping) for grouping in ((), *filter(None, by))]
    tie = math.log1p(tie_percent / 100) + ROUNDING

    def against(values: pd.DataFrame, base: pd.Series[float]) -> Against:
        names_of_columns = list(map(str, values.columns))
        ratios = values.div(base, axis=0) if score == "higher" else values.rdiv(base, axis=0)
        pairs = pd.DataFrame(
            {
                "group": np.arange(len(values)).repeat(values.shape[1]),
                "column": np.tile(values.columns.to_numpy(dtype=object), len(values)),
                "value": values.to_numpy().ravel(),
                "base": base.to_numpy().repeat(values.shape[1]),
                "ratio": ratios.to_numpy().ravel(),
            }
        ).dropna(subset=["ratio"])
        groups = [
            RowGroup(key, size, own)
            for codes, group_keys, sizes in groupings
            for key, size, own in zip(
                group_keys,
                sizes,
                _statistics(pairs, codes, names_of_columns, len(sizes), score, tie, bound),
                strict=True,
            )
        ]
        others = pairs[pairs["column"] != baseline] if values.shape[1] > 1 else pairs
        smallest = others.sort_values("ratio", kind="stable").head(worst)
        rows = [
            RowRatio(cast(int, frame.index[place]), column, ratio, value, of_base)
            for place, column, value, of_base, ratio in smallest.itertuples(index=False, name=None)
        ]
        return Against(groups, rows, ratios)

    def regret_of(column: str, candidates: Sequence[str]) -> Regret:
        offered = usable(frame, candidates)
        best = offered.max(axis=1) if score == "higher" else offered.min(axis=1)
        picked = offered.eq(best, axis=0).idxmax(axis=1)[best.notna()]
        picks = {name: int((picked == name).sum()) for name in candidates}
        return Regret(column, picks, against(usable(frame, [column]), best))

    values = usable(frame, list(dict.fromkeys([baseline, *columns])))
    regrets = [regret_of(column, candidates) for column, candidates in (regret or {}).items()]
    return TableComparison(keys, baseline, score, against(values, values[baseline]), regrets)


def usable(frame: pd.DataFrame, columns: Sequence[str]) -> pd.DataFrame:
    """Those columns as numbers, NaN where a cell has no number above 0 that a time or a rate can have."""
    values = frame[list(columns)].astype(float)
    return values.where((values >= SMALLEST) & (values <= LARGEST))


def _statistics(
    pairs: pd.DataFrame,
    codes: np.ndarray[tuple[int], np.dtype[np.intp]],
    columns: Sequence[str],
    groups: int,
    score: Direction,
    tie: float,
    bound: float,
) -> Iterator[dict[str, Statistics]]:
    """By group, the statistics of each column.  pairs: the cells that have a ratio, `group` the place of their row;
    codes: the group of each row of the frame."""
    log = np.log(pairs["ratio"])
    tied = log.abs() <= tie
    counts = {"wins": ~tied & (log > 0), "ties": tied, "losses": ~tied & (log < 0), "below": pairs["ratio"] < bound}
    table = pairs.assign(group=codes[pairs["group"]], log=log, **counts)
    grouped = table.groupby(["group", "column"], sort=False)
    statistics = grouped["ratio"].agg(rows="size", mean_of_ratios="mean", worst="min", best="max")
    sums = grouped[["value", "base", *counts]].sum()
    over, under = ("value", "base") if score == "higher" else ("base", "value")
    statistics = statistics.join(sums[list(counts)]).assign(
        ratio_of_means=sums[over] / sums[under], geometric_mean=np.exp(grouped["log"].mean())
    )
    whole = ["rows", *counts]
    every = pd.MultiIndex.from_product([range(groups), columns])
    statistics = statistics.reindex(every).fillna(dict.fromkeys(whole, 0)).astype(dict.fromkeys(whole, int))
    records: list[Statistics] = statistics.to_dict("records")
    for start in range(0, len(records), len(columns)):
        yield dict(zip(columns, records[start : start + len(columns)], strict=True))


def _grouping(
    frame: pd.DataFrame, by: Sequence[str]
) -> tuple[np.ndarray[tuple[int], np.dtype[np.intp]], Sequence[Mapping[str, object]], Sequence[int]]:
    """Which group each row is in, and keys and sizes of the groups, in the order of their first rows."""
    if not by:
        return np.zeros(len(frame), np.intp), [{}], [len(frame)]
    grouped = frame.groupby(list(by), sort=False, dropna=False, observed=True)
    if grouped.ngroups > MOST_GROUPS:
        many = f"{', '.join(by)} would make {grouped.ngroups:,} groups of {len(frame):,} rows"
        raise TableError(f"{many}; at most {MOST_GROUPS:,} are made: group by a key that has fewer values")
    keys: list[dict[str, object]] = grouped.head(1)[list(by)].to_dict("records")  # type: ignore[assignment]
    return np.asarray(grouped.ngroup(), np.intp), keys, grouped.size().tolist()


# ---- a file ----------------------------------------------------------------------------------------------------------


MAX_NAMED = 1000
"""Most sentences about single rows and cells; beyond, only their number is said."""

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

RATIO = re.compile(r"\b(ratio|speedup)s?\b")
"""A column behind two of numbers whose name says this is a ratio of such, and no backend unless asked for."""


@dataclass(frozen=True)
class ColumnChoice:
    """Which columns are compared, as a caller names them; empty where it is left to the file."""

    columns: tuple[str, ...] = ()
    baseline: str = ""
    by: tuple[tuple[str, ...], ...] = ()
    regret: tuple[tuple[str, tuple[str, ...]], ...] = ()

    @property
    def backends(self) -> tuple[str, ...]:
        """Columns that are named as backends."""
        chosen = [name for column, candidates in self.regret for name in (column, *candidates)]
        return (*filter(None, [self.baseline]), *self.columns, *chosen)


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
    choice: ColumnChoice
    left_out: Mapping[str, int] = field(default_factory=dict)
    remarks: Sequence[str] = ()

    @property
    def baseline(self) -> str:
        """What ratios are taken to."""
        return self.choice.baseline or (self.choice.columns or self.backends)[0]

    @property
    def compared(self) -> Sequence[str]:
        """The backends that are shown, the baseline among them."""
        return list(dict.fromkeys([*self.choice.columns, self.baseline])) if self.choice.columns else self.backends


def read_table(path: str, choice: ColumnChoice) -> TableFile:
    """The table of a file, of stdin where the path is `-`.

    The first line is a header: any key columns, then one column of numbers for each backend.  Row 1 is the first row
    below it.  A cell that cannot be compared is named and left out, and so is a row that repeats the key of another.
    TableError says why there is no table; OSError where the file cannot be opened.
    """
    cells = read_cells(path)
    numbers = cells.apply(pd.to_numeric, errors="coerce")
    is_text = numbers.isna() & ~cells.apply(lambda column: column.str.lower()).isin(ABSENT)
    numeric = {str(name) for name in cells if numbers[name].notna().sum() >= max(1, is_text[name].sum())}
    table = columns_by_role(cells, numeric, choice)
    backends = list(table.backends)
    header = list(map(str, cells))
    first = min(map(header.index, backends))
    identity = [*table.keys, *(name for name in table.unused if header.index(name) < first)]
    repeated = cells.duplicated(identity) if identity else pd.Series(False, index=cells.index)

    def row_text(number: int) -> str:
        key = ", ".join(f"{name}={cells[name][number]}" for name in table.keys)
        return f"row {number}" + (f" ({plain(key, 120)})" if key else "")

    remarks = [
        ("repeated keys", f"{row_text(number)} repeats the key of a row before; left out")
        for number in cells.index[repeated]
    ]
    values = usable(numbers, backends)
    for place, column in zip(*np.nonzero(values.isna().to_numpy()), strict=True):
        number, name = cells.index[place], backends[column]
        kind, why = _cell_fault(str(cells[name][number]), float(numbers[name][number]))
        remarks.append((kind, f"{row_text(number)}, column {plain(name, 40)!r}: {why}; the cell is left out"))
    left_out = Counter(kind for kind, _ in remarks)
    sentences = [sentence for _, sentence in remarks[:MAX_NAMED]]
    if len(remarks) > MAX_NAMED:
        counted = ", ".join(f"{count:,} {kind}" for kind, count in left_out.items())
        sentences.append(f"and {len(remarks) - MAX_NAMED:,} more; in all {counted}")
    frame = cells.drop(columns=backends).join(values)[~repeated]
    table = TableFile(frame, table.keys, backends, table.unused, table.choice, left_out, sentences)
    others = [name for name in table.compared if name != table.baseline]
    if not (frame[others].notna().any(axis=1) & frame[table.baseline].notna()).any():
        raise TableError(
            f"no row of {_path_text(path)} has a number above 0 both in {table.baseline!r} and in another column: "
            + "; ".join(sentences[:3])
        )
    return table


def _path_text(path: str) -> str:
    return "stdin" if path == "-" else plain(path)


def read_cells(path: str) -> pd.DataFrame:
    """The cells of a CSV as text without the space around it, "" for an empty one; index: row numbers from 1.

    Comma, semicolon or tab; UTF-8, plain or .gz; `-` for stdin.  Raises TableError for what is no table, OSError where
    the file cannot be opened.
    """
    shown = _path_text(path)
    raw = sys.stdin.buffer.read() if path == "-" else Path(path).read_bytes()
    try:
        text = (zlib.decompress(raw, wbits=31) if raw[:2] == b"\x1f\x8b" else raw).decode("utf-8-sig")
    except zlib.error as error:
        raise TableError(f"{shown} is a damaged .gz file ({error}); copy it again") from error
    except UnicodeDecodeError as error:
        raise TableError(f"{shown} is not UTF-8 text ({error}); save the sheet as CSV, UTF-8") from error
    first = next(filter(str.strip, text.splitlines()), "")
    if not first or "\0" in text:
        what = "is not a text file" if first else "is empty"
        raise TableError(f"{shown} {what}; a table has a header and one row for each case")
    delimiter = max(",;\t", key="".join(first.split('"')[::2]).count)  # outside of quotes
    try:
        rows = pd.read_csv(
            io.StringIO(text), sep=delimiter, header=None, dtype=str, keep_default_na=False, skipinitialspace=True
        )
    except (pd.errors.ParserError, pd.errors.EmptyDataError) as error:
        raise TableError(
            f"{shown} is not a CSV of one header: {error}; is a comma within a cell, or a quote left open?"
        ) from error
    rows = rows.fillna("").apply(lambda column: column.str.strip())
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
        return "missing cells", f"{plain(cell, 40)!r} stands for no number" if cell else "there is no number"
    if math.isnan(value):
        point = ", as points and separators differ by country; write 1234.5" if "," in cell else ""
        return "cells of text", f"{plain(cell, 40)!r} is not a number{point}"
    if value == 0:
        return "zeros", "0 is no time and no rate, and has no ratio"
    if value < 0:
        return "negative cells", f"{cell!r} is negative, which no time and no rate is"
    return "cells out of range", f"{cell!r} is outside {SMALLEST:g} to {LARGEST:g}, in which times and rates lie"


def columns_by_role(cells: pd.DataFrame, numeric: Collection[str], choice: ColumnChoice) -> TableFile:
    """Backends are those of the choice, else the columns of numbers behind the keys; TableError names what fails.

    numeric: the columns of which at least half of the filled cells are numbers.  A column named as a dimension is a
    key, and so is one that rows are grouped by.  A column A/B of a table with A and B, or one behind two backends whose
    name says ratio or speedup, is a printed ratio and no backend unless it is asked for.
    """
    header = list(map(str, cells))
    choice = _choice_in(header, choice)
    quantities = {name for name in numeric if name not in SHAPE} - {name for names in choice.by for name in names}
    numbers: list[str] = []
    ratios: list[str] = []
    for place, name in enumerate(header):
        parts = {part.strip() for part in name.split("/")}
        is_quotient = len(parts) == 2 and parts <= set(header) - {name}
        is_ratio = is_quotient or (len(numbers) > 1 and RATIO.search(name.lower().replace("-", "").replace("_", " ")))
        if name in choice.backends or (name in quantities and not is_ratio):
            numbers.append(name)
        elif is_ratio:
            ratios.append(name)
        elif name not in quantities and not quantities.isdisjoint(header[place:]):
            numbers = [other for other in numbers if other in choice.backends]  # numbers left of a text are keys
    backends = [name for name in numbers if not choice.columns or name in choice.backends]
    if len(backends) < 2:
        raise TableError(_too_few(backends, header, choice))
    unused = [name for name in header if name in ratios or (name in numbers and name not in backends)]
    return TableFile(cells, [name for name in header if name not in (*backends, *unused)], backends, unused, choice)


def _choice_in(header: Sequence[str], choice: ColumnChoice) -> ColumnChoice:
    """The choice with the names of the header: its own, or the only `name: quantity`, as studies write it."""

    def named(name: str) -> str:
        of_name = [name] if name in header else [column for column in header if column.partition(": ")[0] == name]
        if len(of_name) == 1:
            return of_name[0]
        near = difflib.get_close_matches(name, header, n=1, cutoff=0.5)
        hint = f"; did you mean {near[0]!r}?" if near else ""
        raise TableError(f"there is no column {name!r}; the columns are {', '.join(header)}{hint}")

    def all_named(names: Iterable[str]) -> tuple[str, ...]:
        return tuple(map(named, names))

    regret = tuple((named(column), all_named(candidates)) for column, candidates in choice.regret)
    baseline = named(choice.baseline) if choice.baseline else ""
    return ColumnChoice(all_named(choice.columns), baseline, tuple(map(all_named, choice.by)), regret)


def _too_few(backends: Sequence[str], header: Sequence[str], choice: ColumnChoice) -> str:
    if choice.columns:
        return f"--columns and --baseline name {backends[0]!r} only; a comparison needs two columns"
    there = f"only {backends[0]!r} is a column of numbers" if backends else "no column of numbers was found"
    return (
        f"{there} among {', '.join(header)}; a comparison needs two. Give the columns by name: "
        "--columns a,b --baseline a.  Numbers are written 1234.5"
    )


# ---- the tables of recorded studies ----------------------------------------------------------------------------------


def recorded_tables(study: str, machine: str, results: Path) -> dict[str, Path]:
    """results/studies/STUDY/MACHINE/table.csv by machine; TableError says which studies and machines have one."""
    paths = sorted(results.glob("studies/*/*/table.csv"))
    of_study = {path.parts[-2]: path for path in paths if path.parts[-3] == study}
    chosen = {name: path for name, path in of_study.items() if machine in ("", name)}
    if of_study and not chosen:
        raise TableError(f"study {study} has no table of machine {machine!r}; it has one of {', '.join(of_study)}")
    if not of_study:
        studies = list(dict.fromkeys(path.parts[-3] for path in paths))
        near = difflib.get_close_matches(study, studies, n=1)
        hint = f"; did you mean {near[0]!r}?" if near else ""
        place = results / "studies"
        known = f"studies with a table are {', '.join(studies)}" if studies else f"{place} has no study with a table"
        raise TableError(
            f"{study!r} is no file and no recorded study; {known}{hint}. `ridgeline study --list` names all"
        )
    return chosen
