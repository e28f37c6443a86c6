"""`ridgeline table`: the maths of comparison tables, of a CSV or of a recorded study."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import click
import rich.table
from rich.text import Text

from ci.bars import bar
from ci.options import (
    JSON,
    PASS,
    RESULTS,
    Finite,
    Given,
    Parsed,
    err_console,
    flag,
    option,
    out_console,
    print_json,
    print_notes,
    several,
    verb,
)
from ci.report.document import Sheet, comma_separated, markdown
from ci.report.words import plain, plural
from ci.tables.compare import BOUND, compare
from ci.tables.read import AskedColumns, TableFileError, read
from ci.tables.sheets import StudyTable, document, everything, recorded_sheet, recorded_tables, row_ratios, sheets

ROWS = 40
"""Most rows of one sheet on a terminal, and most remarks: one screen."""

EXAMPLE = (
    "ridgeline table tests/ci/tables/data/primus_turbo_pr284.csv --columns Triton,Autotune --baseline GMM "
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
    "--format -> form", "How it is printed.", click.Choice(["terminal", "markdown", "csv", "json"]), default="terminal"
)
@JSON
@option("--machine NAME", "Of a study: only this machine.", default="")
@RESULTS
def table(given: Given) -> int:
    """The maths of a comparison table: ratios to a baseline, means, wins, groups, worst rows, regret.

    FILE.csv (also .gz, or - for stdin) has a header: any key columns, then one column of numbers for each backend.
    A ratio is above 1 where a backend beats the baseline.  `ratio of means` compares the arithmetic means of two
    columns, so large rows weigh more; `mean of ratios` and `geometric mean` give each row the same weight.  All take
    the rows that have both numbers; a cell without one is named and left out.  Rows with equal numbers are ties.  A
    column A/B beside columns A and B, or one behind them whose name says ratio or speedup, is no backend unless
    --columns, --baseline or --regret names it.  In --json, `mean` is the ratio of means and `geomean` the geometric
    mean.

    STUDY prints the table of a recorded study; with --baseline, --columns or --by it goes through the same maths.

    Exit code: 0, or 3 where nothing can be compared.
    """
    source, given.form = given.source, "json" if given.as_json else given.form
    asked = AskedColumns(given.columns, given.baseline, given.by, given.regret)
    if source == "-" or Path(source).is_file():
        _print_comparison(source, asked, given)
        return PASS
    tables = recorded_tables(source, given.machine, given.results)
    if asked == AskedColumns():
        _print_tables(tables, given.form)
        return PASS
    if len(tables) > 1:
        machines = ", ".join(one.machine for one in tables)
        raise TableFileError(f"study {source} has a table of each of {machines}; choose one with --machine")
    _print_comparison(str(tables[0].path), asked, given)
    return PASS


def _print_comparison(path: str, asked: AskedColumns, given: Given) -> None:
    with bar(err_console(), f"reading {plain(path, 80)}"):
        read_in = read(path, asked)
        roles = read_in.roles
        found = compare(
            read_in.frame,
            roles.keys,
            roles.compared,
            roles.baseline,
            score=given.score,
            by=roles.asked.by,
            regret=dict(roles.asked.regret),
            tie_percent=given.tie,
            bound=given.below,
            worst=given.worst,
        )
    if given.form == "json":
        click.echo(json.dumps(document(found, read_in), indent=1, default=str))
        return
    if given.ratios:
        _print([row_ratios(found, read_in.frame)], given.form)
    elif given.form == "csv":
        _print([everything(found, given.below)], given.form)
    else:
        _print(sheets(found, read_in.frame, given.below), given.form)
    # To stderr, so that a table can be piped.
    unused = [f"columns that are not compared: {', '.join(roles.unused)}"] if roles.unused else []
    print_notes(err_console(), [plain(remark, 400) for remark in (*unused, *read_in.remarks)], ROWS)


def _print_tables(tables: Sequence[StudyTable], form: str) -> None:
    if form != "json":
        _print(list(map(recorded_sheet, tables)), form)
        return
    found = []
    for one in tables:
        sheet = recorded_sheet(one)
        found.append({"study": one.study, "machine": one.machine, "header": sheet.header, "rows": sheet.rows})
    print_json({"tables": found})


def _print(shown: Sequence[Sheet], form: str) -> None:
    if form == "terminal":
        for sheet in shown:
            _show(sheet)
    else:
        write = {"markdown": markdown, "csv": comma_separated}[form]
        click.echo("\n".join(map(write, shown)), nl=False)


def _show(sheet: Sheet) -> None:
    console = out_console()
    console.print(Text(plain(sheet.title, 400), style="bold"), soft_wrap=True)
    shown = [[plain(cell, 60) for cell in row] for row in sheet.rows[:ROWS]]
    widths = [max((len(row[i]) for row in shown), default=0) for i in range(len(sheet.header))]
    # Columns that may be left out go until the others fit.
    needed = [max(w, *map(len, name.split())) for w, name in zip(widths, sheet.header, strict=True)]
    kept = list(range(len(needed)))
    for name in sheet.spare:
        if sum(needed[i] + 1 for i in kept) > console.width and sheet.header.index(name) in kept:
            kept.remove(sheet.header.index(name))
    grid = rich.table.Table(box=None, pad_edge=False, padding=(0, 1, 0, 0), header_style="dim")
    for i in kept:
        number: dict[str, Any] = {} if i < sheet.texts else {"justify": "right", "min_width": widths[i]}
        grid.add_column(Text(plain(sheet.header[i], 60)), overflow="fold", **number)
    for row in shown:
        grid.add_row(*(Text(row[i]) for i in kept))
    console.print(grid)
    if hidden := [name for i, name in enumerate(sheet.header) if i not in kept]:
        console.print(f"not shown on a narrow screen: {', '.join(hidden)}")
    if len(sheet.rows) > ROWS:
        console.print(f"and {plural(len(sheet.rows) - ROWS, 'more row')}; --format csv and --json have all of them")
    console.print()
