"""Marks of a panel on paper: lines, dots, bars, rules and links, and names beside points where they have room."""

from __future__ import annotations

import math
import textwrap
from typing import Any

import numpy as np
from matplotlib.axes import Axes

from dashboards.figures.studies import canvas
from dashboards.figures.studies.picture import Marks, PicturePanel

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
            axes.plot(marks.x, marks.y, "o", markersize=11, markerfacecolor="none", markeredgecolor=canvas.MARK)
        elif marks.kind == "rule":
            _rule(axes, marks)
        else:
            _points(axes, marks, panel.upright, size)
    _names(axes, [marks for marks in panel.marks if marks.named], width)
    if panel.said:
        _corner(axes, panel, width)


def colour_of(marks: Marks) -> str:
    """Colour of a group by its place; what is none of ours is grey."""
    return str(canvas.BASELINE["color"]) if marks.look is None else canvas.COLOURS[marks.look % len(canvas.COLOURS)]


def _dash(marks: Marks) -> Any:
    second = marks.look is not None and marks.look >= len(canvas.COLOURS)
    return DASHES[marks.dashed % len(DASHES)] if marks.dashed or not second else DASHES[2]


def marker_of(marks: Marks) -> str:
    """A second way to tell groups apart; the second six have others beside their colours."""
    if marks.look is None:
        return canvas.MARKERS[(1 + marks.dashed) % len(canvas.MARKERS)]
    shift = marks.look // len(canvas.COLOURS)
    return canvas.MARKERS[(marks.look + shift) % len(canvas.MARKERS)]


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
        axes.annotate(f"{x:.4g}", (x, y), va="center", fontsize=5.5, color=canvas.MARK, annotation_clip=True, **at)


def _rule(axes: Axes, marks: Marks) -> None:
    """A line without points; over the whole width if it has no place along the other axis."""
    looks = {
        "color": canvas.MARK if marks.look is None else colour_of(marks),
        "linestyle": _dash(marks),
        "linewidth": 1.1,
    }
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


def _names(axes: Axes, named: list[Marks], width: float) -> None:
    """Names beside points, where they cover neither another name nor a point; one without such a place is left out."""
    points = [(x, y, label) for marks in named for x, y, label in zip(marks.x, marks.y, marks.labels, strict=True)]
    at = [_inches(axes, x, y, width) for x, y, _ in points]
    taken = [(x - 0.04, y - 0.04, x + 0.04, y + 0.04) for x, y in at]
    for n, ((x, y, label), place) in enumerate(zip(points, at, strict=True)):
        text = canvas.elided(label, 28)
        for right, up, ha, va in PLACES:
            box = _box(place, text, right, up)
            if _inside(box, width) and not any(_covers(box, other) for m, other in enumerate(taken) if m != n):
                axes.annotate(text, (x, y), (right, up), textcoords="offset points", ha=ha, va=va, fontsize=6.5)
                taken.append(box)
                break


def _inches(axes: Axes, x: float, y: float, width: float) -> tuple[float, float]:
    """About where a point is: inches from the lower left corner of its axes."""
    shares = axes.transAxes.inverted().transform(axes.transData.transform((x, y)))
    return float(shares[0]) * 0.82 * width, float(shares[1]) * 2.8


def _box(at: tuple[float, float], text: str, right: float, up: float) -> tuple[float, float, float, float]:
    wide, high = 0.062 * len(text), 0.1
    x, y = at[0] + right * POINT, at[1] + up * POINT
    left = x if right > 0 else x - wide if right < 0 else x - wide / 2
    bottom = y if up > 0 else y - high if up < 0 else y - high / 2
    return left, bottom, left + wide, bottom + high


def _inside(box: tuple[float, float, float, float], width: float) -> bool:
    return box[0] >= 0 and box[2] <= 0.82 * width and box[1] >= 0 and box[3] <= 2.8


def _covers(one: tuple[float, float, float, float], other: tuple[float, float, float, float]) -> bool:
    return one[0] < other[2] and other[0] < one[2] and one[1] < other[3] and other[1] < one[3]


def _corner(axes: Axes, panel: PicturePanel, width: float) -> None:
    """Text in the upper left corner, which ascending points leave free; long names in several lines."""
    letters = int(0.5 * width / 0.062)
    lines = [part for line in panel.said.split("\n") for part in _wrapped(canvas.plain(line), letters)]
    behind = {"facecolor": "white", "edgecolor": "none", "alpha": 0.8, "pad": 1.5}
    looks: dict[str, Any] = {"ha": "left", "va": "top", "fontsize": 7, "color": canvas.MARK, "bbox": behind}
    axes.text(0.02, 0.97, "\n".join(lines), transform=axes.transAxes, **looks)


def _wrapped(line: str, letters: int) -> list[str]:
    found = textwrap.wrap(line, letters) or [""]
    return found if len(found) <= 3 else [*found[:2], canvas.elided(found[2], letters - 1) + "…"]
