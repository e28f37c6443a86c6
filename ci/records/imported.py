"""Records of other tools, beside our own: `results/imported/machine=<name>/part-*.parquet`.

They are no asv files of ours: asv's format wants a benchmark definition that nobody declared, and a history of millions
of points does not fit JSON.  So they are kept as the cache keeps rows (:mod:`ci.records.cache`), with the columns
below; a unit is a foreign file, and a file that is imported again replaces its rows.  Unlike the cache they cannot be
made again: this folder is a record.  :func:`ci.records.store.load` adds their times to the frame.
"""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from urllib.parse import quote, unquote

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from ci.records.cache import UNIT, ParsedUnit, Parts, TablePart
from ci.records.rows import SCHEMA, TEXT
from ci.trials.file import RecordError

VERSION = 1
"""Version of the rows.  Other versions are never replaced: they may be the only copy."""

FOLDER = "imported"

_FROM_FRAME = (
    *("commit", "date", "env", "kernel", "backend", "case", "dtype", "world", "seconds", "seconds_low"),
    *("seconds_high", "samples", "trials", "hbm_bytes", "link_bytes", "payload_bytes", "status", "why"),
    *("device", "driver", "runtime", "library", "torch", "triton"),
)
COLUMNS = pa.schema(
    [
        *(SCHEMA.field(name) for name in _FROM_FRAME),
        pa.field("value", pa.float64()),
        pa.field("unit", TEXT),
        pa.field("source", TEXT),
    ]
)
"""value, unit: as the file has them.  seconds: the value where its unit is one of time, else NaN.  source: which format
it was read from.  A row without seconds is in no page; any engine can query it."""

MOST_ROWS = 4_000_000
"""Imported rows that the frame takes: about 1.5 GB beside as many of our own (ci.records.frame, 2026-11).  A larger
import is for a query engine, and the frame says so."""

KEY = ("commit", "env", "kernel", "backend", "case")
"""What two rows of a machine share that are of the same point."""


class ImportedParts(Parts):
    """The imported rows of one machine."""

    def __init__(self, results_dir: Path, machine: str) -> None:
        super().__init__(results_dir / FOLDER / f"machine={quote(machine, safe='')}", COLUMNS, VERSION)

    def _replace(self, parts: Sequence[TablePart], old: Sequence[Path]) -> None:
        """Refuses to take a damaged part away: it is the only copy of its rows."""
        lost = [path for path in old if self._footer(path) is None]
        if lost:
            raise RecordError(
                f"{lost[0]} is damaged or of another version of Ridgeline; nothing was written.  "
                "Move it away and import its files again"
            )
        super()._replace(parts, old)


def machines(results_dir: Path) -> list[str]:
    """Machines that have imported rows."""
    folders = sorted((results_dir / FOLDER).glob("machine=*"))
    return [unquote(folder.name.partition("=")[2]) for folder in folders if folder.is_dir()]


def add(results_dir: Path, machine: str, tables: Mapping[str, pa.Table], digests: Mapping[str, str]) -> None:
    """Keep the tables of some files, each in place of what its file gave before.  Raises RecordError."""
    parts = ImportedParts(results_dir, machine)
    fresh = parts.part(tables, {name: ParsedUnit(digests[name], put_ns=time.time_ns()) for name in tables})
    if not parts.put([fresh]):
        raise RecordError(f"{parts.folder} cannot be written; give a folder you may write: --results DIR")


def known(results_dir: Path, machine: str) -> dict[str, str]:
    """Digests of the files that were imported for a machine, by name."""
    return {name: unit.digest for name, unit in ImportedParts(results_dir, machine).units().items()}


def times(results_dir: Path, machine: str | None = None) -> tuple[list[tuple[str, pa.Table]], list[str]]:
    """(machine, rows) that have a time or a failure, each point once, the latest file's; and what was left out."""
    found, problems = [], []
    for name in machines(results_dir):
        parts = ImportedParts(results_dir, name)
        if machine not in (None, name):
            continue
        rows = sum(_rows(path) for path in parts.folder.glob("part-*.parquet"))
        if rows > MOST_ROWS:
            said = f"{parts.folder}: {rows:,} imported rows are more than the {MOST_ROWS:,} that pages take"
            problems.append(f"{said}; query them with DuckDB or pandas as .github/guides/tables.md does")
            continue
        held, unsound = parts.read(), parts.unsound()
        problems += [f"{path}: damaged or of another version; import its files again" for path in unsound]
        found += [(name, once(table)) for table in _timed(held) if len(table)]
    return found, problems


def once(rows: pa.Table) -> pa.Table:
    """Rows without those that a later row repeats: the same commit, environment and series."""
    keys = np.zeros(len(rows), np.int64)
    for column in KEY:
        coded = rows[column].combine_chunks()
        codes, texts = (coded.indices.to_numpy(), len(coded.dictionary)) if len(rows) else (keys, 1)
        keys = np.unique(keys * max(texts, 1) + codes, return_inverse=True)[1]
    _, last = np.unique(keys[::-1], return_index=True)
    return rows if len(last) == len(rows) else rows.take(pa.array(np.sort(len(rows) - 1 - last)))


def _timed(parts: Sequence[TablePart]) -> list[pa.Table]:
    """The rows of all parts that belong in the frame, as one table."""
    if not parts:
        return []
    whole = _latest_last(parts)
    keep = pc.or_kleene(pc.is_finite(whole["seconds"]), pc.not_equal(whole["status"].cast(pa.string()), "ok"))
    return [whole.filter(keep).drop_columns(["value", "unit", "source", UNIT])]


def _latest_last(parts: Sequence[TablePart]) -> pa.Table:
    """The rows of all parts in the order in which their files were imported."""
    whole = pa.concat_tables([part.rows for part in parts]).unify_dictionaries().combine_chunks()
    put_ns = {name: unit.put_ns for part in parts for name, unit in part.units.items()}
    records = whole[UNIT].combine_chunks()
    when = np.array([put_ns.get(name, 0) for name in records.dictionary.to_pylist()], np.int64)
    order = np.argsort(when[records.indices.to_numpy()], kind="stable")
    return whole if np.all(order[1:] > order[:-1]) else whole.take(pa.array(order))


def _rows(path: Path) -> int:
    try:
        return int(pq.read_metadata(path).num_rows)
    except (OSError, pa.ArrowException):
        return 0
