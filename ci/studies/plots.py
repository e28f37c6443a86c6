"""The figures that several studies have, in matplotlib: lines over a quantity, and heat maps.

Every function takes rows with the columns of `ci.studies.frame`, and gives None where no row has a value.
"""

from __future__ import annotations

import contextlib
import io
import math
import textwrap
from collections.abc import Collection
from pathlib import Path
from typing import Any

import matplotlib as mpl
import numpy as np
import pandas as pd
from cycler import cycler
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from ci.studies.frame import HEADINGS
from ci.whole_files import replace

GREY = "#6b7280"

COLOURS = cycler(color=("#0072b2", "#d55e00", "#009e73", "#cc79a7", "#e69f00", "#56b4e9"))
"""Okabe and Ito, Color Universal Design (2008): distinct with every common colour vision."""

LOOKS = list(cycler(linestyle=("-", "--")) * (COLOURS + cycler(marker=("o", "s", "^", "D", "v", "P"))))
"""Colour and marker of each group; more than twelve cannot be told apart."""

MAX_LABELLED_POINTS = 12


def style() -> contextlib.AbstractContextManager[None]:
    """Figures are made and saved within it; names of elements are then the same in every call (hashsalt)."""
    return mpl.rc_context(
        {
            "font.size": 9,
            "axes.grid": True,
            "grid.alpha": 0.3,
            "lines.markersize": 3.5,
            "lines.linewidth": 1.3,
            "svg.hashsalt": "ridgeline",
            "svg.fonttype": "none",
            "axes.prop_cycle": COLOURS,
        }
    )


def panels(title: str, count: int, columns: int = 3, height: float = 3.2) -> tuple[Figure, list[Axes]]:
    """A figure with that many axes."""
    columns = min(columns, count)
    down = math.ceil(count / columns)
    figure = Figure(figsize=(4.5 * max(columns, 2), height * down + 0.8), layout="constrained")
    figure.suptitle(textwrap.fill(title, 110), x=0.012, ha="left", fontsize=10)
    grid = list(figure.subplots(down, columns, squeeze=False).ravel())
    for axes in grid[count:]:
        axes.set_axis_off()
    return figure, grid[:count]


def with_legend(figure: Figure) -> Figure:
    """The figure with the marks of all panels by name, each once, below them."""
    marks = {label: mark for axes in figure.axes for mark, label in zip(*axes.get_legend_handles_labels(), strict=True)}
    if len(marks) > 1:
        figure.legend(list(marks.values()), list(marks), loc="outside lower center", ncols=4, fontsize=7)
    return figure


def looks(groups: pd.Series) -> dict[str, dict[str, Any]]:
    """How each group is drawn, by its name, in the order of first appearance."""
    return {str(name): LOOKS[place % len(LOOKS)] for place, name in enumerate(dict.fromkeys(groups.astype(str)))}


def heading(column: str) -> str:
    """What stands over a column of a table, and along an axis."""
    return HEADINGS.get(column, column.replace("_", " "))


def lines(
    title: str,
    rows: pd.DataFrame,
    x: str,
    y: str,
    group: str,
    *,
    panel: str = "",
    log_y: bool = False,
    baselines: Collection[str] = (),
) -> Figure | None:
    """Rows of a group joined in order of x, a panel for each value of a column; `ratio` is drawn with its interval.

    baselines: groups drawn grey.  An x axis whose values span a factor of 8 is logarithmic.
    """
    rows = rows.dropna(subset=[x, y]).sort_values(x, kind="stable") if y in rows else rows[:0]
    if not len(rows):
        return None
    parts = list(rows.groupby(panel, sort=True, observed=True)) if panel else [("", rows)]
    figure, grid = panels(title, len(parts))
    look = looks(rows[group]) | dict.fromkeys(baselines, {"color": GREY, "linestyle": "--", "marker": "."})
    for axes, (name, own) in zip(grid, parts, strict=True):
        for label, line in own.groupby(own[group].astype(str), sort=False):
            axes.plot(line[x], line[y], label=label, **look[str(label)])
            if y == "ratio":
                axes.fill_between(line[x], line["low"], line["high"], color=look[str(label)]["color"], alpha=0.15, lw=0)
        if pd.api.types.is_numeric_dtype(own[x]):
            if own[x].min() > 0 and own[x].max() >= 8 * own[x].min():
                axes.set_xscale("log", base=2)
            ticks = sorted(set(own[x]))
            if len(ticks) <= MAX_LABELLED_POINTS:
                axes.set_xticks(ticks, [f"{tick:g}" for tick in ticks], fontsize=7)
        axes.set(xlabel=heading(x), ylabel=heading(y), yscale="log" if log_y else "linear")
        axes.set_title(name if isinstance(name, str) else f"{heading(panel)} {name!s}", loc="left", fontsize=9)
    return with_legend(figure)


def heatmap(
    title: str, rows: pd.DataFrame, x: str, y: str, value: str, panel: str = "", relative: str = ""
) -> Figure | None:
    """The least value of each cell.  relative: "x" by the best of a column, "all" by that of all."""
    rows = rows[rows[y].astype(str) != ""].dropna(subset=[x, value])
    if not len(rows):
        return None
    parts = list(rows.groupby(panel, sort=False)) if panel else [("", rows)]
    figure, grid = panels(title, len(parts), columns=2, height=1.3 + 0.2 * rows[y].nunique())
    for axes, (name, own) in zip(grid, parts, strict=True):
        cells = own.pivot_table(index=y, columns=x, values=value, aggfunc="min", observed=True)
        if relative:
            cells = cells / (cells.min() if relative == "x" else cells.min().min())
        shown = axes.imshow(cells, aspect="auto", cmap="viridis_r", vmax=float(np.nanquantile(cells.to_numpy(), 0.9)))
        figure.colorbar(shown, ax=axes)
        axes.set_xticks(range(cells.shape[1]), [f"{name:g}" for name in cells])
        axes.set_yticks(range(len(cells)), list(map(str, cells.index)), fontsize=6.5)
        axes.set_xlabel(heading(x))
        axes.set_title(str(name), loc="left", fontsize=9)
        axes.grid(visible=False)
    return figure


def save(figure: Figure, path: Path, foot: str) -> None:
    """Write a figure, made within `style`, as SVG, with where its numbers come from below it."""
    figure.supxlabel(textwrap.fill(foot, 150), x=0.012, ha="left", fontsize=6.5, color=GREY)
    text = io.StringIO()
    figure.savefig(text, format="svg", metadata={"Date": None})
    replace(path, text.getvalue())
