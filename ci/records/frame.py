"""Records as one long frame, or commit by commit, through the Parquet cache.  Read by :mod:`ci.records.store`.

The cache is `results/.cache/v<VERSION>/machine=<name>/part-*.parquet`: plain Parquet with the columns of
:data:`ci.records.rows.SCHEMA` and `record`, the asv file that a row came from (without ".json").  The machine is the
partition, in the "hive" spelling that DuckDB, pandas, polars and Spark read.

What is known without reading a row: every commit and environment that has rows, its date, and a digest of what the rows
were parsed from.  Who keeps what it made of some commits can so tell whether it still holds (:func:`opened`).
"""

from __future__ import annotations

import dataclasses
import hashlib
import re
import shlex
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from urllib.parse import quote

import numpy as np
import numpy.typing as npt
import pandas as pd
import pyarrow as pa

from ci.git.repository import history_order
from ci.records import cache
from ci.records.ledger import machine_folders
from ci.records.rows import CACHED, SCHEMA, TEXT, RowBlock, rows_of, table_of

Codes = npt.NDArray[np.signedinteger]
Units = dict[str, tuple[Path, Path]]

VERSION = 9
"""Version of what the cache holds; raise it with any change of SCHEMA or of how rows are made."""


@dataclasses.dataclass(frozen=True, eq=False)
class FramePiece:
    """Rows of one machine as they are stored; columns that it lacks are unknown."""

    machine: str
    rows: pa.Table


def load(results_dir: Path, machine: str | None, notes_path: Callable[[Path], Path]) -> pd.DataFrame:
    """See :func:`ci.records.store.load`."""
    pieces, problems = list[FramePiece](), list[str]()
    for folder in machine_folders(results_dir):
        if machine in (None, folder.name):
            units = units_in(folder, notes_path)
            found = cache.index(*cached_in(folder, units))
            pieces += [FramePiece(folder.name, rows) for rows in found.rows()]
            problems += problems_in(folder, units, found.problems)
    foreign, left_out = cache.imported_times(results_dir, machine)
    pieces, problems = [*pieces, *(FramePiece(*found) for found in foreign)], [*problems, *left_out]
    frame = assembled(pieces, results_dir)
    frame.attrs["problems"] = problems
    return frame


def units_in(folder: Path, notes_path: Callable[[Path], Path]) -> Units:
    """The records of a machine: the asv file and the notes of each."""
    files = {path.stem: path for path in sorted(folder.glob("*.json")) if path.name != "machine.json"}
    return {stem: (path, notes_path(path)) for stem, path in files.items()}


def problems_in(folder: Path, units: Units, said: Sequence[str]) -> Iterator[str]:
    """What could not be used of a machine's records; said: of each file."""
    yield from (f"{folder}/{one}" for one in said)
    alone = (path for path in sorted(folder.glob("*.notes.jsonl")) if path.name.split(".notes.")[0] not in units)
    yield from (
        f"{path}: notes without an asv file; `ridgeline records add {shlex.quote(str(path))}` makes one"
        for path in alone
    )


def cache_folder(results_dir: Path, machine: str) -> Path:
    """Where the rows of a machine are cached."""
    return results_dir / ".cache" / f"v{VERSION}" / f"machine={quote(machine, safe='')}"


def cached_in(folder: Path, units: Units) -> tuple[Units, cache.Parser, pa.Schema, Path, int]:
    """What `ci.records.cache` must be told of the records of a machine."""
    store = cache_folder(folder.parent, folder.name)
    if not store.is_dir():
        units = dict(sorted(units.items(), key=lambda pair: _dated(pair[1][0])))
    return units, lambda unit: rows_of(folder.name, *units[unit]), CACHED, store, VERSION


def _dated(path: Path) -> int:
    """The date of an asv file as it stands in its first lines, ms since 1970; 0 if it does not stand there."""
    try:
        with path.open("rb") as stream:
            found = re.search(rb'"date":\s*(\d{1,15})\b', stream.read(4096))
    except OSError:
        return 0
    return int(found[1]) if found else 0


