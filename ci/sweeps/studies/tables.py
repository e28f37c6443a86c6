"""The table of a study, as CSV and Markdown: a row for each combination of its keys."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence

import pandas as pd

from benchmarks.studies.types import Listed
from ci.report.markdown import code, text
from ci.sweeps.studies.columns import described, with_columns
from ci.sweeps.studies.rows import chosen


def table(frame: pd.DataFrame, listed: Listed) -> pd.DataFrame:
    """The rows that a declaration lists, sorted by its keys; of several rows of one key the fastest."""
    wide = with_columns(frame, (*listed.keys, *listed.columns, *filter(None, [listed.spread]), *listed.rows.where))
    rows = chosen(wide, listed.rows).sort_values("seconds", kind="stable")
    index = [*listed.keys, *filter(None, [listed.spread])]
    rows = rows.drop_duplicates(index).sort_values(index, kind="stable", key=_order)
    if not listed.spread:
        return rows[[*listed.keys, *listed.columns]].reset_index(drop=True)
    spread = rows.pivot(index=list(listed.keys), columns=listed.spread, values=list(listed.columns))
    spread.columns = spread.columns.map(lambda pair: f"{pair[1]}: {pair[0]}")
    return spread.reset_index()


def _order(values: pd.Series) -> pd.Series:
    """Numbers by size, everything else by its text."""
    numbers = pd.to_numeric(values, errors="coerce").astype(float)
    return values.astype(str) if numbers.isna().any() else numbers


def as_csv(table: pd.DataFrame) -> str:
    """The table with full precision; a value that is missing is an empty cell."""
    return str(table.to_csv(index=False, float_format="%.9g", lineterminator="\n"))


def as_markdown(table: pd.DataFrame, title: str, remarks: Iterable[str] = ()) -> str:
    """The table with headings that say the unit, below its title; remarks follow as a list."""
    heads = [_heading(str(name)) for name in table.columns]
    numeric = [bool(pd.api.types.is_numeric_dtype(table[name])) for name in table.columns]
    rule = "|".join("---:" if right else "---" for right in numeric)
    rows = [_row(table, row) for row in table.itertuples(index=False, name=None)]
    lines = [f"# {text(title)}", "", f"| {' | '.join(map(text, heads))} |", f"|{rule}|", *rows]
    told = [f"- {text(remark, 400)}" for remark in remarks]
    return "\n".join([*lines, *([""] if told else []), *told]) + "\n"


def _row(table: pd.DataFrame, row: Sequence[object]) -> str:
    return f"| {' | '.join(_cell(name, value) for name, value in zip(table.columns, row, strict=True))} |"


def _heading(name: str) -> str:
    value, colon, column = name.rpartition(": ")
    found = described(column)
    return f"{value}{colon}{found.heading if found else column}"


def _cell(name: object, value: object) -> str:
    if value is None or (isinstance(value, float) and math.isnan(value)):
        return ""
    found = described(str(name).rpartition(": ")[2])
    if isinstance(value, float):
        return f"{value:.{found.decimals}f}" if found else f"{value:g}"
    return code(value) if isinstance(value, str) and value else text(value)
