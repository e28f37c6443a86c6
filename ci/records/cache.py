"""A derived table over many small files, kept as Parquet: parse each once, delete the cache whenever you like.

A unit is a group of files that is parsed together (a result file and its notes).  Its rows are good as long as the
digest of its files is the one they were parsed from.  Files whose size, inode and time of change are the same as last
time are not even opened.  The table itself is kept as parts (below).
"""

from __future__ import annotations

import contextlib
import dataclasses
import hashlib
import json
import os
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from urllib.parse import quote, unquote

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
from filelock import FileLock, Timeout

from ci.records.rows import SCHEMA, TEXT, constant, unified
from ci.trials.file import RecordError
from ci.whole_files import WriteError, replace

# A table kept as a few Parquet files, its parts: any engine reads the folder, and changing a little rewrites a little.
#
#     folder/part-<digest>.parquet   rows, each with the unit it came from
#     folder/.lock                   held while parts are replaced
#
# A unit is what is parsed together, a record or a foreign file. Which units a part holds stands in its footer, beside
# the digest of what they were parsed from; so a part can be lost or damaged without harm to the others. Small parts are
# merged as they come, each with neighbours of at most twice its size: there are never more than a few, and a row is
# rewritten about log2(PART_ROWS / rows of a unit) times. A part is replaced by first taking the old one away: who reads
# meanwhile may miss rows, and never sees one twice.


UNIT = "record"
"""Column that names the unit a row came from."""

PART_ROWS = 262_144
"""Rows from which on a part is left alone: about 10 MB, which are written in 0.3 s (2026-11)."""

REMEMBERED = 4
"""Parts whose rows stay in memory: the newest units are in a large part and a few small ones (about 60 MB in all)."""

LOCK_SECONDS = 60.0
"""How long a writer waits for another.  Parts are written in a second or two; a minute means that the other hangs."""

_INDEX = b"ridgeline-units"

_WRITTEN = {"compression": "zstd", "row_group_size": PART_ROWS, "write_page_checksum": True}


@dataclasses.dataclass(frozen=True)
class ParsedUnit:
    """What a unit was parsed from (digest of its content), and what could not be used of it.

    put_ns: when it was put here, in ns since 1970; 0 where that does not matter.  places: (commit, environment, date in
    ms since 1970) of its rows, each once; None where its part does not say.
    """

    digest: str
    problems: tuple[str, ...] = ()
    put_ns: int = dataclasses.field(default=0, compare=False)
    places: tuple[tuple[str, str, int], ...] | None = dataclasses.field(default=None, compare=False)


@dataclasses.dataclass(frozen=True, eq=False)
class TablePart:
    """Rows of some units; path: its file, None while it has none."""

    units: Mapping[str, ParsedUnit]
    rows: pa.Table
    path: Path | None = None

    def only(self, names: Iterable[str]) -> TablePart:
        """The part with these units alone; itself if it has no others."""
        wanted = set(names)
        left = {name: unit for name, unit in self.units.items() if name in wanted}
        if len(left) == len(self.units):
            return self
        return TablePart(left, self.rows.filter(pc.is_in(self.rows[UNIT], value_set=pa.array(list(left), pa.string()))))

    def without(self, gone: Iterable[str]) -> TablePart:
        """The part without these units."""
        return self.only(self.units.keys() - set(gone))

    @property
    def name(self) -> str:
        """Its file's name: the same for the same content."""
        said = json.dumps(sorted((name, unit.digest) for name, unit in self.units.items()))
        return f"part-{hashlib.blake2b(said.encode(), digest_size=10).hexdigest()}.parquet"


