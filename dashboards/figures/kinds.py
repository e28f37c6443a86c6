"""The kinds of figures: the keys that each may have, and what makes its picture.

Here are those of things beside each other, one name on each line: backends in cases, and before and after a change.
`lines` has those over a quantity.
"""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

import numpy as np
import pandas as pd

from dashboards.figures import lines
from dashboards.figures import spec as columns
from dashboards.figures.lines import curve, cus, heatmap, panels, roofline, scaling, sweep
from dashboards.figures.picture import (
    CodeColumn,
    FigureError,
    Marks,
    Number,
    Picture,
    PictureAxis,
    PicturePanel,
    numbers,
)
from dashboards.figures.spec import FigureSpec, GroupLook, Quantity, numeric, quantity, rows_where, settled

MOST_BARS = 40
"""More bars than this are dots: the lengths of so many cannot be compared."""

MOST_NAMES = 120
"""Lines of one panel: more are a page of their own, or a table."""

WIDE = 20.0
"""Times that span more than this get a logarithmic axis: dumbbells of the short ones would be points."""

GEOMEAN = "geometric mean"

NOTHING = "–"

THICKNESS = 0.8
"""Part of a line that all its groups take together."""


# ---- backends in cases ----------------------------------------------------------------------------------------------


def bars(spec: FigureSpec, data: pd.DataFrame) -> Picture:
    """One bar for each case and group; of many, dots."""
    y = settled(spec.axis("y"), data, "y")
    settled(spec.axis("x"), data, "x")
    data = data.assign(_value=numeric(data, y.column))
    group = spec.column("group", data)
    looks = columns.groups(data, group, spec.names("baselines"))
    found, notes = [], columns.left_out(data, [y.column])
    for title, rows in columns.parts(data, spec):
        panel, more = _bars(spec, title, rows, looks)
        found.append(panel)
        notes += [note for note in more if note not in notes]
    same = len({panel.y.names for panel in found}) == 1
    return Picture(spec.title, tuple(found), min(lines.ACROSS, len(found)) if same else 1, tuple(notes))


def _bars(
    spec: FigureSpec, title: str, rows: pd.DataFrame, looks: Sequence[GroupLook]
) -> tuple[PicturePanel, list[str]]:
    x, y, group = spec.axis("x"), spec.axis("y"), spec.column("group", rows)
    cases = columns.ordered(rows, x.column)
    notes = [f"{len(cases) - MOST_NAMES} more cases are in the table only"] if len(cases) > MOST_NAMES else []
    cases = cases[:MOST_NAMES]
    table = _by_case(rows, x.column, group, looks).reindex(index=cases)
    means, compared = _geomeans(table) if spec.keys.get("geomean", True) else (pd.Series(dtype=float), 0)
    names = (*cases, *([GEOMEAN] if len(means) else []))
    if len(means):
        notes.append(f"{GEOMEAN} over {compared} cases that every backend has")
    kind = "bars" if len(names) * len(looks) <= MOST_BARS else "dots"
    marks = []
    for n, look in enumerate(looks):
        values = [*table[look.name], *([means[look.name]] if len(means) else [])]
        shift = _shift(n, len(looks)) if kind == "bars" else 0.0
        marks.append(look.marks(kind, values, (place + shift for place in range(len(values)))))
    pure = y.unit == "1"
    drawn = pd.Series([value for one in marks for value in one.x])
    axis = columns.value_axis(y, drawn, zero=kind == "bars" and not pure)
    y_axis = PictureAxis("" if x.unit in ("", "1") else x.title, "category", tuple(names))
    known = tuple(_upright(one) for one in lines.published(spec, y))
    return PicturePanel(title, axis, y_axis, (*marks, *known), False, 1.0 if pure else math.nan), notes


def _upright(one: Marks) -> Marks:
    """A published number as a line across all names."""
    return dataclasses.replace(one, kind="rule", x=one.y[-1:], y=(math.nan,))


def _by_case(rows: pd.DataFrame, case: str, group: str, looks: Sequence[GroupLook]) -> pd.DataFrame:
    """The value of each case (rows) and group (columns); of several, the median."""
    found = {}
    for look in looks:
        part = columns.within(rows, group, look)
        found[look.name] = part["_value"].groupby(columns.texts(part, case)).median()
    return pd.DataFrame(found)


