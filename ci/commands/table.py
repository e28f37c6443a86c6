"""`ridgeline table`: the maths of comparison tables."""

from __future__ import annotations

import json
import math
from collections.abc import Iterator, Mapping, Sequence

import click
import pandas as pd

from ci.options import JSON, PASS, Given, Parsed, option, several, verb
from ci.report.model import Sheet, markdown
from ci.report.words import plain, plural
from ci.tables import BOUND, Against, TableComparison, TableFile, compare, read_table

MAX_REMARKS = 40
"""Remarks that are printed: one screen; --json has all."""

EXAMPLE = (
    "ridgeline table tests/ci/tables/data/primus_turbo_pr284.csv --columns Triton,Autotune --baseline GMM "
    "--score higher --by model --by op --regret Autotune=hipBLASLt,Triton"
)


def _names(text: str) -> tuple[str, ...]:
    """Names of columns between commas; none is empty."""
    names = tuple(name.strip() for name in text.split(","))
    if not all(names):
        raise ValueError(f"{text!r}: names of columns are expected, with a comma between them, such as model,op")
    return tuple(dict.fromkeys(names))


def _choice(text: str) -> tuple[str, tuple[str, ...]]:
    """COLUMN=CANDIDATE,CANDIDATE: the column and what it was chosen from."""
    column, equals, candidates = text.partition("=")
    if not (column.strip() and equals):
        raise ValueError(f"{text!r}: COLUMN=CANDIDATE,... is expected, such as autotune=hipblaslt,triton")
    return column.strip(), _names(candidates)


NAMES = Parsed("names", _names)


@verb(EXAMPLE)
@click.argument("path", metavar="FILE.csv")
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
    Parsed("choice", _choice),
)
@JSON
def table(given: Given) -> int:
    """The maths of a comparison table, as Markdown: ratios to a baseline, means, wins, groups, worst rows, regret.

    FILE.csv (also .gz, or - for stdin) has a header: any key columns, then one column of numbers for each backend.
    A ratio is above 1 where a backend beats the baseline.  `ratio of means` compares the arithmetic means of two
    columns, so large rows weigh more; `mean of ratios` and `geometric mean` give each row the same weight.  All take
    the rows that have both numbers; a cell without one is named and left out.  Rows with equal numbers are ties.  A
    column behind the others whose name has a / or says ratio or speedup is no backend unless an option names it.  In
    --json, `mean` is the ratio of means and `geomean` the geometric mean.

    Exit code: 0, or 3 where nothing can be compared.
    """
    chosen = [name for column, candidates in given.regret for name in (column, *candidates)]
    keys = [name for grouping in given.by for name in grouping]
    read = read_table(given.path, given.columns, [*filter(None, [given.baseline]), *chosen], keys)
    baseline = given.baseline or (given.columns or read.backends)[0]
    columns = given.columns or read.backends
    comparison = compare(read.frame, columns, baseline, score=given.score, by=given.by, regret=dict(given.regret))
    if given.as_json:
        click.echo(json.dumps({"score": given.score, **document(comparison, read)}, indent=1, default=str))
        return PASS
    formula = f"value / {baseline}" if given.score == "higher" else f"{baseline} / value"
    click.echo("\n".join(map(markdown, sheets(comparison, read, formula))), nl=False)
    # To stderr, so that a table can be piped.
    if read.unused:
        click.echo(f"note: columns that are not compared: {plain(', '.join(read.unused), 400)}", err=True)
    for remark in read.remarks[:MAX_REMARKS]:
        click.echo(f"note: {plain(remark, 400)}", err=True)
    if len(read.remarks) > MAX_REMARKS:
        click.echo(f"of {len(read.remarks):,} notes the first {MAX_REMARKS}; --json has all of them", err=True)
    return PASS


# ---- what is printed -------------------------------------------------------------------------------------------------


