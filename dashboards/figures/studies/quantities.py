"""What an axis of a study shows: label, unit and scale, of a column that is known or that the figure describes."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from typing import Any

import pandas as pd

from dashboards.figures.studies.error import FigureError

SCALES = ("linear", "log", "log2", "bytes", "category")


@dataclasses.dataclass(frozen=True)
class Quantity:
    """A column as an axis.  unit "1": a pure number; low, high: columns with the ends of an interval."""

    column: str
    label: str
    unit: str
    scale: str = "linear"
    low: str = ""
    high: str = ""

    @property
    def title(self) -> str:
        """Label of the axis."""
        return self.label if self.unit in ("", "1") else f"{self.label}, {self.unit}"


def _known(*rows: tuple[str, str, str, str]) -> dict[str, Quantity]:
    return {row[0]: Quantity(*row) for row in rows}


KNOWN = _known(
    ("M", "M", "rows", "log2"),
    ("N", "N", "columns", "log2"),
    ("K", "K", "elements", "log2"),
    ("us", "time", "µs", "linear"),
    ("seconds", "time", "s", "log"),
    ("total_us", "total time", "µs", "linear"),
    ("kernel_us", "kernel time", "µs", "linear"),
    ("tflops", "speed", "TFLOPS", "linear"),
    ("peak_percent", "share of peak", "%", "linear"),
    ("roofline_percent", "share of roofline", "%", "linear"),
    ("intensity", "intensity", "FLOP per byte of HBM", "log"),
    ("gbs", "HBM bandwidth", "GB/s", "linear"),
    ("algbw", "algbw", "GB/s", "linear"),
    ("busbw", "busbw", "GB/s", "linear"),
    ("library_percent", "share of the library", "%", "linear"),
    ("ratio", "time / time of the anchor", "1", "linear"),
    ("baseline_ratio", "baseline time / time", "1", "linear"),
    ("overhead", "time / time of the GEMM alone", "1", "linear"),
    ("world", "ranks", "1", "log2"),
    ("cus", "CUs (AMD), SMs (NVIDIA), channels of a library", "1", "log2"),
    ("bytes", "message", "B", "bytes"),
    ("payload_bytes", "payload", "B", "bytes"),
    ("joules", "energy per call", "J", "linear"),
    ("tiles_per_cu", "tiles / CUs", "1", "log2"),
    ("baseline_us", "time of the baseline", "µs", "linear"),
    ("roofline_us", "roofline time", "µs", "linear"),
    ("to_best", "time / time of the best point", "1", "linear"),
    ("tiles", "tiles", "1", "log2"),
    ("BM", "BM", "rows", "log2"),
    *(
        (name, name, "1", "linear")
        for name in ("num_stages", "group_m", "kpack", "waves_per_eu", "matrix_instr_nonkdim")
    ),
    *((name, name, "1", "log2") for name in ("num_warps", "block_m", "block_n", "block_k", "split_k", "programs")),
)
"""Columns that need no description."""


def quantity(said: str | Mapping[str, Any], where: str) -> Quantity:
    """An axis as a spec says it; where: the key, for a FigureError that names it."""
    if isinstance(said, str):
        return KNOWN.get(said) or Quantity(said, said, "")
    if not isinstance(said, Mapping):
        raise FigureError(f"{where} is {said!r}; give the name of a column, or {{'column', 'label', 'unit'}}")
    return _described(said, where)


def settled(axis: Quantity, data: pd.DataFrame, key: str) -> Quantity:
    """An axis for these data: names where the column has no number, and the interval of a ratio if the data have it.

    FigureError if the data lack a column of it, or it shows numbers of which nobody has said the unit.
    """
    for name in filter(None, (axis.column, axis.low, axis.high)):
        if name not in data.columns:
            raise FigureError(f"{key!r} shows the column {name!r}; the data have: {', '.join(map(str, data.columns))}")
    if not pd.to_numeric(data[axis.column], errors="coerce").notna().any():
        return dataclasses.replace(axis, unit=axis.unit or "1", scale="category")
    if not axis.unit:
        wanted = f"give {{'column', 'label', 'unit'}}, or one of {', '.join(sorted(KNOWN))}"
        raise FigureError(f"{key!r}: the quantity {axis.column!r} is not known; {wanted}")
    if axis.column == "ratio" and not axis.low and {"low", "high"} <= set(data.columns):
        return dataclasses.replace(axis, low="low", high="high")
    return axis


def _described(said: Mapping[str, Any], where: str) -> Quantity:
    base = dataclasses.asdict(KNOWN[said["column"]]) if said.get("column") in KNOWN else {}
    values = {**base, **said}
    fields = {field.name for field in dataclasses.fields(Quantity)}
    if unknown := sorted(set(values) - fields):
        raise FigureError(f"{where} has the key {unknown[0]!r}; allowed are {', '.join(sorted(fields))}")
    for name in ("column", "label", "unit"):
        if not isinstance(values.get(name), str) or not values[name]:
            raise FigureError(f'{where} has no {name}; every axis says its column, label and unit ("1": a pure number)')
    found = Quantity(**values)
    if found.scale not in SCALES:
        raise FigureError(f"{where}: the scale {found.scale!r} is not known; choose one of {', '.join(SCALES)}")
    return found
