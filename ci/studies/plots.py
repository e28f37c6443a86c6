"""Figures of studies, by matplotlib: lines over a quantity, dots, heat maps, rooflines, before and after.

Every function takes rows with the columns of `ci.studies.frame` and gives a Figure; `save` writes it as SVG, with where
its numbers come from below it.  The same rows give the same bytes.
"""

from __future__ import annotations

import contextlib
import dataclasses
import datetime
import functools
import io
import math
import textwrap
import tomllib
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

import matplotlib as mpl
import numpy as np
import pandas as pd
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from scipy.stats import gmean

from ci.records import derived
from ci.studies.frame import quantity
from ci.whole_files import replace

COLOURS = ("#0072b2", "#d55e00", "#009e73", "#cc79a7", "#e69f00", "#56b4e9")
"""Okabe and Ito, Color Universal Design (2008): distinct with every common colour vision."""

MARKERS = ("o", "s", "^", "D", "v", "P")
"""A second way to tell what the colours tell."""

GREY = "#6b7280"
DOUBLING = ("M", "world", "ranks", "cus", "payload_bytes")
"""Quantities whose measured values mostly double: their axis is logarithmic, with a tick at each value."""

MAX_LABELLED_POINTS = 12
MAX_GROUPS = 12
"""More colours cannot be told apart: what comes after is grey."""


def style() -> contextlib.AbstractContextManager[None]:
    """Figures are made and saved within it; names of elements are then the same in every call (hashsalt)."""
    return mpl.rc_context(
        {"svg.hashsalt": "ridgeline", "svg.fonttype": "none", "font.size": 9, "axes.grid": True, "grid.alpha": 0.3}
    )


# ---- lines -----------------------------------------------------------------------------------------------------------

Panel = tuple[str, pd.DataFrame, str]
"""Title, rows, and the column of its y axis."""


def by(rows: pd.DataFrame, column: str, y: str) -> list[Panel]:
    """A panel for each value of a column."""
    parts = rows.groupby(column, sort=False, observed=True)
    return [(value if isinstance(value, str) else f"{column} {value!s}", own, y) for value, own in parts]


def lines(
    title: str,
    panels: Sequence[Panel],
    x: str,
    group: str,
    *,
    baselines: Collection[str] = (),
    log_y: Collection[str] = (),
    categories: bool = False,
    decorate: Callable[[Axes, pd.DataFrame], object] = lambda axes, rows: None,
) -> Figure | None:
    """Rows of a group joined in order of x, panel by panel; None without a value.

    baselines: groups drawn grey and dashed.  log_y: columns with a logarithmic axis.  categories: values of x stand at
    equal distances.  decorate: called with each panel's axes and rows.  `ratio` is drawn with its interval.
    """
    panels = [panel for panel in panels if panel[2] in panel[1] and panel[1][panel[2]].notna().any()]
    if not panels:
        return None
    figure, grid = _panels(title, len(panels))
    groups = list(dict.fromkeys(str(name) for _, rows, _ in panels for name in rows[group]))
    for axes, (name, rows, y) in zip(grid, panels, strict=False):
        rows = rows.dropna(subset=[x, y])
        ticks = sorted(dict.fromkeys(rows[x]))
        places = dict(zip(ticks, range(len(ticks)) if categories else ticks, strict=True))
        for own_name, own in rows.groupby(rows[group].astype(str), sort=False):
            own = own.sort_values(x)
            at, look = own[x].map(places), _look(groups.index(own_name), own_name in baselines)
            axes.plot(at, own[y], label=own_name, **look)
            if y == "ratio" and own["low"].notna().any():
                axes.fill_between(at, own["low"], own["high"], color=look["color"], alpha=0.15, lw=0)
        axes.set_title(name, loc="left", fontsize=9)
        axes.set_xlabel(_label(x))
        doubling = x in DOUBLING and not categories
        if doubling:
            axes.set_xscale("log", base=2)
        if doubling or len(ticks) <= MAX_LABELLED_POINTS:
            axes.set_xticks(list(places.values()), list(map(_text, places)), fontsize=7)
            axes.minorticks_off()
        if y in log_y:
            axes.set_yscale("log")
        axes.set_ylabel(_label(y))
        for line in published_beside(rows, x, y):
            if line.level:
                axes.axhline(line.level, **PUBLISHED, label=f"published: {line.label}")
            else:
                axes.plot(*zip(*line.points, strict=True), **PUBLISHED, label=f"published: {line.label}")
        decorate(axes, rows)
    _legend(figure, grid)
    return figure