def assembled(
    pieces: Sequence[FramePiece], repository: Path, later: Mapping[tuple[str, int], int] | None = None
) -> pd.DataFrame:
    """Pieces as one frame, oldest commit first; texts as categories, in alphabetical order.

    later: `ms_apart` of all records, where the pieces are a part of them.
    """
    commit, date = _texts(pieces, "commit"), _values(pieces, "date")
    runs = _runs(commit.codes, date.view(np.int64))
    date = np.add(date, _apart(commit, date, runs, repository, later))
    order = _by_date(date, commit.codes, runs)
    columns = {}
    for field in SCHEMA:
        if field.name == "date":
            columns["date"] = pd.Series(date[order]).dt.tz_localize("UTC")
        elif field.type == TEXT:
            columns[field.name] = pd.Series(_texts(pieces, field.name)[order])
        else:
            columns[field.name] = pd.Series(_values(pieces, field.name)[order])
    return pd.DataFrame(columns, copy=False)


def _texts(pieces: Sequence[FramePiece], name: str) -> pd.Categorical:
    """A text column of all pieces with the texts that occur in it."""
    whole = _column(pieces, name)
    codes, texts = whole.indices.to_numpy(zero_copy_only=False), whole.dictionary.to_pylist()
    used = np.flatnonzero(np.bincount(codes, minlength=len(texts)))
    ordered = sorted(used.tolist(), key=texts.__getitem__)
    number = np.zeros(len(texts), np.min_scalar_type(-max(len(used), 1)))
    number[ordered] = np.arange(len(ordered))
    names = pd.Index([texts[code] for code in ordered], dtype="str")
    return pd.Categorical.from_codes(number[codes], categories=names, validate=False)


def _values(pieces: Sequence[FramePiece], name: str) -> npt.NDArray[np.generic]:
    """A column of numbers of all pieces."""
    whole = _column(pieces, name)
    dtype = "datetime64[ms]" if pa.types.is_timestamp(whole.type) else whole.type.to_pandas_dtype()
    return np.asarray(whole.to_numpy(zero_copy_only=False).astype(dtype, copy=False))


def _column(pieces: Sequence[FramePiece], name: str) -> pa.Array:
    """A column of all pieces; what a piece lacks is unknown."""
    field = SCHEMA.field(name)
    chunks = []
    for piece in pieces:
        if name in piece.rows.column_names:
            chunks += piece.rows[name].chunks
        else:
            lacking = RowBlock(len(piece.rows), {"machine": piece.machine})
            chunks += table_of([lacking], pa.schema([field]))[name].chunks
    return pa.chunked_array(chunks, field.type).unify_dictionaries().combine_chunks()


def _runs(commit: Codes, date: npt.NDArray[np.int64]) -> npt.NDArray[np.intp]:
    """Where rows of another commit begin: a record's rows stand together, so these are few."""
    if not len(commit):
        return np.empty(0, np.intp)
    return np.concatenate([[0], np.flatnonzero((commit[1:] != commit[:-1]) | (date[1:] != date[:-1])) + 1])


def _apart(
    commit: pd.Categorical,
    date: npt.NDArray[np.generic],
    runs: npt.NDArray[np.intp],
    repository: Path,
    later: Mapping[tuple[str, int], int] | None,
) -> npt.NDArray[np.generic]:
    """What to add to the date of each row."""
    of_run = list(zip(np.asarray(commit[runs], dtype=object), date[runs].view(np.int64).tolist(), strict=True))
    later = ms_apart(of_run, repository) if later is None else later
    lengths = np.diff(np.append(runs, len(date)))
    return np.repeat(np.array([later.get(one, 0) for one in of_run], np.int64), lengths).astype("timedelta64[ms]")


def ms_apart(dated: Iterable[tuple[str, int]], repository: Path) -> dict[tuple[str, int], int]:
    """Commits of one second, as a rebase makes them, 1 ms apart in the order of history: everything sorts by date.

    dated: (commit, date in ms since 1970) of all records.  Returns what to add to the dates that are not alone.
    """
    by_date: dict[int, set[str]] = {}
    for commit, date in dated:
        by_date.setdefault(date, set()).add(commit)
    tied = {date: commits for date, commits in by_date.items() if len(commits) > 1}
    place = history_order(repository, sorted(set().union(*tied.values()))) if tied else {}
    ordered = {date: sorted(commits, key=lambda one: (place.get(one, -1), one)) for date, commits in tied.items()}
    return {(commit, date): n for date, commits in ordered.items() for n, commit in enumerate(commits)}