def _geomeans(table: pd.DataFrame) -> tuple[pd.Series, int]:
    """Geometric mean of each group over the cases in which all groups have a value above 0, and the number of these."""
    whole = table[(table > 0).all(axis=1)]
    return (np.exp(np.log(whole).mean()), len(whole)) if len(whole) > 1 else (pd.Series(dtype=float), 0)


def _shift(n: int, count: int) -> Number:
    """How far the n-th of some groups stands from the middle of its line."""
    return THICKNESS * ((n + 0.5) / count - 0.5)


# ---- before and after -----------------------------------------------------------------------------------------------


def before_after(spec: FigureSpec, data: pd.DataFrame) -> Picture:
    """Time before and after as two dots, the ratio with its interval, and the machine code as numbers."""
    columns.needed(data, "a figure of before and after", ("change", "case", "before", "after"))
    rows = data.assign(_before=numeric(data, "before"), _after=numeric(data, "after")).head(MOST_NAMES)
    names = tuple(f"{columns.text(c)} · {columns.text(k)}" for c, k in zip(rows["change"], rows["case"], strict=True))
    axis = PictureAxis("", "category", names)
    value = quantity(spec.keys.get("value") or "us", "value")
    ends = pd.concat([rows["_before"], rows["_after"]])
    times = PicturePanel(value.label, _wide(value, ends), axis, tuple(_ends_of(rows)), False)
    ratio = PicturePanel(
        "after / before", PictureAxis("after / before (below 1: faster)"), axis, (_ratio(rows),), False, 1.0
    )
    code = PicturePanel("machine code, before → after", PictureAxis(""), axis, upright=False, texts=_code(spec, rows))
    notes = columns.left_out(data, ["before", "after"])
    notes += [f"{len(data) - MOST_NAMES} more rows are in the table only"] if len(data) > MOST_NAMES else []
    return Picture(spec.title, (times, ratio, *([code] if code.texts else [])), 3 if code.texts else 2, tuple(notes))


def _wide(value: Quantity, values: pd.Series) -> PictureAxis:
    found = values.dropna()
    wide = len(found) and found.min() > 0 and found.max() > WIDE * found.min()
    return PictureAxis(value.title, "log" if wide else columns.scale_of(value, found))


def _ends_of(rows: pd.DataFrame) -> Iterator[Marks]:
    at = tuple(map(float, range(len(rows))))
    low, high = rows[["_before", "_after"]].min(axis=1), rows[["_before", "_after"]].max(axis=1)
    yield Marks("", "links", numbers(low), at, numbers(low), numbers(high))
    yield Marks("before", "dots", numbers(rows["_before"]), at, look=None, hollow=True)
    yield Marks("after", "dots", numbers(rows["_after"]), at, look=0)


def _ratio(rows: pd.DataFrame) -> Marks:
    at = tuple(map(float, range(len(rows))))
    known = {"ratio_low", "ratio_high"} <= set(rows.columns)
    low, high = (numbers(numeric(rows, name)) for name in ("ratio_low", "ratio_high")) if known else ((), ())
    return Marks("", "dots", numbers(rows["_after"] / rows["_before"]), at, low, high, look=0)


def _code(spec: FigureSpec, rows: pd.DataFrame) -> tuple[CodeColumn, ...]:
    """Columns of the machine code of which something is known."""
    found = [_code_column(said, rows) for said in spec.keys.get("code") or ()]
    return tuple(column for column in found if set(column.texts) != {NOTHING})


def _code_column(said: Mapping[str, Any], rows: pd.DataFrame) -> CodeColumn:
    for key in ("label", "before", "after"):
        if not said.get(key):
            raise FigureError(f"an entry of 'code' has no {key!r}; give label, before and after (columns)")
        if key != "label" and said[key] not in rows.columns:
            raise FigureError(f"'code' names the column {said[key]!r}; the data have: {', '.join(rows.columns)}")
    pairs = zip(rows[said["before"]], rows[said["after"]], strict=True)
    return CodeColumn(str(said["label"]), tuple(_change(*pair) for pair in pairs))


def _change(before: object, after: object) -> str:
    first, second = columns.text(before), columns.text(after)
    first, second = (NOTHING if one == "none" else one for one in (first, second))
    return first if first == second else f"{first} → {second}"


# ---- all kinds ----------------------------------------------------------------------------------------------------

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
