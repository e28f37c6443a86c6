"""The SPEC and the DATA of a figure, read and checked: what is wrong is named, with what is allowed."""

from __future__ import annotations

import dataclasses
import json
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

from dashboards.figures.picture import FigureError, Marks, PictureAxis, numbers

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


# Columns of the data as what a figure needs: numbers, names in their order, groups with their looks, panels.


MOST_GROUPS = 12
"""Groups with a look of their own: six colours, twice (`dashboards.figures.paper.COLOURS`)."""

MOST_PANELS = 24
"""Three of them beside each other are a page; more are a table."""

MOST_TICKS = 12
"""Values that each have a tick of their own: M = 1 to 1024 by powers of 2 are eleven."""

DIGITS = re.compile(r"([0-9]+)([KMG]B)?")
"""A number, of bytes where it says so: 512KB comes before 16MB."""

MOST_DIGITS = 20
"""Of a number of bytes."""

BYTES = {"KB": 1 << 10, "MB": 1 << 20, "GB": 1 << 30}

HUGE_SPAN = 1e4
"""Values that span more than this get a logarithmic axis: on a linear one, all but the greatest lie on the ground."""


@dataclasses.dataclass(frozen=True)
class GroupLook:
    """A group of the legend.  values: what stands in the column; look: place among own groups, None: grey."""

    name: str
    values: tuple[str, ...]
    look: int | None = 0
    dashed: int = 0

    def marks(self, kind: str, x: Iterable[float], y: Iterable[float], **more: Any) -> Marks:
        """Marks of this group; a baseline is hollow."""
        looks = {"look": self.look, "dashed": self.dashed, "hollow": self.dashed > 0}
        return Marks(self.name, kind, numbers(x), numbers(y), **{**looks, **more})


def needed(data: pd.DataFrame, kind: str, names: Sequence[str]) -> None:
    """FigureError for the first column that a kind of figure needs and the data lack."""
    for name in names:
        if name not in data.columns:
            raise FigureError(
                f"{kind} needs the column {name!r}; the data have: {', '.join(map(str, data.columns)) or 'none'}"
            )


def numeric(data: pd.DataFrame, column: str) -> pd.Series:
    """A column as numbers; what is none or not finite is NaN."""
    found = pd.to_numeric(data[column], errors="coerce").to_numpy(float, na_value=np.nan)
    return pd.Series(np.where(np.isfinite(found), found, np.nan), data.index)


def text(value: object) -> str:
    """A cell as a name: 64.0 is "64", what is missing is "none"."""
    if isinstance(value, (float, np.floating)):
        return "none" if np.isnan(value) else f"{value:.12g}"
    return "none" if value is None else str(value)


def texts(data: pd.DataFrame, column: str) -> pd.Series:
    """A column as names."""
    codes, found = pd.factorize(data[column], use_na_sentinel=False)
    return pd.Series(np.array([*map(text, found), ""], object)[codes], index=data.index)


def ordered(data: pd.DataFrame, column: str) -> list[str]:
    """The names of a column: numbers by size, texts as the data have them, those that differ in numbers together."""
    names = list(map(str, texts(data, column).unique()))
    if all(map(_is_number, names)):
        return sorted(names, key=float)
    first = {words: n for n, words in reversed(list(enumerate(map(_words, names))))}
    return sorted(names, key=lambda name: (first[_words(name)], *map(_size, DIGITS.findall(name))))


def groups(data: pd.DataFrame, column: str, baselines: Sequence[str] = ()) -> list[GroupLook]:
    """The groups of a column, baselines last; of too many, those with the most rows, and one for the others."""
    if not column:
        return [GroupLook("", ())]
    names = texts(data, column)
    counts, present = names.value_counts(), ordered(data, column)
    own = [name for name in present if name not in baselines]
    kept = own
    if len(own) > MOST_GROUPS:
        most = sorted(own, key=lambda name: -counts[name])[: MOST_GROUPS - 1]
        kept = [name for name in own if name in most]
    rest = tuple(name for name in own if name not in kept)
    looks = [GroupLook(_told(column, name), (name,), n) for n, name in enumerate(kept)]
    others = [GroupLook(f"{len(rest)} others", rest, None)] if rest else []
    grey = [name for name in present if name in baselines]
    return [*others, *looks, *(GroupLook(name, (name,), None, n + 1) for n, name in enumerate(grey))]


