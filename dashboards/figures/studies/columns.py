"""Columns of the data as what a figure needs: numbers, names in their order, groups with their looks, panels."""

from __future__ import annotations

import dataclasses
import re
from collections.abc import Iterable, Iterator, Sequence
from typing import Any

import numpy as np
import pandas as pd

from dashboards.figures.studies.picture import FigureError, Marks, PictureAxis, numbers
from dashboards.figures.studies.spec import FigureSpec, Quantity

MOST_GROUPS = 12
"""Groups with a look of their own: six colours, twice (`dashboards.figures.studies.paper.COLOURS`)."""

MOST_PANELS = 24
"""Three of them beside each other are a page; more are a table."""

MOST_TICKS = 12
"""Values that each have a tick of their own: M = 1 to 1024 by powers of 2 are eleven."""

DIGITS = re.compile(r"([0-9]+)([KMG]B)?")
"""A number, of bytes where it says so: 512KB comes before 16MB."""

MOST_DIGITS = 20
"""Of a number of bytes."""

BYTES = {"KB": 1 << 10, "MB": 1 << 20, "GB": 1 << 30}

HUGE_SPAN = 1e4
"""Values that span more than this get a logarithmic axis: on a linear one, all but the greatest lie on the ground."""


@dataclasses.dataclass(frozen=True)
class GroupLook:
    """A group of the legend.  values: what stands in the column; look: place among own groups, None: grey."""

    name: str
    values: tuple[str, ...]
    look: int | None = 0
    dashed: int = 0

    def marks(self, kind: str, x: Iterable[float], y: Iterable[float], **more: Any) -> Marks:
        """Marks of this group; a baseline is hollow."""
        looks = {"look": self.look, "dashed": self.dashed, "hollow": self.dashed > 0}
        return Marks(self.name, kind, numbers(x), numbers(y), **{**looks, **more})


def needed(data: pd.DataFrame, kind: str, names: Sequence[str]) -> None:
    """FigureError for the first column that a kind of figure needs and the data lack."""
    for name in names:
        if name not in data.columns:
            raise FigureError(
                f"{kind} needs the column {name!r}; the data have: {', '.join(map(str, data.columns)) or 'none'}"
            )


def numeric(data: pd.DataFrame, column: str) -> pd.Series:
    """A column as numbers; what is none or not finite is NaN."""
    found = pd.to_numeric(data[column], errors="coerce").astype(float)
    return found.where(np.isfinite(found))


def text(value: object) -> str:
    """A cell as a name: 64.0 is "64", what is missing is "none"."""
    if isinstance(value, (float, np.floating)):
        return "none" if np.isnan(value) else f"{value:.12g}"
    return "none" if value is None else str(value)


def texts(data: pd.DataFrame, column: str) -> pd.Series:
    """A column as names."""
    codes, found = pd.factorize(data[column], use_na_sentinel=False)
    return pd.Series(np.array([*map(text, found), ""], object)[codes], index=data.index)


def ordered(data: pd.DataFrame, column: str) -> list[str]:
    """The names of a column: numbers by size, texts as the data have them, those that differ in numbers together."""
    names = list(map(str, texts(data, column).unique()))
    if all(map(_is_number, names)):
        return sorted(names, key=float)
    first = {words: n for n, words in reversed(list(enumerate(map(_words, names))))}
    return sorted(names, key=lambda name: (first[_words(name)], *map(_size, DIGITS.findall(name))))


def groups(data: pd.DataFrame, column: str, baselines: Sequence[str] = ()) -> list[GroupLook]:
    """The groups of a column, baselines last; of too many, those with the most rows, and one for the others."""
    if not column:
        return [GroupLook("", ())]
    names = texts(data, column)
    counts, present = names.value_counts(), ordered(data, column)
    own = [name for name in present if name not in baselines]
    kept = own
    if len(own) > MOST_GROUPS:
        most = sorted(own, key=lambda name: -counts[name])[: MOST_GROUPS - 1]
        kept = [name for name in own if name in most]
    rest = tuple(name for name in own if name not in kept)
    looks = [GroupLook(_told(column, name), (name,), n) for n, name in enumerate(kept)]
    others = [GroupLook(f"{len(rest)} others", rest, None)] if rest else []
    grey = [name for name in present if name in baselines]
    return [*others, *looks, *(GroupLook(name, (name,), None, n + 1) for n, name in enumerate(grey))]