HEADS = {
    "ratio_of_means": "ratio of means",
    "geometric_mean": "geometric mean",
    "mean_of_ratios": "mean of ratios",
    "below": f"below {BOUND}",
}


def sheets(comparison: TableComparison, read: TableFile, formula: str) -> Iterator[Sheet]:
    """The whole comparison: all rows, each grouping, what choices lost, the worst rows."""
    against = comparison.against
    title = f"{plural(len(read.frame), 'row')}; ratio = {formula}"
    yield from _statistics(against, title, comparison.baseline)
    for regret in comparison.regrets:
        picks = ", ".join(f"{name} {number}" for name, number in regret.picks.items())
        best = f"{regret.column} against the best of {', '.join(regret.picks)} in each row; best in rows: {picks}"
        yield from _statistics(regret.against, best, "")
    worst = against.worst.join(read.frame[list(read.keys)], on="row")
    worst = worst[["row", *read.keys, "backend", "ratio", "value", "baseline"]]
    yield _sheet("worst rows", worst.astype({"row": str}))


def _statistics(against: Against, title: str, left_out: str) -> Iterator[Sheet]:
    for table in against.groups:
        names = list(map(str, table.loc[:, :"backend"]))[:-1]
        own = table[table["backend"] != left_out].drop(columns="size").rename(columns=HEADS)
        yield _sheet(f"by {', '.join(names)}" if names else title, own)


def _sheet(title: str, table: pd.DataFrame) -> Sheet:
    cells = [tuple(map(_cell, row)) for row in table.itertuples(index=False, name=None)]
    return Sheet(title, tuple(map(str, table)), tuple(cells), list(table).index("backend") + 1)


def _cell(value: object) -> str:
    if not isinstance(value, float):
        return str(value)
    return "-" if math.isnan(value) else f"{value:.3f}" if 0.01 <= value < 1000 else f"{value:.3e}"


# ---- JSON, for machines: the shape that .github/ARCHITECTURE.md fixes, with further fields ---------------------------


def document(comparison: TableComparison, read: TableFile) -> dict[str, object]:
    """Numbers that do not exist (no row to take them from) are null."""
    keys = read.frame[list(read.keys)]

    def worst(against: Against) -> list[dict[str, object]]:
        rows: list[dict[str, object]] = against.worst.to_dict("records")  # type: ignore[assignment]
        return [{**row, "key": keys.loc[int(str(row["row"]))].to_dict()} for row in rows]

    regrets = [
        {
            "backend": regret.column,
            "candidates": list(regret.picks),
            **_backends(regret.against.groups[0])[regret.column],
            "picks": regret.picks,
            "groups": _groups(regret.against.groups[1:]),
            "worst_rows": worst(regret.against),
        }
        for regret in comparison.regrets
    ]
    return {
        "rows": len(read.frame),
        "baseline": comparison.baseline,
        "keys": list(read.keys),
        "backends": _backends(comparison.against.groups[0]),
        "groups": _groups(comparison.against.groups[1:]),
        "worst": worst(comparison.against),
        "regret": regrets,
        "left_out": read.left_out,
        "remarks": list(read.remarks),
    }


def _groups(tables: Sequence[pd.DataFrame]) -> list[dict[str, object]]:
    groups: list[dict[str, object]] = []
    for table in tables:
        names = list(table.loc[:, :"backend"])[:-1]
        for key, own in table.groupby(names, sort=False, dropna=False):
            about = {"key": dict(zip(names, key, strict=True)), "rows": int(own["size"].iloc[0])}
            groups.append({**about, "backends": _backends(own)})
    return groups


def _backends(table: pd.DataFrame) -> dict[str, Mapping[str, object]]:
    numbers = table.loc[:, "backend":].drop(columns="size").set_index("backend")
    numbers = numbers.rename(columns={"geometric_mean": "geomean"}).assign(mean=numbers["ratio_of_means"])
    rows = numbers.to_dict("index")
    return {str(name): {str(what): None if n != n else n for what, n in row.items()} for name, row in rows.items()}
