"""A comparison as sheets of text, and a sheet as Markdown, LaTeX or CSV.  Pure."""

from __future__ import annotations

import csv
import io
import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass

import pandas as pd

from ci.report.words import plural
from ci.tables.compare import BOUND, AgainstBaseline, Regret, RowGroup, RowRatio, TableComparison

NOTHING = "-"

FORMULA = {"higher": "value / {0}, higher is better", "lower": "{0} / value, lower is better"}


@dataclass(frozen=True)
class Sheet:
    """Cells that are ready to be shown.  texts: how many of the first columns are text; the others are numbers.

    spare: columns that a narrow screen can do without, the least needed first.
    """

    title: str
    header: tuple[str, ...]
    rows: tuple[tuple[str, ...], ...]
    texts: int
    spare: tuple[str, ...] = ()


def ratio(value: float) -> str:
    """A ratio to 0.001, as published tables have it; very large and very small ones to four digits."""
    if not math.isfinite(value):
        return NOTHING
    return f"{value:.3f}" if 0.01 <= value < 1000 else f"{value:.3e}"


def sheets(found: TableComparison, frame: pd.DataFrame, bound: float = BOUND) -> list[Sheet]:
    """The whole comparison: all rows, each grouping, what choices lost, the worst rows."""
    groupings = _groupings(found.groups)
    grouped = [by_group(some, found.baseline, bound, f"by {', '.join(by)}") for by, some in groupings.items()]
    regrets = [sheet for one in found.regrets for sheet in _regret(one, bound)]
    worst = [_worst(found, frame)] if found.worst else []
    return [total(found, bound), *grouped, *regrets, *worst]


def total(found: TableComparison, bound: float) -> Sheet:
    """Every column over all rows."""
    title = f"{plural(found.rows, 'row')}; ratio = {FORMULA[found.score].format(found.baseline)}"
    return _statistics(title, (), (((), found.columns),), found.baseline, bound)


def by_group(groups: Sequence[RowGroup], baseline: str, bound: float, title: str) -> Sheet:
    """Every column in every group of one grouping."""
    names = tuple(groups[0].key)
    blocks = ((tuple(map(str, one.key.values())), one.columns) for one in groups)
    return _statistics(title, names, blocks, baseline, bound)


def everything(found: TableComparison, bound: float) -> Sheet:
    """All rows and all groups in one sheet: a column for each key that is grouped by, empty where it is not."""
    names = tuple(dict.fromkeys(name for group in found.groups for name in group.key))
    blocks = [(("",) * len(names), found.columns)]
    blocks += [(tuple(str(group.key.get(name, "")) for name in names), group.columns) for group in found.groups]
    return _statistics("", names, blocks, found.baseline, bound)


def row_ratios(found: TableComparison, frame: pd.DataFrame) -> Sheet:
    """The table of ratios itself: keys, then the ratio of every column but the baseline."""
    columns = [name for name in found.ratios.columns if name != found.baseline]
    texts = [frame[name].astype(str).tolist() for name in found.keys]
    numbers = [[ratio(value) for value in found.ratios[name]] for name in columns]
    rows = zip(map(str, frame.index), *texts, *numbers, strict=True)
    title = f"ratio of each row = {FORMULA[found.score].format(found.baseline)}"
    return Sheet(title, ("row", *found.keys, *columns), tuple(rows), 1 + len(texts))


Block = tuple[tuple[str, ...], Mapping[str, AgainstBaseline]]


def _statistics(title: str, names: tuple[str, ...], blocks: Iterable[Block], baseline: str, bound: float) -> Sheet:
    """The statistics of every column but the baseline, whose ratios are all 1."""
    numbers = "rows", "ratio of means", "geometric mean", "mean of ratios", "wins", "ties", "losses", "worst", "best"
    header = (*names, "backend", *numbers, f"below {bound:g}")
    found = ((key, column, one) for key, columns in blocks for column, one in columns.items() if column != baseline)
    rows = tuple((*key, column, *_cells(one)) for key, column, one in found)
    return Sheet(title, header, rows, len(names) + 1, ("best", "losses", "mean of ratios", header[-1], "worst", "ties"))


