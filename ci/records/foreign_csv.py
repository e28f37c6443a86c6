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
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import BinaryIO, TypeAlias

import numpy as np
import numpy.typing as npt
import pandas as pd
import pyarrow as pa
import pyarrow.csv as pa_csv

from benchmarks import trial_file
from benchmarks.shapes import LONGEST_NAME, clean
from ci.records.cache import TEXT, Value, table_of
from ci.records.imported import COLUMNS
from ci.records.pooling import interval

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


Point: TypeAlias = dict[str, Value]
"""One number of one series, by columns of `ci.records.frame.COLUMNS`, its machine, and in its own unit the ends of its
99 % interval (low, high; None if not known).  All points of a file have the same columns."""


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


def times_of(samples: Sequence[float]) -> Point:
    """The median of samples with its 99 % interval, which fewer than two do not have, and how many they are."""
    values = np.asarray(samples, np.float64)
    low, high = interval([values]) if len(values) > 1 else (None, None)
    return {"value": float(np.median(values)), "low": low, "high": high, "samples": len(values)}


def table(points: Sequence[Point]) -> pa.Table:
    """Points as rows of `ci.records.frame.COLUMNS`."""
    columns = {name: [point[name] for point in points] for name in points[0]}
    scale = np.array([SECONDS.get(str(unit).lower(), math.nan) for unit in columns["unit"]])
    times = {"seconds": "value", "seconds_low": "low", "seconds_high": "high"}
    in_seconds = {name: scale * np.array(columns[own], np.float64) for name, own in times.items()}
    trials = [int(status == "ok") for status in columns["status"]]
    return table_of({**columns, **in_seconds, "trials": trials}, len(points), COLUMNS)


# ---- the CSV ---------------------------------------------------------------------------------------------------------


SOURCE = "csv"
KNOWN = ("value", "series", "commit", "time", "unit", "machine")

BLOCK_BYTES = 1 << 25
"""Bytes read at a time: 32 MB are about 0.8 million points, and 0.5 GB while they are sorted and written (2026-11)."""

NO_NUMBER = "values are no finite numbers above 0; left out"
NO_DATE = "rows have a time that is no date from 1970 to 2100; left out"
TORN = "rows have another number of cells than the header; left out"

Dates = npt.NDArray[np.datetime64]


@dataclasses.dataclass
class CsvSoFar:
    """What the blocks before decide.  commits: the number of each; points: how many a series has had.

    left_out: how often something was left out or is not shown, by what it was.
    """

    commits: dict[str, int] = dataclasses.field(default_factory=dict)
    points: dict[str, int] = dataclasses.field(default_factory=dict)
    left_out: dict[str, int] = dataclasses.field(default_factory=lambda: dict.fromkeys((NO_NUMBER, NO_DATE, TORN), 0))

    def remarks(self) -> list[str]:
        """What was left out or is not shown."""
        return [f"{count:,} {what}" for what, count in self.left_out.items() if count]


@dataclasses.dataclass(frozen=True, eq=False)
class CsvBlock:
    """A block of the file: where it begins, its bytes, the digest of it and of all that decides what it means."""

    offset: int
    content: bytes
    digest: str


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


def tables(header: Sequence[str], content: bytes, given: ImportOptions, so_far: CsvSoFar) -> dict[str, pa.Table]:
    """Rows of `ci.records.frame.COLUMNS` of one block, by machine, oldest first."""
    frame = _parsed(header, content, so_far)
    frame["date"] = _dates(header, frame, so_far)
    unit = _each(frame["unit"], lambda text: named(text or given.unit, "s"))
    frame["unit"] = unit.to_pandas()
    frame["scale"] = np.array([SECONDS.get(text.lower(), math.nan) for text in unit.dictionary.to_pylist()])[
        unit.indices
    ]
    good = np.isfinite(frame["value"]) & ((frame["value"] > 0) | frame["scale"].isna())
    so_far.left_out[NO_NUMBER] += int((~good).sum())
    so_far.left_out[NO_DATE] += int((good & frame["date"].isna()).sum())
    frame = frame[good & frame["date"].notna()].sort_values("date", kind="stable")
    for name, count in frame.loc[frame["scale"].isna(), "unit"].value_counts().items():
        said = f"values in {name!r}, no unit of time: kept, on no page"
        so_far.left_out[said] = so_far.left_out.get(said, 0) + int(count)
    columns = {
        "commit": _each(frame["commit"], lambda text: named(given.commit or text)),
        "date": pa.array(frame["date"].to_numpy(), COLUMNS.field("date").type),
        "kernel": _each(frame["series"], lambda text: given.kernel or _kernel(text)),
        "backend": _each(frame["series"], lambda text: _part(text, 1, SOURCE)),
        "case": _each(frame["series"], lambda text: _part(text, 2, "all")),
        "value": frame["value"].to_numpy(),
        "unit": _each(frame["unit"], str),
        "seconds": (frame["value"] * frame["scale"]).to_numpy(),
        **dict.fromkeys(("env", "source"), SOURCE),
        **dict.fromkeys(("samples", "trials"), 1),
        "status": "ok",
    }
    rows = table_of(columns, len(frame), COLUMNS)
    machine = _each(frame["machine"], lambda text: machine_named(given.machine or text)).to_pandas()
    return {str(name): rows.filter(pa.array(machine == name)) for name in machine.unique()}


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


