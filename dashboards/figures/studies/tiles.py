"""Heat maps and columns of texts on paper."""

from __future__ import annotations

import numpy as np
from matplotlib import colormaps
from matplotlib.axes import Axes
from matplotlib.colors import Normalize
from matplotlib.patches import Rectangle

from dashboards.figures.studies import canvas
from dashboards.figures.studies.panel_axes import FONT, LETTER, number
from dashboards.figures.studies.picture import HeatCells, PicturePanel

MAP = "cividis"
"""Alike for all common colour visions (Nunez, Anderton, Renslow, PLOS ONE 13(7), 2018)."""

LONGEST = 30


def draw_cells(axes: Axes, panel: PicturePanel, width: float) -> None:
    """A map with its bar; what is best of its column has a frame."""
    cells = panel.cells
    assert cells is not None
    worst, best = cells.ends
    colours = Normalize(min(worst, best), max(worst, best) if worst != best else best + 1e-9, clip=True)
    map_ = colormaps[MAP if worst < best else f"{MAP}_r"].with_extremes(bad="#f1f2f4")
    values = np.ma.masked_invalid(np.array(cells.values, float))
    image = axes.imshow(values, cmap=map_, norm=colours, aspect="auto", interpolation="nearest")
    axes.grid(False)
    _cell_names(axes, panel, width)
    _cell_texts(axes, cells, width, len(panel.y.names), lambda value: map_(colours(value)))
    figure = axes.get_figure()
    assert figure is not None
    bar = figure.colorbar(image, ax=axes, pad=0.01, fraction=0.03, format=lambda value, _: number(value))
    bar.set_label(canvas.plain(cells.title), fontsize=7)
    bar.ax.tick_params(labelsize=6.5)
    bar.outline.set_visible(False)  # type: ignore[operator]


def _cell_names(axes: Axes, panel: PicturePanel, width: float) -> None:
    xs, ys = ([canvas.elided(name, LONGEST) for name in axis.names] for axis in (panel.x, panel.y))
    step = 1 + len(xs) // 60
    tight = sum(len(name) + 2 for name in xs) * LETTER > 0.62 * width
    axes.set_xticks(
        range(0, len(xs), step), xs[::step], rotation=90 if tight else 0, fontsize=FONT if len(xs) < 40 else 5
    )
    step = 1 + len(ys) // 100
    axes.set_yticks(range(0, len(ys), step), ys[::step], fontsize=FONT if len(ys) < 50 else 5)
    axes.set_xlabel(canvas.plain(panel.x.title), fontsize=8.5)
    axes.set_ylabel(canvas.plain(panel.y.title), fontsize=8.5)


def _cell_texts(axes: Axes, cells: HeatCells, width: float, rows: int, colour: object) -> None:
    """Numbers where they fit into the cells, dark on light and light on dark; frames around the best."""
    across = len(cells.values[0])
    room = 0.62 * width / across
    longest = max(len(text) for row in cells.texts for text in row)
    size = min(7.0, 7.0 * room / (0.062 * longest + 0.04))
    fits = size >= 4.5 and rows <= 60
    for y, row in enumerate(cells.values):
        for x, value in enumerate(row):
            if fits:
                ink = _ink(colour(value)) if np.isfinite(value) else canvas.MARK  # type: ignore[operator]
                weight = "bold" if cells.best[y][x] else "normal"
                axes.text(x, y, cells.texts[y][x], ha="center", va="center", fontsize=size, color=ink, weight=weight)
            if cells.best[y][x]:
                frame = {"fill": False, "edgecolor": canvas.COLOURS[1], "linewidth": 1.4}
                axes.add_patch(Rectangle((x - 0.47, y - 0.47), 0.94, 0.94, **frame))


def _ink(colour: tuple[float, float, float, float]) -> str:
    """Black or white, by the luminance of what is below (ITU-R BT.709)."""
    red, green, blue, _ = colour
    return "black" if 0.2126 * red + 0.7152 * green + 0.0722 * blue > 0.45 else "white"


def draw_texts(axes: Axes, panel: PicturePanel) -> None:
    """Columns of texts in the lines of the panel beside them."""
    axes.set_ylim(len(panel.y.names) - 0.4, -0.6)
    axes.set_xlim(0, len(panel.texts))
    axes.set_xticks([n + 0.5 for n in range(len(panel.texts))], [canvas.elided(one.title, 22) for one in panel.texts])
    axes.tick_params(axis="x", labelsize=7, length=0)
    axes.set_yticks([])
    axes.grid(False)
    for spine in axes.spines.values():
        spine.set_visible(False)
    for x, column in enumerate(panel.texts):
        for y, text in enumerate(column.texts):
            weight = "bold" if "→" in text else "normal"
            axes.text(x + 0.5, y, canvas.elided(text, 24), ha="center", va="center", fontsize=7, weight=weight)
