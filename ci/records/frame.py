"""All records as one long frame.  Read by :mod:`ci.records.store`.

The rows of a record are parsed once and kept as Parquet (:mod:`ci.records.cache`), with the columns of
:data:`ci.records.cache.SCHEMA`: DuckDB, polars, pandas and Spark read `results/.cache/*.parquet` as one table.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pandas as pd
import pyarrow as pa

from ci.git.repository import history_order
from ci.records.cache import SCHEMA, TEXT, Column, Parsed, RowCache, digest_of, table_of, unified
from ci.records.devices import devices_at_work, devices_text
from ci.records.importing import imported_times
from ci.records.ledger import machine_folders
from ci.records.pooling import PairedRatio, Place, PooledTimes, PooledTrials, pool
from ci.records.rows import EXACT, TIME, checked, software
from ci.records.store import notes_by_stem, place_of, recorded_trials
from ci.trials.file import Problem
from ci.trials.trial import DeclaredCase, Machine, Trial
from kernels.project import around, current_name

Codes = npt.NDArray[np.signedinteger]


def load(results_dir: Path, machine: str | None) -> pd.DataFrame:
    """See :func:`ci.records.store.load`."""
    records, problems = dict[str, functools.partial[Parsed]](), list[str]()
    for folder in machine_folders(results_dir):
        if machine in (None, folder.name):
            stems = notes_by_stem(folder)
            for stem, files in stems.items():
                digest = digest_of(f"{folder.name}/{stem}", files)
                records[digest] = functools.partial(_parsed, folder, stem)
            problems += _without_notes(folder, stems.keys())
    rows, unused = RowCache(results_dir / ".cache").rows(records, others_go=machine is None)
    foreign, left_out = imported_times(results_dir, machine)
    frame = under_current_names(assembled([rows, *foreign], results_dir), around(results_dir).renamed)
    del rows, foreign
    pa.default_memory_pool().release_unused()  # what was read is copied: a gigabyte of a long history
    frame.attrs["problems"], frame.attrs["unread"] = [*unused, *problems, *left_out], len(unused)
    return frame


def _parsed(folder: Path, stem: str) -> Parsed:
    """Rows of the record `stem` of a machine, and what could not be used of it."""
    problems = list[Problem]()
    trials = recorded_trials(folder / stem, problems)
    place = place_of(folder.name, stem, trials)
    said = [f"{one.where}: {one.why}; left out" for one in problems]
    if place is None:
        why = "its trials are of other machines or commits, and belong elsewhere" if trials else "it holds no trial"
        said += [] if said else [f"{folder / stem}: {why}; left out"]
        return SCHEMA.empty_table(), said
    return _rows(pool(trials, place), trials), said


def _without_notes(folder: Path, stems: Iterable[str]) -> list[str]:
    """A sentence on each file of asv that holds times and is none of ours, for it has no notes."""
    problems = []
    for path in sorted(folder.glob("*.json")):
        if path.name == "machine.json" or path.stem in stems:
            continue
        try:
            data, why = checked(path.read_bytes(), folder.name)
        except OSError as error:
            data, why = {}, f"cannot be read: {error.strerror}"
        if not why and any(map(_is_timed, data["results"].items())):
            made = "`ridgeline records add --help` says how it is made"
            why = f"no {path.stem}.*.notes.jsonl.gz lies beside it; {made} of recorded trials"
        problems += [f"{path}: {why}; left out"] if why else []
    return problems


def under_current_names(frame: pd.DataFrame, renamed: Mapping[str, str]) -> pd.DataFrame:
    """The frame with each series under the name that it has now (kernels.project).

    The digest of a case's definition has its name in it: a series of several names goes by the rest of the definition.
    """
    if not renamed:
        return frame
    kernel, backend, case = (frame[name].astype(str) for name in SERIES)
    whole = kernel + "/" + backend + "/" + case
    moved = {old: new for old in whole.unique() if (new := current_name(old, renamed)) not in ("", old)}
    if not moved:
        return frame
    parts = whole.replace(moved).str.split("/", n=2, expand=True)
    yardstick, shape, dtype, world = (frame[name].astype(str) for name in ("yardstick", "shape", "dtype", "world"))
    identity = yardstick + " " + shape + " " + dtype + " " + world
    own = frame["case_yardstick"].astype(str).mask(whole.isin([*moved, *moved.values()]), identity)
    columns = {name: parts[number].astype("category") for number, name in enumerate(SERIES)}
    return frame.assign(**columns, case_yardstick=own.astype("category"))


SERIES = ("kernel", "backend", "case")


def assembled(tables: Sequence[pa.Table], repository: Path) -> pd.DataFrame:
    """Tables of SCHEMA as one frame, oldest commit first; texts as categories, in alphabetical order."""
    whole = unified(tables, SCHEMA)
    commit, date = _texts(whole["commit"]), whole["date"].to_numpy()
    place = pd.DataFrame({"commit": commit.codes, "date": date}).groupby(["commit", "date"], sort=False).ngroup()
    _, first = np.unique(place, return_index=True)
    dated = list(zip(np.asarray(commit[first], dtype=object), date[first].view(np.int64).tolist(), strict=True))
    later = _ms_apart(dated, repository)
    date = date + np.array([later.get(one, 0) for one in dated], "timedelta64[ms]")[place]
    order = np.lexsort((*(_texts(whole[name]).codes for name in ("env", "machine")), commit.codes, date))
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


def _ms_apart(dated: Iterable[tuple[str, int]], repository: Path) -> dict[tuple[str, int], int]:
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


def _is_timed(named: tuple[str, Sequence[Any]]) -> bool:
    """Whether a row of asv's file, by its name, has a time or a failure; a commit without the operator has NaN."""
    name, row = named
    values = row[0] if name.endswith(f".{TIME}") and isinstance(row, list) and row else None
    return isinstance(values, list) and not all(value != value for value in values)


