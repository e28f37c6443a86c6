"""What benchmark programs of others wrote, into the records: a file, read by a declared reader, is a set of points.

Twice is once: a file that was imported as it is changes nothing, and one that has changed replaces what it gave.
"""

from __future__ import annotations

import dataclasses
import datetime
import hashlib
import math
import re
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa

from benchmarks import trial_file
from benchmarks.programs.reader import Reader, ReaderError, Reading, Row, fitting, name_of, read
from ci.git.command import git_or_none
from ci.records.cache import table_of
from ci.records.imported import COLUMNS, keep, part_of, source_digest
from ci.records.pooling import interval
from ci.trials.file import Problem, RecordError
from ci.whole_files import WriteError


@dataclasses.dataclass(frozen=True)
class ImportOptions:
    """What the user says of files.  reads: the reader's name, "" to tell it from each file.  date_ms: since 1970 UTC.

    unit: of numbers whose unit neither the file nor the reader says.  baselines: backends that are libraries, beside
    those that the reader names.
    """

    reads: str = ""
    machine: str = ""
    kernel: str = ""
    commit: str = ""
    date_ms: int | None = None
    unit: str = ""
    baselines: tuple[str, ...] = ()


@dataclasses.dataclass
class Imported:
    """What an import did.  added, known, refused: files; rows: of all that could be read; problems: what was not."""

    added: int = 0
    known: int = 0
    refused: int = 0
    rows: list[Row] = dataclasses.field(default_factory=list)
    machines: set[str] = dataclasses.field(default_factory=set)
    problems: list[Problem] = dataclasses.field(default_factory=list)


def files_in(paths: Sequence[Path]) -> list[Path]:
    """The files named and those in the folders named, in order; hidden ones are left out."""
    found = []
    for path in paths:
        inside = sorted(path.rglob("*")) if path.is_dir() else [path]
        found += [file for file in inside if not file.is_dir() and not _hidden(file, path)]
    return found


def _hidden(file: Path, folder: Path) -> bool:
    return file != folder and any(part.startswith(".") for part in file.relative_to(folder).parts)


def bring(
    files: Sequence[Path], results: Path, known: Mapping[str, Reader], given: ImportOptions, dry_run: bool = False
) -> Imported:
    """Import files, each as a whole.  known: the readers by name.  Raises RecordError if nothing can be written."""
    done = Imported()
    for path in files:
        try:
            content = path.read_bytes()
            text = content.decode("utf-8-sig", "replace")
            reader = known[given.reads] if given.reads else fitting(text, known)
            reading = read(text, reader, given.unit)
            points = points_of(reading, reader, path, content, given)
        except (ReaderError, OSError) as error:
            why = f"cannot be read: {error.strerror or error}" if isinstance(error, OSError) else str(error)
            done.refused += 1
            done.problems.append(Problem(str(path), why))
            continue
        done.rows += reading.rows
        done.problems += [Problem(str(path), sentence) for sentence in reading.said]
        new = bool(points) and _put(path, content, points, results, given, dry_run)
        done.added, done.known = done.added + new, done.known + (not new)
        done.machines |= {str(point["machine"]) for point in points}
    return done


def points_of(
    reading: Reading, reader: Reader, path: Path, content: bytes, given: ImportOptions
) -> list[dict[str, Any]]:
    """The rows of a file as rows of the frame; what was skipped is no point."""
    digest = hashlib.sha256(content).hexdigest()[:8]
    commit = given.commit or f"{reader.name}-{digest}"
    origin = {
        "machine": machine_named(given.machine or "unknown"),
        "commit": name_of(commit),
        "date": _date(given, path),
        "env": name_of(reader.name),
        "source": reader.name,
        "kernel": name_of(given.kernel or reader.name),
    }
    libraries = {*reader.baselines, *given.baselines}
    points = (_point(row) | {"baseline": row.backend in libraries} for row in reading.rows if row.status != "skipped")
    return [{**origin, **point} for point in points]


def _point(row: Row) -> dict[str, Any]:
    seconds = np.asarray(row.seconds, np.float64)
    low, high = interval([seconds]) if len(seconds) > 1 else (None, None)
    median = float(np.median(seconds)) if len(seconds) else math.nan
    return {
        "backend": row.backend,
        "case": row.case,
        "world": row.ranks,
        "dtype": "",
        "seconds": median,
        "seconds_low": low,
        "seconds_high": high,
        "samples": len(seconds),
        "trials": int(row.status == "ok"),
        "value": row.value if row.value is not None else math.nan,
        "unit": row.unit,
        "status": {"ok": "ok", "wrong": "wrong"}.get(row.status, "error"),
        "why": row.note,
        **{name: row.cost.get(name) for name in ("hbm_bytes", "link_bytes", "payload_bytes")},
    }


def _put(
    path: Path, content: bytes, points: Sequence[Mapping[str, Any]], results: Path, given: ImportOptions, dry_run: bool
) -> bool:
    """Keep the points of a file; False if they are kept already."""
    digest = hashlib.blake2b(content + repr(given).encode(), digest_size=16).hexdigest()
    part = part_of(results, str(points[0]["machine"]), path)
    if source_digest(part) == digest:
        return False
    rows: pa.Table = table_of({key: [point[key] for point in points] for key in points[0]}, len(points), COLUMNS)
    try:
        if not dry_run:
            keep(part, rows, digest, time.time_ns())
    except WriteError as error:
        raise RecordError(f"{error}; what was kept is safe, import it again") from None
    return True


# ---- names and dates -------------------------------------------------------------------------------------------------


def machine_named(text: str) -> str:
    """A foreign text as the name of a machine, which is the name of a folder; cleaned names keep apart by a digest."""
    line = name_of(text) or "unknown"
    if trial_file.MACHINE_NAME.fullmatch(line):
        return line
    plain = re.sub(r"[^A-Za-z0-9._-]+", "_", line).strip("._-")[:60] or "machine"
    return f"{plain}-{hashlib.sha256(line.encode()).hexdigest()[:8]}"


def _date(given: ImportOptions, path: Path) -> int:
    """Milliseconds since 1970 UTC: what the user says, else the commit's own date, else when the file was written."""
    if given.date_ms is not None:
        return given.date_ms
    said = git_or_none(Path.cwd(), "log", "-1", "--format=%ct", given.commit, "--") if given.commit else None
    return int(said) * 1000 if said and said.isdigit() else round(path.stat().st_mtime * 1000)


def moment(text: str) -> int:
    """Milliseconds since 1970 UTC of an ISO date; one without a zone is in UTC everywhere.  Raises ValueError."""
    try:
        when = datetime.datetime.fromisoformat(text.strip())
    except ValueError:
        raise ValueError(f"{text[:40]!r} is no ISO date such as 2026-11-22T12:00:00Z") from None
    milliseconds = (when if when.tzinfo else when.replace(tzinfo=datetime.UTC)).timestamp() * 1000
    if not trial_file.EARLIEST_MS <= milliseconds <= trial_file.LATEST_MS:
        raise ValueError(f"{text[:40]!r} is outside of 1970 to 2100")
    return round(milliseconds)
