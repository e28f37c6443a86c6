"""What other tools measured, beside our own records: `results/imported/machine=<name>/part-*.parquet`.

They are no asv files of ours: asv's format wants a benchmark definition that nobody declared, and a history of millions
of points does not fit JSON.  A part holds the rows of a foreign file, by whose place it is named: a file that is
imported again replaces what it gave.  Unlike the cache they cannot be made again: this folder is a record.
"""

from __future__ import annotations

import contextlib
import hashlib
import math
from pathlib import Path
from urllib.parse import quote, unquote

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from ci.records.cache import SCHEMA, TEXT, table_of
from ci.whole_files import replace

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

MOST_ROWS = 4_000_000
"""Imported rows that the frame takes: about 1.5 GB beside as many of our own (2026-11).  A larger import is for a query
engine, and the frame says so."""

KEY = ["commit", "env", "kernel", "backend", "case"]
"""What two rows of a machine share that are of the same point."""


def part_of(results_dir: Path, machine: str, file: Path) -> Path:
    """Where the rows of a foreign file are kept."""
    name = hashlib.blake2b(str(file.resolve()).encode(), digest_size=10).hexdigest()
    return results_dir / IMPORTED / f"machine={quote(machine, safe='')}" / f"part-{name}.parquet"


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
        name = unquote(folder.name.partition("=")[2])
        if machine not in (None, name):
            continue
        parts = list[tuple[int, pa.Table]]()
        count = 0
        for path in sorted(folder.glob("part-*.parquet")):
            try:
                count += pq.read_metadata(path).num_rows
                part = pq.ParquetFile(path, page_checksum_verification=True).read(use_threads=False)
                put_ns = int((part.schema.metadata or {})[PUT_NS])
            except (OSError, pa.ArrowException, KeyError, ValueError):
                problems.append(f"{path}: damaged or of another version; remove it and import its files again")
                continue
            if count <= MOST_ROWS:
                known = {column: part[column] for column in part.column_names}
                parts.append((put_ns, table_of(known, len(part), COLUMNS)))  # perhaps of an older schema
        if count > MOST_ROWS:
            said = f"{folder}: {count:,} imported rows are more than the {MOST_ROWS:,} that pages take"
            problems.append(f"{said}; query them with DuckDB or pandas as .github/guides/tables.md does")
        elif parts:
            tables.append(_latest(pa.concat_tables([part for _, part in sorted(parts, key=lambda one: one[0])]), name))
    return tables, problems


def _latest(rows: pa.Table, machine: str) -> pa.Table:
    """The rows with a time or a failure; of those of a point the last."""
    seconds, status = rows["seconds"].fill_null(math.nan), rows["status"].cast(pa.string())
    rows = rows.filter(pc.or_(pc.is_finite(seconds), pc.not_equal(status, "ok")))
    once = rows.filter(pa.array(~rows.select(KEY).to_pandas().duplicated(keep="last").to_numpy()))
    return table_of({**{column: once[column] for column in once.column_names}, "machine": machine}, len(once))
