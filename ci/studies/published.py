"""Numbers that others have published, as reference points of figures: `published.toml` in this folder.

A published number is never a measurement of ours: it comes with its source, device, method and date, and is drawn as a
dashed line with its name.
"""

from __future__ import annotations

import dataclasses
import datetime
import functools
import tomllib
from collections.abc import Mapping, Sequence
from pathlib import Path

import pandas as pd

FILE = Path(__file__).with_name("published.toml")

UNITS = {
    "tflops": "TFLOPS",
    "aggregate_tflops": "TFLOPS",
    "us": "µs",
    "busbw": "GB/s",
    "gbs": "GB/s",
    "link_gbs": "GB/s",
    "gpu_links_gbs": "GB/s",
}
"""Quantities that are published, by the name of their column, and the unit that each has."""

AXES = {"M": "M", "bytes": "payload_bytes"}
"""Quantities that points may stand over, and our column of each."""


class PublishedError(Exception):
    """A line of the file that cannot be used; the text names the line, what is wrong and what is expected."""


@dataclasses.dataclass(frozen=True)
class PublishedLine:
    """What one source says of one device and method.

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

    def __post_init__(self) -> None:
        """Raise PublishedError for a line without a source, with another unit, or with neither a level nor points."""
        xs = [x for x, _ in self.points]
        checks = {
            "source is an address that starts with https://": self.source.startswith("https://"),
            "date is the day of the source": type(self.date) is datetime.date,
            "label, device and method are texts": all((self.label, self.device, self.method)),
            f"y is one of {', '.join(UNITS)}, in its unit": UNITS.get(self.y) == self.unit,
            "it has a level, or points over x, one of M, bytes": (
                self.level is None and bool(self.points) and self.x in AXES
                if self.x or self.points
                else (self.level or 0) > 0
            ),
            "points stand in the order of x, each x once": xs == sorted(set(xs)),
        }
        for expected, holds in checks.items():
            if not holds:
                raise PublishedError(f"{FILE.name}, {self.name}: expected that {expected}")

    @property
    def caption(self) -> str:
        """What a figure calls it."""
        return f"published: {self.label}"

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
def load(path: Path = FILE) -> tuple[PublishedLine, ...]:
    """Every line of the file, in its order.  PublishedError names the first that is not complete."""
    try:
        lines = tuple(PublishedLine(**line) for line in tomllib.loads(path.read_text(encoding="utf-8"))["line"])
    except (tomllib.TOMLDecodeError, TypeError) as error:
        raise PublishedError(f"{path.name}: {error}") from error
    names = [line.name for line in lines]
    if twice := {name for name in names if names.count(name) > 1}:
        raise PublishedError(f"{path.name} has {', '.join(sorted(twice))} twice; a name stands for one line")
    return lines


def shown_with(rows: pd.DataFrame, x: str, y: str, lines: Sequence[PublishedLine] | None = None) -> list[PublishedLine]:
    """Lines that stand beside rows in a figure of y over x: a point further out than what was measured is left out."""
    shown = []
    for line in load() if lines is None else lines:
        if len(rows) and line.y == y and AXES.get(line.x, x) == x and line.fits(rows):
            inside = [(at, value) for at, value in line.points if rows[x].min() <= at <= rows[x].max()]
            if inside or line.level:
                shown.append(dataclasses.replace(line, points=inside))
    return shown
