"""`ridgeline table`: the maths of comparison tables, of a CSV or of a recorded study."""

from __future__ import annotations

import dataclasses
import itertools
import json
import math
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path

import click
import pandas as pd
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
    option,
    out_console,
    print_notes,
    several,
    verb,
)
from ci.report.document import Sheet, comma_separated, markdown
from ci.report.words import plain, plural
from ci.tables import (
    BOUND,
    ColumnChoice,
    RowGroup,
    RowRatio,
    TableComparison,
    TableError,
    TableFile,
    compare,
    read_table,
    recorded_tables,
)

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

    STUDY is a recorded study: the table that its runs have written (results/studies/STUDY/MACHINE/table.csv).

    Exit code: 0, or 3 where nothing can be compared.
    """
    source, form = given.source, "json" if given.as_json else given.form
    choice = ColumnChoice(given.columns, given.baseline, given.by, given.regret)
    path = source
    if source != "-" and not Path(source).is_file():
        tables = recorded_tables(source, given.machine, given.results)
        if len(tables) > 1:
            raise TableError(f"study {source} has a table of each of {', '.join(tables)}; choose one with --machine")
        path = str(*tables.values())
    with bar(err_console(), f"reading {plain(path, 80)}"):
        table = read_table(path, choice)
        comparison = compare(
            table.frame,
            table.keys,
            table.compared,
            table.baseline,
            score=given.score,
            by=table.choice.by,
            regret=dict(table.choice.regret),
            tie_percent=given.tie,
            bound=given.below,
            worst=given.worst,
        )
    if form == "json":
        click.echo(json.dumps(document(comparison, table), indent=1, default=str))
        return PASS
    if form == "csv":
        names = list(dict.fromkeys(name for group in comparison.against.groups for name in group.key))
        _print([statistics_sheet("", names, comparison.against.groups, comparison.baseline, given.below)], form)
    else:
        _print(sheets(comparison, table.frame, given.below), form)
    # To stderr, so that a table can be piped.
    unused = [f"columns that are not compared: {', '.join(table.unused)}"] if table.unused else []
    print_notes(err_console(), [plain(remark, 400) for remark in (*unused, *table.remarks)], ROWS)
    return PASS


# ---- what is printed -------------------------------------------------------------------------------------------------


FORMULA = {"higher": "value / {0}, higher is better", "lower": "{0} / value, lower is better"}

STATISTICS = {
    "rows": "rows",
    "ratio_of_means": "ratio of means",
    "geometric_mean": "geometric mean",
    "mean_of_ratios": "mean of ratios",
    "wins": "wins",
    "ties": "ties",
    "losses": "losses",
    "worst": "worst",
    "best": "best",
    "below": "below {bound:g}",
}
"""The statistics that are printed, and what stands over each."""


def ratio_text(value: float) -> str:
    """A ratio to 0.001, as published tables have it; very large and very small ones to four digits; a count whole."""
    if not math.isfinite(value):
        return "-"
    return str(value) if isinstance(value, int) else f"{value:.3f}" if 0.01 <= value < 1000 else f"{value:.3e}"


def sheets(comparison: TableComparison, frame: pd.DataFrame, bound: float) -> Iterator[Sheet]:
    """The whole comparison: all rows, each grouping, what choices lost, the worst rows."""
    keys, baseline, against = list(comparison.keys), comparison.baseline, comparison.against
    title = f"{plural(len(frame), 'row')}; ratio = {FORMULA[comparison.score].format(baseline)}"
    parts = [(title, "", against.groups)]
    for regret in comparison.regrets:
        picks = ", ".join(f"{name} {number}" for name, number in regret.picks.items())
        best = f"{regret.column} / the best of {', '.join(regret.picks)} in each row; best in rows: {picks}"
        parts.append((best, f"{regret.column} / the best, ", regret.against.groups))
    for whole, prefix, all_groups in parts:
        for names, groups in itertools.groupby(all_groups, lambda group: tuple(group.key)):
            own_title = f"{prefix}by {', '.join(names)}" if names else whole
            yield statistics_sheet(own_title, names, groups, "" if prefix else baseline, bound)
    if against.worst:
        header = ("row", *keys, "backend", "ratio", "value", baseline)
        rows = tuple(
            (str(one.row), *map(str, frame.loc[one.row, keys]), one.backend, ratio_text(one.ratio))
            + (f"{one.value:g}", f"{one.baseline:g}")
            for one in against.worst
        )
        yield Sheet("worst rows", header, rows, len(keys) + 2)


def statistics_sheet(
    title: str, names: Sequence[str], groups: Iterable[RowGroup], left_out: str, bound: float
) -> Sheet:
    """The statistics of each column but `left_out`; names: columns of the groups' keys, empty where one has none."""
    rows = tuple(
        (*(str(group.key.get(name, "")) for name in names), column, *(ratio_text(numbers[name]) for name in STATISTICS))
        for group in groups
        for column, numbers in group.columns.items()
        if column != left_out
    )
    heads = (head.format(bound=bound) for head in STATISTICS.values())
    return Sheet(title, (*names, "backend", *heads), rows, len(names) + 1)


