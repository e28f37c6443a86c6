"""Points from a CSV of any size, a block at a time: the format that `ridgeline detect` reads, and a little more.

A header names the columns: `value`, and optionally `series`, `commit`, `time`, `unit`, `machine`; others are ignored.
A series "kernel/backend/case" is taken apart, any other name is a kernel.  time: ISO dates, or numbers of s, ms, us or
ns since 1970, told by their size.  Without times, commits count from 1970 a second apart in the order of the file;
without commits, the points of a series are numbered.  A value without a unit is in seconds unless the user says
otherwise.  Memory is bounded by the block, and what a block gave is kept before the next is read: an interrupted import
goes on where it was.
"""

from __future__ import annotations

import csv
import dataclasses
import datetime
import hashlib
import io
import json
import math
import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import BinaryIO

import numpy as np
import numpy.typing as npt
import pandas as pd
import pyarrow as pa
import pyarrow.csv as pa_csv

from benchmarks import trial_file
from benchmarks.shapes import LONGEST_NAME, clean
from ci.records.cache import COLUMNS
from ci.records.pooling import interval
from ci.records.rows import TEXT, Column, RowBlock, table_of
from ci.stats.types import FloatArray

# A point of a foreign history: what every format is read into.


SECONDS = {
    **dict.fromkeys(("s", "sec", "secs", "second", "seconds"), 1.0),
    **dict.fromkeys(("ms", "msec", "millisecond", "milliseconds"), 1e-3),
    **dict.fromkeys(
        ("us", "usec", "\N{MICRO SIGN}s", "\N{GREEK SMALL LETTER MU}s", "microsecond", "microseconds"), 1e-6
    ),
    **dict.fromkeys(("ns", "nsec", "nanosecond", "nanoseconds"), 1e-9),
    **dict.fromkeys(("min", "minute", "minutes"), 60.0),
}
"""Units of time, and how many seconds one is."""


class ForeignError(Exception):
    """A foreign file, or a part of one, cannot be imported; the text says why and what to do."""


@dataclasses.dataclass(frozen=True)
class ImportOptions:
    """What the user says of a file that does not say it: names, commit, date (ms since 1970 UTC), unit."""

    machine: str = ""
    kernel: str = ""
    commit: str = ""
    date_ms: int | None = None
    unit: str = ""


@dataclasses.dataclass(frozen=True)
class MeasuredAt:
    """What all points of a run share."""

    machine: str
    commit: str
    date_ms: int
    env: str
    source: str
    device: str = ""
    driver: str = ""
    runtime: str = ""
    library: str = ""
    torch: str = ""
    triton: str = ""


@dataclasses.dataclass(frozen=True)
class ForeignPoint:
    """One number of one series.  value: in `unit`; low, high: its 99 % interval, NaN if not known.

    hbm_bytes, link_bytes, payload_bytes: of one call, per rank; NaN if not known.
    """

    origin: MeasuredAt
    kernel: str
    backend: str
    case: str
    value: float
    unit: str = "s"
    low: float = math.nan
    high: float = math.nan
    samples: int = 1
    status: str = "ok"
    why: str = ""
    dtype: str = ""
    world: int = 1
    hbm_bytes: float = math.nan
    link_bytes: float = math.nan
    payload_bytes: float = math.nan


@dataclasses.dataclass(frozen=True)
class ForeignFile:
    """What a file holds, and what of it was left out."""

    points: Sequence[ForeignPoint]
    remarks: Sequence[str] = ()


def named(text: object, otherwise: str = "unnamed") -> str:
    """A foreign text as a name: printable, of bounded length, with U+2215 for the slash that joins names here."""
    line = " ".join(clean(str(text)).split())
    return line.replace("/", "\N{DIVISION SLASH}")[:LONGEST_NAME] or otherwise


