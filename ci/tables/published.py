"""Numbers that others have published, as reference points of figures: `published.toml` beside this file, checked.

Standard library only: `ci` and `dashboards` read it.  A published number is never a measurement of ours: it comes with
its source, device, method and date, and is drawn as a dashed line with its name.
"""

from __future__ import annotations

import datetime
import math
import tomllib
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path
from typing import Any

from benchmarks.shapes import Unfit, items, number, one_of, record, table, text, that, whole, with_tuples

FILE = Path(__file__).with_name("published.toml")

UNITS = {
    "tflops": "TFLOPS",
    "aggregate_tflops": "TFLOPS",
    "us": "µs",
    "busbw": "GB/s",
    "gbs": "GB/s",
    "link_gbs": "GB/s",
    "gpu_links_gbs": "GB/s",
}
"""Quantities that are published, by the name of their column, and the unit that each has."""

_TEXT = that(lambda value: isinstance(value, str) and value.strip(), "a text")
_POSITIVE = number(math.ulp(0.0))
LINE = record(
    {
        **dict.fromkeys(("name", "label", "device", "method", "unit"), _TEXT),
        "source": that(lambda value: str(value).startswith("https://"), "an address that starts with https://"),
        "operators": items(_TEXT, "those that it can stand beside, as a list"),
        "world": whole(1),
        "date": that(lambda value: type(value) is datetime.date, "the day of the source, such as 2026-10-06"),
        "y": one_of(*UNITS),
    },
    {
        "dtype": text(),
        "shape": table(text(), whole(1)),
        "x": one_of("M", "bytes"),
        "points": items(that(lambda one: isinstance(one, list) and len(one) == 2, "[x, y]"), "a list of [x, y] pairs"),
        "level": _POSITIVE,
    },
    closed=True,
)


class PublishedError(Exception):
    """A line of the file that cannot be used; the text names the line, what is wrong and what is expected."""


@dataclass(frozen=True)
class PublishedLine:
    """What one source says of one device and method.

    points: (x, y) in the order of x; x is None for a level, which holds whatever the shape.  world: ranks.
    x: quantity of the axis, "" for a level.  y, unit: quantity and its unit.  date: of the source.
    shape: dimensions of the cases that it is about.  dtype: "" where it does not matter.
    """

    name: str
    label: str
    operators: tuple[str, ...]
    dtype: str
    source: str
    device: str
    world: int
    method: str
    date: datetime.date
    x: str
    y: str
    unit: str
    shape: Mapping[str, int]
    points: tuple[tuple[float | None, float], ...]


def load(path: Path = FILE) -> tuple[PublishedLine, ...]:
    """Every line of the file, in its order.  PublishedError names the first that is not complete."""
    try:
        said = tomllib.loads(path.read_text(encoding="utf-8")).get("line", [])
    except tomllib.TOMLDecodeError as error:
        raise PublishedError(f"{path.name} is not TOML: {error}") from error
    try:
        lines = tuple(_line(one, f"{path.name}, line {i} ({one.get('name', '?')})") for i, one in enumerate(said, 1))
    except Unfit as error:
        raise PublishedError(str(error)) from None
    names = [line.name for line in lines]
    if twice := {name for name in names if names.count(name) > 1}:
        raise PublishedError(f"{path.name} has {', '.join(sorted(twice))} twice; a name stands for one line")
    return lines


def beside(
    lines: Iterable[PublishedLine], rows: Mapping[str, Collection[object]], y: str, x: str = ""
) -> list[PublishedLine]:
    """Lines of the same shape as what a figure shows: points over its `x`, and levels, of its quantity `y`.

    rows: different values of each column of the figure's rows: operator, dtype, world and dimensions.  A line is about
    every operator that is shown.  A column that is not given rules nothing out, but a line about certain dimensions
    needs rows of them.
    """
    return [line for line in lines if line.y == y and line.x in ("", x) and _fits(line, rows)]


def _fits(line: PublishedLine, rows: Mapping[str, Collection[object]]) -> bool:
    facts = {"dtype": line.dtype, "world": line.world}
    return (
        set(rows["operator"]) <= set(line.operators)
        and all(name not in rows or value in ("", *rows[name]) for name, value in facts.items())
        and all(value in rows.get(name, ()) for name, value in line.shape.items())
    )


def points(lines: Iterable[PublishedLine]) -> list[dict[str, object]]:
    """Lines as the points that a figure's SPEC takes under `published` (dashboards.figures.studies)."""
    keys = ("label", "source", "device", "method", "world", "unit")
    return [
        {**{key: getattr(line, key) for key in keys}, "date": line.date.isoformat(), "x": x, "y": y}
        for line in lines
        for x, y in line.points
    ]


def _line(said: dict[str, Any], where: str) -> PublishedLine:
    LINE(said, where)
    if said["unit"] != UNITS[said["y"]]:
        raise Unfit(f"{where}.unit", said["unit"], f"{said['y']} is in {UNITS[said['y']]}")
    if ("level" in said) == ("points" in said) or ("points" in said) != ("x" in said):
        raise Unfit(where, sorted(said), "either level, a number, or points with x")
    points = said.pop("points", None) or [[None, said.pop("level")]]
    for x, y in points:
        for value in (x, y) if "x" in said else (y,):
            _POSITIVE(value, f"{where}.points")
    for before, after in pairwise(x for x, _ in points):
        if after <= before:
            raise Unfit(f"{where}.points", after, f"x above {before:g}: points stand in the order of x, each once")
    made = tuple((x and float(x), float(y)) for x, y in points)
    return PublishedLine(**with_tuples({"dtype": "", "x": "", "shape": {}, **said}), points=made)
