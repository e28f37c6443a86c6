"""The SPEC and the DATA of a figure, read and checked: what is wrong is named, with what is allowed."""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import pandas as pd

from dashboards.figures.studies.picture import FigureError

FOOT = ("machine", "versions", "commit")
"""What every figure says of where its numbers are from."""

COMMON = ("kind", "title", "foot", "where", "published")

_TEXT = {"type": "string"}
_ABOVE_0 = {"type": "number", "exclusiveMinimum": 0}
_OBJECTS = {"type": "array", "items": {"type": "object"}}
SHAPE = {
    "type": "object",
    "properties": {
        "where": {"type": "object"},
        "foot": {"type": "object"},
        "published": {
            "type": "array",
            "items": {
                "type": "object",
                "properties": {"x": {"type": ["number", "null"]}, "y": {"type": ["number", "null"]}, "unit": _TEXT},
                "required": ["y", "unit"],
            },
        },
        "panels": _OBJECTS,
        "code": {"type": "array", "items": {"type": "object", "additionalProperties": _TEXT}},
        "also": {"type": "array"},
        "geomean": {"type": "boolean"},
        "ideal": {"type": ["string", "object", "null"]},
        "ceilings": {
            "type": "object",
            "properties": {
                "peak_tflops": {"type": "object", "additionalProperties": _ABOVE_0, "minProperties": 1},
                "hbm_gbs": _ABOVE_0,
                "link_gbs": {"type": ["number", "null"], "minimum": 0},
            },
            "required": ["peak_tflops", "hbm_gbs"],
        },
        **{name: {"type": ["string", "null"]} for name in ("group", "by", "label", "ceiling", "anchor")},
    },
}
"""What a spec is made of (JSON Schema), as far as no other check says it better."""


@dataclasses.dataclass(frozen=True)
class FigureSpec:
    """What to draw.  keys: those of its kind, as they were said."""

    kind: str
    title: str
    foot: Mapping[str, str]
    published: tuple[Mapping[str, Any], ...]
    where: Mapping[str, Any]
    keys: Mapping[str, Any]

    def axis(self, key: str, default: str = "") -> Quantity:
        """The quantity under a key."""
        said = self.keys.get(key) or default
        if not said:
            raise FigureError(f"a figure of kind {self.kind!r} needs {key!r}: a quantity")
        return quantity(said, key)

    def column(self, key: str, data: pd.DataFrame, default: str = "") -> str:
        """The name of a column under a key, "" if it is not said; FigureError if the data do not have it."""
        name = str(self.keys.get(key) or default)
        if name and name not in data.columns:
            raise FigureError(f"{key!r} names the column {name!r}; the data have: {', '.join(map(str, data.columns))}")
        return name

    def choice(self, key: str, allowed: Sequence[str | None], default: str | None) -> str | None:
        """One of some words."""
        found = self.keys.get(key, default)
        if found not in allowed:
            words = ", ".join("null" if word is None else word for word in allowed)
            raise FigureError(f"{key!r} is {found!r}; choose one of {words}")
        return None if found is None else str(found)

    def names(self, key: str) -> tuple[str, ...]:
        """A list of texts under a key; none if it is not said."""
        found = self.keys.get(key) or ()
        if isinstance(found, str) or not isinstance(found, Sequence):
            raise FigureError(f"{key!r} is {found!r}; give a list of names")
        return tuple(map(str, found))

    def but(self, **keys: Any) -> FigureSpec:
        """The same with other keys."""
        return dataclasses.replace(self, keys={**self.keys, **keys})


def parse(said: Any, kinds: Mapping[str, Sequence[str]]) -> FigureSpec:
    """A spec from JSON.  kinds: the keys that each kind may have."""
    import jsonschema  # 0.1 s, which a site without studies does not spend

    if wrong := jsonschema.exceptions.best_match(jsonschema.Draft202012Validator(SHAPE).iter_errors(said)):
        where = wrong.json_path.removeprefix("$.") if wrong.path else "a spec"
        raise FigureError(f"{where}: {wrong.message[:300]}; dashboards/figures/studies says what a spec has")
    kind = said.get("kind")
    if kind not in kinds:
        raise FigureError(f"the kind {kind!r} is not known; choose one of {', '.join(kinds)}")
    if unknown := sorted(set(said) - {*COMMON, *kinds[kind]}):
        allowed = ", ".join(sorted({*COMMON, *kinds[kind]}))
        raise FigureError(f"a figure of kind {kind!r} has no key {unknown[0]!r}; allowed are {allowed}")
    if not isinstance(said.get("title"), str) or not said["title"].strip():
        raise FigureError("the spec has no title; give 'title': what the figure shows")
    keys = {key: value for key, value in said.items() if key not in COMMON}
    published = tuple(said.get("published") or ())
    return FigureSpec(str(kind), said["title"], _foot(said), published, said.get("where") or {}, keys)


def _foot(said: Mapping[str, Any]) -> dict[str, str]:
    foot = said.get("foot")
    for name in FOOT:
        if not isinstance(foot, Mapping) or name not in foot:
            raise FigureError(f"the spec's foot has no {name!r}; a figure says {', '.join(FOOT)} of its numbers")
    assert isinstance(foot, Mapping)
    told = {str(name): str(value) for name, value in foot.items() if value not in (None, "")}
    return {**{name: f"{name} not known" for name in FOOT}, **told}


def rows_where(data: pd.DataFrame, where: Mapping[str, Any]) -> pd.DataFrame:
    """Rows whose columns have one of the values; FigureError lists what there is if none is left."""
    for column, wanted in where.items():
        if column not in data.columns:
            raise FigureError(
                f"'where' names the column {column!r}; the data have: {', '.join(map(str, data.columns))}"
            )
        values = wanted if isinstance(wanted, list) else [wanted]
        found = data[data[column].isin(values) | data[column].astype(str).isin(map(str, values))]
        if not len(found):
            present = ", ".join(map(str, data[column].drop_duplicates().head(12))) or "nothing"
            raise FigureError(f"no row has {column} {wanted!r}; there is: {present}")
        data = found
    return data


def read_spec(path: Path, kinds: Mapping[str, Sequence[str]]) -> FigureSpec:
    """The spec in a file."""
    try:
        return parse(json.loads(path.read_text()), kinds)
    except (json.JSONDecodeError, UnicodeDecodeError) as error:
        raise FigureError(f"{path} is not JSON ({error}); write one object") from None


def read_data(path: Path) -> pd.DataFrame:
    """The rows in a file."""
    try:
        return pd.read_csv(path)
    except (ValueError, pd.errors.ParserError) as error:
        raise FigureError(f"{path} is not a table ({error}); write a CSV file with a head") from None


# What an axis of a study shows: label, unit and scale, of a column that is known or that the figure describes.


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
