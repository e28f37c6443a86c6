"""Records as one long frame, or commit by commit.  Read by :mod:`ci.records.store`.

Rows are parsed once and kept in `results/.cache/v<VERSION>/machine=<name>/part-*.parquet` (:mod:`ci.records.cache`):
plain Parquet with the columns of :data:`ci.records.cache.SCHEMA` and `record`, the asv file that a row came from
(without ".json").  The machine is the partition, in the "hive" spelling that DuckDB, pandas, polars and Spark read.

What is known without reading a row: every commit and environment that has rows, its date, and a digest of what the rows
were parsed from.  Who keeps what it made of some commits can so tell whether it still holds (:func:`opened`).
"""

from __future__ import annotations

import dataclasses
import hashlib
import json
import math
import re
import shlex
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any
from urllib.parse import quote, unquote

import numpy as np
import numpy.typing as npt
import pandas as pd
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from ci.git.repository import history_order
from ci.records.cache import CACHED, SCHEMA, TEXT, UNIT, Column, ParsedFiles, Parts, table_of, unified
from ci.records.ledger import machine_folders
from ci.records.pooling import PairedRatio, Place, PooledTimes, PooledTrials, pool, times_of
from ci.records.rows import EXACT, TIME, checked, notes_of, software
from ci.trials.file import TrialFile, read
from ci.trials.trial import DeclaredCase, Machine

Codes = npt.NDArray[np.signedinteger]

Told = Callable[[TrialFile], None]
"""Is told of the notes of each record that is parsed, which are large: who wants more of them than rows has it here."""

VERSION = 11
"""Version of what the cache holds; raise it with any change of SCHEMA or of how rows are made."""


def load(results_dir: Path, machine: str | None) -> pd.DataFrame:
    """See :func:`ci.records.store.load`."""
    tables, problems = list[pa.Table](), list[str]()
    for folder in machine_folders(results_dir):
        if machine in (None, folder.name):
            found, said = parsed(folder)
            tables += [_of_machine(rows, folder.name) for rows in found.rows()]
            problems += said
    foreign, left_out = imported_times(results_dir, machine)
    frame = assembled([*tables, *foreign], results_dir)
    frame.attrs["problems"] = [*problems, *left_out]
    return frame


def parsed(folder: Path, told: Told = lambda _: None) -> tuple[ParsedFiles, list[str]]:
    """The records of a machine, and what could not be used of them."""
    files = {path.stem: (path, notes_of(path)) for path in sorted(folder.glob("*.json")) if path.name != "machine.json"}
    store = cache_folder(folder.parent, folder.name)
    if not store.is_dir():
        files = dict(sorted(files.items(), key=lambda pair: _dated(pair[1][0])))
    found = ParsedFiles(files, lambda stem: rows_of(*files[stem], told), Parts(store, CACHED, VERSION))
    alone = (path for path in sorted(folder.glob("*.notes.jsonl")) if path.name.split(".notes.")[0] not in files)
    return found, [
        *(f"{folder}/{said}" for said in found.problems),
        *(
            f"{path}: notes without an asv file; `ridgeline records add {shlex.quote(str(path))}` makes one"
            for path in alone
        ),
    ]


def cache_folder(results_dir: Path, machine: str) -> Path:
    """Where the rows of a machine are cached."""
    return results_dir / ".cache" / f"v{VERSION}" / f"machine={quote(machine, safe='')}"


def _dated(path: Path) -> int:
    """The date of an asv file as it stands in its first lines, ms since 1970; 0 if it does not stand there."""
    try:
        with path.open("rb") as stream:
            found = re.search(rb'"date":\s*(\d{1,15})\b', stream.read(4096))
    except OSError:
        return 0
    return int(found[1]) if found else 0


def _of_machine(rows: pa.Table, machine: str) -> pa.Table:
    """Rows with the columns of SCHEMA; those that they lack are unknown."""
    return table_of({**{name: rows[name] for name in rows.column_names}, "machine": machine}, len(rows))


