"""Samples as Parquet: `machine=<name>/kernel=<operator>/month=<YYYY-MM>/part-<digest>.parquet`, one row per sample.

The folders are in the "hive" spelling that DuckDB, pandas, polars and Spark read.  A part holds one trial and is never
changed: its name is a digest of what is in it, so a trial that is recorded twice, or for both of its commits, is there
once.  `ridgeline export --samples` writes many trials into few files.
"""

from __future__ import annotations

import hashlib
import io
import re
from collections.abc import Iterator, Mapping, Sequence
from urllib.parse import quote

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from ci.stats.types import FloatArray
from ci.trials.compact import ArmSamples, digest, samples_of
from ci.trials.trial import Trial

TEXT = pa.dictionary(pa.int32(), pa.string())

SCHEMA = pa.schema(
    [
        ("trial", TEXT),
        ("started", pa.timestamp("ms", tz="UTC")),
        *((name, TEXT) for name in ("commit", "env", "role", "backend", "case")),
        ("round", pa.int32()),
        ("seconds", pa.float64()),
        ("skew_s", pa.float64()),
    ]
)
"""Columns of a part.  trial: its id.  round: row i of every arm of a case in a trial is from round i.

seconds: of one call; of a collective, of the slowest rank.  skew_s: by how much its ranks started apart, else null.
"""

PATH = re.compile(r"machine=[^/]+/kernel=[^/]+/month=\d{4}-\d{2}/part-[0-9a-f]{32}\.parquet")
"""Every path of a part; nothing else is ever opened."""


def path_of(trial: Trial) -> str:
    """Where the samples of a full trial belong: it depends on the trial alone, so that it is there once."""
    said = f"{trial.id} {digest(samples_of(trial))}"
    return f"{folder(trial)}/part-{hashlib.blake2b(said.encode(), digest_size=16).hexdigest()}.parquet"


def folder(trial: Trial) -> str:
    """Where the samples of a trial belong."""
    month = trial.started_at[:7] if re.match(r"\d{4}-\d{2}-", trial.started_at) else "0000-00"
    return f"machine={quote(trial.machine.name, safe='')}/kernel={quote(trial.operator, safe='')}/month={month}"


def table(trials: Sequence[Trial]) -> pa.Table:
    """The samples of full trials as one table of SCHEMA."""
    rows = [(trial, one) for trial in trials for one in samples_of(trial)]
    lengths = np.array([max(len(one.seconds), len(one.skew_s)) for _, one in rows], np.int64)
    texts: dict[str, list[str]] = {
        "trial": [trial.id for trial, _ in rows],
        "commit": [trial.checkouts[one.role].recordable or "" for trial, one in rows],
        "env": [trial.checkouts[one.role].environment.name for trial, one in rows],
        **{name: [getattr(one, name) for _, one in rows] for name in ("role", "backend", "case")},
    }
    started = np.repeat(np.array([trial.started_ms for trial, _ in rows], "datetime64[ms]"), lengths)
    columns = {
        **{name: _repeated(values, lengths) for name, values in texts.items()},
        "started": pa.array(started, SCHEMA.field("started").type),
        "round": np.concatenate([np.arange(length, dtype=np.int32) for length in lengths] or [np.empty(0, np.int32)]),
        "seconds": _padded([one.seconds for _, one in rows], lengths),
        "skew_s": _padded([one.skew_s for _, one in rows], lengths),
    }
    return pa.table({name: columns[name] for name in SCHEMA.names}, schema=SCHEMA)


def written(rows: pa.Table) -> bytes:
    """Rows as a Parquet file; the same rows give the same bytes."""
    stream = io.BytesIO()
    texts = [field.name for field in rows.schema if field.type == TEXT]
    pq.write_table(
        rows,
        stream,
        compression="zstd",
        compression_level=9,
        use_dictionary=texts,
        column_encoding={"round": "DELTA_BINARY_PACKED"},
        write_page_checksum=True,
        store_schema=False,
    )
    return stream.getvalue()


def read(content: bytes, wanted: Sequence[str]) -> dict[str, list[ArmSamples]]:
    """The samples of the wanted trials (ids) in a part, by trial.  Raises pyarrow.ArrowException for a damaged file."""
    rows = pq.ParquetFile(io.BytesIO(content), page_checksum_verification=True).read(use_threads=False)
    rows = rows.filter(pc.is_in(rows["trial"], value_set=pa.array(list(wanted), pa.string())))
    found: dict[str, list[ArmSamples]] = {}
    for trial, arm in _arms(rows):
        found.setdefault(trial, []).append(arm)
    return found


def _arms(rows: pa.Table) -> Iterator[tuple[str, ArmSamples]]:
    """(trial, samples) of every arm: runs of equal keys, because an arm's rows stand together."""
    keys = {name: np.array(rows[name].to_pylist(), object) for name in ("trial", "case", "role", "backend")}
    if not len(rows):
        return
    new = np.zeros(len(rows), bool)
    for values in keys.values():
        new[1:] |= values[1:] != values[:-1]
    starts = np.flatnonzero(np.concatenate([[True], new[1:]]))
    seconds, skew = (rows[name].to_numpy() for name in ("seconds", "skew_s"))
    for start, end in zip(starts, [*starts[1:], len(rows)], strict=True):
        trial, case, role, backend = (str(values[start]) for values in keys.values())
        yield trial, ArmSamples(case, role, backend, *(_known(values[start:end]) for values in (seconds, skew)))


def _known(values: FloatArray) -> FloatArray:
    known: FloatArray = values[~np.isnan(values)]
    return known


def _padded(arrays: Sequence[FloatArray], lengths: np.ndarray) -> pa.Array:
    """Arrays end to end, each filled up with nulls to its length."""
    ends = np.cumsum(lengths)
    values = np.full(int(ends[-1]) if len(ends) else 0, np.nan)
    for array, end, length in zip(arrays, ends, lengths, strict=True):
        values[end - length : end - length + len(array)] = array
    return pa.array(values, pa.float64(), from_pandas=True)


def _repeated(values: Sequence[str], lengths: np.ndarray) -> pa.DictionaryArray:
    texts: Mapping[str, int] = {text: code for code, text in enumerate(sorted(set(values)))}
    codes = np.repeat(np.array([texts[value] for value in values], np.int32), lengths)
    return pa.DictionaryArray.from_arrays(codes, pa.array(list(texts), pa.string()))
