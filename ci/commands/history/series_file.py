"""A series CSV as series: header with `value`, and optionally `series`, `commit`, `time`, `unit`.

The file is read once, row by row, so a file of any size, a `.gz` or a pipe takes the memory of its numbers only.
What cannot be used is counted and said, with the line of the first; nothing is guessed.
"""

from __future__ import annotations

import csv
import dataclasses
import gzip
import io
import itertools
import sys
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from pathlib import Path
from typing import BinaryIO

import numpy as np
import pandas as pd

from ci.report.words import plain
from ci.stats.steps_noise import IntArray
from ci.stats.types import FloatArray

CHUNK = 100_000
"""Rows that are numbers together; their texts are then forgotten."""

DELIMITERS = ",;\t"

LONGEST_FIELD = 1_000_000
"""Characters: what is longer is an unclosed quote, not a name."""


class SeriesFileError(Exception):
    """A file that is no series CSV; one sentence."""


@dataclasses.dataclass(frozen=True, eq=False)
class Series:
    """One series, in order of time where the file has times.

    values: as they are, NaN where there is none.  commits: beside each value, "" where the file has none.
    """

    name: str
    values: FloatArray
    commits: Sequence[str]


@dataclasses.dataclass(frozen=True, eq=False)
class Read:
    """A whole file.  notes: what was not as expected, as sentences."""

    series: list[Series]
    notes: list[str]


@dataclasses.dataclass
class _Remarks:
    """What cannot be used, by what it is: how often, and where first."""

    counts: Counter[str] = dataclasses.field(default_factory=Counter)
    first: dict[str, str] = dataclasses.field(default_factory=dict)

    def note(self, what: str, number: int, where: str) -> None:
        if number:
            self.counts[what] += number
            self.first.setdefault(what, where)

    def sentences(self) -> list[str]:
        return [f"{what}: {number} (first: {self.first[what]})" for what, number in self.counts.items()]


class _Names:
    """Texts by number, each kept once."""

    def __init__(self) -> None:
        self.numbers: dict[str, int] = {}

    def of(self, texts: Iterable[str]) -> list[int]:
        return [self.numbers.setdefault(text, len(self.numbers)) for text in texts]


@dataclasses.dataclass(frozen=True, eq=False)
class _Columns:
    """A chunk or the whole file, as numbers; texts as their numbers among `_Names`."""

    values: FloatArray
    times: FloatArray
    names: FloatArray
    commits: FloatArray
    units: FloatArray


def read(path: str, progress: Callable[[int], None] = lambda done: None) -> Read:
    """The series of a file, or of stdin where the path is `-`; `progress` is told the bytes of the file read so far.

    SeriesFileError says what is wrong with a file of which nothing can be read; OSError where it cannot be opened.
    """
    with _opened(path) as raw:
        lines = io.TextIOWrapper(_unpacked(raw), encoding="utf-8-sig", errors="replace", newline="")
        try:
            return _read(lines, path, lambda: progress(raw.tell() if raw.seekable() else 0))
        except (EOFError, gzip.BadGzipFile) as error:
            raise SeriesFileError(f"{plain(path)} is a damaged .gz file ({error}); copy it again") from error


def _opened(path: str) -> BinaryIO:
    return sys.stdin.buffer if path == "-" else Path(path).open("rb")


def _unpacked(raw: BinaryIO) -> BinaryIO:
    buffered = raw if isinstance(raw, io.BufferedReader) else io.BufferedReader(raw)  # type: ignore[type-var]
    return gzip.open(buffered) if buffered.peek(2)[:2] == b"\x1f\x8b" else buffered  # type: ignore[return-value]


def _read(lines: io.TextIOWrapper, path: str, tick: Callable[[], None]) -> Read:
    header, rows = _rows(lines, path)
    texts = {column: _Names() for column in ("series", "commit", "unit")}
    remarks, chunks = _Remarks(), []
    while chunk := _chunk(rows, path):
        chunks.append(_numbers(chunk, header, texts, remarks))
        tick()
    if not chunks:
        raise SeriesFileError(f"{plain(path)} has a header and no rows; it needs one row for each point")
    whole = _Columns(*(np.concatenate(column) for column in zip(*map(_fields, chunks), strict=True)))
    name = "stdin" if path == "-" else Path(path).name
    found = list(_series(whole, {column: list(texts[column].numbers) for column in texts}, name, remarks))
    return Read(found, remarks.sentences())


def _fields(columns: _Columns) -> list[FloatArray]:
    return [getattr(columns, field.name) for field in dataclasses.fields(columns)]


def _rows(lines: io.TextIOWrapper, path: str) -> tuple[dict[str, int], Iterator[tuple[int, list[str]]]]:
    """(place of each known column, (line number, cells) of each row that is not empty)."""
    first = lines.readline(LONGEST_FIELD)
    delimiter = max(DELIMITERS, key=first.count)
    csv.field_size_limit(LONGEST_FIELD)
    cells = [cell.strip().lower() for cell in next(csv.reader([first], delimiter=delimiter), [])]
    header = {cell: i for i, cell in reversed(list(enumerate(cells)))}
    if "value" not in header:
        raise SeriesFileError(
            f"{plain(path)} has no column `value`: its first line is {plain(first, 80)!r}. "
            "A series CSV starts with a header: value, and if you have them series, commit, time"
        )
    reader = csv.reader(lines, delimiter=delimiter)
    return header, ((reader.line_num + 1, row) for row in reader if row)


