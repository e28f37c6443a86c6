"""A picture on paper, by matplotlib: the title above, panels, the legend, and where the numbers are from below."""

from __future__ import annotations

import math
import textwrap
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import matplotlib as mpl
import numpy as np
from matplotlib import colormaps
from matplotlib.axes import Axes
from matplotlib.axis import Axis
from matplotlib.colors import Normalize
from matplotlib.figure import Figure
from matplotlib.patches import Rectangle
from matplotlib.ticker import FixedLocator, FuncFormatter, LogLocator, MaxNLocator, NullFormatter, NullLocator
from matplotlib.transforms import Bbox

from dashboards.figures.lines import foot as foot_of
from dashboards.figures.picture import HeatCells, Marks, Picture, PictureAxis, PicturePanel
from dashboards.figures.spec import FigureSpec

WIDTHS = {1: 8.0, 2: 11.0, 3: 13.0}
"""Inches of a figure by the panels beside each other."""

LETTERS = 17.0
"""Letters of the foot (6.5 points) per inch, of a proportional font."""

TITLE_LETTERS, LEGEND_LETTERS = 11.5, 14.0
"""The same of a title of 10 points and a legend of 8."""

LONGEST_NAME = 70


def draw(spec: FigureSpec, picture: Picture) -> Figure:
    """The figure; to be called, and saved, within `style()`."""
    width = WIDTHS[picture.columns]
    title = textwrap.wrap(plain(picture.title), int(width * TITLE_LETTERS))[:4]
    foot = [line for text in foot_of(spec, picture) for line in textwrap.wrap(plain(text), int(width * LETTERS))]
    names = _legend_names(picture)
    ncols = legend_columns(names, int(width * LEGEND_LETTERS))
    rows = _rows(picture)
    heights = [max(_height(panel) for panel in row) for row in rows]
    legend_rows = math.ceil(len(names) / ncols)
    extra = FOOT_LINE * len(foot) + 0.2 * len(title) + LEGEND_LINE * legend_rows + 0.3
    figure = Figure(figsize=(width, sum(heights) + extra), layout="constrained")
    below = draw_foot(figure, foot, legend_rows)
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
        axes.set_title(elided(panel.title, int(width * 10)), loc="left", fontsize=9)
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
    lengths = [len(elided(name, LONGEST_NAME)) + 8 for name in names]
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
        labels = [elided(name, LONGEST_NAME) for name in shown]
        place = {"loc": "lower center", "bbox_to_anchor": (0.5, below), "borderaxespad": 0.2, "labelspacing": 0.35}
        drawn = figure.legend([found[name] for name in shown], labels, ncols=ncols, fontsize=8, **place)
        drawn.set_in_layout(False)


# What every figure shares: paper, colours, axes with units, and a file that is the same for the same records.


COLOURS = ("#0072b2", "#d55e00", "#009e73", "#cc79a7", "#e69f00", "#56b4e9")
"""Okabe and Ito, Color Universal Design (2008): distinct with every common colour vision."""

MARKERS = ("o", "s", "^", "D", "v", "P")
"""A second way to tell what the colours tell."""

BASELINE = {"color": "#6b7280", "linestyle": (0, (5, 3)), "linewidth": 1.2}
MARK = "#5b636d"

FOOT_LINE, FOOT_MARGIN, LEGEND_LINE = 0.125, 0.12, 0.19
"""Inches: a line of 6.5 points, the room around all of them, and a line of a legend of 8 points."""

BINARY = ((2**30, "GiB"), (2**20, "MiB"), (2**10, "KiB"), (1, "B"))

_STYLE: dict[str, Any] = {
    "svg.hashsalt": "ridgeline",
    "text.parse_math": False,
    "font.size": 9,
    "axes.spines.top": False,
    "axes.grid": True,
    "grid.color": "#e8eaee",
    "axes.axisbelow": True,
    "legend.frameon": False,
}


def style() -> Any:
    """The context in which a figure is drawn and saved."""
    return mpl.rc_context(_STYLE)


def plain(text: str) -> str:
    """A name as text: what cannot be printed is written out."""
    shown = "".join(one if one.isprintable() else ascii(one)[1:-1] for one in text)
    return shown.encode("utf-8", "backslashreplace").decode()


