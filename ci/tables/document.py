"""A comparison as JSON, for machines: the shape that .github/ARCHITECTURE.md fixes, and more beside it."""

from __future__ import annotations

import math
from collections.abc import Sequence

import pandas as pd

from ci.tables.compare import AgainstBaseline, Key, Regret, RowGroup, RowRatio, TableComparison
from ci.tables.printed import PrintedRatios
from ci.tables.read import LeftOutOfTable

Json = dict[str, object]

DEFINITIONS = {
    "ratio": "above 1 = better than the baseline: value / baseline where higher is better, else baseline / value",
    "mean": "ratio of arithmetic means over the rows that both have; the same as ratio_of_means",
    "geomean": "geometric mean of the ratios, which is the ratio of geometric means",
    "mean_of_ratios": "arithmetic mean of the ratios",
    "rows": "of the table, and of each backend those in which it and the baseline both have a number",
    "ties": "rows with equal numbers, or closer than --tie; wins + ties + losses = rows",
    "regret": "a column against the best of its candidates, row by row; 1 - ratio is what the choice gives away",
}


def document(
    found: TableComparison, frame: pd.DataFrame, printed: Sequence[PrintedRatios], left_out: LeftOutOfTable
) -> Json:
    """Numbers that do not exist (no row to take them from) are null."""
    return {
        "rows": found.rows,
        "baseline": found.baseline,
        "score": found.score,
        "keys": list(found.keys),
        "backends": {name: _against(one) for name, one in found.columns.items()},
        "groups": [_group(one) for one in found.groups],
        "worst": [_row(one, found, frame) for one in found.worst],
        "regret": [_regret(one, found, frame) for one in found.regrets],
        "printed": [_printed(one, found, frame) for one in printed],
        "left_out": dict(left_out.counts),
        "remarks": left_out.all(),
        "definitions": DEFINITIONS,
    }


def _number(value: float) -> float | None:
    return value if math.isfinite(value) else None


def _against(one: AgainstBaseline) -> Json:
    return {
        "mean": _number(one.ratio_of_means),
        "geomean": _number(one.geometric_mean),
        "wins": one.wins,
        "ties": one.ties,
        "losses": one.losses,
        "rows": one.rows,
        "ratio_of_means": _number(one.ratio_of_means),
        "mean_of_ratios": _number(one.mean_of_ratios),
        "worst": _number(one.worst),
        "best": _number(one.best),
        "below": one.below,
    }


def _group(one: RowGroup) -> Json:
    backends = {name: _against(column) for name, column in one.columns.items()}
    return {"key": dict(one.key), "rows": one.rows, "backends": backends}


def _key(row: int, found: TableComparison, frame: pd.DataFrame) -> Key:
    return {name: frame[name].iloc[row] for name in found.keys}


def _row(one: RowRatio, found: TableComparison, frame: pd.DataFrame) -> Json:
    return {
        "row": int(frame.index[one.row]),
        "key": _key(one.row, found, frame),
        "backend": one.column,
        "ratio": one.ratio,
        "value": one.value,
        "baseline": one.baseline,
    }


def _regret(one: Regret, found: TableComparison, frame: pd.DataFrame) -> Json:
    return {
        "backend": one.column,
        "candidates": list(one.candidates),
        **_against(one.against),
        "picks": dict(one.picks),
        "groups": [_group(group) for group in one.groups],
        "worst_rows": [_row(row, found, frame) for row in one.worst],
    }


def _printed(one: PrintedRatios, found: TableComparison, frame: pd.DataFrame) -> Json:
    off = [
        {
            "row": int(frame.index[row.row]),
            "key": _key(row.row, found, frame),
            "printed": row.printed,
            "ratio": row.ratio,
        }
        for row in one.off
    ]
    return {"column": one.column, "rows": one.rows, "largest_difference": _number(one.largest), "off": off}
