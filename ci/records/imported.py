"""What other tools measured, beside our own records: `results/imported/machine=<name>/part-*.parquet`.

They are no asv files of ours: asv's format wants a benchmark definition that nobody declared, and a history of millions
of points does not fit JSON.  A unit is a foreign file (of a large CSV a block).  A part holds the rows of some units,
and says in its footer which; it is never changed.  Of a unit that is in several parts the newest counts, and a part
that has no such unit any more is removed.  Unlike the cache they cannot be made again: this folder is a record.
"""

from __future__ import annotations

import contextlib
import dataclasses
import hashlib
import json
import math
from collections.abc import Collection, Mapping
from pathlib import Path
from urllib.parse import quote, unquote

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from ci.records.cache import SCHEMA, TEXT, table_of, unified
from ci.whole_files import WriteError, replace

VERSION = 1
"""Version of the rows."""

IMPORTED = "imported"

_FROM_FRAME = (
    *("commit", "date", "env", "kernel", "backend", "baseline", "case", "dtype", "world", "seconds", "seconds_low"),
    *("seconds_high", "samples", "trials", "hbm_bytes", "link_bytes", "payload_bytes", "status", "why"),
    *("device", "driver", "runtime", "library", "torch", "triton"),
)
COLUMNS = pa.schema([*map(SCHEMA.field, _FROM_FRAME), ("value", pa.float64()), ("unit", TEXT), ("source", TEXT)])
"""value, unit: as the file has them.  seconds: the value where its unit is one of time, else NaN.  source: which format
it was read from.  A row without seconds is in no page; any engine can query it."""

PART_ROWS = 262_144
"""Rows of an import that are written together."""

MOST_ROWS = 4_000_000
"""Imported rows that the frame takes: about 1.5 GB beside as many of our own (2026-11).  A larger import is for a query
engine, and the frame says so."""

KEY = ["commit", "env", "kernel", "backend", "case"]
"""What two rows of a machine share that are of the same point."""


UNIT = "record"
"""Column that names the unit a row came from."""

_INDEX = b"ridgeline-units"


@dataclasses.dataclass(frozen=True)
class ParsedUnit:
    """What a unit was parsed from: digest of its content, "" of one that was taken away; when, ns since 1970."""

    digest: str
    put_ns: int


