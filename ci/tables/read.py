"""A CSV of a comparison as a frame, by `pandas.read_csv`: cells that cannot be compared are counted and named.

The first line is a header: any key columns, then one column of numbers for each backend.  Comma, semicolon or tab;
UTF-8, plain or .gz.  Row 1 is the first row below the header.
"""

from __future__ import annotations

import dataclasses
import difflib
import io
import re
import sys
import zlib
from collections import Counter
from collections.abc import Collection, Sequence
from pathlib import Path

import numpy as np
import pandas as pd

from ci.report.words import plain
from ci.tables.compare import LARGEST, SMALLEST

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

RATIOS = frozenset(("ratio", "ratios", "speedup", "speedups"))
"""Words by which a column behind two of numbers says that it is a ratio of such, and no backend unless asked for."""


class TableFileError(Exception):
    """A file of which no table can be made; the text says what was found, what is needed and what to do."""


@dataclasses.dataclass(frozen=True)
class AskedColumns:
    """What the caller says of the columns; empty where it is left to the file."""

    columns: tuple[str, ...] = ()
    baseline: str = ""
    by: tuple[tuple[str, ...], ...] = ()
    regret: tuple[tuple[str, tuple[str, ...]], ...] = ()

    @property
    def backends(self) -> tuple[str, ...]:
        """Columns that are named as backends, each once."""
        chosen = [name for column, candidates in self.regret for name in (column, *candidates)]
        return tuple(dict.fromkeys([*([self.baseline] if self.baseline else []), *self.columns, *chosen]))

    @property
    def grouped(self) -> frozenset[str]:
        return frozenset(name for grouping in self.by for name in grouping)

    def within(self, header: Sequence[str]) -> AskedColumns:
        """With the names as the header has them; TableFileError where it has none."""

        def all_in(names: Sequence[str]) -> tuple[str, ...]:
            return tuple(column_named(name, header) for name in names)

        return AskedColumns(
            columns=all_in(self.columns),
            baseline=column_named(self.baseline, header) if self.baseline else "",
            by=tuple(map(all_in, self.by)),
            regret=tuple((column_named(column, header), all_in(candidates)) for column, candidates in self.regret),
        )


@dataclasses.dataclass(frozen=True)
class Roles:
    """Names of columns.  backends: all that are read as numbers.  compared: those of them that are shown, the baseline
    among them.  unused: ratios that are printed, and numbers that nobody asked for.  identity: what tells rows apart.
    asked: what was asked for, with the names of the header.
    """

    keys: tuple[str, ...]
    backends: tuple[str, ...]
    compared: tuple[str, ...]
    baseline: str
    unused: tuple[str, ...]
    identity: tuple[str, ...]
    asked: AskedColumns


@dataclasses.dataclass(frozen=True, eq=False)
class TableFile:
    """A table that was read.

    frame: index = row number in the file from 1; keys as text, backends as numbers, NaN where a cell has none that can
    be compared.  left_out: how many cells and rows were not used, by what they are; remarks: each by name.
    """

    frame: pd.DataFrame
    roles: Roles
    left_out: Counter[str]
    remarks: tuple[str, ...]