def elided(text: str, most: int) -> str:
    """A name in at most so many letters, its middle left out: names of cases differ at both ends."""
    shown = plain(text)
    return shown if len(shown) <= most else f"{shown[: most // 2]}…{shown[len(shown) - (most - most // 2 - 1) :]}"


def draw_foot(figure: Figure, lines: Sequence[str], legend_rows: int = 0) -> float:
    """Lines below everything else, and room above them for rows of a legend, which the layout keeps free.

    Returns where the legend begins, as a part of the figure's height.
    """
    inches, height = FOOT_LINE * len(lines) + FOOT_MARGIN, figure.get_figheight()
    share = (inches + LEGEND_LINE * legend_rows) / height
    figure.get_layout_engine().set(rect=(0, share, 1, 1 - share))  # type: ignore[union-attr]
    looks: dict[str, Any] = {"fontsize": 6.5, "color": MARK, "va": "bottom", "linespacing": 1.35}
    figure.text(0.012, FOOT_MARGIN / 2 / height, "\n".join(map(plain, lines)), **looks)
    return inches / height


def binary(size: float) -> str:
    scale, unit = next((pair for pair in BINARY if size >= pair[0]), BINARY[-1])
    return f"{size / scale:g} {unit}"


def save(figure: Figure, path: Path | str) -> Path:
    """Write a figure; its suffix chooses the format."""
    path = Path(path)
    path.parent.mkdir(parents=True, exist_ok=True)
    dateless: dict[str, dict[str, Any]] = {".svg": {"Date": None}, ".pdf": {"CreationDate": None}}
    figure.savefig(path, dpi=160, metadata=dateless.get(path.suffix.lower()))
    return path


# Axes of a panel on paper: scales, limits, and as many labels as do not touch each other.


LETTER = 0.075
"""Inches of a letter of 8 points."""

LEAST_SPAN = 0.02
"""Least span of a linear axis as a share of its values: noise of 0.1 % must not fill the figure."""

LONGEST_LABEL = 44

MOST_NAMES = 24
"""Names along x that are all written; of more only as many as fit."""

FONT = 7.5


def draw_axes(axes: Axes, panel: PicturePanel, width: float, shared: bool) -> None:
    """Scales, limits, labels; shared: another panel of the row has the same names.  width: inches of the panel."""
    values = _values(panel)
    for name, drawn, found in (("x", panel.x, values[0]), ("y", panel.y, values[1])):
        getattr(axes, f"set_{name}label")(elided(drawn.title, 90), fontsize=8.5)
        axis = axes.xaxis if name == "x" else axes.yaxis
        _scale(axes, name, drawn, found)
        _labels(axes, axis, name, drawn, width, shared)
    axes.tick_params(labelsize=FONT)
    if not math.isnan(panel.level):
        (axes.axhline if panel.upright else axes.axvline)(panel.level, color=MARK, linewidth=1, zorder=1)


def _values(panel: PicturePanel) -> tuple[np.ndarray, np.ndarray]:
    """All values of each axis that must be seen: intervals as far as they do not dwarf the points."""
    xs = [value for marks in panel.marks for value in marks.x]
    ys = [value for marks in panel.marks for value in marks.y]
    along = ys if panel.upright else xs
    along.append(panel.level)
    along.extend(_interval_ends(panel, np.array([value for value in along if math.isfinite(value)], float)))
    return tuple(np.array([v for v in values if math.isfinite(v)], float) for values in (xs, ys))  # type: ignore[return-value]


def _interval_ends(panel: PicturePanel, points: np.ndarray) -> list[float]:
    """Ends of intervals, cut where they would make the points small: one from two trials reaches far beyond."""
    ends = [value for marks in panel.marks for value in (*marks.low, *marks.high) if math.isfinite(value)]
    if not len(points):
        return ends
    low, high = float(points.min()), float(points.max())
    room = max(high - low, LEAST_SPAN * max(abs(low), abs(high)))
    least = low / 2 if low > 0 else low - room
    return [min(max(value, low - room, least), high + room) for value in ends]