def _look(place: int, is_baseline: bool = False) -> dict[str, Any]:
    look = {"marker": MARKERS[place % 6], "color": COLOURS[place % 6] if place < MAX_GROUPS else GREY}
    if is_baseline:
        return {**look, "color": GREY, "markersize": 3, "linewidth": 1.2, "linestyle": (0, (5, 3))}
    return {**look, "markersize": 3.5, "linewidth": 1.3, "linestyle": "-" if place < 6 else (0, (3, 1.5))}


# ---- what others have published --------------------------------------------------------------------------------------

PUBLISHED: dict[str, Any] = {"color": "#9ca3af", "linestyle": (0, (1, 1.5)), "linewidth": 1.1}
AXES = {"M": "M", "bytes": "payload_bytes"}
"""Quantities that published points may stand over, and our column of each."""


@dataclasses.dataclass(frozen=True)
class PublishedLine:
    """What one source says of one device and method: `published.toml`.  It is never a measurement of ours.

    operators: ours that it can stand beside.  points: (x, y) in the order of x; level: one y, whatever the shape.
    world: ranks.  x: quantity of the axis, "" for a level.  y, unit: quantity and its unit.  date: of the source.
    shape: dimensions of the cases that it is about.  dtype: "" where it does not matter.
    """

    name: str
    label: str
    operators: Sequence[str]
    source: str
    device: str
    world: int
    method: str
    date: datetime.date
    y: str
    unit: str
    dtype: str = ""
    shape: Mapping[str, int] = dataclasses.field(default_factory=dict)
    x: str = ""
    points: Sequence[tuple[float, float]] = ()
    level: float | None = None

    def fits(self, rows: pd.DataFrame) -> bool:
        """Whether rows are all of its operators, and some of its dtype, number of ranks and shape.

        A line over a quantity says on its label which device it is of.  A level, which some favourable shape reaches,
        stands beside rows of its own product only.
        """
        products = {str(name).split()[0] for name in rows["market_name"].dropna() if str(name)}
        wanted = {"world": self.world, **({"dtype": self.dtype} if self.dtype else {}), **self.shape}
        return (
            set(rows["operator"]) <= set(self.operators)
            and all(name in rows and (rows[name] == value).any() for name, value in wanted.items())
            and (bool(self.x) or any(product in self.device for product in products))
        )


@functools.cache
def published_lines() -> tuple[PublishedLine, ...]:
    """Every line of the file, in its order."""
    text = Path(__file__).with_name("published.toml").read_text(encoding="utf-8")
    return tuple(PublishedLine(**line) for line in tomllib.loads(text)["line"])


def published_beside(
    rows: pd.DataFrame, x: str, y: str, lines: Sequence[PublishedLine] | None = None
) -> list[PublishedLine]:
    """Lines that stand beside rows in a figure of y over x: a point further out than what was measured is left out."""
    shown = []
    for line in published_lines() if lines is None else lines:
        if len(rows) and line.y == y and AXES.get(line.x, x) == x and line.fits(rows):
            inside = [(at, value) for at, value in line.points if rows[x].min() <= at <= rows[x].max()]
            if inside or line.level:
                shown.append(dataclasses.replace(line, points=inside))
    return shown


# ---- other kinds -----------------------------------------------------------------------------------------------------


def dots(
    title: str,
    panels: Sequence[Panel],
    x: str,
    group: str,
    baselines: Collection[str] = (),
    geometric_mean: bool = True,
) -> Figure | None:
    """Dots, a row for each value of x and a colour for each group; None without rows.

    geometric_mean: also that of each group, over the values of x that all groups have.
    """
    panels = [(name, rows.dropna(subset=[y]), y) for name, rows, y in panels]
    panels = [panel for panel in panels if len(panel[1])]
    if not panels:
        return None
    names = [list(dict.fromkeys(rows[x].astype(str))) for _, rows, _ in panels]
    figure, grid = _panels(title, len(panels), columns=1, heights=[0.8 + 0.16 * (len(own) + 1) for own in names])
    groups = list(dict.fromkeys(str(name) for _, rows, _ in panels for name in rows[group]))
    for axes, (name, rows, y) in zip(grid, panels, strict=False):
        wide = rows.pivot_table(index=x, columns=group, values=y, aggfunc="max", sort=False, observed=True)
        complete = wide.dropna()
        with_mean = geometric_mean and len(complete) > 1
        for place, backend in enumerate(groups):
            if backend in wide:
                look = {**_look(place, backend in baselines), "linestyle": "none"}
                axes.plot(wide[backend], range(len(wide)), **look, label=backend)
                if with_mean:
                    axes.plot([gmean(complete[backend])], [len(wide)], **look)
        labels = [*map(str, wide.index), *(["geometric mean"] if with_mean else [])]
        axes.set_yticks(range(len(labels)), labels, fontsize=6.5)
        axes.invert_yaxis()
        axes.set_title(name, loc="left", fontsize=9)
        axes.set_xlabel(_label(y))
    _legend(figure, grid)
    return figure


