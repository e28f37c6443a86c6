"""A picture on paper, by matplotlib: the title above, panels, the legend, and where the numbers are from below."""

from __future__ import annotations

import math
import textwrap
from collections.abc import Sequence

from matplotlib.axes import Axes
from matplotlib.figure import Figure

from dashboards.figures.studies import canvas
from dashboards.figures.studies.foot import foot as foot_of
from dashboards.figures.studies.marks import draw_marks
from dashboards.figures.studies.panel_axes import draw_axes
from dashboards.figures.studies.picture import Picture, PicturePanel
from dashboards.figures.studies.spec import FigureSpec
from dashboards.figures.studies.tiles import draw_cells, draw_texts

WIDTHS = {1: 8.0, 2: 11.0, 3: 13.0}
"""Inches of a figure by the panels beside each other."""

LETTERS = 17.0
"""Letters of the foot (6.5 points) per inch, of a proportional font."""

TITLE_LETTERS, LEGEND_LETTERS = 11.5, 14.0
"""The same of a title of 10 points and a legend of 8."""

LONGEST_NAME = 70


def draw(spec: FigureSpec, picture: Picture) -> Figure:
    """The figure; to be called, and saved, within `canvas.style()`."""
    width = WIDTHS[picture.columns]
    title = textwrap.wrap(canvas.plain(picture.title), int(width * TITLE_LETTERS))[:4]
    foot = [line for text in foot_of(spec, picture) for line in textwrap.wrap(canvas.plain(text), int(width * LETTERS))]
    names = _legend_names(picture)
    ncols = legend_columns(names, int(width * LEGEND_LETTERS))
    rows = _rows(picture)
    heights = [max(_height(panel) for panel in row) for row in rows]
    legend_rows = math.ceil(len(names) / ncols)
    extra = canvas.FOOT_LINE * len(foot) + 0.2 * len(title) + canvas.LEGEND_LINE * legend_rows + 0.3
    figure = Figure(figsize=(width, sum(heights) + extra), layout="constrained")
    below = canvas.foot(figure, foot, legend_rows)
    figure.suptitle("\n".join(title), x=0.012, ha="left", fontsize=10)
    grid = figure.subplots(
        len(rows), picture.columns, squeeze=False, height_ratios=heights, width_ratios=_shares(rows[0])
    )
    for row, axes in zip(rows, grid, strict=True):
        _draw_row(row, list(axes), width / picture.columns)
    _legend(figure, grid.ravel().tolist(), names, ncols, below)
    return figure


def _rows(picture: Picture) -> list[list[PicturePanel]]:
    panels, across = list(picture.panels), picture.columns
    return [panels[n : n + across] for n in range(0, len(panels), across)]


def _height(panel: PicturePanel) -> float:
    """Inches of a panel."""
    if panel.cells is not None:
        return min(14.0, 1.3 + max(1.2, 0.23 * len(panel.y.names)))
    if panel.y.names:
        own = {round(marks.y[0] % 1, 3) for marks in panel.marks if marks.kind in ("bars", "dots") and marks.y}
        return min(40.0, 0.8 + max(0.2, 0.12 * len(own) + 0.08) * len(panel.y.names))
    return 3.4


def _shares(row: Sequence[PicturePanel]) -> list[float]:
    """Widths of the panels of a row relative to each other: texts need theirs."""
    return [1.0 if not panel.texts else 0.16 * len(panel.texts) + 0.5 for panel in row]


def _draw_row(row: Sequence[PicturePanel], axes: Sequence[Axes], width: float) -> None:
    for one in axes[len(row) :]:
        one.set_axis_off()
    for n, (panel, one) in enumerate(zip(row, axes, strict=False)):
        _draw_panel(panel, one, width, shared=n > 0 and panel.y.names == row[0].y.names != ())


def _draw_panel(panel: PicturePanel, axes: Axes, width: float, shared: bool) -> None:
    if panel.title:
        axes.set_title(canvas.elided(panel.title, int(width * 10)), loc="left", fontsize=9)
    if panel.texts:
        draw_texts(axes, panel)
        return
    if panel.cells is not None:
        draw_cells(axes, panel, width)
        return
    draw_axes(axes, panel, width, shared)
    draw_marks(axes, panel, width)


def _legend_names(picture: Picture) -> list[str]:
    names = dict.fromkeys(marks.name for panel in picture.panels for marks in panel.marks if marks.name)
    return list(names) if len(names) > 1 or any(name.startswith("published") for name in names) else []


def legend_columns(names: Sequence[str], letters: int) -> int:
    """Most columns in which the names fit beside each other; a legend is filled column by column."""
    lengths = [len(canvas.elided(name, LONGEST_NAME)) + 8 for name in names]
    for count in range(min(len(names), 8), 1, -1):
        tall = math.ceil(len(names) / count)
        if sum(max(lengths[n : n + tall]) for n in range(0, len(names), tall)) <= letters:
            return count
    return 1


def _legend(figure: Figure, axes: Sequence[Axes], names: Sequence[str], ncols: int, below: float) -> None:
    """The marks of all panels by name, each once."""
    found = {}
    for one in axes:
        for handle, label in zip(*one.get_legend_handles_labels(), strict=True):
            found.setdefault(label, handle)
    shown = [name for name in names if name in found]
    if shown:
        labels = [canvas.elided(name, LONGEST_NAME) for name in shown]
        place = {"loc": "lower center", "bbox_to_anchor": (0.5, below), "borderaxespad": 0.2, "labelspacing": 0.35}
        drawn = figure.legend([found[name] for name in shown], labels, ncols=ncols, fontsize=8, **place)
        drawn.set_in_layout(False)
