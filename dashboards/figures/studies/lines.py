"""Values over a quantity: curves, several of them in panels, over CUs, and over ranks with what would be ideal."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import numpy as np
import pandas as pd

from dashboards.figures.studies import columns
from dashboards.figures.studies.columns import GroupLook, numeric
from dashboards.figures.studies.error import FigureError
from dashboards.figures.studies.picture import Marks, Picture, PictureAxis, PicturePanel, numbers
from dashboards.figures.studies.quantities import Quantity, settled
from dashboards.figures.studies.spec import FigureSpec, rows_where

IDEALS = ("proportional", "constant", "inverse")
ACROSS = 3
"""Panels beside each other at most."""


def curve(spec: FigureSpec, data: pd.DataFrame) -> Picture:
    """One panel."""
    return _picture(spec, data, [_LinePanel.of(spec, "", data)])


def panels(spec: FigureSpec, data: pd.DataFrame) -> Picture:
    """Several: one for each value of a column, or as they are listed."""
    listed = spec.keys.get("panels")
    if not listed:
        return _picture(spec, data, [_LinePanel.of(spec, title, rows) for title, rows in columns.parts(data, spec)])
    return _picture(spec, data, [_listed(spec, one, data, n) for n, one in enumerate(listed)])


def cus(spec: FigureSpec, data: pd.DataFrame) -> Picture:
    """GB/s over the number of CUs."""
    return panels(spec.but(x=spec.keys.get("x") or "cus", y=spec.keys.get("y") or "busbw"), data)


def scaling(spec: FigureSpec, data: pd.DataFrame) -> Picture:
    """Over ranks, with the ideal from the fewest of them and the ceiling of the links."""
    spec = spec.but(x=spec.keys.get("x") or "world")
    drawn = panels(spec, data)
    parts = list(columns.parts(data, spec))
    found = [_with_ideal(spec, panel, *part) for panel, part in zip(drawn.panels, parts, strict=True)]
    return dataclasses.replace(drawn, panels=tuple(found))


@dataclasses.dataclass(frozen=True)
class _LinePanel:
    """What one panel shows.  looks: groups of the whole figure, so that all panels agree on a colour."""

    title: str
    rows: pd.DataFrame
    x: Quantity
    y: Quantity
    group: str

    @classmethod
    def of(cls, spec: FigureSpec, title: str, data: pd.DataFrame) -> _LinePanel:
        x, y = settled(spec.axis("x"), data, "x"), settled(spec.axis("y"), data, "y")
        return cls(title, data, x, y, spec.column("group", data))


def _listed(spec: FigureSpec, said: Mapping[str, Any], data: pd.DataFrame, place: int) -> _LinePanel:
    """A panel that the spec lists: its own keys over those of the figure."""
    if unknown := sorted(set(said) - {"title", "x", "y", "where", "group"}):
        raise FigureError(f"panels[{place}] has the key {unknown[0]!r}; allowed are title, x, y, where, group")
    own = spec.but(**{key: said[key] for key in ("x", "y", "group") if key in said})
    return _LinePanel.of(own, str(said.get("title", "")), rows_where(data, said.get("where") or {}))


def _picture(spec: FigureSpec, data: pd.DataFrame, shown: Sequence[_LinePanel]) -> Picture:
    looks = {group: columns.groups(data, group, spec.names("baselines")) for group in {one.group for one in shown}}
    every = spec.choice("ticks", (None, "values"), None) == "values"
    found = tuple(_panel(spec, one, looks[one.group], every) for one in shown)
    notes = dict.fromkeys(note for one in shown for note in _missing(one))
    return Picture(spec.title, found, min(ACROSS, len(found)) if len(found) != 4 else 2, tuple(notes))


def _missing(one: _LinePanel) -> list[str]:
    return columns.left_out(one.rows, [axis.column for axis in (one.x, one.y) if axis.scale != "category"])


def _panel(spec: FigureSpec, one: _LinePanel, looks: Sequence[GroupLook], every: bool) -> PicturePanel:
    x = columns.place_axis(one.x, one.rows, every)
    marks = [marks for look in looks if (marks := _line(one, look, x)).x]
    values = numeric(one.rows, one.y.column)
    pure = one.y.unit == "1"
    known = [] if x.names else list(published(spec, one.y))
    y = columns.value_axis(one.y, values, zero=not pure)
    return PicturePanel(one.title, x, y, (*marks, *known), level=1.0 if pure else np.nan)


def _line(one: _LinePanel, look: GroupLook, x: PictureAxis) -> Marks:
    """One group in order of x; it is not joined where it has several values at one place."""
    rows = columns.within(one.rows, one.group, look)
    rows = rows.assign(_x=columns.places(rows, one.x, x), _y=numeric(rows, one.y.column)).dropna(subset=["_x", "_y"])
    rows = rows.sort_values("_x", kind="stable")
    kind = "line" if rows["_x"].is_unique and len(look.values) < 2 else "dots"
    low, high = ends(rows, one.y)
    labels = tuple(f"{columns.text(value)} {one.x.title}" for value in rows[one.x.column])
    marks = Marks(look.name, kind, numbers(rows["_x"]), numbers(rows["_y"]), low, high, look.look, look.dashed)
    return dataclasses.replace(marks, labels=labels, hollow=look.dashed > 0)


def ends(rows: pd.DataFrame, axis: Quantity) -> tuple[tuple[float, ...], tuple[float, ...]]:
    """The ends of the interval of each row, none if the quantity has no interval."""
    if not (axis.low and axis.high):
        return (), ()
    return numbers(numeric(rows, axis.low)), numbers(numeric(rows, axis.high))


def published(spec: FigureSpec, axis: Quantity) -> Iterator[Marks]:
    """Reference points of the quantity of an axis: dashed, named, one line for each label."""
    found: dict[str, list[tuple[float, float]]] = {}
    for one in spec.published:
        of_axis = one.get("unit") == axis.unit and one.get("quantity", axis.column) == axis.column
        if of_axis and one.get("y") is not None:
            x = one.get("x")
            found.setdefault(reference_name(one), []).append((np.nan if x is None else float(x), float(one["y"])))
    for n, (name, points) in enumerate(found.items()):
        xs, ys = zip(*sorted(points), strict=True)
        kind = "rule" if np.isnan(xs).all() else "line"
        yield Marks(f"published: {name}", kind, numbers(xs), numbers(ys), dashed=published_dash(n), hollow=True)


def published_dash(n: int) -> int:
    """Dashes of the n-th published line, from the last on: the first ones are those of baselines, and solid."""
    return 5 - n % 3


def reference_name(one: Mapping[str, Any]) -> str:
    """What a published number is called in a figure."""
    said = [str(one[key]) for key in ("device", "method", "date") if one.get(key)]
    return str(one.get("label") or ", ".join(said) or one.get("source") or "without source")


# ---- scaling --------------------------------------------------------------------------------------------------------


def _with_ideal(spec: FigureSpec, panel: PicturePanel, title: str, rows: pd.DataFrame) -> PicturePanel:
    said = spec.keys.get("ideal")
    by = spec.column("by", rows)
    key = columns.text(rows[by].iloc[0]) if by and len(rows) else ""
    ideal = said.get(key) if isinstance(said, Mapping) else said
    if ideal not in (None, *IDEALS):
        raise FigureError(f"'ideal' is {ideal!r}; choose one of {', '.join(IDEALS)}")
    own = [marks for marks in panel.marks if marks.kind == "line" and not marks.dashed]
    more = [_ideal(marks, str(ideal)) for marks in own] if ideal else []
    return dataclasses.replace(panel, marks=(*panel.marks, *more, *_ceiling(spec, rows)))


def _ideal(marks: Marks, ideal: str) -> Marks:
    """A line from the point with the fewest ranks."""
    first = np.asarray(marks.x) / marks.x[0]
    factor = {"proportional": first, "inverse": 1 / first, "constant": np.ones(len(first))}[ideal]
    return Marks("ideal", "rule", marks.x, numbers(marks.y[0] * factor), look=marks.look, dashed=1)


def _ceiling(spec: FigureSpec, rows: pd.DataFrame) -> Iterator[Marks]:
    column, x = spec.column("ceiling", rows), spec.axis("x")
    if not column:
        return
    found = pd.DataFrame({"x": numeric(rows, x.column), "y": numeric(rows, column)}).dropna()
    most = found.groupby("x")["y"].max()
    if len(most):
        yield Marks("link ceiling", "rule", numbers(most.index), numbers(most), dashed=0)