def within(data: pd.DataFrame, column: str, group: GroupLook) -> pd.DataFrame:
    """The rows of a group."""
    return data[texts(data, column).isin(group.values)] if column else data


def parts(data: pd.DataFrame, spec: FigureSpec) -> Iterator[tuple[str, pd.DataFrame]]:
    """Title and rows of each panel: by the values of the column `by`, or all."""
    column = spec.column("by", data)
    if not column:
        yield "", data
        return
    for value in ordered(data, column)[:MOST_PANELS]:
        yield _told(column, value), data[texts(data, column) == value]


def more_panels(data: pd.DataFrame, spec: FigureSpec) -> list[str]:
    """A sentence on panels that there is no room for."""
    column = spec.column("by", data)
    more = len(ordered(data, column)) - MOST_PANELS if column else 0
    return [f"{more} more values of {column} are in the table only"] if more > 0 else []


def _size(found: tuple[str, str]) -> tuple[int, str]:
    """What DIGITS finds, in the order of the number: digits may be more than an integer is read of."""
    digits, unit = found
    number = str(int(digits) * BYTES[unit]) if unit and len(digits) < MOST_DIGITS else digits.lstrip("0")
    return len(number), number


def _words(name: str) -> str:
    """A name without its numbers: names that share it differ in these alone."""
    return DIGITS.sub("0", name)


def _told(column: str, value: str) -> str:
    """A value as a name: numbers, and what is on or off, say of what they are."""
    return f"{column} {value}" if _is_number(value) or value in ("True", "False") else value


def _is_number(value: str) -> bool:
    try:
        float(value)
    except ValueError:
        return False
    return True


def scale_of(axis: Quantity, values: pd.Series) -> str:
    """The scale of an axis for these values: logarithmic only where all are above 0."""
    found = values.dropna()
    if axis.scale == "linear" and len(found) and found.min() > 0 and found.max() > HUGE_SPAN * found.min():
        return "log"
    if axis.scale in ("log", "log2", "bytes") and len(found) and found.min() <= 0:
        return "linear"
    return axis.scale


def place_axis(axis: Quantity, data: pd.DataFrame, every: bool) -> PictureAxis:
    """The axis on which things are placed.  every: a tick for each value, where they are few."""
    if axis.scale == "category":
        return PictureAxis(axis.title, "category", tuple(ordered(data, axis.column)))
    values = numeric(data, axis.column)
    scale, distinct = scale_of(axis, values), sorted(values.dropna().unique())
    whole = all(float(value).is_integer() for value in distinct)
    ticks = tuple(map(float, distinct)) if whole and (every or len(distinct) <= MOST_TICKS) else ()
    return PictureAxis(axis.title, scale, (), ticks)


def places(data: pd.DataFrame, axis: Quantity, drawn: PictureAxis) -> pd.Series:
    """Where the rows are on an axis."""
    if drawn.scale == "category":
        index = {name: n for n, name in enumerate(drawn.names)}
        return texts(data, axis.column).map(index).astype(float)
    return numeric(data, axis.column)


def value_axis(axis: Quantity, values: pd.Series, zero: bool) -> PictureAxis:
    """The axis of the values; zero: begins at 0 where it is linear."""
    scale = scale_of(axis, values)
    return PictureAxis(axis.title, scale, zero=zero and scale == "linear" and bool((values.dropna() >= 0).all()))


def left_out(data: pd.DataFrame, columns: Sequence[str]) -> list[str]:
    """A sentence on rows that have no number where one is drawn."""
    missing = pd.Series(False, index=data.index)
    for column in columns:
        missing |= numeric(data, column).isna()
    count = int(missing.sum())
    return [f"{count} of {len(data)} rows have no {' or '.join(columns)} and are not drawn"] if count else []
