"""Which published numbers stand in a figure: those of the shape of its rows.

A line over a quantity is of a shape, whatever the device: it says which on its label.  A level (a peak that some
favourable shape reaches) says something of its own device only, so it stands beside rows of that product alone.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence

import pandas as pd

from ci.tables import published
from ci.tables.published import PublishedLine

SAME = {"payload_bytes": "bytes"}
"""Columns of ours by the quantity that the file calls otherwise."""


def points(rows: pd.DataFrame, ys: Iterable[str], x: str, lines: Sequence[PublishedLine] | None = None) -> list[object]:
    """The points of a SPEC (dashboards.figures.studies) for a figure of these rows.

    rows: of `ci.sweeps.studies.rows`.  ys: columns that its axes of values show; x: the column below.
    """
    known = {name: set(rows[name]) for name in ("operator", "dtype", "world")} | _dimensions(rows)
    products = {str(name).split()[0] for name in rows["market_name"].dropna() if str(name)}
    every, found = published.load() if lines is None else lines, list[object]()
    for y in dict.fromkeys(ys):
        fits = published.beside(every, known, y, SAME.get(x, x))
        here = [line for line in fits if line.x or any(product in line.device for product in products)]
        found += [{**one, "quantity": y} for one in published.points(here) if _in_view(one["x"], known.get(x, ()))]
    return found


def _in_view(x: object, measured: Collection[object]) -> bool:
    """Whether a point lies within what was measured: further out it would shrink everything else."""
    numbers = [float(one) for one in measured if isinstance(one, (int, float))]
    return not isinstance(x, float) or not numbers or min(numbers) <= x <= max(numbers)


def _dimensions(rows: pd.DataFrame) -> dict[str, set[object]]:
    """The different values of each dimension of the cases."""
    found: dict[str, set[object]] = {}
    for dims in rows["dims"]:
        for name, value in dims.items():
            found.setdefault(name, set()).add(value)
    return found
