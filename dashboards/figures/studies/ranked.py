"""Points of a sweep in the order of their time, beside the anchor, with what was not measured counted."""

from __future__ import annotations

import math

import pandas as pd

from dashboards.figures.studies import columns
from dashboards.figures.studies.columns import numeric
from dashboards.figures.studies.error import FigureError
from dashboards.figures.studies.picture import Marks, Picture, PictureAxis, PicturePanel, numbers
from dashboards.figures.studies.spec import FigureSpec

WIDE = 4.0
"""Ratios that span more than this get a logarithmic axis: the differences of the best few are what one looks for."""

OK = "ok"


def sweep(spec: FigureSpec, data: pd.DataFrame) -> Picture:
    """Time / time of the anchor of every point that was measured, the fastest first."""
    columns.needed(data, "a sweep", ("point", "ratio"))
    status = columns.texts(data, "status") if "status" in data.columns else pd.Series(OK, index=data.index)
    ratios = numeric(data, "ratio")
    ok = (status == OK) & (ratios > 0)
    if not ok.any():
        raise FigureError(f"no point was measured; there is: {_counted(status)}")
    measured = data[ok].assign(_ratio=ratios[ok])
    found = tuple(_panel(spec, title, rows) for title, rows in columns.parts(measured, spec))
    notes = [f"{int(ok.sum())} of {len(data)} points measured"]
    notes += [f"not measured: {_counted(status[~ok])}"] if (~ok).any() else []
    return Picture(spec.title, found, 1 if len(found) < 3 else 2, tuple(notes))


def _counted(status: pd.Series) -> str:
    counts = status.value_counts()
    told = sorted(counts.items(), key=lambda item: (-item[1], str(item[0])))
    return ", ".join(f"{count} {'without a ratio' if name == OK else name}" for name, count in told) or "nothing"


def _panel(spec: FigureSpec, title: str, rows: pd.DataFrame) -> PicturePanel:
    rows = rows.sort_values(["_ratio", "point"], kind="stable").reset_index(drop=True)
    rows = rows.assign(_rank=range(1, len(rows) + 1))
    group = spec.column("group", rows)
    marks = tuple(
        _group(columns.within(rows, group, look), look) for look in columns.groups(rows, group, spec.names("baselines"))
    )
    spread = rows["_ratio"].max() / rows["_ratio"].min()
    anchor = str(spec.keys.get("anchor") or "the anchor")
    y = PictureAxis(f"time / time of {anchor}", "log" if spread > WIDE else "linear")
    x = PictureAxis("rank of the point, fastest first")
    best = Marks("", "ring", (1.0,), numbers(rows["_ratio"].head(1)))
    return PicturePanel(title, x, y, (*marks, best), True, 1.0, _best(rows))


def _group(rows: pd.DataFrame, look: columns.GroupLook) -> Marks:
    known = {"low", "high"} <= set(rows.columns)
    low, high = (numbers(numeric(rows, name)) for name in ("low", "high")) if known else ((), ())
    at = numbers(rows["_rank"]), numbers(rows["_ratio"])
    return Marks(look.name, "dots", *at, low, high, look.look, look.dashed, labels=tuple(columns.texts(rows, "point")))


def _best(rows: pd.DataFrame) -> str:
    """The winner in words."""
    first = rows.iloc[0]
    low, high = (float(first[name]) if name in rows.columns else math.nan for name in ("low", "high"))
    name = columns.text(first["point"])
    if first["_ratio"] == low == high:
        return f"fastest: {name}, the anchor itself"
    between = f" ({low:.4g} to {high:.4g})" if math.isfinite(low) and math.isfinite(high) else ""
    return f"fastest: {name}\n{first['_ratio']:.4g}{between} of the anchor's time"
