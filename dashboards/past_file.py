"""What lasts of a lane's full blocks, kept in a file beside the records' cache; it saves time and is safe to delete."""

from __future__ import annotations

import contextlib
import json
import os
from collections.abc import Sequence
from pathlib import Path

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
            rows = table.replace_schema_metadata({b"pandas": table.schema.metadata[b"pandas"]}).to_pandas()
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
        table = pa.Table.from_pandas(past.rows, preserve_index=False)
        said = json.dumps({"made_of": made_of, "counts": counts}).encode()
        feather.write_feather(
            table.replace_schema_metadata({**table.schema.metadata, _TOLD: said}), draft, "uncompressed"
        )
        os.replace(draft, file)