def _parsed(header: Sequence[str], content: bytes, so_far: CsvSoFar) -> pd.DataFrame:
    """The known columns of a block: value as a number, NaN where it is none, the others as categories."""
    torn = 0

    def skip(row: object) -> str:
        nonlocal torn
        torn += 1
        return "skip"

    used = [name for name in KNOWN if name in header]
    kinds = dict.fromkeys(used, TEXT) | {"value": pa.float64()}
    options = pa_csv.ReadOptions(column_names=list(header), block_size=1 << 22)
    parsing = pa_csv.ParseOptions(newlines_in_values=b'"' in content, invalid_row_handler=skip)
    frame: pd.DataFrame
    try:
        frame = pa_csv.read_csv(io.BytesIO(content), options, parsing, _convert(kinds)).to_pandas()
    except pa.ArrowInvalid:  # a cell that is no number, or no UTF-8
        torn, kinds["value"] = 0, pa.string()
        sound = content.decode("utf-8", "replace").encode()
        frame = pa_csv.read_csv(io.BytesIO(sound), options, parsing, _convert(kinds)).to_pandas()
        frame["value"] = pd.to_numeric(frame["value"], errors="coerce").astype(np.float64)
    so_far.left_out[TORN] += torn
    nothing = pd.Categorical([""] * len(frame), [""])
    return frame.assign(**{name: nothing for name in KNOWN if name not in header})


def _convert(kinds: Mapping[str, pa.DataType]) -> pa_csv.ConvertOptions:
    return pa_csv.ConvertOptions(column_types=dict(kinds), include_columns=list(kinds), strings_can_be_null=False)


def _each(column: pd.Series, change: Callable[[str], str]) -> pa.DictionaryArray:
    """A column of categories with every text changed."""
    changed = np.array([change(text) for text in column.cat.categories], dtype=object)
    texts, number = np.unique(changed, return_inverse=True)
    return pa.DictionaryArray.from_arrays(number[column.cat.codes].astype(np.int32), pa.array(texts, pa.string()))


def _kernel(series: str) -> str:
    return named(series.split("/")[0] if series.count("/") == 2 else series, "series")


def _part(series: str, index: int, otherwise: str) -> str:
    """Backend or case of a series that names them."""
    parts = series.split("/")
    return named(parts[index], otherwise) if len(parts) == 3 else otherwise


def _dates(header: Sequence[str], frame: pd.DataFrame, so_far: CsvSoFar) -> Dates:
    """The date of each row, NaT for what is none.  Without commits the rows of a series are numbered as such."""
    dates: Dates
    if "commit" not in header:
        number = frame.groupby("series", observed=True).cumcount() + _known(frame["series"], so_far.points)
        frame["commit"] = pd.Categorical(number.map("{:08d}".format))
        for series, count in frame["series"].value_counts().items():
            so_far.points[str(series)] = so_far.points.get(str(series), 0) + count
        dates = np.asarray(number * 1000, np.dtype("datetime64[ms]"))
    elif "time" not in header:
        for commit in frame["commit"].unique():
            so_far.commits.setdefault(commit, len(so_far.commits))
        dates = np.asarray(_known(frame["commit"], so_far.commits) * 1000, np.dtype("datetime64[ms]"))
    if "time" in header:
        dates = moments(frame["time"].cat.categories.tolist())[frame["time"].cat.codes]
    return dates


def _known(column: pd.Series, numbers: Mapping[str, int]) -> npt.NDArray[np.int64]:
    """The number of each text, 0 for one that has none."""
    return np.array([numbers.get(text, 0) for text in column.cat.categories], np.int64)[column.cat.codes]


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
