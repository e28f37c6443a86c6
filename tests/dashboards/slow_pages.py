"""The data of the pages made in the slow and obvious way, a slice of pandas per series: the fast way must equal it."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable
from typing import Any

import numpy as np
import pandas as pd

from ci.records.rates import Rate
from dashboards.lanes import _NUMBERS, _TEXTS, DEFINITION, KEY, Lane, breaks, commits, natural
from dashboards.overview import GROUPS, MOVED_ALONE, MOVED_BESIDE_BASELINE, SPARK_POINTS
from dashboards.values import CostRow, costs, count, different, headline, in_rate, minute, one, significant


def overview_data(frame: pd.DataFrame) -> dict[str, Any]:
    """{"commits": [[hash, date]], "rows": one per own series, "absent": arms without a newest time}.

    static/overview.js and static/kernel.js read it.
    """
    order = commits(frame)
    index = {commit: i for i, commit in enumerate(order["commit"])}
    rows = [row for _, part in frame.groupby(["kernel", "case"], sort=True) for row in _case_rows(part, index)]
    rows.sort(key=lambda row: (row["kernel"], natural(row["case"]), row["backend"]))
    _mark_here(rows)
    _mark_headlines(rows)
    dated = [[commit, minute(date)] for commit, date, _ in order.itertuples(index=False)]
    measured = [row for row in rows if row["value"] is not None]
    last = len(order) - 1
    newest = {"at": last, "measured": len([r for r in measured if r["good_at"] == last]), "of": len(measured)}
    data = {"commits": dated, "rows": rows, "absent": _absent(frame, index)}
    return data | {
        "newest": newest,
        "baselines": _baselines(frame),
        "cpu": False,
        "history": _history(frame, rows, index),
    }


def _history(frame: pd.DataFrame, rows: list[dict[str, Any]], index: dict[str, int]) -> list[dict[str, Any]]:
    """For each unit and kernel the headline with most points, of these the fastest; and its baseline."""
    found = []
    for unit, rates in GROUPS.items():
        own = [row for row in rows if row["headline"] and row["spark"] and row["rate"] in rates]
        lines: list[dict[str, Any]] = []
        for kernel in dict.fromkeys(row["kernel"] for row in own):
            best = max((r for r in own if r["kernel"] == kernel), key=lambda r: (len(r["spark"]), r["value"] or 0.0))
            for backend in filter(None, (best["backend"], best["baseline_name"])):
                same = (frame["kernel"] == kernel) & (frame["case"] == best["case"]) & (frame["backend"] == backend)
                good = frame[same & (frame["status"] == "ok") & frame["seconds"].notna()].tail(SPARK_POINTS)
                if not len(good):
                    continue
                good = good[same_definition(good, good.iloc[-1])]
                said = {"kernel": kernel, "case": best["case"], "backend": backend, "rate": best["rate"]}
                said |= {"baseline": bool(good["baseline"].iloc[-1]), "at": [index[one] for one in good["commit"]]}
                lines.append(said | {"values": significant(in_rate(good, best["rate"]), 4)})
        found += [{"unit": unit, "lines": lines}] if lines else []
    return found


def _baselines(frame: pd.DataFrame) -> list[list[Any]]:
    newest = frame.drop_duplicates(KEY, keep="last")
    vendors = newest[newest["baseline"]]
    return [[kernel, sorted(set(rows["backend"]))] for kernel, rows in vendors.groupby("kernel", sort=True)]


def _mark_here(rows: list[dict[str, Any]]) -> None:
    def tried(row: dict[str, Any]) -> bool:
        return row["value"] is not None or row["status"] not in ("unsupported", "skipped")

    for row in rows:
        row["here"] = tried(row)


def _mark_headlines(rows: list[dict[str, Any]]) -> None:
    for row in rows:
        same = [other for other in rows if other["kernel"] == row["kernel"] and other["here"]]
        wanted = [other["case"] for other in same if other["tier"] == "pr"] or [other["case"] for other in same[:1]]
        row["headline"] = row["here"] and row["case"] in wanted


def _case_rows(part: pd.DataFrame, index: dict[str, int]) -> Iterable[dict[str, Any]]:
    """One row per own backend of a case; of a case that has only baselines, one row per baseline."""
    rate = headline(part)
    own = part[~part["baseline"]]
    for _, rows in (own if len(own) else part).groupby("backend", sort=True):
        newest = rows.iloc[-1]
        yield {
            **{column: newest[column] for column in (*KEY, "tier", "dtype", "status", "why")},
            "baseline": not len(own),
            "world": count(newest["world"]),
            "rate": rate,
            "gone": False,
            "at": index[newest["commit"]],
            **_newest(rows[(rows["status"] == "ok") & rows["seconds"].notna()], rate, index),
        }


def _newest(good: pd.DataFrame, rate: Rate, index: dict[str, int]) -> dict[str, Any]:
    """The last good row in the unit of the case, its step from the good row before it, and the recent line."""
    if not len(good):
        return {"value": None, "spark": [], "step": None}
    last, recent = good.iloc[-1], good.tail(SPARK_POINTS)
    return {
        "value": significant(in_rate(good.tail(1), rate))[0],
        "us": one(last["seconds"] * 1e6),
        "share": one(last["peak_share"], 4),
        "ratio": one(last["baseline_ratio"], 4),
        "baseline_name": last["baseline_name"] or None,
        "good_at": index[last["commit"]],
        "step": _step(good),
        "spark": significant(in_rate(recent[same_definition(recent, last)], rate), 4),
    }


def _step(good: pd.DataFrame) -> dict[str, Any] | None:
    """Change of speed against the commit before, as shares: of the time alone, and of the ratio to the baseline.

    `moved` is "faster" or "slower" only if the intervals are apart and the speed has changed enough, and so has the
    ratio to the baseline where there is one: that takes out what heat does to the whole device.
    """
    if len(good) < 2:
        return None
    before, last = good.iloc[-2], good.iloc[-1]
    if not same_definition(good.tail(2), last)[0]:
        return {"redefined": True, "from": before["commit"]}
    alone = before["seconds"] / last["seconds"] - 1
    beside = last["baseline_ratio"] / before["baseline_ratio"] - 1
    return {
        "from": before["commit"],
        "speed": one(alone, 4),
        "ratio": one(beside, 4),
        "moved": _moved(alone, beside, before, last),
        "env": before["env"] != last["env"],
    }


def _moved(alone: float, beside: float, before: pd.Series, last: pd.Series) -> str | None:
    apart = last["seconds_low"] > before["seconds_high"] or last["seconds_high"] < before["seconds_low"]
    if np.isfinite(beside):
        moved = alone * beside > 0 and min(abs(alone), abs(beside)) >= MOVED_BESIDE_BASELINE
    else:
        moved = abs(alone) >= MOVED_ALONE
    return ("faster" if alone > 0 else "slower") if apart and moved else None


def _absent(frame: pd.DataFrame, index: dict[str, int]) -> list[dict[str, Any]]:
    """Arms whose newest record has no time, with the reason; baselines too."""
    newest = frame.drop_duplicates(KEY, keep="last")
    gone = newest[newest["status"] != "ok"].sort_values(["status", *KEY])
    gone = gone.assign(at=gone["commit"].map(index))
    return gone[[*KEY, "status", "why", "at"]].to_dict("records")


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
        "rows": overview_data(frame)["rows"],
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


def same_definition(rows: pd.DataFrame, other: pd.Series) -> np.ndarray:
    """Which rows have the benchmark definition of `other`: that of the case, or of the kernel where one lacks notes."""
    kernel, case = (rows[column].to_numpy(str) for column in DEFINITION)
    known = (case != "") & (other["case_yardstick"] != "")
    return np.where(known, case == other["case_yardstick"], kernel == other["yardstick"])
