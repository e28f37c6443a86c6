"""Rows of many small files as a few Parquet files, the parts of a folder: parsed once, read by any engine.

    folder/part-<digest>.parquet   rows, each with the unit it came from
    folder/.lock                   held while parts are replaced

A unit is a group of files that is parsed together: a record (a result file and its notes), or a foreign file.  Which
units a part holds stands in its footer, beside the digest of what they were parsed from; so a part can be lost or
damaged without harm to the others.  New rows join the parts that are not full; full ones are left alone, unless one of
their units changed.  A part is replaced by first taking the old one away: who reads meanwhile may miss rows, and never
sees one twice.
"""

from __future__ import annotations

import contextlib
import dataclasses
import functools
import hashlib
import json
import os
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import TypeAlias

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
from filelock import FileLock, Timeout

from ci.trials.file import RecordError
from ci.whole_files import WriteError, replace

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
            TEXT, "driver", "runtime", "library", "torch", "triton", "code", "shape", "paired_with", "compared_with"
        ),
        *_fields(pa.float64(), "paired_ratio", "paired_low", "paired_high"),
    ]
)
"""Columns of the frame.  seconds_low and seconds_high: 99 % interval (ci.records.pooling.interval).

driver, torch, triton: versions; runtime: "CUDA 13.0" or "HIP 7.1"; library: "NCCL 2.28.9" or "RCCL 2.27"; "" if not
known.  code: what the arm ran (`ci.records.pooling.Cell`), shape: the dimensions of the case as a JSON object,
"" if not known.
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

CACHED = SCHEMA.remove(SCHEMA.get_field_index("machine"))
"""What a record's rows say; the machine is the name of their folder."""

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
    plain = pa.string() if kind == TEXT else kind
    if not isinstance(column, (list, tuple, np.ndarray)):
        values = pa.repeat(pa.scalar(column, plain), rows)
    elif pa.types.is_floating(kind):
        values = pa.array(np.array(column, np.float64), kind, from_pandas=True)
    else:
        values = pa.array(column, plain)
    return values.dictionary_encode() if kind == TEXT else values


# A folder of parts.


UNIT = "record"
"""Column that names the unit a row came from."""

PART_ROWS = 262_144
"""Rows from which on a part is full: about 10 MB, which are written in 0.3 s (2026-11)."""

REMEMBERED = 4
"""Parts whose rows stay in memory for who reads a history piece by piece (about 60 MB in all)."""

LOCK_SECONDS = 60.0
"""How long a writer waits for another.  Parts are written in a second or two; a minute means that the other hangs."""

_INDEX = b"ridgeline-units"


@dataclasses.dataclass(frozen=True)
class ParsedUnit:
    """What a unit was parsed from (digest of its content), and what could not be used of it.

    put_ns: when it was put here, in ns since 1970; 0 where that does not matter.  places: (commit, environment, date in
    ms since 1970) of its rows, each once.
    """

    digest: str
    problems: tuple[str, ...] = ()
    put_ns: int = dataclasses.field(default=0, compare=False)
    places: tuple[tuple[str, str, int], ...] = dataclasses.field(default=(), compare=False)

    @classmethod
    def of(
        cls, digest: str, problems: Sequence[str], put_ns: int, places: Sequence[Sequence[str | int]] | None = None
    ) -> ParsedUnit:
        """From the footer of a part."""
        known = tuple((str(commit), str(env), int(date)) for commit, env, date in places or ())
        return cls(str(digest), tuple(map(str, problems)), int(put_ns), known)


Units = Mapping[str, ParsedUnit]
Part = tuple[Units, pa.Table]
"""Units and their rows."""


