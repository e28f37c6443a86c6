"""A map of two categories: each cell is its best point, and says how far it is from the best."""

from __future__ import annotations

import numpy as np
import pandas as pd

from dashboards.figures.studies import columns
from dashboards.figures.studies.columns import numeric
from dashboards.figures.studies.error import FigureError
from dashboards.figures.studies.picture import HeatCells, Picture, PictureAxis, PicturePanel, numbers
from dashboards.figures.studies.quantities import Quantity, settled
from dashboards.figures.studies.spec import FigureSpec

FARTHEST = 2.0
"""A cell this many times worse than the best, or more, has the last colour: beyond, nobody would choose it."""

MOST_CELLS = 4000
"""More cells are smaller than a millimetre on paper."""


def heatmap(spec: FigureSpec, data: pd.DataFrame) -> Picture:
    """One map, or one for each value of a column."""
    value = settled(spec.axis("value"), data, "value")
    for key in ("x", "y"):
        settled(spec.axis(key), data, key)
    found, notes = [], columns.left_out(data, [value.column])
    for title, rows in columns.parts(data, spec):
        kept = rows.assign(_value=numeric(rows, value.column)).dropna(subset=["_value"])
        if not len(kept):
            raise FigureError(f"no row{' of ' + title if title else ''} has a {value.column}; there is nothing to draw")
        table = _table(spec, kept)
        shared = len(kept) - int(table.notna().to_numpy().sum())
        notes += (
            [f"{title + ': ' if title else ''}a cell shows the best of its points ({shared} more)"] if shared else []
        )
        found.append(_panel(spec, title, table, value))
    wide = max(len(panel.x.names) for panel in found) > 8
    return Picture(spec.title, tuple(found), 1 if wide or len(found) == 1 else 2, tuple(notes))


def _lower(spec: FigureSpec) -> bool:
    return spec.choice("better", ("lower", "higher"), "lower") == "lower"


def _table(spec: FigureSpec, rows: pd.DataFrame) -> pd.DataFrame:
    """The best value by names of y (rows) and x (columns), in their order."""
    x, y = spec.axis("x").column, spec.axis("y").column
    named = rows.assign(_x=columns.texts(rows, x), _y=columns.texts(rows, y))
    found = named.pivot_table(index="_y", columns="_x", values="_value", aggfunc="min" if _lower(spec) else "max")
    found = found.reindex(index=columns.ordered(rows, y), columns=columns.ordered(rows, x))
    if found.size > MOST_CELLS:
        raise FigureError(f"{found.shape[0]} x {found.shape[1]} cells are more than {MOST_CELLS}; choose with 'where'")
    return found


def _panel(spec: FigureSpec, title: str, table: pd.DataFrame, value: Quantity) -> PicturePanel:
    lower, values = _lower(spec), table.to_numpy(float)
    relative = spec.choice("relative", ("x", "all", None), "x")
    best = _best(values, lower, relative)
    shown = values / best if relative else values
    marked = np.isfinite(values) & (values == best)
    cells = HeatCells(
        tuple(map(numbers, shown)),
        tuple(tuple(_said(one, bool(relative)) for one in row) for row in shown),
        tuple(tuple(map(bool, row)) for row in marked),
        _ends(shown, lower, bool(relative)),
        _bar_title(value, lower, relative),
    )
    x, y = (PictureAxis(spec.axis(key).title, "category", names) for key, names in _names(table))
    return PicturePanel(title, x, y, cells=cells)


def _names(table: pd.DataFrame) -> tuple[tuple[str, tuple[str, ...]], tuple[str, tuple[str, ...]]]:
    return ("x", tuple(map(str, table.columns))), ("y", tuple(map(str, table.index)))


def _best(values: np.ndarray, lower: bool, relative: str | None) -> np.ndarray:
    """The best value of each column of the map, or of all of it, for every cell."""
    known = np.where(np.isfinite(values), values, np.inf if lower else -np.inf)
    pick = np.min if lower else np.max
    found = pick(known, axis=0, keepdims=True) if relative == "x" else pick(known, keepdims=True)
    return np.broadcast_to(np.where(np.isfinite(found), found, np.nan), values.shape)


def _said(value: float, relative: bool) -> str:
    if not np.isfinite(value):
        return "–"
    if relative:
        return f"{value:.2f}" if value < 100 else f"{value:.0f}"
    return f"{value:.3g}" if value < 1e5 else f"{value:.1e}"


def _ends(shown: np.ndarray, lower: bool, relative: bool) -> tuple[float, float]:
    """Worst and best value of the colours."""
    if relative:
        return (FARTHEST if lower else 1 / FARTHEST), 1.0
    low, high = float(np.nanmin(shown)), float(np.nanmax(shown))
    if low > 0:  # what is farther off must not make the others look alike
        low, high = (low, min(high, FARTHEST * low)) if lower else (max(low, high / FARTHEST), high)
    return (high, low) if lower else (low, high)


def _bar_title(value: Quantity, lower: bool, relative: str | None) -> str:
    if relative is None:
        return value.title
    what = "of its column" if relative == "x" else "of the map"
    return f"{value.label} / best {value.label} {what}" + (" (1 is best, less is better)" if lower else " (1 is best)")
