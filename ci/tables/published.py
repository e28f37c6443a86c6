"""Numbers that others have published, as reference points of figures: `published.toml` beside this file, checked.

Standard library only: `ci` and `dashboards` read it.  A published number is never a measurement of ours: it comes with
its source, device, method and date, and is drawn as a dashed line with its name.
"""

from __future__ import annotations

import datetime
import math
import tomllib
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

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

AXES = ("M", "bytes")
"""Quantities that points may stand over."""

TEXTS = ("name", "label", "source", "device", "method", "y", "unit")
OPTIONAL = ("dtype", "shape", "x", "points", "level")
KEYS = (*TEXTS, "operators", "world", "date", *OPTIONAL)


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
    lines = tuple(
        _line(one, f"{path.name}, line {i} ({one.get('name', 'without a name')})") for i, one in enumerate(said, 1)
    )
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
    return [_point(line, x, y) for line in lines for x, y in line.points]


def _point(line: PublishedLine, x: float | None, y: float) -> dict[str, object]:
    named = {key: getattr(line, key) for key in ("label", "source", "device", "method", "world", "unit")}
    return {**named, "date": line.date.isoformat(), "x": x, "y": y}


def _line(said: Mapping[str, object], where: str) -> PublishedLine:
    if unknown := [key for key in said if key not in KEYS]:
        raise PublishedError(f"{where} has the unknown key {unknown[0]!r}; the keys are {', '.join(KEYS)}")
    texts = {key: _text(said, key, where) for key in TEXTS}
    _check_quantity(texts["y"], texts["unit"], where)
    if not texts["source"].startswith("https://"):
        raise PublishedError(
            f"{where}: source {texts['source']!r} is no address; expected is one that starts with https://"
        )
    over = said.get("x", "")
    return PublishedLine(
        **texts,
        operators=_operators(said, where),
        dtype=str(said.get("dtype", "")),
        world=_world(said, where),
        date=_date(said, where),
        x=str(over),
        shape=_shape(said, where),
        points=_points(said, over, where),
    )


def _text(said: Mapping[str, object], key: str, where: str) -> str:
    value = said.get(key)
    if not isinstance(value, str) or not value.strip():
        raise PublishedError(f"{where} has no {key}; say it, as text")
    return value


def _check_quantity(y: str, unit: str, where: str) -> None:
    if y not in UNITS:
        raise PublishedError(f"{where}: y is {y!r}; expected is one of {', '.join(UNITS)}")
    if unit != UNITS[y]:
        raise PublishedError(f"{where}: unit is {unit!r}; {y} is in {UNITS[y]}")


def _operators(said: Mapping[str, object], where: str) -> tuple[str, ...]:
    value = said.get("operators")
    if not isinstance(value, list) or not value or not all(isinstance(one, str) and one for one in value):
        raise PublishedError(f"{where} has no operators; name those that it can stand beside, as a list")
    return tuple(value)


def _shape(said: Mapping[str, object], where: str) -> dict[str, int]:
    value = said.get("shape", {})
    if not isinstance(value, dict) or not all(type(one) is int and one > 0 for one in value.values()):
        raise PublishedError(f"{where}: shape is {value!r}; expected are dimensions, such as {{ N = 7168, K = 512 }}")
    return value


def _world(said: Mapping[str, object], where: str) -> int:
    value = said.get("world")
    if not isinstance(value, int) or isinstance(value, bool) or value < 1:
        raise PublishedError(f"{where}: world is {value!r}; expected is the number of ranks, from 1")
    return value


def _date(said: Mapping[str, object], where: str) -> datetime.date:
    value = said.get("date")
    if type(value) is not datetime.date:
        raise PublishedError(f"{where}: date is {value!r}; expected is the day of the source, such as 2026-10-06")
    return value


def _points(said: Mapping[str, object], over: object, where: str) -> tuple[tuple[float | None, float], ...]:
    if ("level" in said) == ("points" in said):
        raise PublishedError(f"{where} needs either level, a number, or points with x")
    if "level" in said:
        return ((None, _number(said["level"], "level", where)),)
    if over not in AXES:
        raise PublishedError(f"{where}: x is {over!r}; expected is one of {', '.join(AXES)}")
    given = said["points"]
    if not isinstance(given, list) or not given or not all(isinstance(one, list) and len(one) == 2 for one in given):
        raise PublishedError(f"{where}: points are no list of [x, y] pairs")
    found = [(_number(x, "x", where), _number(y, "y", where)) for x, y in given]
    _check_order([x for x, _ in found], where)
    return tuple(found)


def _check_order(xs: Sequence[float], where: str) -> None:
    for before, after in zip(xs, xs[1:], strict=False):
        if after <= before:
            raise PublishedError(
                f"{where}: point {after:g} comes after {before:g}; points stand in the order of x, each once"
            )


def _number(value: object, what: str, where: str) -> float:
    if isinstance(value, bool) or not isinstance(value, (int, float)) or not math.isfinite(value) or value <= 0:
        raise PublishedError(f"{where}: {what} is {value!r}; expected is a number above 0")
    return float(value)