def read(path: str, asked: AskedColumns) -> TableFile:
    """The table of a file, of stdin where the path is `-`.

    TableFileError says why there is none; OSError where the file cannot be opened.
    """
    shown, cells = "stdin" if path == "-" else plain(path), read_text(path)
    numbers = cells.apply(pd.to_numeric, errors="coerce")
    is_text = numbers.isna() & ~cells.apply(lambda column: column.str.lower()).isin(ABSENT)
    numeric = {str(name) for name in cells if numbers[name].notna().sum() >= max(1, is_text[name].sum())}
    roles = columns_by_role(list(map(str, cells)), numeric, asked)
    remarks: list[tuple[str, str]] = []
    keys = cells[list(roles.identity)]
    repeated = keys.duplicated() if roles.identity else pd.Series(False, index=cells.index)
    for row in cells.index[repeated]:
        remarks.append(("repeated keys", f"{_row_text(cells, roles, row)} repeats the key of a row before; left out"))
    backends = list(roles.backends)
    good = (numbers[backends] >= SMALLEST) & (numbers[backends] <= LARGEST)
    for row, place in zip(*np.nonzero(~good.to_numpy()), strict=True):
        name, number = backends[place], cells.index[row]
        kind, why = _trouble(str(cells[name][number]), float(numbers[name][number]))
        where = f"{_row_text(cells, roles, number)}, column {plain(name, 40)!r}"
        remarks.append((kind, f"{where}: {why}; the cell is left out"))
    texts = cells.drop(columns=backends)
    frame = pd.concat([texts, numbers[backends].where(good)], axis=1)[list(cells)][~repeated]
    left_out = Counter(kind for kind, _ in remarks)
    sentences = [sentence for _, sentence in remarks[:MAX_NAMED]]
    if len(remarks) > MAX_NAMED:
        counted = ", ".join(f"{number:,} {kind}" for kind, number in left_out.items())
        sentences.append(f"and {len(remarks) - MAX_NAMED:,} more; in all {counted}")
    others = [name for name in roles.compared if name != roles.baseline]
    if not (frame[others].notna().any(axis=1) & frame[roles.baseline].notna()).any():
        raise TableFileError(
            f"no row of {shown} has a number above 0 both in {roles.baseline!r} and in another column: "
            + "; ".join(sentences[:3])
        )
    return TableFile(frame, roles, left_out, tuple(sentences))


def read_text(path: str) -> pd.DataFrame:
    """The cells of a CSV as text without the space around it, "" for an empty one; index: row numbers from 1.

    path: `-` for stdin.  Raises TableFileError for what is no table, OSError where the file cannot be opened.
    """
    shown = "stdin" if path == "-" else plain(path)
    raw = sys.stdin.buffer.read() if path == "-" else Path(path).read_bytes()
    try:
        content = zlib.decompress(raw, wbits=31) if raw[:2] == b"\x1f\x8b" else raw
        text = content.decode("utf-8-sig")
    except zlib.error as error:
        raise TableFileError(f"{shown} is a damaged .gz file ({error}); copy it again") from error
    except UnicodeDecodeError as error:
        raise TableFileError(f"{shown} is not UTF-8 text ({error}); save the sheet as CSV, UTF-8") from error
    first = next(filter(str.strip, text.splitlines()), "")
    if not first or "\0" in text:
        what = "is not a text file" if first else "is empty"
        raise TableFileError(f"{shown} {what}; a table has a header and one row for each case")
    outside_quotes = "".join(first.split('"')[::2])
    delimiter = max(",;\t", key=outside_quotes.count)
    try:
        rows = pd.read_csv(
            io.StringIO(text), sep=delimiter, header=None, dtype=str, keep_default_na=False, skipinitialspace=True
        )
    except (pd.errors.ParserError, pd.errors.EmptyDataError) as error:
        raise TableFileError(
            f"{shown} is not a CSV of one header: {error}; is a comma within a cell, or a quote left open?"
        ) from error
    rows = rows.fillna("").apply(lambda column: column.str.strip())
    header = [plain(name, 80) or f"column {place}" for place, name in enumerate(rows.iloc[0], 1)]
    if twice := [name for name, count in Counter(header).items() if count > 1]:
        raise TableFileError(f"{shown} has two columns {twice[0]!r}; give each column a name of its own")
    if len(rows) == 1:
        raise TableFileError(f"{shown} has a header and no rows; a table has one row for each case")
    cells: pd.DataFrame = rows.iloc[1:].set_axis(header, axis=1)
    return cells


