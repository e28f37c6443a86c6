"""Columns of the long frame, and tables of them from blocks of rows that share most of their values.

A block is a number of rows: every column is one value for all of them, or one value per row.  Texts are kept as
dictionaries (codes and distinct texts): a history repeats a few names millions of times.
"""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Mapping, Sequence
from typing import TypeAlias

import numpy as np
import numpy.typing as npt
import pyarrow as pa

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
        *_fields(TEXT, "driver", "runtime", "library", "torch", "triton", "code", "shape", "paired_with"),
        *_fields(pa.float64(), "paired_ratio", "paired_low", "paired_high"),
    ]
)
"""Columns of the frame.  seconds_low and seconds_high: 99 % interval (ci.records.pooling.interval).

driver, torch, triton: versions; runtime: "CUDA 13.0" or "HIP 7.1"; library: "NCCL 2.28.9" or "RCCL 2.27"; "" if not
known.  code: digest of the arm's machine code; shape: the dimensions of the case as a JSON object; "" if not known.
paired_ratio: time of the fastest baseline / the row's time, round by round (ci.records.paired), with its 99 % interval;
paired_with: that baseline.  NaN and "" where no baseline was timed in the same trial."""

UNKNOWN = {field.name: "" for field in SCHEMA if field.type == TEXT} | {
    "baseline": False,
    "count": 1,
    "world": 1,
    "samples": 0,
    "trials": 0,
}
"""What a column is where nothing is known; NaN for all others."""

Value: TypeAlias = str | float | int | bool | None
Column: TypeAlias = Value | Sequence[Value] | npt.NDArray[np.generic]


@dataclasses.dataclass(frozen=True)
class RowBlock:
    """`rows` rows; columns that are not given are unknown."""

    rows: int
    columns: Mapping[str, Column]

    def column(self, name: str) -> Column:
        """One value, or one per row."""
        return self.columns.get(name, UNKNOWN.get(name, math.nan))


def table_of(blocks: Sequence[RowBlock], schema: pa.Schema = SCHEMA) -> pa.Table:
    """All blocks as one table."""
    return pa.table([_array(field, blocks) for field in schema], schema=schema)


def unified(tables: Sequence[pa.Table], schema: pa.Schema) -> pa.Table:
    """Tables of one schema as one, each text column with one dictionary."""
    return pa.concat_tables([schema.empty_table(), *tables]).unify_dictionaries()


def constant(value: str, rows: int) -> pa.DictionaryArray:
    """A text column with the same text in every row."""
    return pa.DictionaryArray.from_arrays(np.zeros(rows, np.int32), pa.array([value], pa.string()))


def _array(field: pa.Field, blocks: Sequence[RowBlock]) -> pa.Array:
    if not any(field.name in block.columns for block in blocks):
        blocks = [RowBlock(sum(block.rows for block in blocks), {})]
    found = [(block.column(field.name), block.rows) for block in blocks]
    if field.type != TEXT:
        return _numbers(field.type, found)
    same = {column if isinstance(column, str) else None for column, _ in found}
    if len(same) == 1 and None not in same:
        return constant(str(found[0][0]), sum(rows for _, rows in found))
    texts = [text for column, rows in found for text in _repeated(column, rows)]
    return pa.array(texts, pa.string()).dictionary_encode()


def _repeated(column: Column, rows: int) -> Sequence[Value]:
    return column if isinstance(column, (list, tuple)) else [str(column)] * rows


def _numbers(kind: pa.DataType, found: Sequence[tuple[Column, int]]) -> pa.Array:
    """A column of numbers; what is not known is null, which every engine leaves out of a mean."""
    dtype = np.dtype("datetime64[ms]") if pa.types.is_timestamp(kind) else np.dtype(kind.to_pandas_dtype())
    values, end = np.empty(sum(rows for _, rows in found), dtype), 0
    for column, rows in found:
        if not rows:
            continue
        values[end : end + rows] = np.array(column, dtype) if isinstance(column, list) else column
        end += rows
    return pa.array(values, kind, from_pandas=True)
