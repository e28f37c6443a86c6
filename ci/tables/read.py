"""A CSV of a comparison as a frame: what cannot be used is counted and named, the rest is read; nothing is guessed.

The first line is a header: any key columns, then one column of numbers for each backend.  Comma, semicolon or tab;
UTF-8 with or without a byte-order mark, or UTF-16 with one; plain or .gz.  Row 1 is the first row below the header.
"""

from __future__ import annotations

import codecs
import contextlib
import csv
import difflib
import gzip
import io
import itertools
import re
import sys
import zlib
from collections import Counter
from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, BinaryIO

import numpy as np
import pandas as pd
import pyarrow as pa

from ci.report.words import plain, plural
from ci.stats.types import FloatArray
from ci.tables.compare import LARGEST, SMALLEST

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

    def say(self, what: str, sentence: str) -> None:
        self.counts[what] += 1
        if len(self.sentences) < LISTED:
            self.sentences.append(sentence)

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


def read(path: str, asked: AskedColumns) -> TableFile:
    """The table of a file, of stdin where the path is `-`.

    TableFileError says why there is none; OSError where the file cannot be opened.
    """
    shown, left_out = "stdin" if path == "-" else plain(path), LeftOutOfTable()
    cells = _cells(path, shown, left_out)
    numbers = {name: floats(cells[name].tolist()) for name in map(str, cells.columns)}
    mostly = {name for name, values in numbers.items() if _are_numbers(cells[name], values)}
    try:
        found = roles(list(numbers), mostly, asked)
    except TableFileError as error:
        raise TableFileError(f"{error}{_about_commas(cells)}") from None
    repeated = _repeated(cells, found.identity, left_out)
    values = {name: _values(cells, name, numbers[name], found.keys, left_out) for name in found.backends}
    texts = [*found.keys, *found.unused, *(name for name, _, _ in found.printed)]
    frame = pd.concat([cells[texts], pd.DataFrame(values, index=cells.index)], axis=1)[~repeated]
    others = [name for name in found.compared if name != found.baseline]
    if not (frame[others].notna().any(axis=1) & frame[found.baseline].notna()).any():
        said = "; ".join(left_out.all()[:3])
        raise TableFileError(
            f"no row of {shown} has a number above 0 both in {found.baseline!r} and in another column: {said}"
        )
    return TableFile(frame, found, left_out)


def _about_commas(cells: pd.DataFrame) -> str:
    """A hint where numbers have a comma, which no number of a CSV has."""
    found = cells.stack()
    found = found[found.str.fullmatch(r"-?[0-9]+(,[0-9]+)+")]
    return f". {found.iloc[0]!r} is not read as a number: write 1234.5" if len(found) else ""


def _cells(path: str, shown: str, left_out: LeftOutOfTable) -> pd.DataFrame:
    """The text of a table without the space around it; index: row numbers."""
    rows: dict[int, list[str]] = {}
    with opened(path) as raw:
        written = _written(raw, shown)
        first = [cell.strip() for cell in next(written, [])]
        if not first:
            raise TableFileError(f"{shown} is empty; a table has a header and one row for each case")
        header = _header(first, left_out)
        for number, row in enumerate(written, 1):
            if _belongs(row, number, first, left_out):
                rows[number] = row
    if not rows:
        raise TableFileError(f"{shown} has a header and no rows; a table has one row for each case")
    whole = pd.DataFrame.from_dict(rows, orient="index", dtype="str")
    return pd.DataFrame({name: whole[place].str.strip() for name, place in header.items()})


def _written(raw: BinaryIO, shown: str) -> Iterator[list[str]]:
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
            left_out.say("repeated columns", said)
        found.setdefault(name, i)
    return found


