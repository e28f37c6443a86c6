"""What every report is made of: lines of a list, and tables of cells; a table as Markdown.  Pure."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass


@dataclass(frozen=True)
class Bullet:
    """One line of a list.  cases: what it is about, () for everything.  style: on a terminal, in the words of rich.

    most: characters of it in a comment.
    """

    text: str
    cases: tuple[str, ...] = ()
    style: str = ""
    most: int = 400


@dataclass(frozen=True)
class Sheet:
    """Cells that are ready to be shown.  texts: how many of the first columns are text; the others are numbers."""

    title: str
    header: tuple[str, ...]
    rows: tuple[tuple[str, ...], ...]
    texts: int


def pipes(sheet: Sheet) -> list[str]:
    """The lines of a pipe table; what its cells hold must be inert already."""
    rule = ["---" if i < sheet.texts else "--:" for i in range(len(sheet.header))]
    return [f"| {' | '.join(sheet.header)} |", f"|{'|'.join(rule)}|", *(f"| {' | '.join(row)} |" for row in sheet.rows)]


def markdown(sheet: Sheet) -> str:
    """A pipe table below its title; a cell may hold any text."""

    def inert(cells: Iterable[str]) -> tuple[str, ...]:
        return tuple(cell.replace("\\", "\\\\").replace("|", "\\|") for cell in cells)

    body = "\n".join(pipes(Sheet("", inert(sheet.header), tuple(map(inert, sheet.rows)), sheet.texts)))
    return f"**{sheet.title}**\n\n{body}\n" if sheet.title else f"{body}\n"
