"""The data of a kernel's page: every series of one kernel in one lane, aligned to the commits of its rows.

Pure: a frame in, plain dictionaries and lists out.  Times travel in microseconds with six significant digits (paired
timing repeats to 0.1 %, and "12.3457" is shorter than "1.23457e-05").  Rates do not travel: static/values.js computes
them from the time and the cost by the formulas of :mod:`ci.records.rates`.
"""

from __future__ import annotations

import dataclasses
from typing import Any

import numpy as np
import pandas as pd

from dashboards.lanes import breaks, commits, natural
from dashboards.values import CostRow, costs, count, different, headline, minute, significant


@dataclasses.dataclass(frozen=True)
class _Index:
    """Numbers that stand for texts and costs in the data; costs: by case."""

    commits: dict[str, int]
    whys: dict[str, int]
    cases: dict[str, int]
    costs: dict[str, dict[CostRow, int]]


def kernel_data(frame: pd.DataFrame) -> dict[str, Any]:
    """All that the page of a kernel draws; static/kernel.js reads it.

    {"kernel", "commits": [[hash, "YYYY-MM-DD HH:MM", env index]], "envs": [...], "whys": [...],
     "cases": [{"name", "tier", "dtype", "world", "rate", "costs": [{field of CostRow: value}], newest last}],
     "series": [{"case", "backend", "baseline", "us", "low", "high", "ratio", "samples", "trials", "cost", "breaks",
                 "bad"}]}
    """
    order = commits(frame)
    envs = sorted(order["env"].unique())
    whys = sorted({*frame.loc[frame["status"] != "ok", "why"]})
    by_case = sorted(((str(name), rows) for name, rows in frame.groupby("case")), key=lambda pair: natural(pair[0]))
    by_arm = frame.groupby(["case", "backend"], sort=True)
    index = _Index(
        _numbered(order["commit"]),
        _numbered(whys),
        _numbered(name for name, _ in by_case),
        {name: _numbered(different(costs(rows))) for name, rows in by_case},
    )
    return {
        "kernel": str(frame["kernel"].iloc[0]),
        "envs": envs,
        "commits": [[c, minute(d), envs.index(e)] for c, d, e in order.itertuples(index=False)],
        "whys": whys,
        "cases": [_case(name, rows, index) for name, rows in by_case],
        "series": [_series(rows, index) for _, rows in by_arm],
    }


def _numbered(items: Any) -> dict[Any, int]:
    return {item: i for i, item in enumerate(items)}


def _case(name: str, rows: pd.DataFrame, index: _Index) -> dict[str, Any]:
    newest = rows.iloc[-1]
    return {
        "name": name,
        "tier": newest["tier"],
        "dtype": newest["dtype"],
        "world": count(newest["world"]),
        "rate": headline(rows),
        "costs": [_plain(cost) for cost in index.costs[name]],
    }


def _plain(cost: CostRow) -> dict[str, float]:
    """What is known of a cost, exactly; whole numbers without ".0"."""
    known = {name: value for name, value in cost._asdict().items() if value}
    return {name: int(value) if value.is_integer() else value for name, value in known.items()}


def _series(rows: pd.DataFrame, index: _Index) -> dict[str, Any]:
    newest, at = rows.iloc[-1], rows["commit"].map(index.commits).to_numpy()
    ok = (rows["status"] == "ok").to_numpy()
    good, bad = rows[ok], rows[~ok]

    def line(column: str, scale: float = 1.0, digits: int = 6) -> list[float | None]:
        values = np.full(len(index.commits), np.nan)
        values[at[ok]] = good[column].to_numpy(float) * scale
        return significant(values, digits)

    data = {
        "case": index.cases[newest["case"]],
        "backend": newest["backend"],
        "baseline": bool(newest["baseline"]),
        "us": line("seconds", 1e6),
        "low": line("seconds_low", 1e6),
        "high": line("seconds_high", 1e6),
        "samples": _changes(good["samples"], at[ok]),
        "trials": _changes(good["trials"], at[ok]),
        "cost": _changes([index.costs[newest["case"]][cost] for cost in costs(good)], at[ok]),
        "breaks": breaks(rows, at),
        "bad": {str(i): [s, index.whys[w]] for i, s, w in zip(at[~ok], bad["status"], bad["why"], strict=True)},
    }
    return data if data["baseline"] else data | {"ratio": line("baseline_ratio", digits=5)}


def _changes(values: Any, at: np.ndarray) -> list[list[int | None]]:
    """[[first index, value], ...]: a column of whole numbers that hardly changes, as its changes."""
    pairs = [[int(i), count(value)] for i, value in zip(at, values, strict=True)]
    return [pair for n, pair in enumerate(pairs) if n == 0 or pair[1] != pairs[n - 1][1]]
