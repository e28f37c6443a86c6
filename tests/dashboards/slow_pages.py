"""The data of the pages made in the slow and obvious way, a slice of pandas per series: the fast way must equal it."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable
from typing import Any

import numpy as np
import pandas as pd

from dashboards.lanes import _NUMBERS, _TEXTS, DEFINITION, KEY, commits, natural
from dashboards.sources import Lane
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


def tidy(frame: pd.DataFrame) -> pd.DataFrame:
    """The frame in the order of history: one row per lane, commit and arm; no nulls in texts, no infinities."""
    frame = frame.copy()
    for column in _TEXTS:
        frame[column] = frame[column].astype(object).where(frame[column].notna(), "").map(str)
    frame[_NUMBERS] = frame[_NUMBERS].astype(float).replace([np.inf, -np.inf], np.nan)
    frame["date"] = pd.to_datetime(frame["date"], utc=True)
    frame["baseline"] = frame["baseline"].fillna(False).astype(bool)
    frame = frame.sort_values(["machine", "date", "commit", "env", *KEY], kind="stable")
    return frame.drop_duplicates(["machine", "commit", "env", *KEY], keep="last").reset_index(drop=True)


def lanes(frame: pd.DataFrame) -> list[Lane]:
    """The lanes of a tidy frame, the one with the longest history first (then by newest commit, then by name)."""
    by_machine = frame.groupby("machine", sort=True)
    found = [Lane(str(machine), env, part) for machine, rows in by_machine for env, part in _by_environment(rows)]

    def order(lane: Lane) -> tuple[Any, ...]:
        return -len(set(lane.frame["commit"])), -lane.frame["date"].max().value, lane.machine, lane.env or ""

    return sorted(found, key=order)


def _by_environment(rows: pd.DataFrame) -> Iterable[tuple[str | None, pd.DataFrame]]:
    """All rows if a machine changes its environment now and then, one part per environment if commits have several."""
    per_commit = rows.groupby("commit")["env"].nunique()
    if per_commit.max() <= 1:
        return [(None, rows)]
    return [(str(env), part) for env, part in rows.groupby("env", sort=True)]


def breaks(rows: pd.DataFrame, at: np.ndarray) -> list[int]:
    """Commits from which on another definition holds: of the case, or of the kernel where one side lacks notes."""
    found, before = [], None
    for i, *now in zip(at.tolist(), *(rows[column] for column in DEFINITION), strict=True):
        if now[0] == "":
            continue
        which = 1 if before and before[1] and now[1] else 0
        if before and before[which] != now[which]:
            found.append(i)
        before = now
    return found
