"""A derived table over many small files, kept as Parquet: parse each file once, delete the cache whenever you like.

A unit is a group of files that is parsed together (a result file and its notes).  Its rows are good as long as the
digest of its files is the one they were parsed from.  Files whose size, inode and time of change are the same as last
time are not even opened.
"""

from __future__ import annotations

import contextlib
import dataclasses
import hashlib
import json
import os
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

UNIT = "_unit"
"""Column of the stored table that names the unit a row came from."""

_INDEX = b"ridgeline-units"

Parser = Callable[[str], tuple[list[dict[str, Any]], list[str]]]
"""Unit name to (rows, problems).  A unit with problems is parsed again at every load, so that they stay visible."""


@dataclasses.dataclass(frozen=True)
class _Known:
    """What was true of a unit when it was parsed: stat of its files, digest of their content."""

    stat: str
    digest: str


def table(
    units: Mapping[str, Sequence[Path]], parse: Parser, schema: pa.Schema, store: Path, version: int
) -> tuple[pa.Table, list[str]]:
    """Rows of all units (columns of `schema` and UNIT), and the problems met.

    `store` is read and, when something changed, replaced; a missing, damaged or unwritable store only costs time.
    Change `version` whenever `parse` or `schema` means something else.
    """
    full = schema.append(pa.field(UNIT, pa.string()))
    kept, known = _read(store, full, version)
    stats = {unit: _stat(files) for unit, files in units.items()}
    fresh: dict[str, _Known] = {}
    stale: dict[str, _Known] = {}
    for unit, files in units.items():
        before = known.get(unit)
        if before is None or before.stat != stats[unit]:
            now = _Known(stats[unit], _digest(files))
            if before is None or before.digest != now.digest:
                stale[unit] = now
                continue
            before = now
        fresh[unit] = before
    if not stale and fresh == known:
        return kept, []
    rows, problems = _parse(list(stale), parse, full)
    result = pa.concat_tables([_only(kept, fresh), *rows.values()])
    fresh |= {unit: now for unit, now in stale.items() if not problems[unit]}
    _write(store, _only(result, fresh), fresh, version)
    return result, [problem for unit in problems for problem in problems[unit]]


def _parse(units: Sequence[str], parse: Parser, schema: pa.Schema) -> tuple[dict[str, pa.Table], dict[str, list[str]]]:
    tables, problems = {}, {}
    for unit in units:
        rows, problems[unit] = parse(unit)
        tables[unit] = pa.Table.from_pylist([{**row, UNIT: unit} for row in rows], schema=schema)
    return tables, problems


def _stat(files: Sequence[Path]) -> str:
    """Size, inode and time of change of files; a missing file has none."""
    found = []
    for file in files:
        with contextlib.suppress(FileNotFoundError):
            stat = os.stat(file)
            found.append(f"{file.name}:{stat.st_size}:{stat.st_ino}:{stat.st_mtime_ns}")
    return "|".join(found)


def _digest(files: Sequence[Path]) -> str:
    digest = hashlib.blake2b(digest_size=16)
    for file in files:
        with contextlib.suppress(OSError):
            digest.update(f"{file.name}:{file.stat().st_size}:".encode() + file.read_bytes())
    return digest.hexdigest()


def _only(rows: pa.Table, units: Mapping[str, _Known]) -> pa.Table:
    """The rows that came from these units."""
    if not rows.num_rows:
        return rows
    wanted = pa.compute.is_in(rows[UNIT], value_set=pa.array(list(units), pa.string()))
    return rows.filter(wanted)


def _read(store: Path, schema: pa.Schema, version: int) -> tuple[pa.Table, dict[str, _Known]]:
    """The stored rows and units; nothing if the store is missing, damaged, or of another version or schema."""
    nothing: tuple[pa.Table, dict[str, _Known]] = (schema.empty_table(), {})
    try:
        stored = pq.read_table(store)
        index = json.loads((stored.schema.metadata or {}).get(_INDEX, b"{}"))
    except (OSError, pa.ArrowException, ValueError):
        return nothing
    if index.get("version") != version or not stored.schema.equals(schema):
        return nothing
    return stored.replace_schema_metadata(None), {unit: _Known(*pair) for unit, pair in index["units"].items()}


def _write(store: Path, rows: pa.Table, units: Mapping[str, _Known], version: int) -> None:
    """Replace the store; a read-only folder or a full disk leaves the old one, which is as good but for speed."""
    index = json.dumps({"version": version, "units": {unit: [k.stat, k.digest] for unit, k in units.items()}})
    draft = store.with_name(f".{store.name}.{os.getpid()}")
    try:
        store.parent.mkdir(parents=True, exist_ok=True)
        (store.parent / ".gitignore").write_text("*\n")
        pq.write_table(rows.replace_schema_metadata({_INDEX: index.encode()}), draft, compression="zstd")
        os.replace(draft, store)
    except OSError:
        with contextlib.suppress(OSError):
            draft.unlink()
