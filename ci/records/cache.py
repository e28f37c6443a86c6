"""Rows of records as Parquet: each record is parsed once, and read by any engine.

    results/.cache/<digest>.parquet    the rows of one record

The name is a digest of the files that the rows were parsed from and of :data:`VERSION`.  So there is no index and no
lock: a file that is missing, torn or of other content is made again, and two writers write the same.
"""

from __future__ import annotations

import contextlib
import hashlib
import os
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import TypeAlias

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.dataset as ds
import pyarrow.parquet as pq

VERSION = 14
"""Version of what the files hold; raise it with any change of SCHEMA or of how rows are made."""

# Columns of the long frame.  Texts are kept as dictionaries (codes and distinct texts): a history repeats a few names
# millions of times.


TEXT = pa.dictionary(pa.int32(), pa.string())


def _fields(kind: pa.DataType, *names: str) -> list[pa.Field]:
    return [pa.field(name, kind) for name in names]


SCHEMA = pa.schema(
    [
        *_fields(TEXT, "machine", "kind", "arch", "device", "market_name"),
        *_fields(pa.int32(), "count"),
        *_fields(pa.float64(), "compute_units", "memory_bytes"),
        *_fields(TEXT, "chip_id", "commit"),
        *_fields(pa.timestamp("ms", tz="UTC"), "date"),
        *_fields(TEXT, "env", "kernel", "backend"),
        *_fields(pa.bool_(), "baseline"),
        *_fields(TEXT, "case", "tier", "dtype"),
        *_fields(pa.int32(), "world"),
        *_fields(pa.float64(), "seconds", "seconds_low", "seconds_high"),
        *_fields(pa.int32(), "samples", "trials"),
        *_fields(pa.float64(), "flops", "hbm_bytes", "link_bytes", "payload_bytes"),
        *_fields(TEXT, "status", "why", "yardstick", "case_yardstick", "method"),
        *_fields(
            TEXT,
            "driver",
            "runtime",
            "library",
            "torch",
            "triton",
            "code",
            "shape",
            "paired_with",
            "compared_with",
            "devices",
        ),
        *_fields(pa.float64(), "paired_ratio", "paired_low", "paired_high"),
    ]
)
"""Columns of the frame.  seconds_low and seconds_high: 99 % interval (ci.records.pooling.interval).

driver, torch, triton: versions; runtime: "CUDA 13.0" or "HIP 7.1"; library: "NCCL 2.28.9" or "RCCL 2.27"; "" if not
known.  code: what the arm ran (`ci.records.pooling.Cell`), shape: the dimensions of the case as a JSON object,
"" if not known.
devices: each GPU while the trials of the operator ran (`ci.records.devices.devices_text`).
paired_ratio: time of the fastest baseline / the row's time, round by round (ci.records.pooling), its 99 % interval;
paired_with: that baseline.  NaN and "" where no baseline was timed in the same trial.
compared_with: the commit (full hash) that was base of the newest trial with both, "" for none."""

UNKNOWN = {field.name: "" for field in SCHEMA if field.type == TEXT} | {
    "baseline": False,
    "count": 1,
    "world": 1,
    "samples": 0,
    "trials": 0,
}
"""What a column is where nothing is known; NaN for all others."""

Value: TypeAlias = str | float | int | bool | None
Column: TypeAlias = Value | Sequence[Value] | npt.NDArray[np.generic] | pa.Array | pa.ChunkedArray


def table_of(columns: Mapping[str, Column], rows: int, schema: pa.Schema = SCHEMA) -> pa.Table:
    """A table of so many rows.  columns: one value for all rows, or one per row; what is not given is unknown."""
    found = (_array(columns.get(field.name, UNKNOWN.get(field.name)), rows, field.type) for field in schema)
    return pa.table(list(found), schema=schema)


def unified(tables: Sequence[pa.Table], schema: pa.Schema) -> pa.Table:
    """Tables of one schema as one, each text column with one dictionary."""
    return pa.concat_tables([schema.empty_table(), *tables]).unify_dictionaries()


def _array(column: Column, rows: int, kind: pa.DataType) -> pa.Array | pa.ChunkedArray:
    """What is not known is null, which every engine leaves out of a mean."""
    if isinstance(column, (pa.Array, pa.ChunkedArray)):
        return column
    if not isinstance(column, (list, tuple, np.ndarray)):
        column = [column] * rows
    if pa.types.is_floating(kind):
        return pa.array(np.array(column, np.float64), kind, from_pandas=True)
    return pa.array(column, kind)


Parsed: TypeAlias = tuple[pa.Table, list[str]]
"""Rows of a record, and what could not be used of it."""


def digest_of(name: str, files: Iterable[Path]) -> str:
    """Of the name of a record, of the names and the content of its files, and of VERSION."""
    digest = hashlib.blake2b(f"{VERSION} {name}".encode(), digest_size=16)
    for file in files:
        content = _content(file)
        digest.update(f"\0{file.name}\0{len(content)}\0".encode() + content)
    return digest.hexdigest()


def _content(file: Path) -> bytes:
    with contextlib.suppress(OSError):
        return file.read_bytes()
    return b""


class RowCache:
    """The folder of the cache; one that cannot be written only costs time."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder

    def rows(self, records: Mapping[str, Callable[[], Parsed]], others_go: bool = False) -> tuple[pa.Table, list[str]]:
        """The rows of records, and what could not be used of them.

        records: by digest, how a record is parsed.  One with problems is parsed each time, so that they are told each
        time.  others_go: whether files of other records are removed.
        """
        there = {path.stem for path in self.folder.glob("*.parquet")}
        held, problems = dict[str, pa.Table](), list[str]()

        def make(digest: str) -> None:
            held[digest], said = records[digest]()
            problems.extend(said)
            if not said and write_rows(self._path(digest), held[digest]):
                there.add(digest)

        for digest in [digest for digest in records if digest not in there]:
            make(digest)
        stored = [digest for digest in records if digest not in held]
        try:
            tables = [_scanned(map(self._path, stored))]
        except (OSError, pa.ArrowException):
            for digest in stored:
                try:
                    held[digest] = _scanned([self._path(digest)])
                except (OSError, pa.ArrowException):
                    make(digest)
            tables = []
        if others_go:
            for digest in there - records.keys():
                self._path(digest).unlink(missing_ok=True)
        return unified([*tables, *(held[digest] for digest in records if digest in held)], SCHEMA), problems

    def _path(self, digest: str) -> Path:
        return self.folder / f"{digest}.parquet"


def _scanned(paths: Iterable[Path]) -> pa.Table:
    """The rows of files, in their order.  Raises OSError or pa.ArrowException where one is torn."""
    checked = ds.ParquetFragmentScanOptions(page_checksum_verification=True)
    files = ds.ParquetFileFormat(default_fragment_scan_options=checked)
    return ds.dataset(list(map(str, paths)), schema=SCHEMA, format=files).to_table()


def write_rows(path: Path, rows: pa.Table) -> bool:
    """Write a file; False where it cannot be written.  It is not forced to the disk: a torn one is made again."""
    draft = path.with_name(f".{path.name}.{os.getpid()}")
    texts = [field.name for field in SCHEMA if field.type == TEXT]
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        if not (ignored := path.parent / ".gitignore").exists():
            ignored.write_text("*\n")
        pq.write_table(
            rows, draft, compression="lz4", write_page_checksum=True, use_dictionary=texts, write_statistics=False
        )
        os.replace(draft, path)
    except OSError:
        with contextlib.suppress(OSError):
            draft.unlink()
        return False
    return True