def assembled(
    tables: Sequence[pa.Table], repository: Path, later: Mapping[tuple[str, int], int] | None = None
) -> pd.DataFrame:
    """Tables of SCHEMA as one frame, oldest commit first; texts as categories, in alphabetical order.

    later: `ms_apart` of all records, where the rows are a part of them.
    """
    whole = unified(tables, SCHEMA)
    commit, date = _texts(whole["commit"]), whole["date"].to_numpy()
    place = pd.DataFrame({"commit": commit.codes, "date": date}).groupby(["commit", "date"], sort=False).ngroup()
    _, first = np.unique(place, return_index=True)
    dated = list(zip(np.asarray(commit[first], dtype=object), date[first].view(np.int64).tolist(), strict=True))
    later = ms_apart(dated, repository) if later is None else later
    date = date + np.array([later.get(one, 0) for one in dated], "timedelta64[ms]")[place]
    order = np.lexsort((commit.codes, date))
    columns = {}
    for field in SCHEMA:
        if field.name == "date":
            columns["date"] = pd.Series(date[order]).dt.tz_localize("UTC")
        else:
            column = whole[field.name]
            columns[field.name] = pd.Series((_texts(column) if field.type == TEXT else column.to_numpy())[order])
    return pd.DataFrame(columns, copy=False)


def _texts(column: pa.ChunkedArray) -> pd.Categorical:
    """A text column with the texts that occur in it."""
    whole = column.combine_chunks()
    codes, texts = whole.indices.to_numpy(zero_copy_only=False), whole.dictionary.to_pylist()
    used = np.flatnonzero(np.bincount(codes, minlength=len(texts)))
    ordered = sorted(used.tolist(), key=texts.__getitem__)
    number = np.zeros(len(texts), np.min_scalar_type(-max(len(used), 1)))
    number[ordered] = np.arange(len(ordered))
    names = pd.Index([texts[code] for code in ordered], dtype="str")
    return pd.Categorical.from_codes(number[codes], categories=names, validate=False)


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


# ---- the rows of one record ----------------------------------------------------------------------------------------


UNPAIRED = PairedRatio("", math.nan, math.nan, math.nan)

UNTIMED = PooledTimes(math.nan, math.nan, math.nan, math.nan, math.nan, 0, 0)


def rows_of(path: Path, notes: Path, told: Told = lambda _: None) -> tuple[pa.Table, list[str]]:
    """Rows of the trials beside an asv file in the folder of its machine, and what could not be used.

    A file of asv without trials is another tool's: `ridgeline records import` reads it.
    """
    machine = path.parent.name
    try:
        data, why = checked(path.read_bytes(), machine)
    except OSError as error:
        data, why = {}, f"cannot be read: {error.strerror}"
    if not why and not notes.exists() and any(map(_is_timed, data["results"].items())):
        why = f"no {notes.name} lies beside it; `ridgeline records import {shlex.quote(str(path))}` reads asv's numbers"
    if why:
        return CACHED.empty_table(), [f"{path.name}: {why}; left out"]
    file = read(notes) if notes.exists() else TrialFile(notes)
    told(file)
    problems = [f"{one.at(Path(notes.name))}: {one.why}; left out" for one in file.rejected]
    place = Place(machine, data["commit_hash"], data["env_name"])
    try:
        pooled = pool(file.trials, place) if file.trials else None
    except ValueError as error:
        pooled, problems = None, [*problems, f"{notes.name}: {error}; its trials belong elsewhere"]
    return _noted(pooled) if pooled else CACHED.empty_table(), problems


def _is_timed(named: tuple[str, Sequence[Any]]) -> bool:
    """Whether a row of asv's file, by its name, has a time or a failure; a commit without the operator has NaN."""
    name, row = named
    values = row[0] if name.endswith(f".{TIME}") and isinstance(row, list) and row else None
    return isinstance(values, list) and not all(value != value for value in values)


