"""A CSV of a comparison as a frame: what cannot be used is counted and named, the rest is read; nothing is guessed.

The first line is a header: any key columns, then one column of numbers for each backend.  Comma, semicolon or tab;
UTF-8 with or without a byte-order mark, or UTF-16 with one; plain or .gz.  Row 1 is the first row below the header.
"""

from __future__ import annotations

import contextlib
import gc
import re
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import BinaryIO

import numpy as np
import pandas as pd
import pyarrow as pa

from ci.report.words import plain, plural
from ci.stats.types import FloatArray
from ci.tables.compare import LARGEST, SMALLEST
from ci.tables.csv_rows import CsvRows, TableFileError, opened
from ci.tables.roles import AskedColumns, Roles, roles

BoolArray = np.ndarray[tuple[int], np.dtype[np.bool_]]

LISTED = 1000
"""Most sentences about single rows and cells; beyond, only their number is said."""

ABSENT = frozenset({"", "-", "--", "–", "—", "n/a", "na", "nan", "null", "none"})
"""What people write into a cell that has no number, in lower case."""


@dataclass
class LeftOutOfTable:
    """What was not used.  counts: by what it is.  sentences: the first of them by name."""

    counts: Counter[str] = field(default_factory=Counter)
    sentences: list[str] = field(default_factory=list)

    def say(self, what: str, sentence: Callable[[], str]) -> None:
        self.counts[what] += 1
        if len(self.sentences) < LISTED:
            self.sentences.append(sentence())

    def all(self) -> list[str]:
        """Every sentence, and how many were too many to be said one by one."""
        more = self.counts.total() - len(self.sentences)
        counted = ", ".join(f"{number:,} {what}" for what, number in self.counts.items())
        return self.sentences + ([f"and {more:,} more; in all {counted}"] if more > 0 else [])


@dataclass(frozen=True, eq=False)
class TableFile:
    """A table that was read.

    frame: index = row number in the file from 1; keys and printed ratios as text, backends as numbers, NaN where a
    cell has none that can be used.
    """

    frame: pd.DataFrame
    roles: Roles
    left_out: LeftOutOfTable


@dataclass(frozen=True, eq=False)
class _Cells:
    """The text of a table by column, as it is in the file, and the row number of each row."""

    columns: Mapping[str, Sequence[str]]
    numbers: Sequence[int]

    def stripped(self, name: str) -> list[str]:
        return [cell.strip() for cell in self.columns[name]]

    def at(self, name: str, i: int) -> str:
        return self.columns[name][i].strip()


def read(path: str, asked: AskedColumns) -> TableFile:
    """The table of a file, of stdin where the path is `-`.

    TableFileError says why there is none; OSError where the file cannot be opened.
    """
    with _uncollected():
        return _read(path, "stdin" if path == "-" else plain(path), asked)


def _read(path: str, shown: str, asked: AskedColumns) -> TableFile:
    left_out = LeftOutOfTable()
    cells = _cells(path, shown, left_out)
    numbers = _Numbers(cells)
    try:
        found = roles(list(cells.columns), numbers.are_most, asked)
    except TableFileError as error:
        raise TableFileError(f"{error}{_about_commas(cells)}") from None
    kept = _without_repeats(cells, found.identity, left_out)
    values = {name: _values(name, numbers.of(name), cells, found.keys, left_out)[kept] for name in found.backends}
    texts = [*found.keys, *found.unused, *(name for name, _, _ in found.printed)]
    text = {name: np.array(cells.stripped(name), dtype=object)[kept] for name in texts}
    frame = pd.DataFrame({**text, **values}, index=np.asarray(cells.numbers)[kept])
    _refuse_nothing_left(frame, found, left_out, shown)
    return TableFile(frame, found, left_out)


def _about_commas(cells: _Cells) -> str:
    """A hint where numbers have a comma, which no number of a CSV has."""
    texts = (cell.strip() for column in cells.columns.values() for cell in column)
    found = next((text for text in texts if re.fullmatch(r"-?[0-9]+(,[0-9]+)+", text)), "")
    return f". {found!r} is not read as a number: write 1234.5" if found else ""


@contextlib.contextmanager
def _uncollected() -> Iterator[None]:
    """No garbage collection: every row is a new list, and the collector would look at them again and again.

    Splitting 100,000 rows of 24 cells takes 0.5 s of CPU time without it and 0.9 s with it (2026-11-22).
    """
    was = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if was:
            gc.enable()


def _refuse_nothing_left(frame: pd.DataFrame, found: Roles, left_out: LeftOutOfTable, shown: str) -> None:
    others = [name for name in found.compared if name != found.baseline]
    if not (frame[others].notna().any(axis=1) & frame[found.baseline].notna()).any():
        said = "; ".join(left_out.all()[:3])
        raise TableFileError(
            f"no row of {shown} has a number above 0 both in {found.baseline!r} and in another column: {said}"
        )


def _cells(path: str, shown: str, left_out: LeftOutOfTable) -> _Cells:
    rows: list[list[str]] = []
    numbers: list[int] = []
    with opened(path) as raw:
        records = _records(raw, shown)
        first = next(records, None)
        if first is None:
            raise TableFileError(f"{shown} is empty; a table has a header and one row for each case")
        first = [cell.strip() for cell in first]
        header = _header(first, left_out)
        for number, row in enumerate(records, 1):
            if _belongs(row, number, first, left_out):
                rows.append(row)
                numbers.append(number)
    if not rows:
        raise TableFileError(f"{shown} has a header and no rows; a table has one row for each case")
    by_column = list(zip(*rows, strict=True))
    return _Cells({name: by_column[i] for name, i in header.items()}, numbers)