def heatmap(
    title: str, rows: pd.DataFrame, x: str, y: str, value: str, panel: str = "", relative: str = ""
) -> Figure | None:
    """The least value of each cell; None without rows.  relative: "x" by the best of a column, "all" by that of all."""
    rows = rows[rows[y].astype(str) != ""].dropna(subset=[x, value])
    if not len(rows):
        return None
    parts = list(rows.groupby(panel, sort=False)) if panel else [("", rows)]
    tables = []
    for name, own in parts:
        table = own.pivot_table(index=y, columns=x, values=value, aggfunc="min", sort=True, observed=True)
        best = table.min() if relative == "x" else table.min().min() if relative else 1.0
        tables.append((str(name), table / best))
    heights = [1.3 + max(1.2, 0.2 * len(table)) for _, table in tables]
    figure, grid = _panels(title, len(tables), columns=2, heights=heights)
    for axes, (name, table) in zip(grid, tables, strict=False):
        top = float(np.nanquantile(table.to_numpy(), 0.9)) if relative or value == "ratio" else None
        low = 1.0 if relative else None
        axes.imshow(table, aspect="auto", cmap="viridis_r", vmin=low, vmax=max(top, 1.05) if top else None)
        axes.set_xticks(range(table.shape[1]), list(map(_text, table)))
        axes.set_yticks(range(len(table)), list(map(_text, table.index)), fontsize=6.5)
        axes.set_xlabel(_label(x))
        axes.set_title(name, loc="left", fontsize=9)
        axes.grid(visible=False)
        if table.size <= 200:
            for (row, column), cell in np.ndenumerate(table.to_numpy()):
                if math.isfinite(cell):
                    axes.text(column, row, f"{cell:.2f}", ha="center", va="center", fontsize=6, color="white")
    return figure


def roofline(title: str, rows: pd.DataFrame, group: str) -> Figure | None:
    """Speed over FLOP per byte, under the ceilings of the device; a second panel over bytes of the links where there
    are any (Williams, Waterman, Patterson, CACM 52(4), 2009).  None without rows, or for a device without an entry in
    kernels/hardware.py: without ceilings there is no roofline."""
    rows = rows[rows["flops"] > 0].dropna(subset=["seconds"])
    hardware = derived.hardware_of(rows.iloc[0]) if len(rows) else None
    if hardware is None:
        return None
    world = int(rows["world"].max())
    traffic = {"hbm_bytes": ("HBM", hardware.hbm_bandwidth)}
    if world > 1 and (rows["link_bytes"] > 0).any():
        traffic["link_bytes"] = ("links", hardware.link_to(world - 1))
    figure, grid = _panels(title, len(traffic))
    groups = list(dict.fromkeys(rows[group].astype(str)))
    peaks = {dtype: hardware.peak(dtype) for dtype in sorted(set(rows["dtype"].astype(str)))}
    for axes, (column, (name, bandwidth)) in zip(grid, traffic.items(), strict=False):
        own = rows[rows[column] > 0]
        own = own.assign(intensity=own["flops"] / own[column], speed=own["flops"] / own["seconds"] / 1e12)
        for value, part in own.groupby(own[group].astype(str), sort=False):
            place = groups.index(str(value))
            look = {**_look(place), "linestyle": "none", "label": str(value) if place < MAX_GROUPS else None}
            axes.plot(part["intensity"], part["speed"], **look)
        least, most = own["intensity"].min() / 2, own["intensity"].max() * 2
        for dtype, peak in peaks.items():
            span = [min(least, peak / bandwidth / 2), peak / bandwidth, max(most, peak / bandwidth * 2)]
            axes.plot(span, [min(at * bandwidth, peak) / 1e12 for at in span], color=GREY, linewidth=1.2)
            top = f"{dtype} {peak / 1e12:.0f} TFLOPS"
            axes.annotate(top, (span[2], peak / 1e12), ha="right", va="bottom", fontsize=7)
        axes.annotate(
            f"{name} {bandwidth / 1e9:.0f} GB/s", (span[0], span[0] * bandwidth / 1e12), fontsize=7, rotation=35
        )
        for row in own.itertuples() if len(own) <= MAX_LABELLED_POINTS else ():
            at = (row.intensity, row.speed)
            axes.annotate(str(row.case), at, fontsize=6, xytext=(3, -6), textcoords="offset points")
        axes.set(xscale="log", yscale="log", xlabel=f"FLOP per byte of {name}", ylabel="speed of a rank, TFLOPS")
    _legend(figure, grid)
    return figure