class Parts:
    """The parts in a folder.  schema: of their rows, without UNIT.  version: of what the rows mean."""

    def __init__(self, folder: Path, schema: pa.Schema, version: int) -> None:
        self.folder, self.version, self._unsound = folder, version, set[Path]()
        self._last: dict[Path, TablePart] = {}
        self.schema = schema.append(pa.field(UNIT, TEXT))

    def read(self) -> list[TablePart]:
        """Every sound part, oldest rows first; a missing, damaged or outdated one is left out."""
        found = [part for path in self._paths() if (part := self._part(path))]
        return sorted(found, key=lambda part: oldest(part.rows))

    def part(self, tables: Mapping[str, pa.Table], units: Mapping[str, ParsedUnit]) -> TablePart:
        """Tables of some units as a part without a file."""
        dated = sorted(tables.items(), key=lambda pair: oldest(pair[1]))
        named = [rows.append_column(UNIT, constant(name, len(rows))) for name, rows in dated]
        placed = {name: dataclasses.replace(units[name], places=_places(rows)) for name, rows in tables.items()}
        return TablePart(placed, in_order(unified(named, self.schema).combine_chunks()))

    def put(self, fresh: Sequence[TablePart], gone: Iterable[str] = ()) -> bool:
        """Add parts and take units away; what `fresh` holds replaces what was there.  False if it cannot be written.

        Two writers lose nothing: each adds to what the other has left.
        """
        try:
            with self.locked():
                self._put(list(fresh), set(gone))
        except (OSError, Timeout):
            return False
        return True

    def units(self) -> dict[str, ParsedUnit]:
        """The units of all sound parts, from their footers alone."""
        found = [self._footer(path) for path in self._paths()]
        return {name: unit for units in found for name, unit in (units or {}).items()}

    def holding(self, wanted: Mapping[str, ParsedUnit]) -> Iterator[TablePart]:
        """Those of these units that can be read, each once; the parts that were read last are remembered."""
        left = dict(wanted)  # two parts hold the same unit for the moment in which a writer replaces them
        for path in self._paths():
            mine = [name for name, unit in (self._footer(path) or {}).items() if left.get(name) == unit]
            if mine and (part := self._remembered(path)):
                left = {name: unit for name, unit in left.items() if name not in mine}
                yield part.only(mine)

    def _remembered(self, path: Path) -> TablePart | None:
        if path not in self._last and (part := self._part(path)):
            self._last[path] = part
            while len(self._last) > REMEMBERED:
                del self._last[next(iter(self._last))]
        return self._last.get(path)

    def unsound(self) -> list[Path]:
        """Parts that cannot be used."""
        return [path for path in self._paths() if self._footer(path) is None]

    @contextlib.contextmanager
    def locked(self) -> Iterator[None]:
        """Hold the folder against other writers.  Raises OSError or Timeout."""
        self.folder.mkdir(parents=True, exist_ok=True)
        with FileLock(self.folder / ".lock", timeout=LOCK_SECONDS):
            yield

    def _put(self, fresh: list[TablePart], gone: set[str]) -> None:
        held = {path: self._footer(path) for path in self._paths()}
        damaged = [path for path, units in held.items() if units is None]
        there = {name: unit for units in held.values() for name, unit in (units or {}).items()}
        fresh = [part.without(name for name, unit in part.units.items() if there.get(name) == unit) for part in fresh]
        gone |= {name for part in fresh for name in part.units}
        touched = [path for path, units in held.items() if units and gone & units.keys()]
        left = [part.without(gone) for path in touched if (part := self._part(path))]
        rewritten = [part for part in (*fresh, *left) if part.units]
        small = [path for path in held if path not in (*touched, *damaged)]
        absorbed = self._absorb(rewritten, sorted(small, key=_rows_in)) if rewritten else []
        self._replace(_merged([*rewritten, *absorbed]), [*damaged, *touched, *(p.path for p in absorbed if p.path)])

    def _absorb(self, rewritten: Sequence[TablePart], others: Sequence[Path]) -> list[TablePart]:
        """Parts that are small beside what is written anyway, smallest first."""
        rows, absorbed = sum(len(part.rows) for part in rewritten if len(part.rows) < PART_ROWS), list[TablePart]()
        for path in others:
            more = _rows_in(path)
            if more > 2 * rows or rows + more > PART_ROWS or not (part := self._part(path)):
                break
            absorbed.append(part)
            rows += more
        return absorbed

    def _replace(self, parts: Sequence[TablePart], old: Sequence[Path]) -> None:
        """Write all drafts, take the old parts away, and give the drafts their names."""
        for left in self.folder.glob(".part-*"):  # of a writer that was killed: we hold the lock
            left.unlink(missing_ok=True)
        drafts = [(self._draft(part), self.folder / part.name) for part in parts]
        for path in old:
            path.unlink(missing_ok=True)
        for draft, path in drafts:
            os.replace(draft, path)

    def _draft(self, part: TablePart) -> Path:
        draft = self.folder / f".{part.name}.{os.getpid()}"
        units = {n: [one.digest, one.problems, one.put_ns, one.places] for n, one in part.units.items()}
        index = json.dumps({"version": self.version, "units": units}).encode()
        rows = part.rows.replace_schema_metadata({_INDEX: index})
        texts = [field.name for field in self.schema if field.type == TEXT]
        try:
            pq.write_table(rows, draft, use_dictionary=texts, **_WRITTEN)
        except OSError:
            draft.unlink(missing_ok=True)
            raise
        return draft

    def _paths(self) -> list[Path]:
        return sorted(self.folder.glob("part-*.parquet"))

    def _part(self, path: Path) -> TablePart | None:
        """A part with its rows; None if it cannot be used."""
        units = self._footer(path)
        if units is None:
            return None
        try:
            rows = pq.ParquetFile(path, page_checksum_verification=True).read(use_threads=False)
        except (OSError, pa.ArrowException):
            self._unsound.add(path)
            return None
        return TablePart(units, rows.replace_schema_metadata(None), path)

    def _footer(self, path: Path) -> dict[str, ParsedUnit] | None:
        """The units of a part; None if it is damaged, or of another version or schema."""
        if path in self._unsound:
            return None
        try:
            schema = pq.read_schema(path)
            index = json.loads((schema.metadata or {}).get(_INDEX, b"{}"))
            if index.get("version") != self.version or not schema.equals(self.schema):
                return None
            return {name: _unit(*told) for name, told in index["units"].items()}
        except (OSError, pa.ArrowException, ValueError, TypeError, KeyError, AttributeError):
            return None