def _records(raw: BinaryIO, shown: str) -> Iterator[list[str]]:
    """Rows in which something is written."""
    for _, row in CsvRows(raw, shown):
        written = "".join(row)
        if "\0" in written:
            raise TableFileError(f"{shown} is not a text file; save the sheet as CSV")
        if written.strip():
            yield row


def _header(first: Sequence[str], left_out: LeftOutOfTable) -> dict[str, int]:
    """Place of each column; of two with one name the first counts."""
    found: dict[str, int] = {}
    for i, cell in enumerate(first):
        name = plain(cell, 80) or f"column {i + 1}"
        if name in found:
            said = f"column {name!r} stands twice in the header, at {found[name] + 1} and {i + 1}; the first counts"
            left_out.say("repeated columns", said.__str__)
        found.setdefault(name, i)
    return found


def _belongs(row: list[str], number: int, first: Sequence[str], left_out: LeftOutOfTable) -> bool:
    if row[0].strip() == first[0] and [cell.strip() for cell in row] == first:
        left_out.say("repeated headers", lambda: f"row {number} is the header again; left out")
        return False
    return len(row) == len(first) or _fits(row, number, len(first), left_out)


def _fits(row: list[str], number: int, width: int, left_out: LeftOutOfTable) -> bool:
    """Fill a row that is too short; True unless it is too long, when nobody knows which cell is which."""
    there = plural(len(row), "cell")
    if len(row) < width:
        left_out.say("short rows", lambda: f"row {number} has {there} for {width} columns; the others count as empty")
        row += [""] * (width - len(row))
    while len(row) > width and not row[-1].strip():
        row.pop()
    if len(row) > width:
        quote = "is a comma within a cell? Quote it"
        left_out.say("long rows", lambda: f"row {number} has {there} for {width} columns; left out ({quote})")
    return len(row) == width


class _Numbers:
    """Columns as numbers, each converted once; NaN where a cell is none."""

    def __init__(self, cells: _Cells) -> None:
        self.cells, self.known = cells, dict[str, FloatArray]()

    def of(self, name: str) -> FloatArray:
        if name not in self.known:
            self.known[name] = floats(self.cells.columns[name])
        return self.known[name]

    def are_most(self, name: str) -> bool:
        """Whether at least half of the cells with something in them are numbers."""
        numbers = int(np.isfinite(self.of(name)).sum())
        cells = self.cells.columns[name]
        if 2 * numbers >= len(cells):  # then they are at least half of the filled ones, too
            return True
        return 0 < sum(cell.strip().lower() not in ABSENT for cell in cells) <= 2 * numbers


def floats(cells: Sequence[str]) -> FloatArray:
    """Numbers of cells, NaN where a cell is none."""
    try:
        return np.asarray(pa.array(cells, pa.string()).cast(pa.float64()), dtype=np.float64)
    except pa.ArrowInvalid:  # a cell that is no number, or has spaces around it
        return np.asarray(pd.to_numeric(pd.Series(cells, dtype=object), errors="coerce"), dtype=np.float64)


def _values(name: str, values: FloatArray, cells: _Cells, keys: Sequence[str], left_out: LeftOutOfTable) -> FloatArray:
    """The numbers that can be compared; every other cell is named."""
    good = (values >= SMALLEST) & (values <= LARGEST)
    bad = np.flatnonzero(~good).tolist()
    for cell, number in Counter(cells.at(name, i) for i in bad).items():
        left_out.counts[_trouble(cell)[0]] += number
    left_out.sentences += [_named(name, cells, keys, i) for i in bad[: LISTED - len(left_out.sentences)]]
    return np.where(good, values, np.nan)


def _named(name: str, cells: _Cells, keys: Sequence[str], i: int) -> str:
    cell = cells.at(name, i)
    why = _trouble(cell)[1].format(cell=repr(plain(cell, 40)))
    return f"{_row(cells, keys, i)}, column {plain(name, 40)!r}: {why}; the cell is left out"


def _trouble(cell: str) -> tuple[str, str]:
    """(kind, sentence) of a cell that cannot be compared."""
    value = float(floats([cell])[0])
    if cell.lower() in ABSENT:
        return "missing cells", "there is no number" if not cell else "{cell} stands for no number"
    if np.isinf(value):
        return "cells out of range", "{cell} is not finite"
    if np.isnan(value):
        point = ", as points and separators differ by country; write 1234.5" if "," in cell else ""
        return "cells of text", "{cell} is not a number" + point
    if value == 0:
        return "zeros", "0 is no time and no rate, and has no ratio"
    if value < 0:
        return "negative cells", "{cell} is negative, which no time and no rate is"
    return "cells out of range", f"{{cell}} is outside {SMALLEST:g} to {LARGEST:g}, in which times and rates lie"


def _row(cells: _Cells, keys: Sequence[str], i: int) -> str:
    key = ", ".join(f"{name}={cells.at(name, i)}" for name in keys)
    return f"row {cells.numbers[i]}" + (f" ({plain(key, 120)})" if key else "")


def _without_repeats(cells: _Cells, keys: Sequence[str], left_out: LeftOutOfTable) -> BoolArray:
    """Which rows count, as booleans: of rows with the same keys, the first."""
    kept = np.ones(len(cells.numbers), dtype=bool)
    each = list(zip(*map(cells.stripped, keys), strict=True))
    if len(set(each)) == len(each):  # true of no keys, too
        return kept
    first: dict[tuple[str, ...], int] = {}
    for i, key in enumerate(each):
        before = first.setdefault(key, i)
        if before != i:
            kept[i] = False
            left_out.say("repeated keys", partial(_repeated, cells, keys, i, before))
    return kept


def _repeated(cells: _Cells, keys: Sequence[str], i: int, before: int) -> str:
    return f"{_row(cells, keys, i)} repeats the key of row {cells.numbers[before]}; the first counts"