def _chunk(rows: Iterator[tuple[int, list[str]]], path: str) -> list[tuple[int, list[str]]]:
    try:
        return list(itertools.islice(rows, CHUNK))
    except csv.Error as error:
        raise SeriesFileError(f"{plain(path)} is not a CSV: {error}; is a quote left open?") from error


def _numbers(
    chunk: list[tuple[int, list[str]]], header: dict[str, int], texts: dict[str, _Names], remarks: _Remarks
) -> _Columns:
    lines = [line for line, _ in chunk]

    def column(name: str) -> list[str]:
        place = header.get(name)
        return [] if place is None else [row[place].strip() if place < len(row) else "" for _, row in chunk]

    def numbered(name: str) -> FloatArray:
        return np.array(texts[name].of(column(name)) or [0] * len(chunk), dtype=np.float64)

    values = _values(column("value"), lines, remarks)
    times = _times(column("time"), lines, remarks) if "time" in header else np.zeros(len(chunk))
    return _Columns(values, times, numbered("series"), numbered("commit"), numbered("unit"))


def _values(cells: list[str], lines: list[int], remarks: _Remarks) -> FloatArray:
    """Finite numbers; NaN, and a remark, for what is none."""
    values = _floats(cells)
    empty = np.array([cell == "" for cell in cells])
    none = np.array([cell.lower() in ("nan", "null", "none", "na", "n/a") for cell in cells])
    infinite = np.isinf(values)
    for what, which in (
        ("rows without a value", empty),
        ("rows with the value NaN", none),
        ("rows with an infinite value", infinite),
        ("rows with a value that is not a number", np.isnan(values) & ~empty & ~none),
    ):
        at = np.flatnonzero(which)
        if len(at):
            remarks.note(what, len(at), f"line {lines[at[0]]}, {plain(cells[at[0]], 40)!r}")
    return np.where(infinite, np.nan, values)


def _floats(cells: list[str]) -> FloatArray:
    try:
        return np.array(cells, dtype=np.float64)
    except ValueError:
        return np.asarray(pd.to_numeric(pd.Series(cells, dtype=object), errors="coerce"), dtype=np.float64)


def _times(cells: list[str], lines: list[int], remarks: _Remarks) -> FloatArray:
    """Numbers as they are, dates as seconds since 1970 UTC; NaN, and a remark, for what is neither."""
    times = _floats(cells)
    if np.isnan(times).all():
        dates = pd.to_datetime(pd.Series(cells, dtype=object), errors="coerce", utc=True, format="mixed")
        times = np.asarray((dates - pd.Timestamp(0, tz="UTC")).dt.total_seconds(), dtype=np.float64)
    bad = np.flatnonzero(~np.isfinite(times))
    if len(bad):
        where = f"line {lines[bad[0]]}, {plain(cells[bad[0]], 40)!r}"
        remarks.note("rows without a readable time; they stay behind the row before them", len(bad), where)
    return times


def _series(whole: _Columns, texts: dict[str, list[str]], name: str, remarks: _Remarks) -> Iterator[Series]:
    together = np.argsort(whole.names, kind="stable")
    for given in np.split(together, np.flatnonzero(np.diff(whole.names[together])) + 1):
        label = texts["series"][int(whole.names[given[0]])] if texts["series"] else name
        _refuse_mixed_units(label, whole.units[given][np.isfinite(whole.values[given])], texts["unit"])
        rows = _in_order(given, whole.times, label, remarks)
        commits = [texts["commit"][int(i)] for i in whole.commits[rows]] if texts["commit"] else []
        if repeated := max(len(commits) - len(set(commits)), 0):
            again = Counter(commits).most_common(1)[0][0]
            remarks.note("rows of a commit that their series has before; each is a point", repeated, plain(again, 40))
        yield Series(label, whole.values[rows], commits)


def _in_order(rows: IntArray, times: FloatArray, label: str, remarks: _Remarks) -> IntArray:
    """The rows by time; where that is equal or unknown, as in the file."""
    known = pd.Series(times[rows]).replace([np.inf, -np.inf], np.nan).ffill().fillna(-np.inf).to_numpy()
    back = int((known[1:] < known[:-1]).sum())
    remarks.note("rows older than the row before; their series is put in order of time", back, plain(label, 40))
    return rows[np.argsort(known, kind="stable")]


def _refuse_mixed_units(label: str, units: FloatArray, texts: list[str]) -> None:
    if len(found := Counter(units.tolist())) > 1:
        seen = ", ".join(f"{plain(texts[int(unit)], 20) or 'none'} ({number})" for unit, number in found.most_common(5))
        raise SeriesFileError(
            f"series {plain(label, 80)!r} mixes units: {seen}. One series has one unit; convert the values, or give "
            "each unit a series of its own"
        )