def machine_named(text: object) -> str:
    """A foreign text as the name of a machine, which is the name of a folder; cleaned names keep apart by a digest."""
    line = named(text, "unknown")
    if trial_file.MACHINE_NAME.fullmatch(line):
        return line
    clean = re.sub(r"[^A-Za-z0-9._-]+", "_", line).strip("._-")[:60] or "machine"
    return f"{clean}-{hashlib.sha256(line.encode()).hexdigest()[:8]}"


def date_of(given: ImportOptions, path: Path, said: object = None) -> int:
    """Milliseconds since 1970 UTC: what the user says, else the file, else when the file was last written."""
    if given.date_ms is not None:
        return given.date_ms
    if said is not None:
        return moment(str(said))
    return round(path.stat().st_mtime * 1000)


def moment(text: str) -> int:
    """Milliseconds since 1970 UTC of an ISO date, local times as UTC.  Raises ForeignError."""
    try:
        when = datetime.datetime.fromisoformat(text.strip())
    except ValueError:
        raise ForeignError(
            f"the date {text[:40]!r} is no ISO date such as 2026-11-22T12:00:00Z; give it: --date"
        ) from None
    return dated((when if when.tzinfo else when.replace(tzinfo=datetime.UTC)).timestamp() * 1000)


def dated(milliseconds: float) -> int:
    """A date within what pandas holds.  Raises ForeignError."""
    if not trial_file.EARLIEST_MS <= milliseconds <= trial_file.LATEST_MS:
        raise ForeignError(
            f"the date {milliseconds:.0f} ms is outside 1970 to 2100: a clock was set wrong; give it: --date"
        )
    return round(milliseconds)


def median_of(samples: Sequence[float]) -> tuple[float, float, float]:
    """(median, low, high): the 99 % interval of the median, NaN with fewer than two samples."""
    values = np.asarray(samples, np.float64)
    low, high = interval([values]) if len(values) > 1 else (math.nan, math.nan)
    return float(np.median(values)), low, high


_OF_POINT = (
    *("kernel", "backend", "case", "value", "unit", "samples", "status", "why", "dtype", "world"),
    *("hbm_bytes", "link_bytes", "payload_bytes"),
)


_OF_ORIGIN = ("commit", "env", "source", "device", "driver", "runtime", "library", "torch", "triton")


def table(points: Iterable[ForeignPoint]) -> pa.Table:
    """Points as rows of `ci.records.cache.COLUMNS`."""
    listed = list(points)
    scale = np.array([SECONDS.get(point.unit.lower(), math.nan) for point in listed])
    columns: dict[str, Column] = {
        **{name: [getattr(point, name) for point in listed] for name in _OF_POINT},
        **{name: [getattr(point.origin, name) for point in listed] for name in _OF_ORIGIN},
        "date": np.array([point.origin.date_ms for point in listed], "datetime64[ms]"),
        "trials": [int(point.status == "ok") for point in listed],
        "seconds": scale * np.array([point.value for point in listed], np.float64),
        "seconds_low": scale * np.array([point.low for point in listed], np.float64),
        "seconds_high": scale * np.array([point.high for point in listed], np.float64),
    }
    return table_of([RowBlock(len(listed), columns)], COLUMNS)


SOURCE = "csv"
KNOWN = ("value", "series", "commit", "time", "unit", "machine")

BLOCK_BYTES = 1 << 25
"""Bytes read at a time: 32 MB are about 0.8 million points, and 0.5 GB while they are sorted and written (2026-11)."""

Codes = npt.NDArray[np.signedinteger]
Dates = npt.NDArray[np.datetime64]


@dataclasses.dataclass(frozen=True, eq=False)
class CodedTexts:
    """A column of texts as codes into distinct texts."""

    codes: Codes
    texts: list[str]

    @classmethod
    def of(cls, column: pa.ChunkedArray) -> CodedTexts:
        """From a dictionary column; a missing text is empty."""
        whole = column.unify_dictionaries().combine_chunks()
        codes = whole.indices.fill_null(len(whole.dictionary)).to_numpy(zero_copy_only=False)
        return cls(codes, [*map(str, whole.dictionary.to_pylist()), ""])

    def at(self, rows: npt.NDArray[np.intp]) -> CodedTexts:
        """Some of its rows."""
        return CodedTexts(self.codes[rows], self.texts)

    def each(self, change: Callable[[str], str]) -> pa.DictionaryArray:
        """The column with every text changed."""
        texts, number = np.unique(np.array([change(text) for text in self.texts], dtype=object), return_inverse=True)
        return pa.DictionaryArray.from_arrays(number[self.codes].astype(np.int32), pa.array(texts, pa.string()))


