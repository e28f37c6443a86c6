"""`ridgeline table`: the maths of comparison tables, of a CSV or of a recorded study."""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import click
import rich.table
from rich.text import Text

from ci.bars import bar
from ci.options import JSON, PASS, RESULTS, Finite, Parsed, err_console, flag, option, out_console, several, verb
from ci.report.words import plain, plural
from ci.tables.compare import BOUND, Direction, TableComparison, compare
from ci.tables.read import AskedColumns, TableFile, TableFileError, read
from ci.tables.sheets import (
    Sheet,
    StudyTable,
    check_printed,
    comma_separated,
    document,
    everything,
    latex,
    markdown,
    recorded_sheet,
    recorded_tables,
    row_ratios,
    sheets,
)

ROWS = 40
"""Most rows of one sheet on a terminal, and most remarks: one screen."""

EXAMPLE = (
    "ridgeline table tests/ci/tables/data/primus_turbo_pr284_seen.csv --columns Triton,Autotune --baseline GMM "
    "--score higher --by model --by op --regret Autotune=hipBLASLt,Triton"
)


def _names(said: str) -> tuple[str, ...]:
    """Names of columns between commas; none is empty."""
    names = tuple(name.strip() for name in said.split(","))
    if not all(names):
        raise ValueError(f"{said!r}: names of columns are expected, with a comma between them, such as model,op")
    return tuple(dict.fromkeys(names))


def _chosen_from(said: str) -> tuple[str, tuple[str, ...]]:
    """COLUMN=CANDIDATE,CANDIDATE: the column and what it was chosen from."""
    column, equals, candidates = said.partition("=")
    names = tuple(name.strip() for name in candidates.split(","))
    if not (column.strip() and equals and all(names)):
        raise ValueError(f"{said!r}: COLUMN=CANDIDATE,... is expected, such as autotune=hipblaslt,triton")
    return column.strip(), names


NAMES = Parsed("names", _names)


@dataclasses.dataclass(frozen=True)
class TableQuestion:
    """What is asked of a table, by its options."""

    columns: tuple[str, ...]
    baseline: str
    score: Direction
    by: tuple[tuple[str, ...], ...]
    regret: tuple[tuple[str, tuple[str, ...]], ...]
    tie: float
    below: float
    worst: int
    ratios: bool
    form: str

    @property
    def asked(self) -> AskedColumns:
        return AskedColumns(self.columns, self.baseline, self.by, self.regret)


@verb(EXAMPLE)
@click.argument("source", metavar="FILE.csv|STUDY")
@option("--columns A,B", "Backends (default: the columns of numbers).", NAMES, default=(), show_default=False)
@option("--baseline A", "What ratios are taken to (default: the first backend).", default="")
@option(
    "--score",
    "Which numbers are better: higher for TFLOPS and GB/s, lower for times.",
    click.Choice(["higher", "lower"]),
    default="higher",
)
@several("--by KEY,KEY", "Also in groups of equal keys (repeatable).", NAMES)
@several(
    "--regret A=B,C",
    "Column A, chosen by a tuner, against the best of B and C in each row (repeatable).",
    Parsed("choice", _chosen_from),
)
@option("--tie PERCENT", "Closer than this is a tie (default: 0).", Finite(0, 50), default=0.0)
@option("--below", "Count ratios below this.", Finite(0, 1000), default=BOUND)
@option("--worst", "Worst rows to list.", click.IntRange(0, 10_000), default=10)
@flag("--ratios", "The ratio of every row, in place of means and counts.")
@option(
    "--format -> form",
    "How it is printed.",
    click.Choice(["terminal", "markdown", "latex", "csv", "json"]),
    default="terminal",
)
@JSON
@option("--machine NAME", "Of a study: only this machine.", default="")
@RESULTS
def table(source: str, as_json: bool, machine: str, results: Path, **options: Any) -> int:
    """The maths of a comparison table: ratios to a baseline, means, wins, groups, worst rows, regret.

    FILE.csv (also .gz, or - for stdin) has a header: any key columns, then one column of numbers for each backend.
    A ratio is above 1 where a backend beats the baseline.  `ratio of means` compares the arithmetic means of two
    columns, so large rows weigh more; `mean of ratios` and `geometric mean` give each row the same weight.  All take
    the rows that have both numbers; a cell without one is named and left out.  Rows with equal numbers are ties.  A
    column A/B beside columns A and B is taken as printed ratios, and checked.  In --json, `mean` is the ratio of means
    and `geomean` the geometric mean.

    STUDY prints the table of a recorded study; with --baseline, --columns or --by it goes through the same maths.

    Exit code: 0, or 3 where nothing can be compared.
    """
    question = TableQuestion(**options)
    question = dataclasses.replace(question, form="json") if as_json else question
    if source == "-" or Path(source).is_file():
        _print_comparison(source, question)
        return PASS
    tables = recorded_tables(source, machine, results)
    if question.asked == AskedColumns():
        _print_tables(tables, question.form)
        return PASS
    if len(tables) > 1:
        machines = ", ".join(one.machine for one in tables)
        raise TableFileError(f"study {source} has a table of each of {machines}; choose one with --machine")
    _print_comparison(str(tables[0].path), question)
    return PASS