def _noted(pooled: PooledTrials) -> pa.Table:
    """Everything the notes hold."""
    keys, cells = list(pooled.cells), list(pooled.cells.values())
    declarations = [pooled.declarations[kernel] for kernel, _, _ in keys]
    cases = [d.cases.get(name, DeclaredCase(name)) for d, (_, _, name) in zip(declarations, keys, strict=True)]
    times = [times_of(cell) or UNTIMED for cell in cells]
    paired = [one.paired or UNPAIRED for one in times]
    columns: dict[str, Column] = {
        **_where(pooled.place, pooled.machine, pooled.date_ms),
        **software(pooled.environment.versions),
        "driver": pooled.machine.driver or "",
        "kernel": [key[0] for key in keys],
        "backend": [key[1] for key in keys],
        "case": [key[2] for key in keys],
        "baseline": [key[1] in d.baselines for d, key in zip(declarations, keys, strict=True)],
        **{name: [getattr(case, name) for case in cases] for name in ("tier", "dtype", "world")},
        "shape": [json.dumps(dict(case.shape)) if case.shape else "" for case in cases],
        **{field: [getattr(case.cost, field) for case in cases] for field, _ in EXACT.values()},
        **{name: [getattr(one, name) for one in times] for name in ("seconds", "samples", "trials")},
        **{f"seconds_{end}": [getattr(one, end) for one in times] for end in ("low", "high")},
        "status": [str(cell.status) for cell in cells],
        "yardstick": [cell.definition for cell in cells],
        "case_yardstick": [cell.case_definition for cell in cells],
        **{name: [getattr(cell, name) for cell in cells] for name in ("why", "method", "code")},
        "paired_with": [one.name for one in paired],
        "compared_with": [pooled.bases.get(key[0], "") for key in keys],
        **{f"paired_{name}": [getattr(one, name) for one in paired] for name in ("ratio", "low", "high")},
    }
    return table_of(columns, len(keys), CACHED)


def _where(place: Place, machine: Machine, date_ms: int) -> dict[str, Column]:
    texts = {name: getattr(machine, name) or "" for name in ("kind", "arch", "device", "market_name", "chip_id")}
    sizes = (machine.compute_units, machine.memory_bytes)
    units, memory = (None if size is None else float(size) for size in sizes)
    of_machine = {**texts, "count": machine.count, "compute_units": units, "memory_bytes": memory}
    return {**of_machine, "commit": place.commit, "date": int(date_ms), "env": place.env}


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
    records: ParsedFiles
    repository: Path
    later: Mapping[tuple[str, int], int]

    def made_of(self, places: Iterable[RecordPlace]) -> str:
        """Digest of what the rows of some places were parsed from, and of how ties of their dates are broken."""
        said = [(p.date_ms, p.commit, p.env, [self.records.units[unit].digest for unit in p.units]) for p in places]
        return hashlib.sha256(repr(said).encode(errors="surrogatepass")).hexdigest()

    def rows(self, places: Iterable[RecordPlace]) -> pd.DataFrame:
        """Rows of some places, with the columns of :func:`ci.records.store.load`."""
        wanted = {(place.commit, place.env) for place in places}
        found = (place for place in self.places if (place.commit, place.env) in wanted)
        tables = self.records.rows(unit for place in found for unit in place.units)
        return assembled([_of_machine(table, self.machine) for table in tables], self.repository, self.later)


@dataclasses.dataclass(frozen=True, eq=False)
class OpenedRecords:
    """A folder of records.  machines: those in the cache; mixed: those that have imported rows too, or only these.

    problems: what could not be used, without that of `mixed`.
    """

    machines: Sequence[MachineRows]
    mixed: Sequence[str]
    problems: Sequence[str]