def within(data: pd.DataFrame, column: str, group: GroupLook) -> pd.DataFrame:
    """The rows of a group."""
    return data[texts(data, column).isin(group.values)] if column else data


def parts(data: pd.DataFrame, spec: FigureSpec) -> Iterator[tuple[str, pd.DataFrame]]:
    """Title and rows of each panel: by the values of the column `by`, or all."""
    column = spec.column("by", data)
    if not column:
        yield "", data
        return
    names = texts(data, column)
    for value in ordered(data, column)[:MOST_PANELS]:
        yield _told(column, value), data[names == value]


def more_panels(data: pd.DataFrame, spec: FigureSpec) -> list[str]:
    """A sentence on panels that there is no room for."""
    column = spec.column("by", data)
    more = len(ordered(data, column)) - MOST_PANELS if column else 0
    return [f"{more} more values of {column} are in the table only"] if more > 0 else []


def _size(found: tuple[str, str]) -> tuple[int, str]:
    """What DIGITS finds, in the order of the number: digits may be more than an integer is read of."""
    digits, unit = found
    number = str(int(digits) * BYTES[unit]) if unit and len(digits) < MOST_DIGITS else digits.lstrip("0")
    return len(number), number


def _words(name: str) -> str:
    """A name without its numbers: names that share it differ in these alone."""
    return DIGITS.sub("0", name)


def _told(column: str, value: str) -> str:
    """A value as a name: numbers, and what is on or off, say of what they are."""
    return f"{column} {value}" if _is_number(value) or value in ("True", "False") else value


def _is_number(value: str) -> bool:
    try:
        float(value)
    except ValueError:
        return False
    return True


def scale_of(axis: Quantity, values: pd.Series) -> str:
    """The scale of an axis for these values: logarithmic only where all are above 0."""
    found = values.dropna()
    if axis.scale == "linear" and len(found) and found.min() > 0 and found.max() > HUGE_SPAN * found.min():
        return "log"
    if axis.scale in ("log", "log2", "bytes") and len(found) and found.min() <= 0:
        return "linear"
    return axis.scale


def place_axis(axis: Quantity, data: pd.DataFrame, every: bool) -> PictureAxis:
    """The axis on which things are placed.  every: a tick for each value, where they are few."""
    if axis.scale == "category":
        return PictureAxis(axis.title, "category", tuple(ordered(data, axis.column)))
    values = numeric(data, axis.column)
    scale, distinct = scale_of(axis, values), sorted(values.dropna().unique())
    whole = all(float(value).is_integer() for value in distinct)
    ticks = tuple(map(float, distinct)) if whole and (every or len(distinct) <= MOST_TICKS) else ()
    return PictureAxis(axis.title, scale, (), ticks)


def places(data: pd.DataFrame, axis: Quantity, drawn: PictureAxis) -> pd.Series:
    """Where the rows are on an axis."""
    if drawn.scale == "category":
        index = {name: n for n, name in enumerate(drawn.names)}
        return texts(data, axis.column).map(index).astype(float)
    return numeric(data, axis.column)


def value_axis(axis: Quantity, values: pd.Series, zero: bool) -> PictureAxis:
    """The axis of the values; zero: begins at 0 where it is linear."""
    scale = scale_of(axis, values)
    return PictureAxis(axis.title, scale, zero=zero and scale == "linear" and bool((values.dropna() >= 0).all()))


def left_out(data: pd.DataFrame, columns: Sequence[str]) -> list[str]:
    """A sentence on rows that have no number where one is drawn."""
    missing = pd.Series(False, index=data.index)
    for column in columns:
        missing |= numeric(data, column).isna()
    count = int(missing.sum())
    return [f"{count} of {len(data)} rows have no {' or '.join(columns)} and are not drawn"] if count else []
