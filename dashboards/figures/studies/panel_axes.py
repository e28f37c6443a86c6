"""Axes of a panel on paper: scales, limits, and as many labels as do not touch each other."""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np
from matplotlib.axes import Axes
from matplotlib.axis import Axis
from matplotlib.ticker import FixedLocator, FuncFormatter, LogLocator, MaxNLocator, NullFormatter, NullLocator

from dashboards.figures.studies import canvas
from dashboards.figures.studies.picture import PictureAxis, PicturePanel

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
        getattr(axes, f"set_{name}label")(canvas.elided(drawn.title, 90), fontsize=8.5)
        axis = axes.xaxis if name == "x" else axes.yaxis
        _scale(axes, name, drawn, found)
        _labels(axes, axis, name, drawn, width, shared)
    axes.tick_params(labelsize=FONT)
    if not math.isnan(panel.level):
        (axes.axhline if panel.upright else axes.axvline)(panel.level, color=canvas.MARK, linewidth=1, zorder=1)


def _values(panel: PicturePanel) -> tuple[np.ndarray, np.ndarray]:
    """All values of each axis that must be seen: intervals as far as they do not dwarf the points."""
    xs = [value for marks in panel.marks for value in marks.x]
    ys = [value for marks in panel.marks for value in marks.y]
    along = ys if panel.upright else xs
    along.append(panel.level)
    along.extend(_ends(panel, np.array([value for value in along if math.isfinite(value)], float)))
    return tuple(np.array([v for v in values if math.isfinite(v)], float) for values in (xs, ys))  # type: ignore[return-value]


def _ends(panel: PicturePanel, points: np.ndarray) -> list[float]:
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
        _names(axes, axis, name, drawn.names, width, shared)
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


def _names(axes: Axes, axis: Axis, name: str, names: Sequence[str], width: float, shared: bool) -> None:
    axis.set_major_locator(FixedLocator(list(range(len(names)))))
    if shared:
        axis.set_major_formatter(NullFormatter())
        return
    labels = [canvas.elided(one, LONGEST_LABEL) for one in names]
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
        return canvas.binary(value)
    size = abs(value)
    if size >= 1e6 or 0 < size < 1e-4:
        return f"{value:.3g}"
    return f"{value:,.6g}" if size >= 1e4 else f"{value:.6g}"
