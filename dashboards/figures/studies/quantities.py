"""What an axis of a study shows: label, unit and scale, of a column that is known or that the figure describes."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from typing import Any

from dashboards.figures.canvas import FigureError

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
        return self.label if self.unit == "1" else f"{self.label}, {self.unit}"


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
)
"""Columns that need no description."""


def quantity(said: str | Mapping[str, Any], where: str) -> Quantity:
    """An axis as a spec says it; where: the key, for a FigureError that names it."""
    if isinstance(said, str):
        if said not in KNOWN:
            wanted = f"give {{'column', 'label', 'unit'}}, or one of {', '.join(sorted(KNOWN))}"
            raise FigureError(f"{where}: the quantity {said!r} is not known; {wanted}")
        return KNOWN[said]
    return _described(said, where)


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
