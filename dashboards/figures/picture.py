"""A figure before it is drawn: panels, axes and marks as plain values.

Each kind of figure (`kinds.py`, `lines.py`) makes one `Picture` of a spec and its data.  Matplotlib draws it for paper,
the site on a page; neither knows the kinds.
"""

from __future__ import annotations

import dataclasses
import math
import sys
from collections.abc import Callable, Iterable
from pathlib import Path

Number = float
"""A place on an axis; NaN where there is none.  On an axis of names: the index of the name."""


@dataclasses.dataclass(frozen=True)
class PictureAxis:
    """scale: of `spec.SCALES`; names: of a category axis; zero: starts at 0.

    ticks: where the labels stand; none: chosen by the range.
    """

    title: str
    scale: str = "linear"
    names: tuple[str, ...] = ()
    ticks: tuple[Number, ...] = ()
    zero: bool = False


@dataclasses.dataclass(frozen=True)
class Marks:
    """What belongs together in a legend and looks alike.

    kind: "line" (points, joined), "dots", "bars" (along x, one for each name on y), "rule" (a line without points),
    "links" (a segment from low to high at each place), "ring" (around a point that is drawn).
    low, high: ends of an interval of each point along the value axis, or empty.
    look: place among the groups (colour and marker), None: grey.  dashed: of a baseline, an ideal, a published number.
    hollow: a baseline, or the second state of a group.
    labels: a text for each point, for the cursor; named: they stand in the figure.
    """

    name: str
    kind: str
    x: tuple[Number, ...]
    y: tuple[Number, ...]
    low: tuple[Number, ...] = ()
    high: tuple[Number, ...] = ()
    look: int | None = None
    dashed: int = 0
    hollow: bool = False
    labels: tuple[str, ...] = ()
    named: bool = False


@dataclasses.dataclass(frozen=True)
class HeatCells:
    """Cells of a heat map, rows from the top.

    texts: what stands in them; best: marked; ends: values of the first and last colour, worst first.
    """

    values: tuple[tuple[Number, ...], ...]
    texts: tuple[tuple[str, ...], ...]
    best: tuple[tuple[bool, ...], ...]
    ends: tuple[Number, Number]
    title: str


@dataclasses.dataclass(frozen=True)
class CodeColumn:
    """A column of texts beside the names of an axis."""

    title: str
    texts: tuple[str, ...]


@dataclasses.dataclass(frozen=True)
class PicturePanel:
    """upright: the values are on y (intervals are vertical); level: where a grey line stands on the value axis.

    said: a text in the corner that the data leave free.
    """

    title: str
    x: PictureAxis
    y: PictureAxis
    marks: tuple[Marks, ...] = ()
    upright: bool = True
    level: Number = math.nan
    said: str = ""
    cells: HeatCells | None = None
    texts: tuple[CodeColumn, ...] = ()


@dataclasses.dataclass(frozen=True)
class Picture:
    """columns: panels beside each other; notes: sentences below the figure, before its foot."""

    title: str
    panels: tuple[PicturePanel, ...]
    columns: int = 1
    notes: tuple[str, ...] = ()


def numbers(values: Iterable[float]) -> tuple[Number, ...]:
    """Plain numbers; what is not finite is NaN."""
    return tuple(value if math.isfinite(value) else math.nan for value in map(float, values))


# What cannot be drawn, and how a program that draws says so.


class FigureError(ValueError):
    """There is nothing to draw; the text says what the records have instead."""


def exit_code(draw: Callable[[], Iterable[Path]]) -> int:
    """Draw and print the paths: 0.  What cannot be drawn or written is said on stderr: 3."""
    try:
        for path in draw():
            print(path)
    except (FigureError, OSError) as error:
        print(f"error: {error}", file=sys.stderr)
        return 3
    return 0
