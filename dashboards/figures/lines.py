"""Pictures over a quantity: curves, CUs, ranks, rooflines, maps of two categories, ranked points; and their foot."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import numpy as np
import pandas as pd

from dashboards.figures import spec as columns
from dashboards.figures.picture import FigureError, HeatCells, Marks, Picture, PictureAxis, PicturePanel, numbers
from dashboards.figures.spec import FOOT, FigureSpec, GroupLook, Quantity, numeric, rows_where, settled

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
    drawn = _Points.of(one, x)
    marks = [marks for look in looks if (marks := _line(drawn, look)).x]
    values = numeric(one.rows, one.y.column)
    pure = one.y.unit == "1"
    known = [] if x.names else list(published(spec, one.y))
    y = columns.value_axis(one.y, values, zero=not pure)
    return PicturePanel(one.title, x, y, (*marks, *known), level=1.0 if pure else np.nan)


@dataclasses.dataclass(frozen=True, eq=False)
class _Points:
    """What a panel draws, in order of x.  groups: of each point, none without any.

    low, high: ends of the intervals, none without any.
    """

    groups: list[str]
    x: list[float]
    y: list[float]
    low: list[float]
    high: list[float]
    labels: list[str]

    @classmethod
    def of(cls, one: _LinePanel, x: PictureAxis) -> _Points:
        xs, ys = columns.places(one.rows, one.x, x).to_numpy(), numeric(one.rows, one.y.column).to_numpy()
        order = np.argsort(xs, kind="stable")
        order = order[np.isfinite(xs[order]) & np.isfinite(ys[order])]
        named = columns.texts(one.rows, one.group).to_numpy()[order].tolist() if one.group else []
        low, high = ([end[n] for n in order] if end else [] for end in ends(one.rows, one.y))
        labels = [f"{columns.text(value)} {one.x.title}" for value in one.rows[one.x.column].to_numpy()[order]]
        return cls(named, xs[order].tolist(), ys[order].tolist(), low, high, labels)


def _line(drawn: _Points, look: GroupLook) -> Marks:
    """One group; it is not joined where it has several values at one place."""
    own = [n for n in range(len(drawn.x)) if not drawn.groups or drawn.groups[n] in look.values]
    several = (drawn.x, drawn.y, drawn.low, drawn.high, drawn.labels)
    xs, ys, low, high, labels = (tuple(values[n] for n in own) if values else () for values in several)
    kind = "line" if len(set(xs)) == len(xs) and len(look.values) < 2 else "dots"
    return look.marks(kind, xs, ys, low=low, high=high, labels=labels)


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


# Points under the ceilings of a device: matrix units, HBM, and, of what uses links, the links.
#
# A ceiling is the lesser of the peak of the matrix units and intensity x bandwidth (Williams, Waterman, Patterson, CACM
# 52(4), 2009).  Over the bytes of the links it is the same with their bandwidth.


MOST_NAMED = 12
"""Points with their name beside them; of more, the names cover each other."""

NEEDED = ("flops", "hbm_bytes", "seconds")


@dataclasses.dataclass(frozen=True)
class _Memory:
    """What moves the bytes of a panel.  bandwidth: GB/s."""

    name: str
    column: str
    bandwidth: float


def roofline(spec: FigureSpec, data: pd.DataFrame) -> Picture:
    """TFLOPS over FLOP per byte of HBM; where links carry bytes, also over FLOP per byte of the links."""
    columns.needed(data, "a roofline", NEEDED)
    timed = data.assign(_flops=numeric(data, "flops"), _seconds=numeric(data, "seconds"))
    timed = timed[(timed["_flops"] > 0) & (timed["_seconds"] > 0) & (numeric(timed, "hbm_bytes") > 0)]
    if not len(timed):
        raise FigureError("no row has FLOP, HBM bytes and seconds; there is nothing to draw under a roofline")
    notes = [f"{len(data) - len(timed)} of {len(data)} rows have no time or cost and are not drawn"]
    panels = tuple(_roofline_panel(spec, timed, memory) for memory in _memories(spec, timed))
    return Picture(spec.title, panels, len(panels), tuple(notes if len(timed) < len(data) else ()))


def _ceilings(spec: FigureSpec) -> Mapping[str, Any]:
    said = spec.keys.get("ceilings")
    if not said:
        raise FigureError(
            "a roofline needs 'ceilings': {'peak_tflops': {dtype: number}, 'hbm_gbs': number, 'link_gbs'}"
        )
    return said


def _memories(spec: FigureSpec, rows: pd.DataFrame) -> Iterator[_Memory]:
    said = _ceilings(spec)
    yield _Memory("HBM", "hbm_bytes", float(said["hbm_gbs"]))
    if said.get("link_gbs") and "link_bytes" in rows.columns and (numeric(rows, "link_bytes") > 0).any():
        yield _Memory("links", "link_bytes", float(said["link_gbs"]))


def _roofline_panel(spec: FigureSpec, rows: pd.DataFrame, memory: _Memory) -> PicturePanel:
    rows = rows.assign(_x=rows["_flops"] / numeric(rows, memory.column), _y=rows["_flops"] / rows["_seconds"] / 1e12)
    rows = rows[np.isfinite(rows["_x"])]
    points, roofs = tuple(_roofline_points(spec, rows)), tuple(_roofs(spec, rows, memory))
    x = PictureAxis(f"intensity, FLOP per byte of {memory.name}", "log")
    y = PictureAxis("speed, TFLOPS per device", "log")
    return PicturePanel("", x, y, (*roofs, *points, *_levels(spec)))


def _roofline_points(spec: FigureSpec, rows: pd.DataFrame) -> Iterator[Marks]:
    group = spec.column("group", rows)
    label = spec.column("label", rows, "case" if "case" in rows.columns else "")
    for look in columns.groups(rows, group, spec.names("baselines")):
        part = columns.within(rows, group, look)
        if len(part):
            names = tuple(columns.texts(part, label)) if label else ()
            named = bool(names) and len(rows) <= MOST_NAMED
            marks = look.marks("dots", part["_x"], part["_y"], labels=names, named=named)
            yield marks if marks.name else dataclasses.replace(marks, name="measured")


def _roofs(spec: FigureSpec, rows: pd.DataFrame, memory: _Memory) -> Iterator[Marks]:
    """The ridge of each dtype in three points: its slope, its corner, its level."""
    said = _ceilings(spec)
    for n, (dtype, peak) in enumerate(sorted(said["peak_tflops"].items())):
        corner = float(peak) * 1e3 / memory.bandwidth
        least, most = min(rows["_x"].min(), corner) / 2, max(rows["_x"].max(), corner) * 2
        xs = [least, corner, most]
        ys = [least * memory.bandwidth / 1e3, float(peak), float(peak)]
        name = f"roof, {dtype}: {peak:g} TFLOPS, {memory.name} {memory.bandwidth:g} GB/s"
        yield Marks(name, "rule", numbers(xs), numbers(ys), dashed=n)


def _levels(spec: FigureSpec) -> Iterator[Marks]:
    """Published speeds, which have no intensity of ours."""
    for n, one in enumerate(spec.published):
        if one.get("unit") == "TFLOPS" and one.get("y") is not None:
            x = math.nan if one.get("x") is None else float(one["x"])
            name = f"published: {reference_name(one)}"
            yield Marks(name, "rule", (x,), (float(one["y"]),), dashed=published_dash(n))


# A map of two categories: each cell is its best point, and says how far it is from the best.


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
        found.append(_map_panel(spec, title, table, value))
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


def _map_panel(spec: FigureSpec, title: str, table: pd.DataFrame, value: Quantity) -> PicturePanel:
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
    x, y = (PictureAxis(spec.axis(key).title, "category", names) for key, names in _map_names(table))
    return PicturePanel(title, x, y, cells=cells)


def _map_names(table: pd.DataFrame) -> tuple[tuple[str, tuple[str, ...]], tuple[str, tuple[str, ...]]]:
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


# Points of a sweep in the order of their time, beside the anchor, with what was not measured counted.


WIDE_RANKS = 4.0
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
    found = tuple(_ranked_panel(spec, title, rows) for title, rows in columns.parts(measured, spec))
    notes = [f"{int(ok.sum())} of {len(data)} points measured"]
    notes += [f"not measured: {_counted(status[~ok])}"] if (~ok).any() else []
    return Picture(spec.title, found, 1 if len(found) < 3 else 2, tuple(notes))


def _counted(status: pd.Series) -> str:
    counts = status.value_counts()
    told = sorted(counts.items(), key=lambda item: (-item[1], str(item[0])))
    return ", ".join(f"{count} {'without a ratio' if name == OK else name}" for name, count in told) or "nothing"


def _ranked_panel(spec: FigureSpec, title: str, rows: pd.DataFrame) -> PicturePanel:
    rows = rows.sort_values(["_ratio", "point"], kind="stable").reset_index(drop=True)
    rows = rows.assign(_rank=range(1, len(rows) + 1))
    group = spec.column("group", rows)
    marks = tuple(
        _group(columns.within(rows, group, look), look) for look in columns.groups(rows, group, spec.names("baselines"))
    )
    spread = rows["_ratio"].max() / rows["_ratio"].min()
    anchor = str(spec.keys.get("anchor") or "the anchor")
    y = PictureAxis(f"time / time of {anchor}", "log" if spread > WIDE_RANKS else "linear")
    x = PictureAxis("rank of the point, fastest first")
    best = Marks("", "ring", (1.0,), numbers(rows["_ratio"].head(1)))
    return PicturePanel(title, x, y, (*marks, best), True, 1.0, _winner(rows))


def _group(rows: pd.DataFrame, look: columns.GroupLook) -> Marks:
    known = {"low", "high"} <= set(rows.columns)
    low, high = (numbers(numeric(rows, name)) for name in ("low", "high")) if known else ((), ())
    names = tuple(columns.texts(rows, "point"))
    return look.marks("dots", rows["_rank"], rows["_ratio"], low=low, high=high, hollow=False, labels=names)


def _winner(rows: pd.DataFrame) -> str:
    """The winner in words."""
    first = rows.iloc[0]
    low, high = (float(first[name]) if name in rows.columns else math.nan for name in ("low", "high"))
    name = columns.text(first["point"])
    if first["_ratio"] == low == high:
        return f"fastest: {name}, the anchor itself"
    between = f" ({low:.4g} to {high:.4g})" if math.isfinite(low) and math.isfinite(high) else ""
    return f"fastest: {name}\n{first['_ratio']:.4g}{between} of the anchor's time"


# What stands below a figure of a study: what it leaves out, what is published elsewhere, and its origin.


AS_IT_IS = ("machine", "versions", "note")
"""Facts that need no name before them."""


def foot(spec: FigureSpec, picture: Picture) -> list[str]:
    """Sentences, the facts last."""
    names = [*FOOT, *(name for name in spec.foot if name not in FOOT)]
    facts = [spec.foot[name] if name in AS_IT_IS else f"{name} {spec.foot[name]}" for name in names]
    return [*picture.notes, *_sources(spec, picture), " · ".join(facts)]


def _sources(spec: FigureSpec, picture: Picture) -> Iterator[str]:
    """Where the published numbers that are drawn come from."""
    drawn = {marks.name for panel in picture.panels for marks in panel.marks}
    told = {
        f"{reference_name(one)}: {one.get('source', 'no source')}"
        for one in spec.published
        if f"published: {reference_name(one)}" in drawn
    }
    if told:
        yield "dashed and published elsewhere, not measured here: " + "; ".join(sorted(told))
