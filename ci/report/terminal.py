"""The report on a terminal: the verdict first, then what moved and by how much, then what is not known.

Colours repeat what the words say (NO_COLOR loses nothing).  The table drops its least needed columns on a
narrow terminal and never shortens the name of a case, which people copy into the next command.
"""

from __future__ import annotations

import io
from collections.abc import Iterable, Iterator, Sequence

from rich import box
from rich.console import Console, Group, RenderableType
from rich.measure import Measurement
from rich.padding import Padding
from rich.table import Table
from rich.text import Text

from ci.judging.types import CaseVerdict, Verdict
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
PLOT_WIDTH = 21
BESIDE_NAME = 45
"""Columns of the time and its interval, at their widest, with the space between them."""
ROWS = 40
"""Most rows in one table: one screen."""
ASCII = str.maketrans("→µ●─│×…°•├┤·", ">uo-|x~ *[].")


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
    scale = _scale([case for case in report.moved() if case.ratio] or report.judgement.cases)
    return Group(*(part for block in blocks_of(report) for part in _block(block, console, scale)))


def _block(block: Block, console: Console, scale: float, most: int = LISTED) -> Iterator[RenderableType]:
    """A block of at most so many lines; scale: half the width of all plots, in percent."""
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
        yield from _table(block, console, scale, ROWS if most == LISTED else most)
    elif isinstance(block, Links):
        for label, url in block.addresses.items():
            yield Text(f"{words.plain(label)}: {words.plain(url)}", overflow="fold")
    else:
        yield from _fold(block, console, scale)


def _fold(fold: Fold, console: Console, scale: float) -> Iterator[RenderableType]:
    """Its title, and what of it is not to be missed."""
    if fold.shown is None:
        return
    many = f" ({fold.count})" if fold.count > 1 else ""
    yield Text(f"\n{words.plain(fold.title + many, 400)}", style="bold yellow" if fold.shown else "dim")
    left = fold.shown
    for block in fold.blocks:
        if left > 0:
            yield from _block(block, console, scale, left)
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

LEAST_NEEDED = ("trials", "plot", "head reaches", "base → head")
"""Columns that leave a table that is wider than the terminal, in this order."""


def _table(table: CaseTable, console: Console, scale: float, most: int) -> Iterator[RenderableType]:
    columns = [part for column in table.columns for part in ((column, "plot") if column == "interval %" else (column,))]
    made = _rich_table(table, columns, scale, most)
    for column in LEAST_NEEDED:
        if _width(made, console) > console.width and column in columns:
            columns.remove(column)
            made = _rich_table(table, columns, scale, most)
    yield Padding(made, (0, 0, 0, 2))
    yield from _more(len(table.cases) - most)


def _width(table: Table, console: Console) -> int:
    """Of a table that shortens nothing, with its indent."""
    return Measurement.get(console, console.options.update(max_width=10_000), table).maximum + 2


def _rich_table(table: CaseTable, columns: Sequence[str], scale: float, most: int) -> Table:
    made = Table(box=box.SIMPLE_HEAD, show_edge=False, pad_edge=False, padding=(0, 2, 0, 0), header_style="dim")
    made.add_column("case", overflow="fold", min_width=SHORTEST_NAME)
    for column in columns:
        title, side = (_axis(scale), "left") if column == "plot" else (column, "right")
        made.add_column(title, justify=side, no_wrap=True)  # type: ignore[arg-type]
    for case, cells in list(zip(table.cases, table.rows, strict=True))[:most]:
        style = STYLE[case.verdict]
        styles = {"time": f"bold {style}", "plot": style, "head reaches": "cyan", "trials": "dim"}
        shown = (_plot(case, scale) if column == "plot" else cells[column] for column in columns)
        parts = (Text(text, style=styles.get(column, "")) for text, column in zip(shown, columns, strict=True))
        made.add_row(Text(words.plain(case.case)), *parts)
    return made


def _scale(cases: Iterable[CaseVerdict]) -> float:
    """Half the width of all drawn intervals in percent: one scale, so that rows can be compared; at most 50 %."""
    ends = [abs(end - 1) * 100 for case in cases for end in (case.ci_low, case.ci_high) if end is not None]
    widest = min(max(ends, default=1.0), 50.0)
    return next((step for step in (1, 2, 5, 10, 20) if widest <= step), 50)


def _axis(scale: float) -> str:
    left, right = f"-{scale:g} %", f"+{scale:g} %"
    half = PLOT_WIDTH // 2
    return left.ljust(half) + "0" + right.rjust(half)


def _plot(case: CaseVerdict, scale: float) -> str:
    """The interval on a line around zero: ``          │  ├─●─┤  ``; what lies outside is drawn at the edge."""
    if case.ratio is None or case.ci_low is None or case.ci_high is None:
        return ""
    half = PLOT_WIDTH // 2
    low, middle, high = (
        half + max(-half, min(half, round((ratio - 1) * 100 / scale * half)))
        for ratio in (case.ci_low, case.ratio, case.ci_high)
    )
    line = [" "] * PLOT_WIDTH
    line[half] = "│"
    for at in range(low, high + 1):
        line[at] = "─"
    line[low], line[high], line[middle] = "├", "┤", "●"
    return "".join(line)