def _by_date(date: npt.NDArray[np.generic], commit: Codes, runs: npt.NDArray[np.intp]) -> npt.NDArray[np.intp] | slice:
    """The order of rows by date, then commit; rows of the same keep theirs.  Whole runs are moved."""
    order = np.lexsort((commit[runs], date[runs]))
    if np.all(order[1:] > order[:-1]):
        return slice(None)
    lengths = np.diff(np.append(runs, len(date)))[order]
    ends = np.cumsum(lengths)
    return np.repeat(runs[order] - (ends - lengths), lengths) + np.arange(len(date))


# ---- commit by commit ----------------------------------------------------------------------------------------------


@dataclasses.dataclass(frozen=True, order=True)
class RecordPlace:
    """Rows of a commit in an environment.  date_ms: the latest of its rows, ms since 1970; units: records with rows."""

    date_ms: int
    commit: str
    env: str
    units: tuple[str, ...] = ()


@dataclasses.dataclass(frozen=True, eq=False)
class MachineRows:
    """The rows of a machine whose records are all in the cache.  places: oldest first."""

    machine: str
    places: Sequence[RecordPlace]
    indexed: cache.Indexed
    repository: Path
    later: Mapping[tuple[str, int], int]

    def made_of(self, places: Iterable[RecordPlace]) -> str:
        """Digest of what the rows of some places were parsed from, and of how ties of their dates are broken."""
        said = [(p.date_ms, p.commit, p.env, [self.indexed.units[unit].digest for unit in p.units]) for p in places]
        return hashlib.sha256(repr(said).encode(errors="surrogatepass")).hexdigest()

    def rows(self, places: Iterable[RecordPlace]) -> pd.DataFrame:
        """Rows of some places, with the columns of :func:`ci.records.store.load`."""
        wanted = {(place.commit, place.env) for place in places}
        found = (place for place in self.places if (place.commit, place.env) in wanted)
        units = dict.fromkeys(unit for place in found for unit in place.units)
        pieces = [FramePiece(self.machine, table) for table in self.indexed.rows(units)]
        return assembled(pieces, self.repository, self.later)


@dataclasses.dataclass(frozen=True, eq=False)
class OpenedRecords:
    """A folder of records.  machines: those in the cache; mixed: those that have imported rows too, or only these.

    problems: what could not be used, without that of `mixed`.
    """

    machines: Sequence[MachineRows]
    mixed: Sequence[str]
    problems: Sequence[str]


def opened(results_dir: Path, notes_path: Callable[[Path], Path]) -> OpenedRecords:
    """See :func:`ci.records.store.opened`."""
    mixed = cache.imported_machines(results_dir)
    found, problems = dict[str, cache.Indexed](), list[str]()
    for folder in machine_folders(results_dir):
        if folder.name not in mixed:
            units = units_in(folder, notes_path)
            found[folder.name] = cache.index(*cached_in(folder, units))
            problems += problems_in(folder, units, found[folder.name].problems)
    known = [unit.places or () for one in found.values() for unit in one.units.values()]
    dated = [(commit, date) for places in known for commit, _, date in places]
    later = ms_apart(dated, results_dir)
    machines = [
        MachineRows(machine, _places(one, later), one, results_dir, later)
        for machine, one in found.items()
        if any(unit.places for unit in one.units.values())
    ]
    return OpenedRecords(machines, mixed, problems)


def _places(indexed: cache.Indexed, later: Mapping[tuple[str, int], int]) -> list[RecordPlace]:
    """Every commit and environment, oldest first."""
    date: dict[tuple[str, str], int] = {}
    units: dict[tuple[str, str], dict[str, None]] = {}
    for name, unit in indexed.units.items():
        for commit, env, date_ms in unit.places or ():
            shown = date_ms + later.get((commit, date_ms), 0)
            date[commit, env] = max(shown, date.get((commit, env), shown))
            units.setdefault((commit, env), {})[name] = None
    return sorted(RecordPlace(date[key], *key, tuple(sorted(units[key]))) for key in date)