class Parts:
    """The parts in a folder.  schema: of their rows, without UNIT.  version: of what the rows mean.

    only_copy: whether the rows cannot be made again, so that a damaged part is never taken away.
    """

    def __init__(self, folder: Path, schema: pa.Schema, version: int, only_copy: bool = False) -> None:
        self.folder, self.version, self.only_copy = folder, version, only_copy
        self.schema = schema.append(pa.field(UNIT, TEXT))
        self._remembered = functools.lru_cache(REMEMBERED)(self._rows)

    def index(self) -> dict[Path, Units | None]:
        """The units of each part, from its footer alone; None for one that is damaged or of another version."""
        return {path: self._footer(path) for path in sorted(self.folder.glob("part-*.parquet"))}

    def units(self) -> dict[str, ParsedUnit]:
        """The units of all sound parts."""
        return {name: unit for held in self.index().values() for name, unit in (held or {}).items()}

    def read(self, wanted: Units) -> Iterator[Part]:
        """Those of these units that can be read, each once."""
        left = dict(wanted)  # two parts hold the same unit for the moment in which a writer replaces them
        for path, held in self.index().items():
            mine = {name: unit for name, unit in (held or {}).items() if left.get(name) == unit}
            rows = self._remembered(path) if mine else None
            if rows is not None:
                left = {name: unit for name, unit in left.items() if name not in mine}
                yield mine, rows if len(mine) == len(held or {}) else only(rows, mine)

    def put(self, tables: Mapping[str, pa.Table], units: Units, gone: Collection[str] = ()) -> bool:
        """Keep the rows of units, each in place of what it had, and take others away; False if it cannot be written.

        Two writers lose nothing: each adds to what the other has left.  Raises RecordError where a damaged part holds
        the only copy of its rows.
        """
        try:
            self.folder.mkdir(parents=True, exist_ok=True)
            with FileLock(self.folder / ".lock", timeout=LOCK_SECONDS):
                self._put(tables, units, {*tables, *gone})
        except (OSError, Timeout):
            return False
        return True

    def _put(self, tables: Mapping[str, pa.Table], units: Units, replaced: set[str]) -> None:
        fresh = {name: dataclasses.replace(units[name], places=places_of(rows)) for name, rows in tables.items()}
        named = [rows.append_column(UNIT, _constant(name, len(rows))) for name, rows in tables.items()]
        full, rest, old = list[Part](), [(fresh, unified(named, self.schema))] if tables else [], list[Path]()
        for path, held in self.index().items():
            if held and not replaced & held.keys() and not (tables and pq.read_metadata(path).num_rows < PART_ROWS):
                continue
            old.append(path)
            rows = self._rows(path) if held else None
            if rows is None and self.only_copy:
                raise RecordError(
                    f"{path} is damaged or of another version of Ridgeline; nothing was written.  "
                    "Move it away and import its files again"
                )
            if rows is not None and (left := {n: unit for n, unit in (held or {}).items() if n not in replaced}):
                kept = left, only(rows, left)
                (rest if len(kept[1]) < PART_ROWS else full).append(kept)
        if rest:
            full.append(
                ({n: u for part in rest for n, u in part[0].items()}, unified([t for _, t in rest], self.schema))
            )
        self._replace(full, old)

    def _replace(self, parts: Sequence[Part], old: Sequence[Path]) -> None:
        """Write all drafts, take the old parts away, and give the drafts their names."""
        for left in self.folder.glob(".part-*"):  # of a writer that was killed: we hold the lock
            left.unlink(missing_ok=True)
        drafts = [self._draft(*part) for part in parts]
        for path in old:
            path.unlink(missing_ok=True)
        for draft in drafts:
            os.replace(draft, draft.with_name(draft.name[1:]))

    def _draft(self, units: Units, rows: pa.Table) -> Path:
        """A part under a hidden name, which is the same for the same content."""
        said = json.dumps(sorted((name, unit.digest) for name, unit in units.items()))
        draft = self.folder / f".part-{hashlib.blake2b(said.encode(), digest_size=10).hexdigest()}.parquet"
        told = {"version": self.version, "units": {n: list(dataclasses.astuple(unit)) for n, unit in units.items()}}
        try:
            pq.write_table(
                rows.replace_schema_metadata({_INDEX: json.dumps(told).encode()}),
                draft,
                compression="zstd",
                row_group_size=PART_ROWS,
                write_page_checksum=True,
                use_dictionary=[field.name for field in self.schema if field.type == TEXT],
            )
        except OSError:
            draft.unlink(missing_ok=True)
            raise
        return draft

    def _rows(self, path: Path) -> pa.Table | None:
        """The rows of a part; None if it is damaged."""
        try:
            return pq.ParquetFile(path, page_checksum_verification=True).read(use_threads=False)
        except (OSError, pa.ArrowException):
            return None

    def _footer(self, path: Path) -> Units | None:
        try:
            told = json.loads((pq.read_metadata(path).metadata or {}).get(_INDEX, b"{}"))
            if told.get("version") != self.version:
                return None
            return {name: ParsedUnit.of(*unit) for name, unit in told["units"].items()}
        except (OSError, pa.ArrowException, ValueError, TypeError, KeyError, AttributeError):
            return None


def only(rows: pa.Table, names: Iterable[str]) -> pa.Table:
    """The rows of these units."""
    return rows.filter(pc.is_in(rows[UNIT], value_set=pa.array(list(names), pa.string())))


def _constant(text: str, rows: int) -> pa.Array:
    return table_of({UNIT: text}, rows, pa.schema([(UNIT, TEXT)]))[UNIT]