@dataclasses.dataclass
class LeftOut:
    """What is counted over a file."""

    points: int = 0
    no_number: int = 0
    no_date: int = 0
    torn: int = 0
    other_units: dict[str, int] = dataclasses.field(default_factory=dict)

    def remarks(self) -> list[str]:
        """What was left out or is not shown."""
        said = [
            (self.no_number, "values are no finite numbers above 0; left out"),
            (self.no_date, "rows have a time that is no date from 1970 to 2100; left out"),
            (self.torn, "rows have another number of cells than the header; left out"),
        ]
        others = [
            f"{n:,} values in {unit!r}, no unit of time: kept, on no page" for unit, n in self.other_units.items()
        ]
        return [f"{count:,} {what}" for count, what in said if count] + others


@dataclasses.dataclass
class Numbering:
    """What the order of a file decides: the number of each commit, and how many points a series has had."""

    commits: dict[str, int] = dataclasses.field(default_factory=dict)
    points: dict[str, int] = dataclasses.field(default_factory=dict)

    def of_commits(self, commit: CodedTexts) -> Dates:
        """Commits a second apart, in the order in which they first come."""
        first = np.unique(commit.codes, return_index=True)
        for code in first[0][np.argsort(first[1])]:
            self.commits.setdefault(commit.texts[code], len(self.commits))
        number = np.array([self.commits.get(text, 0) for text in commit.texts], np.int64)
        return (number[commit.codes] * 1000).astype("datetime64[ms]")

    def of_series(self, series: CodedTexts) -> npt.NDArray[np.int64]:
        """The number of each point within its series."""
        before = np.array([self.points.get(text, 0) for text in series.texts], np.int64)
        number = before[series.codes] + pd.Series(series.codes).groupby(series.codes).cumcount().to_numpy()
        counts = np.bincount(series.codes, minlength=len(series.texts))
        self.points |= {text: int(n) for text, n in zip(series.texts, before + counts, strict=True) if n}
        return np.asarray(number, np.int64)


@dataclasses.dataclass(frozen=True)
class CsvBlock:
    """A block of the file: where it begins, its bytes, the digest of it and of all that decides what it means."""

    offset: int
    content: bytes
    digest: str

    @property
    def end(self) -> int:
        """Where the next one begins."""
        return self.offset + len(self.content)


def fits(text: str) -> bool:
    """Whether the first line is a header of such a CSV."""
    return "value" in _header(text.partition("\n")[0])


def pieces(path: Path, given: ImportOptions) -> Iterator[tuple[list[str], CsvBlock]]:
    """(header, block) of a file, cut between rows.  Raises ForeignError without a header."""
    with path.open("rb") as stream:
        first = stream.readline(1 << 20)
        header = _header(first.decode("utf-8-sig", "replace"))
        if "value" not in header or len(set(header)) < len(header):
            said = named(first[:60].decode("utf-8", "replace"))
            allowed = ", ".join(KNOWN[1:])
            raise ForeignError(
                f"its first line {said!r} is no header with a column `value`, each name once ({allowed}: optional)"
            )
        meaning = json.dumps([header, dataclasses.astuple(given)]).encode()
        offset = len(first)
        while content := _block(stream):
            yield header, CsvBlock(offset, content, hashlib.blake2b(meaning + content, digest_size=16).hexdigest())
            offset += len(content)


def needs_order(header: Sequence[str]) -> bool:
    """Whether a block means something only after the blocks before it."""
    return not {"time", "commit"} <= set(header)


