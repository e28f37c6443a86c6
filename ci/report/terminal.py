"""The report on a terminal: the verdict first, then what moved and by how much, then what is not known.

Colours repeat what the words say (NO_COLOR loses nothing).  The table drops its least needed columns on a
narrow terminal and never shortens the name of a case, which people copy into the next command.
"""

from __future__ import annotations

import io
from collections.abc import Iterable, Iterator, Sequence

from rich import box
from rich.console import Console, Group, RenderableType
from rich.padding import Padding
from rich.table import Table
from rich.text import Text

from ci.judging.types import CaseVerdict, Verdict
from ci.judging.types import Group as Cause
from ci.records.ledger import Explanation
from ci.report import words
from ci.report.document import Bullet
from ci.report.model import Report, grouped

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
COLUMNS = {"time": 7, "interval %": 16, "plot": PLOT_WIDTH, "base → head": 14, "head reaches": 13, "trials": 6}
"""Columns beside the case's name, as ordered on the screen, and their usual widths in characters."""
BESIDE_NAME = 45
"""Columns of the time and its interval, at their widest, with the space between them."""
LISTED = 12
"""Most lines in a list of what is not known; the JSON report has all of them."""
EXPECTED = ("unsupported", "skipped", "unchanged")
"""What is not measured for a reason that is no fault: one line counts it, the written reports list it."""
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
    console.print(document(report, width))
    text = "\n".join(line.rstrip() for line in out.getvalue().splitlines()) + "\n"
    return text.translate(ASCII) if ascii_only else text


def show(report: Report, console: Console) -> None:
    """Print to a console as wide and as colourful as it is; plain ASCII where it cannot encode more."""
    if not console.is_terminal:  # a log is searched for names: a row is one line, however long its case's name is
        names = [words.plain(case.case) for case in report.judgement.cases]
        console.width = max([console.width, *(len(name) + BESIDE_NAME for name in names)])
    if console.encoding.lower().startswith("utf"):
        console.print(document(report, console.width), highlight=False)
    else:
        console.out(render(report, console.width, ascii_only=True), highlight=False, end="")


def document(report: Report, width: int) -> RenderableType:
    """The report as something rich can print."""
    blocks = [
        _head(report),
        *_moved(report, width),
        *causes(report.explanations),
        *_floors(report),
        *_machine_code(report),
        _rest(report),
        *_unknown(report, width),
        *_list("warning", grouped(report.all_warnings)),
        *_machine(report),
    ]
    return Group(*blocks)


def _head(report: Report) -> RenderableType:
    head = Text.assemble(
        (f" {report.verdict} ", f"bold white on {STYLE[report.verdict]}"),
        " ",
        (words.plain(report.judgement.why, 400), "bold"),
    )
    head.append(f"\n{words.plain(report.title)}", style="dim")
    if words.sides(report):
        head.append(": ", style="dim").append(words.plain(words.sides(report)))
    if report.machine:
        head.append("\non ", style="dim").append(words.plain(words.machine_line(report.machine)))
    if report.ran:
        head.append("\ncode of this change that ran: ", style="dim").append(words.plain(words.ran(report.ran)))
    return head


def _moved(report: Report, width: int) -> Iterator[RenderableType]:
    for cause, cases in words.groups_of(report):
        verdict = cases[0].verdict
        title = Text.assemble((f"\n{verdict}", f"bold {STYLE[verdict]}"), "  ")
        yield title.append(words.plain(words.cause(cause, cases), 400))
        yield from _cases(report, cause, cases, width)


def _cases(report: Report, cause: Cause | None, cases: Sequence[CaseVerdict], width: int) -> Iterator[RenderableType]:
    """A table with its reasons; a list of reasons for cases without times."""
    if any(case.ratio is not None for case in cases):
        yield Padding(_table(report, cases[:ROWS], width, _scale(report.moved() or cases)), (0, 0, 0, 2))
        yield from _more(len(cases) - ROWS)
        yield from _bullets(words.why(cause, cases)[:LISTED], "dim")
    else:
        yield from _bullets(words.evidence(cases))


