"""The pieces of a page, described in Python and shown by one script: tables by their columns, texts, charts, folds.

A table is a list of columns, each of a kind, and rows of cells.  Its data on a page and its CSV file are both made of
that; the script knows the kinds, not the pages.  A piece is a plain dictionary with a "kind".
"""

from __future__ import annotations

import csv
import dataclasses
import io
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Literal, TypeAlias

from dashboards.files import rounded

Kind = Literal[
    "text",
    "number",
    "rate",
    "ratio",
    "change",
    "duration",
    "share",
    "commit",
    "case",
    "status",
    "interval",
    "date",
    "chart",
    "lines",
]
"""What a cell is, and the parts of it, which are its columns in a CSV file:

text; number.  rate: [value, unit].  ratio: [baseline's time / ours, low, high].  change: [new / old - 1, low, high].
duration: seconds.  share: 0 to 1.  commit: [hash, date].
case: [name, address].  status: [status, why].  interval: [low, high] in the unit of a rate.  date: "2026-11-20 09:30".
chart: see `dashboards.charts`.  lines: texts, the first of which is the main one.
A cell of any kind may be None.
"""

PARTS: Mapping[str, tuple[str, ...]] = {
    "rate": ("", "_unit"),
    "ratio": ("", "_low", "_high"),
    "change": ("", "_low", "_high"),
    "commit": ("", "_date"),
    "status": ("", "_why"),
    "interval": ("_low", "_high"),
    "chart": (),
}
"""Suffixes of the columns of a CSV file that a column of a kind gives; one without suffix for all other kinds."""

FORMULA = ("=", "+", "-", "@", "\t", "\r")
"""What makes a spreadsheet run a text as a formula; an apostrophe before it keeps it a text."""

Piece: TypeAlias = dict[str, Any]


@dataclasses.dataclass(frozen=True)
class Column:
    """A column of a table; its title is what a reader sees, its key what programs read."""

    key: str
    title: str
    kind: Kind = "text"
    help: str = ""

    @property
    def parts(self) -> list[str]:
        """Its columns in a CSV file."""
        return [self.key + suffix for suffix in PARTS.get(self.kind, ("",))]


OPERATOR = Column("kernel", "operator")
CASE = Column("case", "case", "case")
BACKEND = Column("backend", "backend")
COMMIT = Column("commit", "commit", "commit")
"""Columns that many tables have."""


@dataclasses.dataclass(frozen=True)
class Table:
    """Columns and rows of cells.  name: of its CSV file; group: key of the column whose runs get a heading."""

    name: str
    caption: str
    columns: Sequence[Column]
    rows: Sequence[Sequence[Any]]
    group: str = ""

    def piece(self, **more: Any) -> Piece:
        """The table as a page loads it.  more: "filter" for a field to filter by, "look".

        Of a column what goes without saying is left out: a kind "text", one part named by its key, no help.
        """
        described = [
            {"key": column.key, "title": column.title}
            | ({"kind": column.kind} if column.kind != "text" else {})
            | ({"parts": column.parts} if column.parts != [column.key] else {})
            | ({"help": column.help} if column.help else {})
            for column in self.columns
        ]
        about = {"kind": "table", "name": self.name, "caption": self.caption, "columns": described}
        return about | ({"group": self.group} if self.group else {}) | more | {"rows": self.rows}

    def folded(self, line: str, look: str = "") -> Piece:
        """A line that unfolds to the table, with a field to filter it by."""
        return fold([line], [self.piece(filter=True)], look)

    def csv(self) -> bytes:
        """A CSV file: a head and a line for each row."""
        text = io.StringIO()
        writer = csv.writer(text, lineterminator="\n")
        writer.writerow([part for column in self.columns for part in column.parts])
        for row in self.rows:
            cells = zip(self.columns, row, strict=True)
            writer.writerow([plain(part) for column, cell in cells for part in _parts(column, cell)])
        return text.getvalue().encode("utf-8", "backslashreplace")


def _parts(column: Column, cell: Any) -> Iterable[Any]:
    """What a cell has in each column of a CSV file."""
    count = len(column.parts)
    if column.kind == "lines":
        return ["; ".join(cell or ())]
    if cell is None:
        return [None] * count
    return list(cell)[:count] if isinstance(cell, (list, tuple)) else [cell]


def plain(value: Any) -> Any:
    """A cell of a CSV file: no formula, no NaN."""
    if isinstance(value, str):
        return f"'{value}" if value.startswith(FORMULA) else value
    if isinstance(value, float):
        return rounded(value)
    return str(value).lower() if isinstance(value, bool) else value


# ---- other pieces ---------------------------------------------------------------------------------------------------


def text(words: str, look: str = "") -> Piece:
    """A paragraph.  look: "verdict bad", "verdict good", "notice", "problem", "small"."""
    return {"kind": "text", "text": words, "look": look}


def heading(words: str) -> Piece:
    """Of a part of a page."""
    return {"kind": "heading", "text": words}


def facts(rows: Sequence[tuple[str, Any]]) -> Piece:
    """Names and values in a line; a value is a text, or [text, address]."""
    return {"kind": "facts", "rows": rows}


def command(words: str, why: str) -> Piece:
    """A line to paste into a shell."""
    return {"kind": "command", "text": words, "why": why}


def fold(lines: Sequence[Any], pieces: Sequence[Piece], look: str = "", name: str = "") -> Piece:
    """Lines (a text, or [text, address]) that unfold to pieces.  name: what an address calls it."""
    return {"kind": "fold", "lines": lines, "pieces": pieces, "look": look, "name": name}


def choice(key: str, label: str, options: Sequence[Sequence[str]], pieces: Mapping[str, Any]) -> Piece:
    """One of several groups of pieces, named in the address.  options: [value, text]; pieces: by value, as a list, or
    as the path of a data file that has them."""
    return {"kind": "choice", "key": key, "label": label, "options": options, "pieces": pieces}