def _scale(axes: Axes, name: str, drawn: PictureAxis, found: np.ndarray) -> None:
    limits = getattr(axes, f"set_{name}lim")
    if drawn.names:
        low, high = -0.6, len(drawn.names) - 0.4
        limits((high, low) if name == "y" else (low, high))
    elif drawn.scale != "linear" and len(found):
        getattr(axes, f"set_{name}scale")("log", base=2 if drawn.scale in ("log2", "bytes") else 10)
        limits(*_around_log(found[found > 0]))
    elif len(found):
        limits(*_around(found, drawn.zero))


def _around(found: np.ndarray, zero: bool) -> tuple[float, float]:
    low, high = float(found.min()), float(found.max())
    if zero:
        return 0.0, 1.08 * high or 1.0
    span = max(high - low, LEAST_SPAN * max(abs(low), abs(high)), 1e-12)
    if low == high and low == round(low):
        span = max(span, 1.0)
    middle, half = (low + high) / 2, 0.56 * span
    return middle - half, middle + half


def _around_log(found: np.ndarray) -> tuple[float, float]:
    low, high = (float(found.min()), float(found.max())) if len(found) else (1.0, 10.0)
    room = max((high / low) ** 0.06, 1.12)
    return low / room, high * room


def _labels(axes: Axes, axis: Axis, name: str, drawn: PictureAxis, width: float, shared: bool) -> None:
    if drawn.names:
        _axis_names(axes, axis, name, drawn.names, width, shared)
    elif drawn.ticks:
        kept = apart(axes, drawn.ticks, [number(tick, drawn.scale) for tick in drawn.ticks], width)
        axis.set_major_locator(FixedLocator(kept))
        axis.set_minor_locator(NullLocator())
        axis.set_major_formatter(FuncFormatter(lambda value, _: number(value, drawn.scale)))
    elif drawn.scale == "linear":
        axis.set_major_locator(MaxNLocator(max(3, min(8, int(width * 1.1))) if name == "x" else 7))
        axis.set_major_formatter(FuncFormatter(lambda value, _: number(value)))
    else:
        _log_labels(axes, axis, name, drawn.scale)


def _log_labels(axes: Axes, axis: Axis, name: str, scale: str) -> None:
    """Powers; where few of them fit into the range, steps of 1, 2, 5 between them."""
    low, high = axes.get_xlim() if name == "x" else axes.get_ylim()
    base = 2 if scale in ("log2", "bytes") else 10
    decades = math.log(high / low, base)
    steps = (1.0,) if decades > 3 or base == 2 else (1.0, 2.0, 5.0) if decades > 1 else (1.0, 1.5, 2.0, 3.0, 5.0, 7.0)
    if decades < 0.5 and base == 10:
        axis.set_major_locator(MaxNLocator(6))
    else:
        axis.set_major_locator(LogLocator(base, steps, numticks=9))
    axis.set_minor_formatter(NullFormatter())
    axis.set_minor_locator(NullLocator())
    axis.set_major_formatter(FuncFormatter(lambda value, _: number(value, scale)))


def _axis_names(axes: Axes, axis: Axis, name: str, names: Sequence[str], width: float, shared: bool) -> None:
    axis.set_major_locator(FixedLocator(list(range(len(names)))))
    if shared:
        axis.set_major_formatter(NullFormatter())
        return
    labels = [elided(one, LONGEST_LABEL) for one in names]
    if name == "x" and len(labels) > MOST_NAMES:
        step = math.ceil(sum(len(label) + 2 for label in labels) * LETTER / (0.8 * width))
        labels = [label if n % step == 0 else "" for n, label in enumerate(labels)]
    axis.set_ticklabels(labels)
    axes.grid(False, axis=name)
    if name == "x" and sum(len(label) + 2 for label in labels) * LETTER > 0.8 * width:
        axes.tick_params(axis="x", rotation=90)