def _unit(
    digest: str, problems: Sequence[str], put_ns: int, places: Sequence[tuple[str, str, int]] | None = None
) -> ParsedUnit:
    known = None if places is None else tuple((str(commit), str(env), int(date)) for commit, env, date in places)
    return ParsedUnit(str(digest), tuple(map(str, problems)), int(put_ns), known)


PLACE = ("commit", "env", "date")
"""Columns that say where in the history a row stands."""


def _places(rows: pa.Table) -> tuple[tuple[str, str, int], ...] | None:
    """Where the rows of a unit stand, each place once; None if they do not say."""
    if not set(PLACE) <= set(rows.column_names):
        return None
    columns = [rows[name].cast(pa.int64() if name == "date" else pa.string()) for name in PLACE]
    found = pa.table(columns, names=list(PLACE)).group_by(list(PLACE), use_threads=False).aggregate([])
    return tuple(sorted(zip(*(found[name].to_pylist() for name in PLACE), strict=True)))


def _merged(parts: Sequence[TablePart]) -> list[TablePart]:
    """Small parts as one, in the order of their dates; large ones as they are."""
    large = [part for part in parts if len(part.rows) >= PART_ROWS]
    small = [part for part in parts if len(part.rows) < PART_ROWS]
    if len(small) < 2:
        return [*large, *small]
    units = {name: unit for part in small for name, unit in part.units.items()}
    schema = small[0].rows.schema
    rows = unified([part.rows for part in small], schema).combine_chunks()
    return [*large, TablePart(units, in_order(rows))]


def in_order(rows: pa.Table) -> pa.Table:
    """Rows in the order of their dates; rows of one date as they were."""
    dates = rows["date"].to_numpy()
    if np.all(dates[1:] >= dates[:-1]):
        return rows
    return rows.take(pa.array(np.argsort(dates, kind="stable")))