def _belongs(row: list[str], number: int, first: Sequence[str], left_out: LeftOutOfTable) -> bool:
    """Fill a row that is too short; True unless it is the header or too long, when nobody knows which cell is which."""
    if row[0].strip() == first[0] and [cell.strip() for cell in row] == first:
        left_out.say("repeated headers", f"row {number} is the header again; left out")
        return False
    width, there = len(first), plural(len(row), "cell")
    if len(row) < width:
        left_out.say("short rows", f"row {number} has {there} for {width} columns; the others count as empty")
        row += [""] * (width - len(row))
    while len(row) > width and not row[-1].strip():
        row.pop()
    if len(row) > width:
        quote = "is a comma within a cell? Quote it"
        left_out.say("long rows", f"row {number} has {there} for {width} columns; left out ({quote})")
    return len(row) == width


def _are_numbers(cells: pd.Series[str], values: FloatArray) -> bool:
    """Whether at least half of the cells with something in them are numbers."""
    numbers = int(np.isfinite(values).sum())
    if 2 * numbers >= len(cells):  # then they are at least half of the filled ones, too
        return True
    return 0 < int((~cells.str.lower().isin(ABSENT)).sum()) <= 2 * numbers


def floats(cells: Sequence[str]) -> FloatArray:
    """Numbers of cells, NaN where a cell is none."""
    try:
        return np.asarray(pa.array(cells, pa.string()).cast(pa.float64()), dtype=np.float64)
    except pa.ArrowInvalid:  # a cell that is no number, or has spaces around it
        return np.asarray(pd.to_numeric(pd.Series(cells, dtype=object), errors="coerce"), dtype=np.float64)


def _values(
    cells: pd.DataFrame, name: str, values: FloatArray, keys: Sequence[str], left_out: LeftOutOfTable
) -> FloatArray:
    """The numbers that can be compared; every other cell is named."""
    good = (values >= SMALLEST) & (values <= LARGEST)
    bad = cells[name][~good]
    for cell, number in Counter(bad).items():
        left_out.counts[_trouble(cell)[0]] += number
    few = bad.head(LISTED - len(left_out.sentences))
    for row, cell in zip(few.index.tolist(), few.tolist(), strict=True):
        why = _trouble(cell)[1].format(cell=repr(plain(cell, 40)))
        left_out.sentences.append(f"{_row(cells, keys, row)}, column {plain(name, 40)!r}: {why}; the cell is left out")
    return np.where(good, values, np.nan)


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


def _row(cells: pd.DataFrame, keys: Sequence[str], number: int) -> str:
    key = ", ".join(f"{name}={cells[name][number]}" for name in keys)
    return f"row {number}" + (f" ({plain(key, 120)})" if key else "")


def _repeated(cells: pd.DataFrame, keys: Sequence[str], left_out: LeftOutOfTable) -> BoolArray:
    """Which rows have the keys of an earlier one: of these the first counts."""
    repeated = cells.duplicated(list(keys)).to_numpy() if keys else np.zeros(len(cells), dtype=np.bool_)
    if repeated.any():
        first = cells.index.to_series().groupby([cells[name] for name in keys], sort=False).transform("first")
        for number, before in zip(cells.index[repeated].tolist(), first[repeated].tolist(), strict=True):
            left_out.say(
                "repeated keys", f"{_row(cells, keys, number)} repeats the key of row {before}; the first counts"
            )
    return repeated


# The rows of a CSV that somebody else wrote, one by one: a file of any size, or a pipe, takes the memory of a row.
#
# Comma, semicolon or tab; UTF-8 with or without a byte-order mark, or UTF-16 with one; plain or .gz.


DELIMITERS = ",;\t"

LONGEST_FIELD = 1_000_000
"""Characters: what is longer is an unclosed quote, not a cell."""


class TableFileError(Exception):
    """A file of which no table can be made; the text says what was found, what is needed and what to do."""


def opened(path: str) -> BinaryIO:
    """A file, or stdin where the path is `-`; OSError where it cannot be opened."""
    return sys.stdin.buffer if path == "-" else Path(path).open("rb")


