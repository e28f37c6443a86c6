"""A folder of records with millions of rows, as a build finds it: asv's files, and their rows in the cache."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

import numpy as np
import pandas as pd
import pyarrow as pa

from ci.records import cache
from ci.records.cache import PART_ROWS, ParsedUnit, Parts
from ci.records.frame import VERSION, cache_folder
from ci.records.rows import CACHED, SCHEMA, TEXT, UNKNOWN


def add(frame: pd.DataFrame, results: Path) -> None:
    """Put the rows of a machine (`tests.dashboards.synthetic.large`) into a folder of records, a record per commit.

    The files of asv hold nothing: what is parsed once is not what is measured.
    """
    machine = str(frame["machine"].iloc[0])
    folder, parts = results / machine, Parts(cache_folder(results, machine), CACHED, VERSION)
    folder.mkdir(parents=True, exist_ok=True)
    table = as_table(frame)
    tables: dict[str, pa.Table] = {}
    for commit, at in _commits(frame).items():
        path = folder / f"{commit[:8]}-py3.12.json"
        path.write_text("{}")
        tables[path.stem] = table.slice(at.start, at.stop - at.start)
        if sum(map(len, tables.values())) >= PART_ROWS:
            _put(parts, folder, tables)
            tables = {}
    _put(parts, folder, tables)


def _commits(frame: pd.DataFrame) -> Mapping[str, slice]:
    """The rows of each commit, which stand together."""
    codes = frame["commit"].cat.codes.to_numpy()
    bounds = [0, *(np.flatnonzero(np.diff(codes)) + 1).tolist(), len(codes)]
    names = frame["commit"].cat.categories
    return {str(names[codes[a]]): slice(a, b) for a, b in zip(bounds[:-1], bounds[1:], strict=True)}


def _put(parts: Parts, folder: Path, tables: Mapping[str, pa.Table]) -> None:
    files = {stem: (folder / f"{stem}.json", folder / f"{stem}.notes.jsonl") for stem in tables}
    units = {stem: ParsedUnit(cache._digest(paths)) for stem, paths in files.items()}
    if tables and not parts.put([parts.part(tables, units)]):
        raise OSError(f"{parts.folder} cannot be written")


def as_table(frame: pd.DataFrame) -> pa.Table:
    """The frame as the cache keeps it; columns that it lacks are unknown."""
    columns = [_column(frame, field) for field in SCHEMA if field.name != "machine"]
    return pa.table(columns, schema=CACHED)


def _column(frame: pd.DataFrame, field: pa.Field) -> pa.Array:
    if field.name in frame:
        column = frame[field.name]
        return pa.Array.from_pandas(column.astype("category") if field.type == TEXT else column).cast(field.type)
    known = UNKNOWN.get(field.name)
    if field.type == TEXT:
        return pa.DictionaryArray.from_arrays(np.zeros(len(frame), np.int32), pa.array([known], pa.string()))
    return pa.array([known] * len(frame), field.type)