def oldest(rows: pa.Table) -> int:
    """The least date of some rows, ms since 1970; 0 without any."""
    dates = rows["date"]
    return int(pc.min(dates.cast(pa.int64())).as_py()) if len(dates) else 0


def _rows_in(path: Path) -> int:
    try:
        return int(pq.read_metadata(path).num_rows)
    except (OSError, pa.ArrowException):
        return 0


Parser = Callable[[str], tuple[pa.Table, list[str]]]
"""Unit name to (rows, problems)."""

_SEEN = ".files.json"
"""What the files of each unit looked like when their digest was taken: only saves opening them."""


@dataclasses.dataclass(frozen=True, eq=False)
class Indexed:
    """Units whose rows are read when they are asked for.

    units: what is known of each; held: those whose rows could not be kept; parse: for what a damaged part has lost.
    """

    parts: Parts
    units: Mapping[str, ParsedUnit]
    held: Sequence[TablePart]
    parse: Parser

    @property
    def problems(self) -> list[str]:
        """What could not be used of the units."""
        return [said for unit in self.units.values() for said in unit.problems]

    def rows(self, names: Iterable[str] | None = None) -> list[pa.Table]:
        """The rows of some units (None: of all), oldest first, as tables that may differ in their dictionaries."""
        wanted = {name: self.units[name] for name in (self.units if names is None else names)}
        held = [part.only(wanted) for part in self.held]
        there = {name for part in held for name in part.units}
        found = list(self.parts.holding({name: unit for name, unit in wanted.items() if name not in there}))
        lost = [name for name in wanted if name not in there.union(*(part.units for part in found))]
        made = list(_parsed(lost, self.parse, {name: self.units[name].digest for name in lost}, self.parts))
        if made:
            self.parts.put(made)
        tables = [part.rows for part in (*found, *made, *held) if len(part.rows)]
        return [table.select(self.parts.schema.names[:-1]) for table in sorted(tables, key=oldest)]


def index(units: Mapping[str, Sequence[Path]], parse: Parser, schema: pa.Schema, store: Path, version: int) -> Indexed:
    """What is known of units; only those whose files are not as they were are parsed, and no other rows are read.

    Units that are parsed together are best given in the order of their dates, so that parts do not overlap.  `store` is
    a folder of parts that is read and, where something changed, written; a missing, damaged or unwritable one only
    costs time.  Change `version` whenever `parse` or `schema` means something else.
    """
    parts = Parts(store, schema, version)
    there = parts.units()
    digests, seen = _digests(units, _read_seen(parts.folder))
    stale = [name for name in units if name not in there or there[name].digest != digests[name]]
    gone, fresh = there.keys() - units.keys(), list(_parsed(stale, parse, digests, parts))
    if fresh or gone or seen is not None:
        _write(parts, fresh, gone, seen)
        there = parts.units()
    new = {name: unit for part in fresh for name, unit in part.units.items()}
    lost = {name for name in new if there.get(name) != new[name]}
    held = [part.only(lost) for part in fresh if lost & part.units.keys()]
    return Indexed(parts, {name: new.get(name) or there[name] for name in units}, held, parse)


def _parsed(stale: Sequence[str], parse: Parser, digests: Mapping[str, str], parts: Parts) -> Iterator[TablePart]:
    """Units parsed anew, as parts of about PART_ROWS rows."""
    tables: dict[str, pa.Table] = {}
    known: dict[str, ParsedUnit] = {}
    for name in stale:
        tables[name], problems = parse(name)
        known[name] = ParsedUnit(digests[name], tuple(problems))
        if sum(map(len, tables.values())) >= PART_ROWS:
            yield parts.part(tables, known)
            tables, known = {}, {}
    if tables:
        yield parts.part(tables, known)