class Parts:
    """The imported rows of a machine."""

    def __init__(self, folder: Path) -> None:
        self.folder, self.schema = folder, COLUMNS.append(pa.field(UNIT, TEXT))

    def index(self) -> dict[Path, dict[str, ParsedUnit] | None]:
        """The units of each part that count, from its footer alone; None for one that is damaged or newer."""
        held = {path: _footer(path) for path in sorted(self.folder.glob("part-*.parquet"))}
        newest: dict[str, Path] = {}
        for path, units in held.items():
            for name, unit in (units or {}).items():
                other = (held.get(newest.get(name, path)) or {}).get(name, unit)
                if name not in newest or unit.put_ns >= other.put_ns:
                    newest[name] = path
        return {
            path: None if units is None else {name: unit for name, unit in units.items() if newest[name] == path}
            for path, units in held.items()
        }

    def units(self) -> dict[str, ParsedUnit]:
        """The units of all sound parts."""
        return {name: unit for units in self.index().values() for name, unit in (units or {}).items() if unit.digest}

    def rows(self) -> tuple[pa.Table, list[Path]]:
        """Their rows, those of the latest unit last, and the parts that cannot be read."""
        tables, unsound = list[tuple[int, pa.Table]](), list[Path]()
        for path, units in self.index().items():
            try:
                part = pq.ParquetFile(path, page_checksum_verification=True).read(use_threads=False)
            except (OSError, pa.ArrowException):
                part = None
            if part is None or units is None:
                unsound.append(path)
                continue
            part = table_of({name: part[name] for name in part.column_names}, len(part), self.schema)  # of an older one
            for name, unit in units.items():
                tables.append((unit.put_ns, part.filter(pc.equal(part[UNIT].cast(pa.string()), name))))
        return unified([table for _, table in sorted(tables, key=lambda pair: pair[0])], self.schema), unsound

    def put(self, tables: Mapping[str, pa.Table], units: Mapping[str, ParsedUnit], gone: Collection[str] = ()) -> bool:
        """Keep the rows of units in place of what they had, and take others away; False if it cannot be written."""
        if not tables and not gone:
            return True
        latest = max((unit.put_ns for unit in self.units().values()), default=0)
        own = {name: units[name] for name in tables} | {name: ParsedUnit("", latest + 1) for name in gone}
        names = [table_of({UNIT: name}, len(rows), pa.schema([(UNIT, TEXT)]))[UNIT] for name, rows in tables.items()]
        named = [rows.append_column(UNIT, name) for rows, name in zip(tables.values(), names, strict=True)]
        footer = {"version": VERSION, "units": {name: [unit.digest, [], unit.put_ns] for name, unit in own.items()}}
        text = json.dumps(footer).encode()
        stream = pa.BufferOutputStream()
        texts = [field.name for field in self.schema if field.type == TEXT]
        rows = unified(named, self.schema).replace_schema_metadata({_INDEX: text})
        pq.write_table(rows, stream, compression="zstd", write_page_checksum=True, use_dictionary=texts)
        path = self.folder / f"part-{hashlib.blake2b(text, digest_size=10).hexdigest()}.parquet"
        try:
            replace(path, stream.getvalue().to_pybytes())
        except WriteError:
            return False
        for old, left in self.index().items():
            if left == {}:
                old.unlink(missing_ok=True)
        return True


def _footer(path: Path) -> dict[str, ParsedUnit] | None:
    """The units of a part; None for one that is damaged or of another version."""
    with contextlib.suppress(OSError, pa.ArrowException, ValueError, TypeError, KeyError, AttributeError):
        told = json.loads((pq.read_metadata(path).metadata or {}).get(_INDEX, b"{}"))
        if told.get("version") == VERSION:
            return {name: ParsedUnit(str(unit[0]), int(unit[2])) for name, unit in told["units"].items()}
    return None


def imported(results_dir: Path, machine: str) -> Parts:
    """The imported rows of one machine."""
    return Parts(results_dir / IMPORTED / f"machine={quote(machine, safe='')}")


def imported_machines(results_dir: Path) -> list[str]:
    """Machines that have imported rows."""
    folders = sorted((results_dir / IMPORTED).glob("machine=*"))
    return [unquote(folder.name.partition("=")[2]) for folder in folders if folder.is_dir()]


def imported_times(results_dir: Path, machine: str | None = None) -> tuple[list[pa.Table], list[str]]:
    """Rows that have a time or a failure, each point once, the latest file's; and what was left out."""
    tables, problems = [], []
    for name in imported_machines(results_dir):
        if machine not in (None, name):
            continue
        parts = imported(results_dir, name)
        count = sum(pq.read_metadata(path).num_rows for path, units in parts.index().items() if units)
        if count > MOST_ROWS:
            said = f"{parts.folder}: {count:,} imported rows are more than the {MOST_ROWS:,} that pages take"
            problems.append(f"{said}; query them with DuckDB or pandas as .github/guides/tables.md does")
            continue
        rows, unsound = parts.rows()
        problems += [f"{path}: damaged or of another version; import its files again" for path in unsound]
        timed = pc.or_(
            pc.is_finite(rows["seconds"].fill_null(math.nan)), pc.not_equal(rows["status"].cast(pa.string()), "ok")
        )
        rows = rows.filter(timed)
        once = rows.filter(pa.array(~rows.select(KEY).to_pandas().duplicated(keep="last").to_numpy()))
        tables.append(table_of({**{column: once[column] for column in once.column_names}, "machine": name}, len(once)))
    return tables, problems