def _cells(one: AgainstBaseline) -> tuple[str, ...]:
    averages = one.ratio_of_means, one.geometric_mean, one.mean_of_ratios
    counts = one.wins, one.ties, one.losses
    return str(one.rows), *map(ratio, averages), *map(str, counts), ratio(one.worst), ratio(one.best), str(one.below)


def _regret(one: Regret, bound: float) -> Iterator[Sheet]:
    picks = ", ".join(f"{name} {number}" for name, number in one.picks.items())
    title = f"{one.column} / the best of {', '.join(one.candidates)} in each row; best in rows: {picks}"
    yield _statistics(title, (), (((), {one.column: one.against}),), "", bound)
    for names, groups in _groupings(one.groups).items():
        yield by_group(groups, "", bound, f"{one.column} / the best, by {', '.join(names)}")


def _groupings(groups: Iterable[RowGroup]) -> dict[tuple[str, ...], list[RowGroup]]:
    """Groups by the columns that they are grouped by."""
    found: dict[tuple[str, ...], list[RowGroup]] = {}
    for group in groups:
        found.setdefault(tuple(group.key), []).append(group)
    return found


def _worst(found: TableComparison, frame: pd.DataFrame) -> Sheet:
    rows = tuple(_worst_row(found, frame, one) for one in found.worst)
    header = ("row", *found.keys, "backend", "ratio", "value", found.baseline)
    return Sheet("worst rows", header, rows, len(found.keys) + 2)


def _worst_row(found: TableComparison, frame: pd.DataFrame, one: RowRatio) -> tuple[str, ...]:
    keys = (str(frame[name].iloc[one.row]) for name in found.keys)
    return str(frame.index[one.row]), *keys, one.column, ratio(one.ratio), f"{one.value:g}", f"{one.baseline:g}"


def markdown(sheet: Sheet) -> str:
    """A pipe table below its title."""

    def line(cells: Iterable[str]) -> str:
        return "| " + " | ".join(cell.replace("\\", "\\\\").replace("|", "\\|") for cell in cells) + " |"

    rule = ["---" if i < sheet.texts else "---:" for i in range(len(sheet.header))]
    body = "\n".join([line(sheet.header), f"|{'|'.join(rule)}|", *map(line, sheet.rows)])
    return f"**{sheet.title}**\n\n{body}\n" if sheet.title else f"{body}\n"


SPECIAL = {c: f"\\{c}" for c in "&%$#_{}"} | {
    "\\": r"\textbackslash{}",
    "~": r"\textasciitilde{}",
    "^": r"\textasciicircum{}",
    "<": r"\textless{}",
    ">": r"\textgreater{}",
    "×": r"$\times$",
}
"""Characters that LaTeX would not print as they are."""


def latex(sheet: Sheet) -> str:
    r"""A `table` with its title as caption; the preamble needs \usepackage{booktabs}."""

    def line(cells: Iterable[str]) -> str:
        return " & ".join("".join(SPECIAL.get(c, c) for c in cell) for cell in cells) + r" \\"

    columns = "".join("l" if i < sheet.texts else "r" for i in range(len(sheet.header)))
    caption = "".join(SPECIAL.get(c, c) for c in sheet.title)
    head = [r"\begin{table}", rf"\caption{{{caption}}}", rf"\begin{{tabular}}{{{columns}}}", r"\toprule"]
    body = [line(sheet.header), r"\midrule", *map(line, sheet.rows)]
    return "\n".join([*head, *body, r"\bottomrule", r"\end{tabular}", r"\end{table}"]) + "\n"


def comma_separated(sheet: Sheet) -> str:
    """One CSV, which this command reads again."""
    out = io.StringIO()
    csv.writer(out, lineterminator="\n").writerows([sheet.header, *sheet.rows])
    return out.getvalue()