def _digests(
    units: Mapping[str, Sequence[Path]], seen: Mapping[str, list[str]]
) -> tuple[dict[str, str], dict[str, list[str]] | None]:
    """The digest of each unit, and what is to be remembered of its files: None if all is as it was."""
    found = {}
    for name, files in units.items():
        stat = _stat(files)
        before = seen.get(name)
        found[name] = before if before and before[0] == stat else [stat, _digest(files)]
    digests = {name: digest for name, (_, digest) in found.items()}
    return digests, None if found == seen else found


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


def _read_seen(store: Path) -> dict[str, list[str]]:
    with contextlib.suppress(OSError, ValueError, TypeError):
        found = json.loads((store / _SEEN).read_text())
        return {name: [str(stat), str(digest)] for name, (stat, digest) in found.items()}
    return {}


def _write(parts: Parts, fresh: Sequence[TablePart], gone: set[str], seen: Mapping[str, list[str]] | None) -> None:
    """A read-only folder or a full disk leaves the old parts, which are as good but for speed."""
    with contextlib.suppress(OSError):
        parts.folder.parent.mkdir(parents=True, exist_ok=True)
        (parts.folder.parent / ".gitignore").write_text("*\n")
    if not parts.put(fresh, gone) or seen is None:
        return
    with contextlib.suppress(WriteError):
        replace(parts.folder / _SEEN, json.dumps(seen))


# Records of other tools, beside our own: `results/imported/machine=<name>/part-*.parquet`.
#
# They are no asv files of ours: asv's format wants a benchmark definition that nobody declared, and a history of
# millions of points does not fit JSON.  So they are kept as the cache keeps rows (:mod:`ci.records.cache`), with the
# columns below; a unit is a foreign file, and a file that is imported again replaces its rows.  Unlike the cache they
# cannot be made again: this folder is a record.  :func:`ci.records.store.load` adds their times to the frame.


IMPORTED_VERSION = 1
"""Version of the rows.  Other versions are never replaced: they may be the only copy."""

IMPORTED = "imported"

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
        super().__init__(results_dir / IMPORTED / f"machine={quote(machine, safe='')}", COLUMNS, IMPORTED_VERSION)

    def _replace(self, parts: Sequence[TablePart], old: Sequence[Path]) -> None:
        """Refuses to take a damaged part away: it is the only copy of its rows."""
        lost = [path for path in old if self._footer(path) is None]
        if lost:
            raise RecordError(
                f"{lost[0]} is damaged or of another version of Ridgeline; nothing was written.  "
                "Move it away and import its files again"
            )
        super()._replace(parts, old)


def imported_machines(results_dir: Path) -> list[str]:
    """Machines that have imported rows."""
    folders = sorted((results_dir / IMPORTED).glob("machine=*"))
    return [unquote(folder.name.partition("=")[2]) for folder in folders if folder.is_dir()]


def keep_imported(results_dir: Path, machine: str, tables: Mapping[str, pa.Table], digests: Mapping[str, str]) -> None:
    """Keep the tables of some files, each in place of what its file gave before.  Raises RecordError."""
    parts = ImportedParts(results_dir, machine)
    fresh = parts.part(tables, {name: ParsedUnit(digests[name], put_ns=time.time_ns()) for name in tables})
    if not parts.put([fresh]):
        raise RecordError(f"{parts.folder} cannot be written; give a folder you may write: --results DIR")


def imported_digests(results_dir: Path, machine: str) -> dict[str, str]:
    """Digests of the files that were imported for a machine, by name."""
    return {name: unit.digest for name, unit in ImportedParts(results_dir, machine).units().items()}


def imported_times(results_dir: Path, machine: str | None = None) -> tuple[list[tuple[str, pa.Table]], list[str]]:
    """(machine, rows) that have a time or a failure, each point once, the latest file's; and what was left out."""
    found, problems = [], []
    for name in imported_machines(results_dir):
        parts = ImportedParts(results_dir, name)
        if machine not in (None, name):
            continue
        rows = sum(_rows_in(path) for path in parts.folder.glob("part-*.parquet"))
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