def _rows(pooled: PooledTrials, trials: Sequence[Trial]) -> pa.Table:
    """A row for each cell.  trials: that were pooled."""
    keys, cells = list(pooled.cells), list(pooled.cells.values())
    declarations = [pooled.declarations[kernel] for kernel, _, _ in keys]
    cases = [d.cases.get(name, DeclaredCase(name)) for d, (_, _, name) in zip(declarations, keys, strict=True)]
    times = [pooled.times.get(key, UNTIMED) for key in keys]
    paired = [one.paired or UNPAIRED for one in times]
    of_operator = {name: [trial for trial in trials if trial.operator == name] for name in pooled.declarations}
    devices = {name: devices_text(devices_at_work(those)) for name, those in of_operator.items()}
    columns: dict[str, Column] = {
        **_where(pooled.place, pooled.machine, pooled.date_ms),
        **software(pooled.environment.versions),
        "driver": pooled.machine.driver or "",
        "kernel": [key[0] for key in keys],
        "backend": [key[1] for key in keys],
        "case": [key[2] for key in keys],
        "baseline": [key[1] in d.baselines for d, key in zip(declarations, keys, strict=True)],
        **{name: [getattr(case, name) for case in cases] for name in ("tier", "dtype", "world")},
        "shape": [case.shape_json for case in cases],
        **{field: [getattr(case.cost, field) for case in cases] for field, _ in EXACT.values()},
        **{name: [getattr(one, name) for one in times] for name in ("seconds", "samples", "trials")},
        **{f"seconds_{end}": [getattr(one, end) for one in times] for end in ("low", "high")},
        "status": [str(cell.status) for cell in cells],
        "yardstick": [cell.definition for cell in cells],
        "case_yardstick": [cell.case_definition for cell in cells],
        **{name: [getattr(cell, name) for cell in cells] for name in ("why", "method", "code")},
        "devices": [devices[key[0]] for key in keys],
        "paired_with": [one.name for one in paired],
        "compared_with": [pooled.bases.get(key[0], "") for key in keys],
        **{f"paired_{name}": [getattr(one, name) for one in paired] for name in ("ratio", "low", "high")},
    }
    return table_of(columns, len(keys))


def _where(place: Place, machine: Machine, date_ms: int) -> dict[str, Column]:
    texts = {name: getattr(machine, name) or "" for name in ("kind", "arch", "device", "market_name", "chip_id")}
    sizes = (machine.compute_units, machine.memory_bytes)
    units, memory = (None if size is None else float(size) for size in sizes)
    of_machine = {**texts, "count": machine.count, "compute_units": units, "memory_bytes": memory}
    return {"machine": place.machine, **of_machine, "commit": place.commit, "date": int(date_ms), "env": place.env}