def tables(
    header: Sequence[str], piece: CsvBlock, given: ImportOptions, tally: LeftOut, numbering: Numbering
) -> dict[str, pa.Table]:
    """Rows of `ci.records.cache.COLUMNS` of one block, by machine, oldest first."""
    read = _parsed(header, piece.content, tally)
    values = read["value"].to_numpy()
    texts = {name: _texts(read, name) for name in KNOWN[1:]}
    commit, dates = _placed(header, texts, numbering)
    unit = texts["unit"].each(lambda text: named(text or given.unit, "s"))
    scale = np.array([SECONDS.get(text.lower(), np.nan) for text in unit.dictionary.to_pylist()])[unit.indices]
    good = np.isfinite(values) & ((values > 0) | np.isnan(scale))
    dated = ~np.isnat(dates)
    tally.no_number += int((~good).sum())
    tally.no_date += int((good & ~dated).sum())
    keep = np.flatnonzero(good & dated)
    keep = keep[np.argsort(dates[keep], kind="stable")]
    tally.points += len(keep)
    _count_units(unit.take(pa.array(keep)), scale[keep], tally)
    columns = {
        "commit": commit.at(keep).each(lambda text: named(given.commit or text)),
        "date": pa.array(dates[keep], pa.timestamp("ms", tz="UTC")),
        **_names(texts["series"].at(keep), given),
        "value": pa.array(values[keep]),
        "unit": unit.take(pa.array(keep)),
        "seconds": pa.array(values[keep] * scale[keep], from_pandas=True),
    }
    return _by_machine(texts["machine"].at(keep), given, _whole(columns, len(keep)))


def _header(line: str) -> list[str]:
    cells: list[str] = next(csv.reader([line.strip("\r\n\ufeff")]), [])
    return [cell.strip().lower() for cell in cells]


def _block(stream: BinaryIO) -> bytes:
    """The next block, up to the end of a row: a line break within quotes ends none."""
    content = stream.read(BLOCK_BYTES)
    while content and (not content.endswith(b"\n") or content.count(b'"') % 2):
        more = stream.readline()
        if not more:
            break
        content += more
    return content


def _parsed(header: Sequence[str], content: bytes, tally: LeftOut) -> pa.Table:
    """The known columns of a block: value as a number, NaN where it is none, the others as texts."""

    def torn(row: object) -> str:
        tally.torn += 1
        return "skip"

    used = [name for name in KNOWN if name in header]
    kinds = dict.fromkeys(used, TEXT) | {"value": pa.float64()}
    options = pa_csv.ReadOptions(column_names=list(header), block_size=1 << 22)
    quoted = b'"' in content
    parsing = pa_csv.ParseOptions(newlines_in_values=quoted, invalid_row_handler=torn)
    try:
        read = pa_csv.read_csv(io.BytesIO(content), options, parsing, _convert(kinds))
    except pa.ArrowInvalid:  # a cell that is no number, or no UTF-8
        tally.torn = 0
        clean = content.decode("utf-8", "replace").encode()
        read = pa_csv.read_csv(io.BytesIO(clean), options, parsing, _convert(kinds | {"value": pa.string()}))
        numbers = pd.to_numeric(read["value"].to_pandas(), errors="coerce").to_numpy(np.float64, na_value=np.nan)
        read = read.set_column(read.column_names.index("value"), "value", pa.array(numbers))
    filled = read["value"].fill_null(np.nan)
    return read.set_column(read.column_names.index("value"), "value", filled)


def _convert(kinds: Mapping[str, pa.DataType]) -> pa_csv.ConvertOptions:
    return pa_csv.ConvertOptions(column_types=dict(kinds), include_columns=list(kinds), strings_can_be_null=False)


def _texts(read: pa.Table, name: str) -> CodedTexts:
    if name in read.column_names:
        return CodedTexts.of(read[name])
    return CodedTexts(np.zeros(len(read), np.int8), [""])