def apart(axes: Axes, values: Sequence[float], labels: Sequence[str], width: float) -> list[float]:
    """Values whose labels along x do not touch: both ends, then from the left every one for which there is room."""
    low, high = axes.get_xlim()
    log = axes.get_xscale() == "log"
    scale = 0.8 * width / (math.log(high / low) if log else high - low)
    kept: list[tuple[float, float, float]] = []
    pairs = list(zip(values, labels, strict=True))
    for value, label in (pairs[0], *pairs[:0:-1][:1], *pairs[1:-1]):
        at, half = (math.log(value) if log else value) * scale, (len(label) + 1) * LETTER / 2
        if all(abs(at - other) >= half + room for _, other, room in kept):
            kept.append((value, at, half))
    return sorted(value for value, _, _ in kept)


def number(value: float, scale: str = "linear") -> str:
    """A tick: bytes in binary units, large numbers in short."""
    if scale == "bytes" and value >= 1:
        return binary(value)
    size = abs(value)
    if size >= 1e6 or 0 < size < 1e-4:
        return f"{value:.3g}"
    return f"{value:,.6g}" if size >= 1e4 else f"{value:.6g}"


# Marks of a panel on paper: lines, dots, bars, rules and links, and names beside points where they have room.


DASHES = ("solid", (0, (5, 3)), (0, (1.5, 2)), (0, (8, 3, 1.5, 3)), (0, (3, 1.5)), (0, (1, 4)))
SIZES = ((60, 5.5), (250, 4.0), (10**9, 2.6))
"""Up to so many points, of this size in points (1/72 inch)."""

BAR = 0.8


def draw_marks(axes: Axes, panel: PicturePanel, width: float) -> None:
    """All marks, and what is said in the corner."""
    count = sum(len(marks.x) for marks in panel.marks if marks.kind in ("dots", "line"))
    size = next(size for most, size in SIZES if count <= most)
    bars = [marks for marks in panel.marks if marks.kind == "bars"]
    for marks in panel.marks:
        if marks.kind == "links":
            axes.hlines(marks.y, marks.low, marks.high, color=colour_of(marks), linewidth=1, alpha=0.6)
        elif marks.kind == "bars":
            _bar(axes, marks, len(bars), panel.level)
        elif marks.kind == "ring":
            axes.plot(marks.x, marks.y, "o", markersize=11, markerfacecolor="none", markeredgecolor=MARK)
        elif marks.kind == "rule":
            _rule(axes, marks)
        else:
            _points(axes, marks, panel.upright, size)
    _point_names(axes, [marks for marks in panel.marks if marks.named], width)
    if panel.said:
        _corner(axes, panel, width)


def colour_of(marks: Marks) -> str:
    """Colour of a group by its place; what is none of ours is grey."""
    return str(BASELINE["color"]) if marks.look is None else COLOURS[marks.look % len(COLOURS)]


def _dash(marks: Marks) -> Any:
    second = marks.look is not None and marks.look >= len(COLOURS)
    return DASHES[marks.dashed % len(DASHES)] if marks.dashed or not second else DASHES[2]


def marker_of(marks: Marks) -> str:
    """A second way to tell groups apart; the second six have others beside their colours."""
    if marks.look is None:
        return MARKERS[(1 + marks.dashed) % len(MARKERS)]
    shift = marks.look // len(COLOURS)
    return MARKERS[(marks.look + shift) % len(MARKERS)]


def _points(axes: Axes, marks: Marks, upright: bool, size: float) -> None:
    """Points with their intervals; a single one of a line is a dot."""
    colour = colour_of(marks)
    published = marks.look is None and marks.kind == "line" and marks.dashed > 1
    fill = "none" if marks.hollow else colour
    line = _dash(marks) if marks.kind == "line" else "none"
    others = marks.look is None and not marks.dashed and not marks.hollow
    small, alpha = size * (0.6 if others or published else 1), 0.45 if others else 1.0
    face: dict[str, Any] = {"markersize": small, "markerfacecolor": fill, "markeredgecolor": colour, "alpha": alpha}
    joined: dict[str, Any] = {"linestyle": line, "linewidth": 1.3, "zorder": 2.5 if others else 3}
    axes.plot(marks.x, marks.y, label=marks.name or "_", color=colour, marker=marker_of(marks), **face, **joined)
    if marks.low and not others:
        _interval(axes, marks, upright, colour)