def _print(shown: Iterable[Sheet], form: str) -> None:
    if form != "terminal":
        click.echo("\n".join(map({"markdown": markdown, "csv": comma_separated}[form], shown)), nl=False)
        return
    console = out_console()
    for sheet in shown:
        console.print(Text(plain(sheet.title, 400), style="bold"), soft_wrap=True)
        grid = rich.table.Table(box=None, pad_edge=False, padding=(0, 1, 0, 0), header_style="dim")
        for place, name in enumerate(sheet.header):
            grid.add_column(Text(plain(name, 60)), justify="left" if place < sheet.texts else "right", overflow="fold")
        for row in sheet.rows[:ROWS]:
            grid.add_row(*(Text(plain(cell, 60)) for cell in row))
        console.print(grid)
        if len(sheet.rows) > ROWS:
            console.print(f"and {plural(len(sheet.rows) - ROWS, 'more row')}; --format csv and --json have all of them")
        console.print()


# ---- JSON, for machines: the shape that .github/ARCHITECTURE.md fixes, and more beside it ----------------------------


DEFINITIONS = {
    "ratio": "above 1 = better than the baseline: value / baseline where higher is better, else baseline / value",
    "mean": "ratio of arithmetic means over the rows that both have; the same as ratio_of_means",
    "geomean": "geometric mean of the ratios, which is the ratio of geometric means",
    "mean_of_ratios": "arithmetic mean of the ratios",
    "rows": "of the table, and of each backend those in which it and the baseline both have a number",
    "ties": "rows with equal numbers, or closer than --tie; wins + ties + losses = rows",
    "regret": "a column against the best of its candidates, row by row; 1 - ratio is what the choice gives away",
}


def document(comparison: TableComparison, table: TableFile) -> dict[str, object]:
    """Numbers that do not exist (no row to take them from) are null."""

    def rows(ratios: Iterable[RowRatio]) -> list[dict[str, object]]:
        keyed = ((ratio, table.frame.loc[ratio.row, list(comparison.keys)].to_dict()) for ratio in ratios)
        return [{"row": ratio.row, "key": key, **dataclasses.asdict(ratio)} for ratio, key in keyed]

    def backends(group: RowGroup) -> dict[str, dict[str, float | None]]:
        return {
            name: {
                {"geometric_mean": "geomean"}.get(what, what): value if math.isfinite(value) else None
                for what, value in {**numbers, "mean": numbers["ratio_of_means"]}.items()
            }
            for name, numbers in group.columns.items()
        }

    def groups(all_groups: Sequence[RowGroup]) -> list[dict[str, object]]:
        return [{"key": group.key, "rows": group.rows, "backends": backends(group)} for group in all_groups[1:]]

    against = comparison.against
    return {
        "rows": len(table.frame),
        "baseline": comparison.baseline,
        "score": comparison.score,
        "keys": list(comparison.keys),
        "backends": backends(against.groups[0]),
        "groups": groups(against.groups),
        "worst": rows(against.worst),
        "regret": [
            {
                "backend": regret.column,
                "candidates": list(regret.picks),
                **backends(regret.against.groups[0])[regret.column],
                "picks": regret.picks,
                "groups": groups(regret.against.groups),
                "worst_rows": rows(regret.against.worst),
            }
            for regret in comparison.regrets
        ],
        "left_out": table.left_out,
        "remarks": list(table.remarks),
        "definitions": DEFINITIONS,
    }