def _placed(header: Sequence[str], texts: Mapping[str, CodedTexts], numbering: Numbering) -> tuple[CodedTexts, Dates]:
    """The commit and the date of each row; dates that are none are NaT."""
    commit = texts["commit"]
    if "commit" not in header:
        number = numbering.of_series(texts["series"])
        distinct, codes = np.unique(number, return_inverse=True)
        commit = CodedTexts(codes, [f"{n:08d}" for n in distinct])
        dates = (number * 1000).astype("datetime64[ms]")
    elif "time" not in header:
        dates = numbering.of_commits(commit)
    if "time" in header:
        time = texts["time"]
        dates = moments(time.texts)[time.codes]
    return commit, dates


def moments(texts: Sequence[str]) -> Dates:
    """Dates of texts: ISO, or a number since 1970 in s below 1e11, ms below 1e14, us below 1e17, else ns; else NaT."""
    numbers = pd.to_numeric(pd.Series(texts, dtype=object), errors="coerce").to_numpy(np.float64)
    scale = np.select([np.abs(numbers) < bound for bound in (1e11, 1e14, 1e17)], [1e3, 1.0, 1e-3], 1e-6)
    milliseconds = numbers * scale
    written = pd.to_datetime(pd.Series(texts, dtype=object), format="ISO8601", utc=True, errors="coerce")
    stamps = written.dt.tz_localize(None).to_numpy("datetime64[ms]")
    inside = (milliseconds >= trial_file.EARLIEST_MS) & (milliseconds <= trial_file.LATEST_MS)
    counted = np.where(inside, milliseconds, 0).round().astype("datetime64[ms]")
    found = np.where(np.isnan(numbers), stamps, np.where(inside, counted, np.datetime64("NaT")))
    latest = np.datetime64(trial_file.LATEST_MS, "ms")
    return np.where((found < np.datetime64(0, "ms")) | (found > latest), np.datetime64("NaT"), found)


def _names(series: CodedTexts, given: ImportOptions) -> dict[str, pa.DictionaryArray]:
    """kernel, backend and case of a series."""

    def part(index: int, otherwise: str) -> Callable[[str], str]:
        def of(text: str) -> str:
            parts = text.split("/")
            return named(parts[index], otherwise) if len(parts) == 3 else otherwise

        return of

    whole = series.each(lambda t: given.kernel or named(t.split("/")[0] if t.count("/") == 2 else t, "series"))
    return {"kernel": whole, "backend": series.each(part(1, SOURCE)), "case": series.each(part(2, "all"))}


def _count_units(unit: pa.DictionaryArray, scale: FloatArray, tally: LeftOut) -> None:
    names, counts = np.unique(unit.indices.to_numpy()[np.isnan(scale)], return_counts=True)
    for code, count in zip(names, counts, strict=True):
        name = str(unit.dictionary[int(code)].as_py())
        tally.other_units[name] = tally.other_units.get(name, 0) + int(count)


def _whole(columns: Mapping[str, pa.Array], rows: int) -> pa.Table:
    """All columns of an import, those that a CSV does not have with one value."""
    rest = RowBlock(rows, {"env": SOURCE, "source": SOURCE, "status": "ok", "samples": 1, "trials": 1})
    filled = table_of([rest], pa.schema([field for field in COLUMNS if field.name not in columns]))
    return pa.table(
        [columns.get(name, filled[name] if name in filled.column_names else None) for name in COLUMNS.names],
        schema=COLUMNS,
    )


def _by_machine(machine: CodedTexts, given: ImportOptions, rows: pa.Table) -> dict[str, pa.Table]:
    if given.machine or len(set(machine.codes)) <= 1:
        said = machine.texts[int(machine.codes[0])] if len(machine.codes) else ""
        return {machine_named(given.machine or said): rows} if len(rows) else {}
    return {
        machine_named(machine.texts[code]): rows.filter(pa.array(machine.codes == code))
        for code in np.unique(machine.codes)
    }
