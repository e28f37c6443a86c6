"""The kinds of figures: the keys that each may have, and what makes its picture."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable

import pandas as pd

from dashboards.figures.studies import columns
from dashboards.figures.studies.beside import bars, before_after, regime
from dashboards.figures.studies.error import FigureError
from dashboards.figures.studies.heat import heatmap
from dashboards.figures.studies.lines import curve, cus, panels, scaling
from dashboards.figures.studies.picture import Picture
from dashboards.figures.studies.ranked import sweep
from dashboards.figures.studies.roofline import roofline
from dashboards.figures.studies.spec import FigureSpec, rows_where

MOST_ROWS = 100_000
"""Rows of one figure: more are points on top of each other, and minutes of drawing."""


@dataclasses.dataclass(frozen=True)
class FigureKind:
    """keys: what a spec of this kind may say beside what all may."""

    keys: tuple[str, ...]
    picture: Callable[[FigureSpec, pd.DataFrame], Picture]


_LINES = ("x", "y", "group", "baselines", "ticks")

KINDS = {
    "curve": FigureKind(_LINES, curve),
    "panels": FigureKind((*_LINES, "by", "panels"), panels),
    "cus": FigureKind((*_LINES, "by"), cus),
    "scaling": FigureKind((*_LINES, "by", "ideal", "ceiling"), scaling),
    "heatmap": FigureKind(("x", "y", "value", "better", "relative", "by"), heatmap),
    "roofline": FigureKind(("group", "baselines", "label", "ceilings"), roofline),
    "before_after": FigureKind(("value", "code"), before_after),
    "bars": FigureKind(("x", "y", "group", "baselines", "by", "geomean"), bars),
    "regime": FigureKind(("y", "group", "baselines", "also"), regime),
    "sweep": FigureKind(("anchor", "group", "baselines", "by"), sweep),
}

KEYS = {name: kind.keys for name, kind in KINDS.items()}


def picture(spec: FigureSpec, data: pd.DataFrame) -> Picture:
    """The picture of a spec and its data; FigureError if there is nothing to draw."""
    rows = rows_where(data, spec.where)
    if not len(rows):
        raise FigureError("the data have no row; there is nothing to draw")
    if len(rows) > MOST_ROWS:
        raise FigureError(f"{len(rows)} rows are more than {MOST_ROWS}; choose some of them with 'where'")
    made = KINDS[spec.kind].picture(spec, rows)
    return dataclasses.replace(made, notes=(*made.notes, *columns.more_panels(rows, spec)))