def _interval(axes: Axes, marks: Marks, upright: bool, colour: str) -> None:
    low, high = (np.array(ends, float) for ends in (marks.low, marks.high))
    known = np.isfinite(low) & np.isfinite(high)
    along = np.array(marks.x if upright else marks.y, float)[known]
    draw, limits = (axes.vlines, axes.get_ylim()) if upright else (axes.hlines, axes.get_xlim())
    low, high = (
        np.clip(ends[known], *limits) for ends in (low, high)
    )  # an interval from two trials reaches far beyond
    draw(along, low, high, color=colour, linewidth=1, alpha=0.55)


def _bar(axes: Axes, marks: Marks, count: int, level: float) -> None:
    """Bars from the level (ratios: from 1, where nothing differs), else from 0, with their values at their ends."""
    known = [(x, y) for x, y in zip(marks.x, marks.y, strict=True) if math.isfinite(x)]
    xs, ys = zip(*known, strict=True) if known else ((), ())
    low, high = axes.get_xlim()
    base = level if math.isfinite(level) else low if axes.get_xscale() == "log" else 0.0
    colour, hatch = colour_of(marks), ("///", "...")[(marks.dashed - 1) % 2] if marks.dashed else None
    looks: dict[str, Any] = {"color": "white" if hatch else colour, "edgecolor": colour, "hatch": hatch}
    lengths, thick = [x - base for x in xs], BAR / max(1, count)
    axes.barh(ys, lengths, 0.92 * thick, base, label=marks.name or "_", linewidth=0.6, **looks)
    for x, y in known:
        side = -1 if x < base else 1
        at = {"xytext": (3 * side, 0), "textcoords": "offset points", "ha": "left" if side > 0 else "right"}
        axes.annotate(f"{x:.4g}", (x, y), va="center", fontsize=5.5, color=MARK, annotation_clip=True, **at)


def _rule(axes: Axes, marks: Marks) -> None:
    """A line without points; over the whole width if it has no place along the other axis."""
    looks = {"color": MARK if marks.look is None else colour_of(marks), "linestyle": _dash(marks), "linewidth": 1.1}
    if marks.x and all(map(math.isnan, marks.x)):
        for n, y in enumerate(marks.y):
            axes.axhline(y, label=marks.name if n == 0 else "_", **looks)
    elif marks.y and all(map(math.isnan, marks.y)):
        for n, x in enumerate(marks.x):
            axes.axvline(x, label=marks.name if n == 0 else "_", **looks)
    else:
        axes.plot(marks.x, marks.y, label=marks.name or "_", marker="_" if len(marks.x) == 1 else None, **looks)


# ---- texts ----------------------------------------------------------------------------------------------------------

PLACES = ((5, 0, "left", "center"), (-5, 0, "right", "center"), (0, 5, "center", "bottom"), (0, -5, "center", "top"))
POINT = 1 / 72


def _point_names(axes: Axes, named: list[Marks], width: float) -> None:
    """Names beside points, where they cover neither another name nor a point; one without such a place is left out."""
    points = [(x, y, label) for marks in named for x, y, label in zip(marks.x, marks.y, marks.labels, strict=True)]
    at = [_inches(axes, x, y, width) for x, y, _ in points]
    taken = [Bbox.from_extents(x - 0.04, y - 0.04, x + 0.04, y + 0.04) for x, y in at]
    room = Bbox.from_extents(0, 0, 0.82 * width, 2.8)
    for n, ((x, y, label), place) in enumerate(zip(points, at, strict=True)):
        text = elided(label, 28)
        for right, up, ha, va in PLACES:
            box = _box(place, text, right, up)
            inside = room.contains(*box.min) and room.contains(*box.max)
            if inside and not any(box.fully_overlaps(other) for m, other in enumerate(taken) if m != n):
                axes.annotate(text, (x, y), (right, up), textcoords="offset points", ha=ha, va=va, fontsize=6.5)
                taken.append(box)
                break