PLACE = ("commit", "env", "date")
"""Columns that say where in the history a row stands."""


def places_of(rows: pa.Table) -> tuple[tuple[str, str, int], ...]:
    """Where the rows of a unit stand, each place once."""
    columns = [rows[name].cast(pa.int64() if name == "date" else pa.string()) for name in PLACE]
    found = pa.table(columns, names=list(PLACE)).group_by(list(PLACE), use_threads=False).aggregate([])
    return tuple(sorted(zip(*(found[name].to_pylist() for name in PLACE), strict=True)))


# A derived table over files: its rows are good as long as the digest of the files is the one they were parsed from.


Parser = Callable[[str], tuple[pa.Table, list[str]]]
"""Unit name to (rows, problems)."""

SEEN = ".files.json"
"""What the files of each unit looked like when their digest was taken: only saves opening them."""


class ParsedFiles:
    """Units of files, each parsed once, whose rows are read when they are asked for.

    The parts are read and, where something changed, written; missing, damaged or unwritable ones only cost time.
    units: what is known of each.
    """

    def __init__(self, files: Mapping[str, Sequence[Path]], parse: Parser, parts: Parts) -> None:
        """Parse what has changed; units are best given in the order of their dates, so that parts do not overlap.

        Change the version of the parts whenever `parse` or their schema means something else.
        """
        self._parse, self._parts = parse, parts
        self._held: dict[str, pa.Table] = {}  # rows that could not be kept
        there, self._digests = parts.units(), digests(files, parts.folder)
        self.units = {name: unit for name, unit in there.items() if self._digests.get(name) == unit.digest}
        self._keep([name for name in files if name not in self.units])
        if gone := there.keys() - files.keys():
            parts.put({}, {}, gone)
        self.units = {name: self.units[name] for name in files}

    @property
    def problems(self) -> list[str]:
        """What could not be used of the units."""
        return [said for unit in self.units.values() for said in unit.problems]

    def rows(self, names: Iterable[str] | None = None) -> list[pa.Table]:
        """The rows of some units (None: of all), as tables that may differ in their dictionaries."""
        wanted = dict.fromkeys(self.units if names is None else names)
        kept = list(self._parts.read({name: self.units[name] for name in wanted if name not in self._held}))
        read = {name for units, _ in kept for name in units} | self._held.keys()
        made = self._keep([name for name in wanted if name not in read])
        held = [rows for name, rows in self._held.items() if name in wanted and name not in made]
        return [*(rows.drop_columns(UNIT) for _, rows in kept), *made.values(), *held]

    def _keep(self, names: Sequence[str]) -> dict[str, pa.Table]:
        """The rows of units, parsed and kept, a part's worth at a time."""
        made, waiting = dict[str, pa.Table](), dict[str, pa.Table]()
        for name in names:
            waiting[name], problems = self._parse(name)
            self.units[name] = ParsedUnit(self._digests[name], tuple(problems), places=places_of(waiting[name]))
            if sum(map(len, waiting.values())) >= PART_ROWS or name == names[-1]:
                if not self._parts.put(waiting, self.units):
                    self._held |= waiting
                made, waiting = made | waiting, {}
        return made


def digests(units: Mapping[str, Sequence[Path]], folder: Path) -> dict[str, str]:
    """The digest of the files of each unit; files that look as they did when `folder` was written are not opened."""
    before = dict[str, tuple[str, str]]()
    with contextlib.suppress(OSError, ValueError, TypeError):
        found = json.loads((folder / SEEN).read_text())
        before = {name: (str(look), str(digest)) for name, (look, digest) in found.items()}
    looks = {name: "|".join(map(_look, files)) for name, files in units.items()}
    after = {
        name: before[name] if name in before and before[name][0] == look else (look, digest_of(units[name]))
        for name, look in looks.items()
    }
    if after != before:
        with contextlib.suppress(WriteError):
            replace(folder.parent / ".gitignore", "*\n")
            replace(folder / SEEN, json.dumps(after))
    return {name: digest for name, (_, digest) in after.items()}


def _look(file: Path) -> str:
    """Size, inode and time of change of a file; a missing file has none."""
    try:
        stat = file.stat()
    except FileNotFoundError:
        return ""
    return f"{file.name}:{stat.st_size}:{stat.st_ino}:{stat.st_mtime_ns}"


def digest_of(files: Sequence[Path]) -> str:
    """Of the names and the content of files."""
    digest = hashlib.blake2b(digest_size=16)
    for file in files:
        with contextlib.suppress(OSError):
            digest.update(f"{file.name}:{file.stat().st_size}:".encode() + file.read_bytes())
    return digest.hexdigest()
