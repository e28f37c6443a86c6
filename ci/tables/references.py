"""Published numbers that stand in a figure of a study: those of its shape."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence

import pandas as pd

from ci.tables import published

CURVES = ("curve", "panels", "cus", "scaling")
"""Kinds of figures with a quantity over another, in which a published number has a place; bars are of cases of ours."""

FACTS = ("operator", "dtype", "world")


def references(kind: str, spec: Mapping[str, object], rows: pd.DataFrame) -> list[dict[str, object]]:
    """Points for `published` in the SPEC of a figure (dashboards.figures.studies), [] for a kind without such an axis.

    spec: x, y and panels of the figure.  rows: the measured ones that it shows, with operator, dtype, world and dims.
    """
    if kind not in CURVES or rows.empty:
        return []
    shown, lines = _shown(rows), published.load()
    axes = dict.fromkeys(_axes(spec))
    found = ((x, line) for y, x in axes for line in published.beside(lines, shown, y, x))
    return [point for x, line in found for point in published.points([line]) if _in_view(point["x"], shown.get(x, ()))]


def _in_view(x: object, measured: Collection[object]) -> bool:
    """Whether a point lies within what was measured: further out it would shrink everything else."""
    numbers = [float(one) for one in measured if isinstance(one, (int, float))]
    return not isinstance(x, float) or not numbers or min(numbers) <= x <= max(numbers)


def _shown(rows: pd.DataFrame) -> Mapping[str, Collection[object]]:
    """Different values of each fact, and of each dimension of the cases."""
    dims: dict[str, set[object]] = {}
    for one in rows["dims"]:
        for name, value in one.items():
            dims.setdefault(name, set()).add(value)
    return {**dims, **{name: set(rows[name]) for name in FACTS}}


def _axes(spec: Mapping[str, object]) -> Iterator[tuple[str, str]]:
    """(column upwards, column across) of a figure, or of each of its panels."""
    panels = spec.get("panels")
    for panel in panels if isinstance(panels, Sequence) else [spec]:
        y, x = (_column({**spec, **panel}.get(key)) for key in ("y", "x"))
        if y:
            yield y, x


def _column(said: object) -> str:
    """The column of a quantity, said by its name or as an object that has it; "" for none."""
    return str(said.get("column", "") if isinstance(said, Mapping) else said or "")