class CsvRows:
    """The rows of a file that are not empty, as (line number, cells); shown: what the file is called.

    first: its first line that is not empty.  TableFileError, now or later, where it is none that can be read.
    """

    def __init__(self, raw: BinaryIO, shown: str) -> None:
        self._lines, self._shown, self._skipped, self.first = _text(raw), shown, 0, ""
        with self._named():
            self.first = self._lines.readline(LONGEST_FIELD)
            while self.first and not self.first.strip("\r\n"):
                self._skipped, self.first = self._skipped + 1, self._lines.readline(LONGEST_FIELD)

    def __iter__(self) -> Iterator[tuple[int, list[str]]]:
        outside_quotes = "".join(self.first.split('"')[::2])
        csv.field_size_limit(LONGEST_FIELD)
        lines = itertools.chain([self.first], self._lines)
        reader = csv.reader(lines, delimiter=max(DELIMITERS, key=outside_quotes.count))
        with self._named():
            yield from ((reader.line_num + self._skipped, row) for row in reader if row)

    @contextlib.contextmanager
    def _named(self) -> Iterator[None]:
        try:
            yield
        except (EOFError, gzip.BadGzipFile, zlib.error) as error:
            raise TableFileError(f"{self._shown} is a damaged .gz file ({error}); copy it again") from error
        except csv.Error as error:
            raise TableFileError(f"{self._shown} is not a CSV: {error}; is a quote left open?") from error


def _text(raw: BinaryIO) -> io.TextIOWrapper:
    plain = raw if isinstance(raw, io.BufferedReader) else io.BufferedReader(raw)  # type: ignore[type-var]
    packed = plain.peek(2)[:2] == b"\x1f\x8b"
    content = gzip.GzipFile(fileobj=plain) if packed else plain
    wide = _begins(content) in (codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE)
    return io.TextIOWrapper(content, encoding="utf-16" if wide else "utf-8-sig", errors="replace", newline="")


def _begins(content: gzip.GzipFile | io.BufferedReader[Any]) -> bytes:
    """The first two bytes; of a damaged file none, which its first line will say."""
    try:
        return content.peek(2)[:2]
    except (EOFError, OSError, zlib.error):
        return b""


# What each column of a table is: a key, a backend, or a ratio that somebody printed beside its numbers.


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


@dataclass(frozen=True)
class AskedColumns:
    """What the caller says of the columns; empty where it is left to the file."""

    columns: tuple[str, ...] = ()
    baseline: str = ""
    by: tuple[tuple[str, ...], ...] = ()
    regret: tuple[tuple[str, tuple[str, ...]], ...] = ()

    @property
    def backends(self) -> tuple[str, ...]:
        """Columns that are named as backends, each once."""
        chosen = [name for column, from_ in self.regret for name in (column, *from_)]
        return tuple(dict.fromkeys([*([self.baseline] if self.baseline else []), *self.columns, *chosen]))

    @property
    def grouped(self) -> frozenset[str]:
        return frozenset(name for one in self.by for name in one)

    def within(self, header: Sequence[str]) -> AskedColumns:
        """With the names as the header has them; TableFileError where it has none."""

        def found(names: Sequence[str]) -> tuple[str, ...]:
            return tuple(named(name, header) for name in names)

        return AskedColumns(
            columns=found(self.columns),
            baseline=named(self.baseline, header) if self.baseline else "",
            by=tuple(map(found, self.by)),
            regret=tuple((named(column, header), found(from_)) for column, from_ in self.regret),
        )


@dataclass(frozen=True)
class Roles:
    """Names of columns.  backends: all that are read as numbers.  compared: those of them that are shown, the baseline
    among them.  printed: (name, numerator, denominator), the last two empty where its name says only that it is a
    ratio.  unused: numbers that nobody asked for.

    identity: what tells rows apart: the keys, and what is not used left of the backends, as it may be a key too.
    asked: what was asked for, with the names of the header.
    """

    keys: tuple[str, ...]
    backends: tuple[str, ...]
    compared: tuple[str, ...]
    baseline: str
    printed: tuple[tuple[str, str, str], ...]
    unused: tuple[str, ...]
    identity: tuple[str, ...]
    asked: AskedColumns


