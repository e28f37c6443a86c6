"""A point of a foreign history: what every format is read into."""

from __future__ import annotations

import dataclasses
import datetime
import hashlib
import math
import re
from collections.abc import Iterable, Sequence
from pathlib import Path

import numpy as np
import pyarrow as pa

from benchmarks import trial_file
from benchmarks.shapes import LONGEST_NAME, clean
from ci.records.columns import Column, RowBlock, table_of
from ci.records.imported import COLUMNS
from ci.records.pooling import interval

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
    """Points as rows of `ci.records.imported.COLUMNS`."""
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