def _inches(axes: Axes, x: float, y: float, width: float) -> tuple[float, float]:
    """About where a point is: inches from the lower left corner of its axes."""
    shares = axes.transAxes.inverted().transform(axes.transData.transform((x, y)))
    return float(shares[0]) * 0.82 * width, float(shares[1]) * 2.8


def _box(at: tuple[float, float], text: str, right: float, up: float) -> Bbox:
    wide, high = 0.062 * len(text), 0.1
    x, y = at[0] + right * POINT, at[1] + up * POINT
    left = x if right > 0 else x - wide if right < 0 else x - wide / 2
    bottom = y if up > 0 else y - high if up < 0 else y - high / 2
    return Bbox.from_bounds(left, bottom, wide, high)


def _corner(axes: Axes, panel: PicturePanel, width: float) -> None:
    """Text in the upper left corner, which ascending points leave free; long names in several lines."""
    letters = int(0.5 * width / 0.062)
    lines = [part for line in panel.said.split("\n") for part in _wrapped(plain(line), letters)]
    behind = {"facecolor": "white", "edgecolor": "none", "alpha": 0.8, "pad": 1.5}
    looks: dict[str, Any] = {"ha": "left", "va": "top", "fontsize": 7, "color": MARK, "bbox": behind}
    axes.text(0.02, 0.97, "\n".join(lines), transform=axes.transAxes, **looks)


def _wrapped(line: str, letters: int) -> list[str]:
    found = textwrap.wrap(line, letters) or [""]
    return found if len(found) <= 3 else [*found[:2], elided(found[2], letters - 1) + "…"]


# Heat maps and columns of texts on paper.


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
    bar.set_label(plain(cells.title), fontsize=7)
    bar.ax.tick_params(labelsize=6.5)
    bar.outline.set_visible(False)  # type: ignore[operator]


def _cell_names(axes: Axes, panel: PicturePanel, width: float) -> None:
    xs, ys = ([elided(name, LONGEST) for name in axis.names] for axis in (panel.x, panel.y))
    step = 1 + len(xs) // 60
    tight = sum(len(name) + 2 for name in xs) * LETTER > 0.62 * width
    axes.set_xticks(
        range(0, len(xs), step), xs[::step], rotation=90 if tight else 0, fontsize=FONT if len(xs) < 40 else 5
    )
    step = 1 + len(ys) // 100
    axes.set_yticks(range(0, len(ys), step), ys[::step], fontsize=FONT if len(ys) < 50 else 5)
    axes.set_xlabel(plain(panel.x.title), fontsize=8.5)
    axes.set_ylabel(plain(panel.y.title), fontsize=8.5)


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
                ink = _ink(colour(value)) if np.isfinite(value) else MARK  # type: ignore[operator]
                weight = "bold" if cells.best[y][x] else "normal"
                axes.text(x, y, cells.texts[y][x], ha="center", va="center", fontsize=size, color=ink, weight=weight)
            if cells.best[y][x]:
                frame = {"fill": False, "edgecolor": COLOURS[1], "linewidth": 1.4}
                axes.add_patch(Rectangle((x - 0.47, y - 0.47), 0.94, 0.94, **frame))


def _ink(colour: tuple[float, float, float, float]) -> str:
    """Black or white, by the luminance of what is below (ITU-R BT.709)."""
    red, green, blue, _ = colour
    return "black" if 0.2126 * red + 0.7152 * green + 0.0722 * blue > 0.45 else "white"


def draw_texts(axes: Axes, panel: PicturePanel) -> None:
    """Columns of texts in the lines of the panel beside them."""
    axes.set_ylim(len(panel.y.names) - 0.4, -0.6)
    axes.set_xlim(0, len(panel.texts))
    axes.set_xticks([n + 0.5 for n in range(len(panel.texts))], [elided(one.title, 22) for one in panel.texts])
    axes.tick_params(axis="x", labelsize=7, length=0)
    axes.set_yticks([])
    axes.grid(False)
    for spine in axes.spines.values():
        spine.set_visible(False)
    for x, column in enumerate(panel.texts):
        for y, text in enumerate(column.texts):
            weight = "bold" if "→" in text else "normal"
            axes.text(x + 0.5, y, elided(text, 24), ha="center", va="center", fontsize=7, weight=weight)