def roles(header: Sequence[str], numeric: Collection[str], asked: AskedColumns) -> Roles:
    """Backends are what was asked for, else the columns of numbers behind the keys; TableFileError names what fails.

    numeric: the columns of which most cells are numbers.  A column named as a dimension is a key, and so is one that
    rows are grouped by.
    """
    asked = asked.within(header)
    printed = tuple(_printed(header, numeric, asked))
    plain = [name for name in header if name not in {one[0] for one in printed}]
    found = _columns_of_numbers(plain, numeric, asked)
    backends = tuple(name for name in plain if name in (asked.backends if asked.columns else (*found, *asked.backends)))
    if len(backends) < 2:
        raise TableFileError(_too_few(backends, header, asked))
    baseline = asked.baseline or (asked.columns or backends)[0]
    compared = tuple(dict.fromkeys([*asked.columns, baseline])) if asked.columns else backends
    unused = tuple(name for name in found if name not in backends)
    keys = tuple(name for name in plain if name not in backends and name not in unused)
    first = min(map(plain.index, backends))
    identity = tuple(name for name in plain if name in keys or (name in unused and plain.index(name) < first))
    return Roles(keys, backends, compared, baseline, printed, unused, identity, asked)


def named(name: str, header: Sequence[str]) -> str:
    """The column of this name, or the only `name: quantity`, as studies write it; TableFileError offers the nearest."""
    if name in header:
        return name
    of_name = [column for column in header if column.partition(": ")[0] == name]
    if len(of_name) == 1:
        return of_name[0]
    near = difflib.get_close_matches(name, header, n=1, cutoff=0.5)
    hint = f"; did you mean {near[0]!r}?" if near else ""
    raise TableFileError(f"there is no column {name!r}; the columns are {', '.join(header)}{hint}")


def _columns_of_numbers(plain: Sequence[str], numeric: Collection[str], asked: AskedColumns) -> tuple[str, ...]:
    """Columns of numbers behind the last text that has any behind it; further left only what was named."""
    found = [i for i, name in enumerate(plain) if name in asked.backends or _is_backend(name, numeric, asked)]
    text = (i for i, name in enumerate(plain) if name not in asked.backends and name not in numeric)
    start = max((i for i in text if i < max(found, default=0)), default=-1)
    return tuple(plain[i] for i in found if i > start or plain[i] in asked.backends)


def _is_backend(name: str, numeric: Collection[str], asked: AskedColumns) -> bool:
    return name not in SHAPE and name not in asked.grouped and name in numeric


def _printed(header: Sequence[str], numeric: Collection[str], asked: AskedColumns) -> Iterator[tuple[str, str, str]]:
    numbers = 0
    for name in header:
        over, _, under = (part.strip() for part in name.partition("/"))
        if {over, under} <= set(header) - {name}:
            yield name, over, under
        elif numbers >= 2 and _words(name) & RATIOS and name not in {*asked.backends, *asked.grouped}:
            yield name, "", ""
        else:
            numbers += _is_backend(name, numeric, asked)


def _words(name: str) -> set[str]:
    return set(re.findall(r"[a-z]+", name.lower().replace("speed-up", "speedup")))


def _too_few(backends: Sequence[str], header: Sequence[str], asked: AskedColumns) -> str:
    if asked.columns:
        return f"--columns and --baseline name {backends[0]!r} only; a comparison needs two columns"
    found = f"only {backends[0]!r} is a column of numbers" if backends else "no column of numbers was found"
    return (
        f"{found} among {', '.join(header)}; a comparison needs two. Give the columns by name: "
        "--columns a,b --baseline a"
    )