def opened(results_dir: Path, told: Told) -> OpenedRecords:
    """See :func:`ci.records.store.opened`."""
    mixed = imported_machines(results_dir)
    found, problems = dict[str, ParsedFiles](), list[str]()
    for folder in machine_folders(results_dir):
        if folder.name not in mixed:
            found[folder.name], said = parsed(folder, told)
            problems += said
    units = {machine: list(records.units.items()) for machine, records in found.items()}
    later = ms_apart(
        [(commit, date) for those in units.values() for _, unit in those for commit, _, date in unit.places],
        results_dir,
    )
    machines = []
    for machine, records in found.items():
        dates: dict[tuple[str, str], int] = {}
        names: dict[tuple[str, str], dict[str, None]] = {}
        for name, unit in units[machine]:
            for commit, env, date in unit.places:
                shown = date + later.get((commit, date), 0)
                dates[commit, env] = max(shown, dates.get((commit, env), shown))
                names.setdefault((commit, env), {})[name] = None
        places = sorted(RecordPlace(dates[key], *key, tuple(sorted(names[key]))) for key in dates)
        if places:
            machines.append(MachineRows(machine, places, records, results_dir, later))
    return OpenedRecords(machines, mixed, problems)


# ---- records of other tools ----------------------------------------------------------------------------------------
#
# `results/imported/machine=<name>/part-*.parquet`, beside our own. They are no asv files of ours: asv's format wants a
# benchmark definition that nobody declared, and a history of millions of points does not fit JSON. So they are kept as
# the cache keeps rows, with the columns below; a unit is a foreign file (of a large CSV a block), and a file that is
# imported again replaces its rows. Unlike the cache they cannot be made again: this folder is a record.


IMPORTED_VERSION = 1
"""Version of the rows.  Other versions are never replaced: they may be the only copy."""

IMPORTED = "imported"

_FROM_FRAME = (
    *("commit", "date", "env", "kernel", "backend", "case", "dtype", "world", "seconds", "seconds_low"),
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


def imported(results_dir: Path, machine: str) -> Parts:
    """The imported rows of one machine."""
    folder = results_dir / IMPORTED / f"machine={quote(machine, safe='')}"
    return Parts(folder, COLUMNS, IMPORTED_VERSION, only_copy=True)


def imported_machines(results_dir: Path) -> list[str]:
    """Machines that have imported rows."""
    folders = sorted((results_dir / IMPORTED).glob("machine=*"))
    return [unquote(folder.name.partition("=")[2]) for folder in folders if folder.is_dir()]


def imported_times(results_dir: Path, machine: str | None = None) -> tuple[list[pa.Table], list[str]]:
    """Rows that have a time or a failure, each point once, the latest file's; and what was left out."""
    found, problems = [], []
    for name in imported_machines(results_dir):
        if machine not in (None, name):
            continue
        parts = imported(results_dir, name)
        index, units = parts.index(), parts.units()
        rows = sum(pq.read_metadata(path).num_rows for path, held in index.items() if held)
        if rows > MOST_ROWS:
            said = f"{parts.folder}: {rows:,} imported rows are more than the {MOST_ROWS:,} that pages take"
            problems.append(f"{said}; query them with DuckDB or pandas as .github/guides/tables.md does")
            continue
        read = list(parts.read(units))
        there = {unit for held, _ in read for unit in held}
        unsound = [path for path, held in index.items() if held is None or not held.keys() <= there]
        problems += [f"{path}: damaged or of another version; import its files again" for path in unsound]
        latest_last = unified([table for _, table in read], parts.schema)
        put_ns = latest_last[UNIT].to_pandas().map({unit: one.put_ns for unit, one in units.items()})
        latest_last = latest_last.take(pa.array(np.argsort(put_ns.to_numpy(np.int64), kind="stable")))
        timed = pc.or_(
            pc.is_finite(latest_last["seconds"].fill_null(math.nan)),
            pc.not_equal(latest_last["status"].cast(pa.string()), "ok"),
        )
        told = latest_last.filter(timed)
        once = told.filter(pa.array(~told.select(KEY).to_pandas().duplicated(keep="last").to_numpy()))
        found.append(_of_machine(once, name))
    return found, problems
