"""What lasts of a lane's full blocks, kept in a file beside the records' cache; it saves time and is safe to delete."""

from __future__ import annotations

import contextlib
import json
import os
from collections.abc import Sequence
from pathlib import Path

import pandas as pd
import pyarrow as pa
from pyarrow import feather

from dashboards.lanes import CommitCounts
from dashboards.recent import Past

_TOLD = b"ridgeline-past"


def load(file: Path | None, chain: Sequence[str]) -> tuple[int, Past | None]:
    """(number of blocks, what lasts of them), else (0, None); chain: digests of the first 0, 1, ... blocks."""
    with contextlib.suppress(OSError, pa.ArrowException, ValueError, TypeError, KeyError):
        table = feather.read_table(file, memory_map=True) if file else None
        told = json.loads(table.schema.metadata[_TOLD]) if table is not None else {}
        if told.get("made_of") in chain[1:]:
            plain = table.replace_schema_metadata({b"pandas": table.schema.metadata[b"pandas"]})
            rows = plain.to_pandas(split_blocks=True)  # columns of numbers are the file's own memory
            return chain.index(told["made_of"]), Past(rows, CommitCounts(*map(tuple, told["counts"])))
    return 0, None


def save(file: Path | None, made_of: str, past: Past) -> None:
    """Where it cannot be written, the next build takes its time."""
    if file is None:
        return
    counts = [past.counts.commits, past.counts.ok, past.counts.timed]
    draft = file.with_suffix(f".{os.getpid()}")
    with contextlib.suppress(OSError):
        file.parent.mkdir(parents=True, exist_ok=True)
        said = json.dumps({"made_of": made_of, "counts": counts}).encode()
        table = _table(past.rows)
        table = table.replace_schema_metadata({**table.schema.metadata, _TOLD: said})
        whole = max(len(table), 1)  # in one piece, or it would have to be put together to be read
        feather.write_feather(table, draft, "uncompressed", chunksize=whole)
        os.replace(draft, file)


def _table(rows: pd.DataFrame) -> pa.Table:
    """As Arrow makes it of a frame, but NaN stays a number: a column with nulls would have to be copied to be read."""
    table = pa.Table.from_pandas(rows, preserve_index=False)
    for at, field in enumerate(table.schema):
        if pa.types.is_floating(field.type):
            numbers = rows[field.name].to_numpy(field.type.to_pandas_dtype())
            table = table.set_column(at, field, pa.array(numbers, from_pandas=False))
    return table