def _table(report: Report, cases: Sequence[CaseVerdict], width: int, scale: float) -> Table:
    table = Table(box=box.SIMPLE_HEAD, show_edge=False, pad_edge=False, padding=(0, 2, 0, 0), header_style="dim")
    name = max(len(words.plain(case.case)) for case in (*report.moved(), *cases))
    cells = {column: [_cell(report, case, column, scale) for case in cases] for column in COLUMNS}
    widths = {column: max(COLUMNS[column], *(len(cell) for cell in cells[column])) for column in COLUMNS}
    shown = _columns(report, widths, width - name)
    table.add_column("case", overflow="fold", min_width=min(name, width // 2))
    for column in shown:
        title = _axis(scale) if column == "plot" else column
        table.add_column(title, justify="left" if column == "plot" else "right", no_wrap=True)
    for number, case in enumerate(cases):
        table.add_row(Text(words.plain(case.case)), *(cells[column][number] for column in shown))
    return table


def _columns(report: Report, widths: dict[str, int], room: int) -> list[str]:
    """The columns for which there is room beside the names, in the order of COLUMNS."""
    kept, left = set(), room - 2
    for column in ("time", "interval %", "base → head", "head reaches", "plot", "trials"):
        left -= widths[column] + 3
        if left < 0 and column not in ("time", "interval %"):
            break
        if column != "head reaches" or report.costs:
            kept.add(column)
        else:
            left += widths[column] + 3
    return [column for column in COLUMNS if column in kept]


def _cell(report: Report, case: CaseVerdict, column: str, scale: float) -> Text:
    if column == "plot":
        return Text(_plot(case, scale), style=STYLE[case.verdict])
    styles = {"time": f"bold {STYLE[case.verdict]}", "head reaches": "cyan", "trials": "dim"}
    return Text(words.cells(report, case)[column], style=styles.get(column, ""))


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


def causes(explanations: Iterable[Explanation]) -> Iterator[RenderableType]:
    """Why cases are slower, what else was tried, and what the compiler emits differently."""
    for one in explanations:
        yield Text.assemble(("\nwhy ", "bold"), (words.plain(words.named(one.cases), 400), "bold"))
        sentence = Bullet(one.sentence, style=STYLE[Verdict.SLOWER] if one.state == "proven" else "yellow")
        yield from map(_bullet, [sentence, *(Bullet(line, style="dim") for line in words.cause_lines(one, LISTED))])


def _floors(report: Report) -> Iterator[RenderableType]:
    met = sum(floor.state == "met" for floor in report.judgement.floors)
    if report.judgement.floors:
        yield Text.assemble(("\nagainst the vendor library", "bold"), f"  {words.plural(met, 'floor')} met")
    yield from _bullets(words.floors(report.judgement))


def _machine_code(report: Report) -> Iterator[RenderableType]:
    if report.judgement.machine_code:
        first, *others = report.judgement.machine_code
        yield Text.assemble(("\nmachine code ", "bold"), words.plain(first, 480))
        yield from _bullets(list(map(Bullet, others)))


MOST_REASONS = 3
"""Backends whose reason not to be measured here is printed; the report of `check` has all."""


def _rest(report: Report) -> RenderableType:
    text = Text("\n")
    for number, part in enumerate(words.folded(report.judgement.cases)):
        text.append(" · " if number else "").append(part, style="dim")
    if here := [skip for skip in report.skipped if skip.status in EXPECTED]:
        reasons = [
            f"{words.plain(one.what)} not measured here: {words.plain(one.why, 120)}" for one in here[:MOST_REASONS]
        ]
        more = [f"{len(here) - MOST_REASONS} more"] if len(here) > MOST_REASONS else []
        said = "; ".join([*reasons, *more])
        text.append(" · " if len(text) > 1 else "").append(said, style="dim")
    return text if report.judgement.cases or report.skipped else Text("\nnothing was compared", style="yellow")


def _unknown(report: Report, width: int) -> Iterator[RenderableType]:
    unsure = report.judgement.of(Verdict.CANNOT_TELL)
    for timed in (True, False):
        cases = [case for case in unsure if (case.ratio is not None) is timed]
        if cases:
            yield Text("\ncannot tell" if timed else "\ncannot tell, without times", style="bold yellow")
            yield from _cases(report, None, cases[:LISTED] if timed else cases, width)
            yield from _more(len(cases) - LISTED if timed else 0)
    faults = [skip for skip in report.skipped if skip.status not in EXPECTED]
    yield from _list("not measured", words.skipped(faults), "")


def _list(title: str, lines: Sequence[Bullet], style: str = "yellow") -> Iterator[RenderableType]:
    if lines:
        yield Text(f"\n{title}", style="bold yellow")
    yield from _bullets(lines, style)


def _bullets(lines: Sequence[Bullet], style: str = "") -> Iterator[RenderableType]:
    for line in lines[:LISTED]:
        yield _bullet(line, style)
    yield from _more(len(lines) - LISTED)


def _bullet(line: Bullet, style: str = "") -> RenderableType:
    row = Table.grid(padding=(0, 1, 0, 0))
    row.add_row(Text("  •", style="dim"), Text(words.plain(words.told(line), 600), style=style or line.style))
    return row


def _more(number: int) -> Iterator[RenderableType]:
    if number > 0:
        yield _bullet(Bullet(f"and {number} more (the JSON report lists them)", style="dim"))


def _machine(report: Report) -> Iterator[RenderableType]:
    lines = [(arm, words.clocks_line(clocks)) for arm, clocks in report.clocks.items()]
    lines += [(label, url) for label, url in report.links.items()]
    if lines:
        grid = Table.grid(padding=(0, 2, 0, 0))
        for label, value in lines:
            grid.add_row(Text(words.plain(label), style="dim"), Text(words.plain(value), overflow="fold"))
        yield Text()
        yield grid