def _trouble(cell: str, value: float) -> tuple[str, str]:
    """(kind, sentence) of a cell that cannot be compared."""
    if cell.lower() in ABSENT:
        return "missing cells", f"{plain(cell, 40)!r} stands for no number" if cell else "there is no number"
    if np.isnan(value):
        point = ", as points and separators differ by country; write 1234.5" if "," in cell else ""
        return "cells of text", f"{plain(cell, 40)!r} is not a number{point}"
    if value == 0:
        return "zeros", "0 is no time and no rate, and has no ratio"
    if value < 0:
        return "negative cells", f"{cell!r} is negative, which no time and no rate is"
    return "cells out of range", f"{cell!r} is outside {SMALLEST:g} to {LARGEST:g}, in which times and rates lie"


def _row_text(cells: pd.DataFrame, roles: Roles, number: int) -> str:
    key = ", ".join(f"{name}={cells[name][number]}" for name in roles.keys)
    return f"row {number}" + (f" ({plain(key, 120)})" if key else "")


def columns_by_role(header: Sequence[str], numeric: Collection[str], asked: AskedColumns) -> Roles:
    """Backends are what was asked for, else the columns of numbers behind the keys; TableFileError names what fails.

    numeric: the columns of which at least half of the filled cells are numbers.  A column named as a dimension is a
    key, and so is one that rows are grouped by.  A column A/B of a table with A and B, or one behind two backends whose
    name says ratio or speedup, is a printed ratio and no backend unless it is asked for.
    """
    asked = asked.within(header)
    candidates: list[str] = []
    ratios: list[str] = []
    for name in header:
        quotient = {part.strip() for part in name.split("/")}
        is_quotient = len(quotient) == 2 and quotient <= set(header) - {name}
        is_ratio = len(candidates) > 1 and not RATIOS.isdisjoint(re.findall("[a-z]+", name.lower().replace("-", "")))
        if name in asked.backends:
            candidates.append(name)
        elif name in numeric and name not in SHAPE and name not in asked.grouped:
            (ratios if is_quotient or is_ratio else candidates).append(name)
        elif is_quotient or is_ratio:
            ratios.append(name)
        elif candidates and any(other in numeric and other not in SHAPE for other in header[header.index(name) :]):
            candidates = [other for other in candidates if other in asked.backends]  # numbers left of a text are keys
    backends = tuple(name for name in candidates if not asked.columns or name in asked.backends)
    if len(backends) < 2:
        raise TableFileError(_too_few(backends, header, asked))
    baseline = asked.baseline or (asked.columns or backends)[0]
    compared = tuple(dict.fromkeys([*asked.columns, baseline])) if asked.columns else backends
    unused = tuple(name for name in header if name in ratios or (name in candidates and name not in backends))
    keys = tuple(name for name in header if name not in backends and name not in unused)
    first = min(map(header.index, backends))
    identity = tuple(name for name in header if name in keys or (name in unused and header.index(name) < first))
    return Roles(keys, backends, compared, baseline, unused, identity, asked)


def column_named(name: str, header: Sequence[str]) -> str:
    """The column of this name, or the only `name: quantity`, as studies write it; TableFileError offers the nearest."""
    if name in header:
        return name
    of_name = [column for column in header if column.partition(": ")[0] == name]
    if len(of_name) == 1:
        return of_name[0]
    near = difflib.get_close_matches(name, header, n=1, cutoff=0.5)
    hint = f"; did you mean {near[0]!r}?" if near else ""
    raise TableFileError(f"there is no column {name!r}; the columns are {', '.join(header)}{hint}")


def _too_few(backends: Sequence[str], header: Sequence[str], asked: AskedColumns) -> str:
    if asked.columns:
        return f"--columns and --baseline name {backends[0]!r} only; a comparison needs two columns"
    there = f"only {backends[0]!r} is a column of numbers" if backends else "no column of numbers was found"
    return (
        f"{there} among {', '.join(header)}; a comparison needs two. Give the columns by name: "
        "--columns a,b --baseline a.  Numbers are written 1234.5"
    )