def intervals(
    title: str, rows: pd.DataFrame, names: Sequence[str], columns: Sequence[str], group: str
) -> Figure | None:
    """A ratio to 1 with its interval, a row for each name and a colour for each group; None without rows.

    columns: of the ratio and of both ends of its interval.
    """
    ratio, low, high = columns
    if not rows[ratio].notna().any():
        return None
    figure, (axes, *_) = _panels(title, 1, columns=1, heights=[0.8 + 0.2 * len(rows)])
    groups = list(dict.fromkeys(rows[group]))
    for name in groups:
        own = np.flatnonzero(rows[group] == name)
        colour = COLOURS[groups.index(name) % 6]
        axes.hlines(own, rows[low].iloc[own], rows[high].iloc[own], color=colour, linewidth=1.4)
        axes.plot(rows[ratio].iloc[own], own, "o", color=colour, markersize=4, label=str(name))
    axes.axvline(1.0, color=GREY, linewidth=1)
    axes.set_yticks(range(len(rows)), list(names), fontsize=7)
    axes.invert_yaxis()
    axes.set_xlabel(_label(ratio))
    _legend(figure, [axes])
    return figure


def ideal(kind: str, x: str, y: str, group: str) -> Callable[[Axes, pd.DataFrame], None]:
    """Draws ideal scaling from the fewest ranks of each group: "inverse", or "constant"."""

    def draw(axes: Axes, rows: pd.DataFrame) -> None:
        for _, own in rows.groupby(group, sort=False):
            own = own.dropna(subset=[x, y]).sort_values(x)
            if len(own) > 1:
                first = own.iloc[0]
                values = first[y] * (first[x] / own[x] if kind == "inverse" else 1.0 + 0.0 * own[x])
                axes.plot(own[x], values, color="#d1d5db", linewidth=1, linestyle=":")

    return draw


# ---- what all share --------------------------------------------------------------------------------------------------


def _panels(title: str, count: int, columns: int = 3, heights: Sequence[float] = ()) -> tuple[Figure, Sequence[Axes]]:
    columns = min(columns, count)
    across = math.ceil(count / columns)
    tall = [max(heights[n * columns : (n + 1) * columns], default=3.2) for n in range(across)]
    figure = Figure(figsize=({1: 8.0, 2: 11.0}.get(columns, 13.0), sum(tall) + 0.8), layout="constrained")
    figure.suptitle(textwrap.fill(title, 110), x=0.012, ha="left", fontsize=10)
    grid = figure.subplots(across, columns, squeeze=False, height_ratios=tall).ravel()
    for axes in grid[count:]:
        axes.set_axis_off()
    return figure, list(grid)


def _label(column: str) -> str:
    of = quantity(column)
    return of.heading if of else column


def _text(value: object) -> str:
    return f"{value:g}" if isinstance(value, (int, float)) else str(value)


def _legend(figure: Figure, grid: Iterable[Axes]) -> None:
    """The marks of all panels by name, each once, below them."""
    marks = {label: mark for axes in grid for mark, label in zip(*axes.get_legend_handles_labels(), strict=True)}
    if len(marks) > 1:
        figure.legend(list(marks.values()), list(marks), loc="outside lower center", ncols=4, fontsize=7)


def save(figure: Figure, path: Path, foot: Mapping[str, str]) -> None:
    """Write a figure, made within `style`, as SVG, with where its numbers come from below it."""
    figure.supxlabel(
        textwrap.fill("; ".join(filter(None, foot.values())), 150), x=0.012, ha="left", fontsize=6.5, color=GREY
    )
    text = io.StringIO()
    figure.savefig(text, format="svg", metadata={"Date": None})
    replace(path, text.getvalue())
