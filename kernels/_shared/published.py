"""Knobs that others have published for kernels of their own: candidates to try first, never measurements of ours.

They lie in published.toml beside an operator's config.py, one table per point: the architectures and range of rows (M)
that it was published for, where and when, and its knobs under the names of ours.
"""

from __future__ import annotations

import dataclasses
import datetime
import tomllib
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

ORIGIN = "published"
"""What marks a point that somebody else has measured, on a kernel of theirs."""

MOST_ROWS = 2**31
"""Where a range of rows has no end: more than any case has."""


@dataclasses.dataclass(frozen=True)
class Published:
    """A published point.

    arches: for which it was published.  least_m, most_m: rows of A, both included.  use: what of the operator it is
    for, "" for all.  source: repository, path and commit.  date: of that commit.  knobs: by the names of ours.
    """

    arches: tuple[str, ...]
    source: str
    date: datetime.date
    knobs: Mapping[str, Any]
    least_m: int = 1
    most_m: int = MOST_ROWS
    use: str = ""
    origin: str = ORIGIN

    def fits(self, arch: str, rows: int, use: str) -> bool:
        """Whether it was published for this architecture, so many rows and this use."""
        return arch in self.arches and self.least_m <= rows <= self.most_m and self.use in ("", use)


def read_published(config_file: str) -> tuple[Published, ...]:
    """The points of published.toml beside a config.py.  ValueError for one without origin, source or date."""
    path = Path(config_file).with_name("published.toml")
    tables = tomllib.loads(path.read_text(encoding="utf-8")).get("points", [])
    return tuple(_point(table, f"{path}: point {n}") for n, table in enumerate(tables, 1))


def _point(table: Mapping[str, Any], where: str) -> Published:
    if table.get("origin") != ORIGIN:
        raise ValueError(f"{where}: origin is {table.get('origin')!r}; this file holds {ORIGIN!r} points only")
    for name, kind in (("source", str), ("date", datetime.date), ("knobs", dict)):
        if not isinstance(table.get(name), kind) or not table[name]:
            raise ValueError(f"{where}: {name} is missing; say where and when the point was published, and its knobs")
    return Published(**{**table, "arches": tuple(table["arches"])})


def fitting(points: Iterable[Published], arch: str, rows: int = 1, use: str = "") -> list[dict[str, Any]]:
    """The knobs of the points that were published for this, in the order of the file."""
    return [dict(point.knobs) for point in points if point.fits(arch, rows, use)]