def _print_comparison(path: str, question: TableQuestion) -> None:
    with bar(err_console(), f"reading {plain(path, 80)}"):
        read_in = read(path, question.asked)
        found = _compared(read_in, question)
    if question.form == "json":
        checked = check_printed(read_in.frame, read_in.roles.printed)
        click.echo(json.dumps(document(found, read_in.frame, checked, read_in.left_out), indent=1, default=str))
        return
    _print(_sheets(found, read_in, question), question.form)
    # To stderr, so that a table can be piped.
    remarks = _remarks(read_in)
    console = err_console()
    for remark in remarks[:ROWS]:
        console.print(Text(f"note: {plain(remark, 400)}"), soft_wrap=True)
    if len(remarks) > ROWS:
        console.print(f"and {plural(len(remarks) - ROWS, 'more note')}; --json has all of them", soft_wrap=True)


def _compared(read_in: TableFile, question: TableQuestion) -> TableComparison:
    roles = read_in.roles
    return compare(
        read_in.frame,
        roles.keys,
        roles.compared,
        roles.baseline,
        score=question.score,
        by=roles.asked.by,
        regret=dict(roles.asked.regret),
        tie_percent=question.tie,
        bound=question.below,
        worst=question.worst,
    )


def _sheets(found: TableComparison, read_in: TableFile, question: TableQuestion) -> list[Sheet]:
    if question.ratios:
        return [row_ratios(found, read_in.frame)]
    if question.form == "csv":
        return [everything(found, question.below)]
    return sheets(found, read_in.frame, question.below)


def _print_tables(tables: Sequence[StudyTable], form: str) -> None:
    shown = [recorded_sheet(one) for one in tables]
    if form == "json":
        pairs = zip(tables, shown, strict=True)
        found = [{"study": t.study, "machine": t.machine, "header": s.header, "rows": s.rows} for t, s in pairs]
        click.echo(json.dumps({"tables": found}, indent=1))
    else:
        _print(shown, form)


def _print(shown: Sequence[Sheet], form: str) -> None:
    if form == "terminal":
        for sheet in shown:
            _show(sheet)
    else:
        write = {"markdown": markdown, "latex": latex, "csv": comma_separated}[form]
        click.echo("\n".join(map(write, shown)), nl=False)


def _show(sheet: Sheet) -> None:
    console = out_console()
    console.print(Text(plain(sheet.title, 400), style="bold"), soft_wrap=True)
    shown = [[plain(cell, 60) for cell in row] for row in sheet.rows[:ROWS]]
    widths = [max((len(row[i]) for row in shown), default=0) for i in range(len(sheet.header))]
    kept = _that_fit(sheet, widths, console.width)
    console.print(_grid(sheet, shown, widths, kept))
    if hidden := [name for i, name in enumerate(sheet.header) if i not in kept]:
        console.print(f"not shown on a narrow screen: {', '.join(hidden)}")
    if len(sheet.rows) > ROWS:
        console.print(f"and {plural(len(sheet.rows) - ROWS, 'more row')}; --format csv and --json have all of them")
    console.print()


def _that_fit(sheet: Sheet, widths: Sequence[int], width: int) -> list[int]:
    """Columns that are shown: spare ones go until the others fit."""
    needed = [max(w, *map(len, name.split())) for w, name in zip(widths, sheet.header, strict=True)]
    kept = list(range(len(needed)))
    for name in sheet.spare:
        if sum(needed[i] + 1 for i in kept) > width and sheet.header.index(name) in kept:
            kept.remove(sheet.header.index(name))
    return kept


def _grid(sheet: Sheet, shown: Sequence[Sequence[str]], widths: Sequence[int], kept: Sequence[int]) -> rich.table.Table:
    grid = rich.table.Table(box=None, pad_edge=False, padding=(0, 1, 0, 0), header_style="dim")
    for i in kept:
        name = Text(plain(sheet.header[i], 60))
        if i < sheet.texts:
            grid.add_column(name, overflow="fold")
        else:
            grid.add_column(name, justify="right", overflow="fold", min_width=widths[i])
    for row in shown:
        grid.add_row(*(Text(row[i]) for i in kept))
    return grid


def _remarks(read_in: TableFile) -> list[str]:
    roles = read_in.roles
    unused = [f"columns that are not compared: {', '.join(roles.unused)}"] if roles.unused else []
    return [*unused, *_about_printed(read_in), *read_in.left_out.all()]


def _about_printed(read_in: TableFile) -> list[str]:
    said = []
    for one in check_printed(read_in.frame, read_in.roles.printed):
        differ = f"differ from the numbers by {one.largest:.2g} at most" if one.rows else "cannot be read"
        said.append(f"column {one.column!r}: {plural(one.rows, 'printed ratio')} {differ}; {len(one.off)} are off")
        said += [
            f"row {read_in.frame.index[o.row]}: {o.printed!r} is printed, {o.ratio:.4f} by the numbers" for o in one.off
        ]
    return said
