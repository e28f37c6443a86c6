"""What benchmark programs of others wrote, into the records: a file, read by a declared reader, is a set of points.

Twice is once: a file that was imported as it is changes nothing, and one that has changed replaces what it gave.
"""

from __future__ import annotations

import contextlib
import dataclasses
import hashlib
import math
import re
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from benchmarks import trial_file
from benchmarks.programs.reader import Reader, ReaderError, Reading, Row, fitting, name_of, read
from ci.git.command import git_or_none
from ci.records.cache import SCHEMA, TEXT, table_of
from ci.records.pooling import interval
from ci.trials.file import Problem, RecordError
from ci.whole_files import WriteError, replace


@dataclasses.dataclass(frozen=True)
class ImportOptions:
    """What the user says of files.  reads: the reader's name, "" to tell it from each file.

    unit: of numbers whose unit neither the file nor the reader says.  baselines: backends that are libraries, beside
    those that the reader names.
    """

    reads: str = ""
    machine: str = ""
    kernel: str = ""
    commit: str = ""
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
    """The files named and those in the folders named, in order; hidden ones of a folder are left out."""
    files = []
    for path in paths:
        for file in sorted(path.rglob("*")) if path.is_dir() else [path]:
            hidden = any(part.startswith(".") for part in file.relative_to(path).parts)
            if not (hidden or file.is_dir()):
                files.append(file)
    return files


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
        "date": _date(given.commit, path),
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


def _date(commit: str, path: Path) -> int:
    """Milliseconds since 1970 UTC: the commit's own date, else when the file was written."""
    seconds = git_or_none(Path.cwd(), "log", "-1", "--format=%ct", commit, "--") if commit else None
    return int(seconds) * 1000 if seconds and seconds.isdigit() else round(path.stat().st_mtime * 1000)


# What other tools measured, beside our own records: results/imported/machine=<name>/part-*.parquet.
#
# They are no asv files of ours: asv's format wants a benchmark definition that nobody declared, and a history of
# millions of points does not fit JSON.  A part holds the rows of a foreign file, by whose place it is named: a file
# that is imported again replaces what it gave.  Unlike the cache they cannot be made again: this folder is a record.


DIGEST, PUT_NS = b"ridgeline-digest", b"ridgeline-put-ns"
"""In the footer of a part: of the foreign file, and when it was imported, in ns since 1970."""

IMPORTED = "imported"

_FROM_FRAME = (
    *("commit", "date", "env", "kernel", "backend", "baseline", "case", "dtype", "world", "seconds", "seconds_low"),
    *("seconds_high", "samples", "trials", "hbm_bytes", "link_bytes", "payload_bytes", "status", "why"),
    *("device", "driver", "runtime", "library", "torch", "triton"),
)
COLUMNS = pa.schema([*map(SCHEMA.field, _FROM_FRAME), ("value", pa.float64()), ("unit", TEXT), ("source", TEXT)])
"""value, unit: as the file has them.  seconds: the value where its unit is one of time, else NaN.  source: which format
it was read from.  A row without seconds is in no page; any engine can query it."""

KEY = ["commit", "env", "kernel", "backend", "case"]
"""What two rows of a machine share that are of the same point."""


def part_of(results_dir: Path, machine: str, file: Path) -> Path:
    """Where the rows of a foreign file are kept."""
    name = hashlib.blake2b(str(file.resolve()).encode(), digest_size=10).hexdigest()
    return results_dir / IMPORTED / f"machine={machine}" / f"part-{name}.parquet"


def source_digest(part: Path) -> str:
    """The digest of the foreign file whose rows a part has; "" where there is none, or it is damaged."""
    with contextlib.suppress(OSError, pa.ArrowException):
        held: bytes = (pq.read_schema(part).metadata or {}).get(DIGEST, b"")
        return held.decode()
    return ""


def keep(part: Path, rows: pa.Table, digest: str, put_ns: int) -> None:
    """Write the rows of a foreign file, whole or not at all.  Raises WriteError."""
    stream = pa.BufferOutputStream()
    rows = rows.replace_schema_metadata({DIGEST: digest.encode(), PUT_NS: str(put_ns).encode()})
    texts = [field.name for field in COLUMNS if field.type == TEXT]
    pq.write_table(rows, stream, compression="zstd", write_page_checksum=True, use_dictionary=texts)
    replace(part, stream.getvalue().to_pybytes())


def imported_times(results_dir: Path, machine: str | None = None) -> tuple[list[pa.Table], list[str]]:
    """Rows that have a time or a failure, each point once, the latest file's; and what was left out."""
    tables, problems = [], []
    for folder in sorted((results_dir / IMPORTED).glob("machine=*")):
        name = folder.name.partition("=")[2]
        if machine not in (None, name):
            continue
        parts = list[tuple[int, pa.Table]]()
        for path in sorted(folder.glob("part-*.parquet")):
            try:
                part = pq.ParquetFile(path, page_checksum_verification=True).read(use_threads=False)
                put_ns = int((part.schema.metadata or {})[PUT_NS])
            except (OSError, pa.ArrowException, KeyError, ValueError):
                problems.append(f"{path}: damaged or of another version; remove it and import its files again")
                continue
            known = {column: part[column] for column in part.column_names}
            parts.append((put_ns, table_of(known, len(part), COLUMNS)))  # perhaps of an older schema
        if parts:
            tables.append(_latest(pa.concat_tables([part for _, part in sorted(parts, key=lambda one: one[0])]), name))
    return tables, problems


def _latest(rows: pa.Table, machine: str) -> pa.Table:
    """The rows with a time or a failure; of those of a point the last."""
    seconds, status = rows["seconds"].fill_null(math.nan), rows["status"].cast(pa.string())
    rows = rows.filter(pc.or_(pc.is_finite(seconds), pc.not_equal(status, "ok")))
    once = rows.filter(pa.array(~rows.select(KEY).to_pandas().duplicated(keep="last").to_numpy()))
    return table_of({**{column: once[column] for column in once.column_names}, "machine": machine}, len(once))
