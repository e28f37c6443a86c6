"""The report on a terminal: the verdict first, then what moved and by how much, then what is not known.

Colours repeat what the words say (NO_COLOR loses nothing).  The table drops its least needed columns on a
narrow terminal and never shortens the name of a case, which people copy into the next command.
"""

from __future__ import annotations

import io
from collections.abc import Iterator, Sequence

from rich import box
from rich.console import Console, Group, RenderableType
from rich.measure import Measurement
from rich.padding import Padding
from rich.table import Table
from rich.text import Text

from ci.judging.types import Verdict
from ci.report import words
from ci.report.blocks import LISTED, Block, Bullets, CaseTable, Fold, Heading, Links, Paragraph, Title, blocks_of
from ci.report.model import Bullet, Report

STYLE = {
    Verdict.BROKEN: "magenta",
    Verdict.SLOWER: "red",
    Verdict.FASTER: "green",
    Verdict.SAME: "green",
    Verdict.CANNOT_TELL: "yellow",
    Verdict.NOT_COMPARABLE: "blue",
    Verdict.NEW: "cyan",
    Verdict.GONE: "yellow",
}
BESIDE_NAME = 45
"""Columns of the time and its interval, at their widest, with the space between them."""
ROWS = 40
"""Most rows in one table: one screen."""
ASCII = str.maketrans("→µ─×…°•·", ">u-x~ *.")


def render(report: Report, width: int = 100, colour: bool = False, ascii_only: bool = False) -> str:
    """The report as text of at most `width` columns, with ANSI colours if `colour`."""
    out = io.StringIO()
    console = Console(
        file=out,
        width=width,
        force_terminal=colour,
        no_color=not colour,
        highlight=False,
        color_system="standard" if colour else None,
        legacy_windows=False,
        _environ={},
    )
    console.print(document(report, console))
    text = "\n".join(line.rstrip() for line in out.getvalue().splitlines()) + "\n"
    return text.translate(ASCII) if ascii_only else text


def show(report: Report, console: Console) -> None:
    """Print to a console as wide and as colourful as it is; plain ASCII where it cannot encode more."""
    if not console.is_terminal:  # a log is searched for names: a row is one line, however long its case's name is
        names = [words.plain(case.case) for case in report.judgement.cases]
        console.width = max([console.width, *(len(name) + BESIDE_NAME for name in names)])
    if console.encoding.lower().startswith("utf"):
        console.print(document(report, console), highlight=False)
    else:
        console.out(render(report, console.width, ascii_only=True), highlight=False, end="")


def document(report: Report, console: Console) -> RenderableType:
    """The report as something rich can print."""
    return Group(*(part for block in blocks_of(report) for part in _block(block, console)))


def _block(block: Block, console: Console, most: int = LISTED) -> Iterator[RenderableType]:
    """A block of at most so many lines."""
    if isinstance(block, Title):
        badge = (f" {block.verdict} ", f"bold white on {STYLE[block.verdict]}")
        yield Text.assemble(badge, " ", (words.plain(block.why, 400), "bold"))
    elif isinstance(block, Heading):
        verdict = (f"{block.verdict}  ", f"bold {STYLE[block.verdict]}") if block.verdict else ""
        cases = f" {words.named(block.cases)}" if block.cases else ""
        yield Text.assemble("\n", verdict, (words.plain(block.text + cases, 400), "" if block.verdict else "bold"))
    elif isinstance(block, Paragraph):
        parts = [_set(words.printable(text)[:480], style) for text, style in block.spans]
        yield Text.assemble(*parts)
    elif isinstance(block, Bullets):
        yield from _bullets(block.lines, most)
    elif isinstance(block, CaseTable):
        yield from _table(block, console, ROWS if most == LISTED else most)
    elif isinstance(block, Links):
        for label, url in block.addresses.items():
            yield Text(f"{words.plain(label)}: {words.plain(url)}", overflow="fold")
    else:
        yield from _fold(block, console)


def _fold(fold: Fold, console: Console) -> Iterator[RenderableType]:
    """Its title, and what of it is not to be missed."""
    if fold.shown is None:
        return
    many = f" ({fold.count})" if fold.count > 1 else ""
    yield Text(f"\n{words.plain(fold.title + many, 400)}", style="bold yellow" if fold.shown else "dim")
    left = fold.shown
    for block in fold.blocks:
        if left > 0:
            yield from _block(block, console, left)
        left -= len(block.lines) if isinstance(block, Bullets) else 0


def _set(text: str, style: str) -> tuple[str, str]:
    """(text, style) of a span.  A command has backticks, so that the end of the sentence is not pasted with it."""
    return (f"`{text}`" if style == "command" else text), ("bold" if style == "strong" else "")


def _bullets(lines: Sequence[Bullet], most: int) -> Iterator[RenderableType]:
    for line in lines[:most]:
        row = Table.grid(padding=(0, 1, 0, 0))
        row.add_row(Text("  •", style="dim"), Text(words.plain(words.told(line), 600), style=line.style))
        yield row
    yield from _more(len(lines) - most)


def _more(number: int) -> Iterator[RenderableType]:
    if number > 0:
        yield Text(f"  • and {number} more (the JSON report lists them)", style="dim")


SHORTEST_NAME = 10
"""Characters of a line of a case's name, which is folded on a narrow terminal and never cut."""

LEAST_NEEDED = ("trials", "head reaches", "base → head")
"""Columns that leave a table that is wider than the terminal, in this order."""


def _table(table: CaseTable, console: Console, most: int) -> Iterator[RenderableType]:
    columns = list(table.columns)
    made = _rich_table(table, columns, most)
    for column in LEAST_NEEDED:
        if _width(made, console) > console.width and column in columns:
            columns.remove(column)
            made = _rich_table(table, columns, most)
    yield Padding(made, (0, 0, 0, 2))
    yield from _more(len(table.cases) - most)


def _width(table: Table, console: Console) -> int:
    """Of a table that shortens nothing, with its indent."""
    return Measurement.get(console, console.options.update(max_width=10_000), table).maximum + 2


def _rich_table(table: CaseTable, columns: Sequence[str], most: int) -> Table:
    made = Table(box=box.SIMPLE_HEAD, show_edge=False, pad_edge=False, padding=(0, 2, 0, 0), header_style="dim")
    made.add_column("case", overflow="fold", min_width=SHORTEST_NAME)
    for column in columns:
        made.add_column(column, justify="right", no_wrap=True)
    for case, cells in list(zip(table.cases, table.rows, strict=True))[:most]:
        styles = {"time": f"bold {STYLE[case.verdict]}", "head reaches": "cyan", "trials": "dim"}
        parts = (Text(cells[column], style=styles.get(column, "")) for column in columns)
        made.add_row(Text(words.plain(case.case)), *parts)
    return made
