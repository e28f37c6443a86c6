"""From the long frame of records to the plain values that the pages draw.  Pure: frames in, dicts and lists out.

A *place* is where numbers may stand in one line: a machine, and on a machine that measures the same commit under
several environments, one of them.  Everything is aligned to the commits of a place, in the order of their dates.

Times travel in microseconds with six significant digits (paired timing repeats to 0.1 %).  Rates are not stored per
point: ``numerators`` holds, for each stretch of equal cost, what has to be divided by the microseconds.
"""

from __future__ import annotations

import dataclasses
import hashlib
import re
from collections.abc import Iterable, Sequence
from typing import Any

import numpy as np
import pandas as pd

RATES = ("tflops", "gbs", "algbw", "busbw", "peak_share")
"""Derived columns that are proportional to 1 / seconds."""

KEY = ["kernel", "case", "backend"]

STICKS = ["yardstick", "case_yardstick"]

SPARK_POINTS = 50
"""Commits in a sparkline of the overview: about two months of nightly runs."""

FLOP_PER_BYTE_OF_A_RATE_IN_FLOPS = 12
"""Above this intensity a kernel is quoted in TFLOPS, else in GB/s.  A 16-bit GEMM of M rows does about M FLOP per
byte, and M = 16 is the least that fills an MFMA tile; norms, copies and decode attention do less than 10."""

MOVED_BESIDE_BASELINE = 0.02
MOVED_ALONE = 0.07
"""Least change between two commits that the overview marks: of the speed and of its ratio to the baseline, both, in
the same direction; without a baseline, of the speed alone.  A hint, not a verdict.  Where nothing changed, 97 separate
runs on two H200 (default clocks, 2026-11-20), compared three with three, pass the floors beside a baseline in 1 % of
the pairs (GEMM of 4096 cubed) and in 0.1 % (M = 64), and alone in 1 %: a run of that GEMM wanders by 2.6 % (sd)."""


@dataclasses.dataclass(frozen=True)
class Place:
    """A machine, or one environment of a machine that measures commits under several."""

    machine: str
    env: str | None
    frame: pd.DataFrame

    @property
    def slug(self) -> str:
        """Folder of its data files."""
        return slug(self.machine if self.env is None else f"{self.machine}--{self.env}")


def slug(name: str) -> str:
    """A file name for `name`: itself if it is plain lower-case, else cleaned, with a digest that keeps it unique."""
    if re.fullmatch(r"[a-z0-9][a-z0-9_.-]{0,79}", name):
        return name
    clean = re.sub(r"[^a-z0-9_-]+", "-", name.lower()).strip("-")[:60]
    return f"{clean or 'x'}-{hashlib.sha256(name.encode()).hexdigest()[:8]}"


def natural(name: str) -> list[tuple[int, int, str]]:
    """Key for the order people expect: m64 before m512."""
    return [(0, int(part), "") if part.isdecimal() else (1, 0, part) for part in re.split(r"(\d+)", name) if part]


def tidy(frame: pd.DataFrame) -> pd.DataFrame:
    """The frame in the order of history: one row per place, commit and arm; no nulls in texts, no infinities."""
    frame = frame.copy()
    for column in ("machine", "commit", "env", *KEY, "status", "why", "yardstick", "case_yardstick", "dtype", "tier"):
        frame[column] = frame[column].astype(object).where(frame[column].notna(), "").map(str)
    numbers = ["seconds", "seconds_low", "seconds_high", *RATES, "baseline_ratio"]
    frame[numbers] = frame[numbers].astype(float).replace([np.inf, -np.inf], np.nan)
    frame["date"] = pd.to_datetime(frame["date"], utc=True)
    frame["baseline"] = frame["baseline"].fillna(False).astype(bool)
    frame = frame.sort_values(["machine", "date", "commit", "env", *KEY], kind="stable")
    return frame.drop_duplicates(["machine", "commit", "env", *KEY], keep="last").reset_index(drop=True)


def places(frame: pd.DataFrame) -> list[Place]:
    """The places of a tidy frame, the one with the newest commit first (then by name)."""
    found = [
        Place(str(machine), env, part)
        for machine, rows in frame.groupby("machine", sort=True)
        for env, part in _lanes(rows)
    ]
    return sorted(found, key=lambda p: (-p.frame["date"].max().value, p.machine, p.env or ""))


def _lanes(rows: pd.DataFrame) -> Iterable[tuple[str | None, pd.DataFrame]]:
    """One lane if a machine changes its environment now and then, one each if commits are measured under several."""
    per_commit = rows.groupby("commit")["env"].nunique()
    if per_commit.max() <= 1:
        return [(None, rows)]
    return [(str(env), part) for env, part in rows.groupby("env", sort=True)]


def commits(frame: pd.DataFrame) -> pd.DataFrame:
    """commit, date, env: one row per commit, oldest first."""
    return frame.drop_duplicates("commit", keep="last")[["commit", "date", "env"]].sort_values(["date", "commit"])


def headline_rate(rows: pd.DataFrame) -> str:
    """The unit in which a case is quoted: busbw, tflops, gbs, or time when no cost is known."""
    flops, hbm, link = (float(rows[c].max()) for c in ("flops", "hbm_bytes", "link_bytes"))
    if not flops > 0:
        return "busbw" if link > 0 else "gbs" if hbm > 0 else "time"
    return "gbs" if hbm > 0 and flops / hbm < FLOP_PER_BYTE_OF_A_RATE_IN_FLOPS else "tflops"


def in_rate(rows: pd.DataFrame, rate: str) -> np.ndarray:
    """Values of rows in a rate; "time" is microseconds."""
    return rows["seconds"].to_numpy(float) * 1e6 if rate == "time" else rows[rate].to_numpy(float)


def ends_in_rate(rows: pd.DataFrame, rate: str) -> tuple[np.ndarray, np.ndarray]:
    """Lower and upper ends of the intervals of rows in a rate."""
    short, long = rows["seconds_low"].to_numpy(float), rows["seconds_high"].to_numpy(float)
    if rate == "time":
        return short * 1e6, long * 1e6
    products = rows[rate].to_numpy(float) * rows["seconds"].to_numpy(float)
    return products / long, products / short


def significant(values: np.ndarray | Sequence[float], digits: int = 6) -> list[float | None]:
    """Values rounded to significant digits; NaN and infinities become None, the only hole JSON knows."""
    array = np.asarray(values, dtype=float)
    good = np.isfinite(array)
    safe = np.where(good & (array != 0), np.abs(array), 1.0)
    shift = digits - 1 - np.floor(np.log10(safe)).astype(int)
    up, down = 10.0 ** np.maximum(shift, 0), 10.0 ** np.maximum(-shift, 0)
    rounded = np.round(np.where(good, array, 0.0) * up / down) * down / up
    return [float(v) if ok else None for v, ok in zip(rounded, good, strict=True)]


# ---- one kernel at one place ----------------------------------------------------------------------------------------


def kernel_data(frame: pd.DataFrame) -> dict[str, Any]:
    """All series of one kernel at one place, aligned to `commits`; see static/kernel.js for the reader.

    {"kernel", "commits": [[hash, "YYYY-MM-DD HH:MM", env index]], "envs": [...], "whys": [...], "cases": [{...}],
     "series": [{"case", "backend", "baseline", "us", "low", "high", "ratio", "samples", "trials", "numerators",
                 "breaks", "bad"}]}
    """
    order = commits(frame)
    envs = sorted(order["env"].unique())
    index = {commit: i for i, commit in enumerate(order["commit"])}
    whys = sorted({*frame.loc[frame["status"] != "ok", "why"]})
    cases = sorted(
        (_case(str(name), rows) for name, rows in frame.groupby("case")), key=lambda case: natural(case["name"])
    )
    number = {case["name"]: i for i, case in enumerate(cases)}
    series = [
        _series(rows, index, {w: i for i, w in enumerate(whys)}) | {"case": number[case], "backend": backend}
        for (case, backend), rows in frame.groupby(["case", "backend"], sort=True)
    ]
    return {
        "kernel": str(frame["kernel"].iloc[0]),
        "envs": envs,
        "commits": [[c, _day(d), envs.index(e)] for c, d, e in order.itertuples(index=False)],
        "whys": whys,
        "cases": cases,
        "series": series,
    }


def _day(date: pd.Timestamp) -> str:
    return "" if pd.isna(date) else date.strftime("%Y-%m-%d %H:%M")


def _case(name: str, rows: pd.DataFrame) -> dict[str, Any]:
    newest = rows.iloc[-1]
    costs = {c: significant([newest[c]], 12)[0] for c in ("flops", "hbm_bytes", "link_bytes", "payload_bytes")}
    return {
        "name": name,
        "tier": newest["tier"],
        "dtype": newest["dtype"],
        "world": _count(newest["world"]),
        "rate": headline_rate(rows),
        "costs": {k: v for k, v in costs.items() if v},
    }


def _count(value: Any) -> int | None:
    return int(value) if pd.notna(value) else None


def _series(rows: pd.DataFrame, index: dict[str, int], whys: dict[str, int]) -> dict[str, Any]:
    at = rows["commit"].map(index).to_numpy()
    ok = (rows["status"] == "ok").to_numpy()

    def line(column: str, scale: float = 1.0, digits: int = 6) -> list[float | None]:
        values = np.full(len(index), np.nan)
        values[at[ok]] = rows[column].to_numpy(float)[ok] * scale
        return significant(values, digits)

    good, bad = rows[ok], rows[~ok]
    data = {
        "baseline": bool(rows["baseline"].iloc[-1]),
        "us": line("seconds", 1e6),
        "low": line("seconds_low", 1e6),
        "high": line("seconds_high", 1e6),
        "samples": _fold(good["samples"], at[ok]),
        "trials": _fold(good["trials"], at[ok]),
        "numerators": _numerators(good, at[ok]),
        "breaks": breaks(rows, at),
        "bad": {str(i): [s, whys[w]] for i, s, w in zip(at[~ok], bad["status"], bad["why"], strict=True)},
    }
    if not data["baseline"]:
        data["ratio"] = line("baseline_ratio", digits=5)
    return data


def _fold(values: pd.Series, at: np.ndarray) -> list[list[Any]]:
    """[[first index, value], ...]: a column that hardly changes, as its changes."""
    return [[int(i), _count(v)] for i, v in _changes(values.to_numpy(), at)]


def _changes(values: np.ndarray, at: np.ndarray) -> list[tuple[int, Any]]:
    return [(i, v) for n, (i, v) in enumerate(zip(at, values, strict=True)) if n == 0 or not _same(v, values[n - 1])]


def _same(a: Any, b: Any) -> bool:
    return bool(a == b) or (pd.isna(a) and pd.isna(b))


def _numerators(good: pd.DataFrame, at: np.ndarray) -> list[list[Any]]:
    """[[first index, {rate: rate * microseconds}], ...] for each stretch of equal cost."""
    products = good[list(RATES)].mul(good["seconds"] * 1e6, axis=0).to_numpy(float)
    with np.errstate(invalid="ignore"):
        same = np.isclose(products[1:], products[:-1], rtol=1e-9, atol=0, equal_nan=True).all(axis=1)
    starts = np.flatnonzero(np.r_[True, ~same]) if len(products) else []
    return [
        [int(at[n]), {rate: v for rate, v in zip(RATES, significant(products[n], 9), strict=True) if v}] for n in starts
    ]


def breaks(rows: pd.DataFrame, at: np.ndarray) -> list[int]:
    """Indices of commits from which on another yardstick measures (or would have): the line is broken before them."""
    stated = (rows["yardstick"] != "").to_numpy()
    kernel, case = (rows[column].to_numpy(str)[stated] for column in STICKS)
    known = (case[1:] != "") & (case[:-1] != "")
    changed = np.where(known, case[1:] != case[:-1], kernel[1:] != kernel[:-1])
    return [int(i) for i in at[stated][1:][changed]]


def _same_yardstick(old: Sequence[str], new: Sequence[str]) -> bool:
    """The yardstick of the case decides; a record without notes knows only that of its kernel."""
    return old[1] == new[1] if old[1] and new[1] else old[0] == new[0]


# ---- the overview of one place --------------------------------------------------------------------------------------


def overview_data(frame: pd.DataFrame) -> dict[str, Any]:
    """Newest numbers of every own series of a place, and what was not measured; static/overview.js reads them."""
    order = commits(frame)
    index = {commit: i for i, commit in enumerate(order["commit"])}
    rows = [
        row
        for (kernel, case), part in frame.groupby(["kernel", "case"], sort=True)
        for row in _overview_rows(str(kernel), str(case), part, index)
    ]
    rows.sort(key=lambda row: (row["kernel"], natural(row["case"]), row["backend"]))
    _mark_here(rows)
    _mark_headlines(rows)
    return {
        "commits": [[c, _day(d)] for c, d, _ in order.itertuples(index=False)],
        "rows": rows,
        "absent": _absent(frame, index),
    }


def _mark_here(rows: list[dict[str, Any]]) -> None:
    """A backend that is unsupported in every case of its kernel, as one for CPUs is on a GPU, is not of this machine.

    Of a kernel that no backend supports, all are kept: that is worth seeing.
    """
    runs = {
        (row["kernel"], row["backend"]) for row in rows if row["status"] != "unsupported" or row["value"] is not None
    }
    kernels = {kernel for kernel, _ in runs}
    for row in rows:
        row["here"] = (row["kernel"], row["backend"]) in runs or row["kernel"] not in kernels


def _mark_headlines(rows: list[dict[str, Any]]) -> None:
    """Headline rows are the pull-request tier, or a kernel's first case, of the backends that are here."""
    with_pr = {row["kernel"] for row in rows if row["tier"] == "pr"}
    first: dict[str, str] = {}
    for row in rows:
        is_first = first.setdefault(row["kernel"], row["case"]) == row["case"]
        row["headline"] = row["here"] and (row["tier"] == "pr" if row["kernel"] in with_pr else is_first)


def _overview_rows(kernel: str, case: str, part: pd.DataFrame, index: dict[str, int]) -> Iterable[dict[str, Any]]:
    rate = headline_rate(part)
    own = part[~part["baseline"]]
    for backend, rows in (own if len(own) else part).groupby("backend", sort=True):
        newest = rows.iloc[-1]
        yield {
            "kernel": kernel,
            "case": case,
            "backend": str(backend),
            "baseline": not len(own),
            "tier": newest["tier"],
            "dtype": newest["dtype"],
            "world": _count(newest["world"]),
            "rate": rate,
            "at": index[newest["commit"]],
            "status": newest["status"],
            "why": newest["why"],
            **_newest(rows, part, rate, index),
        }


def _newest(rows: pd.DataFrame, part: pd.DataFrame, rate: str, index: dict[str, int]) -> dict[str, Any]:
    """The last good row in the unit of the case, its step from the good row before it, and the recent line."""
    good = rows[(rows["status"] == "ok") & rows["seconds"].notna()]
    if not len(good):
        return {"value": None, "spark": [], "step": None}
    last = good.iloc[-1]
    values = in_rate(good, rate)
    recent, newest = values[-SPARK_POINTS:], tuple(last[STICKS])
    stretch = [
        _same_yardstick(row, newest) for row in good[STICKS].tail(SPARK_POINTS).itertuples(index=False, name=None)
    ]
    return {
        "value": significant([values[-1]])[0],
        "us": significant([last["seconds"] * 1e6])[0],
        "share": significant([last["peak_share"]], 4)[0],
        "ratio": significant([last["baseline_ratio"]], 4)[0],
        "rival": _rival(last, part),
        "good_at": index[last["commit"]],
        "interval": significant([end[-1] for end in ends_in_rate(good.tail(1), rate)]),
        "step": _step(good),
        "spark": significant(recent[np.array(stretch)], 4),
    }


def _rival(last: pd.Series, part: pd.DataFrame) -> str | None:
    """Name of the baseline that `baseline_ratio` was taken against: the one whose time gives that ratio."""
    beside = part[part["baseline"] & (part["commit"] == last["commit"]) & (part["status"] == "ok")]
    distance = (beside["seconds"] / last["seconds"] - last["baseline_ratio"]).abs().dropna()
    return str(beside.loc[distance.idxmin(), "backend"]) if len(distance) else None


def _step(good: pd.DataFrame) -> dict[str, Any] | None:
    """Change of speed against the commit before, as shares: of the time alone, and of the ratio to the baseline.

    ``moved`` is "faster" or "slower" only if the intervals are apart and the change is beyond the floor, and so is the
    change of the ratio to the baseline where there is one: that takes out what heat does to the whole device.
    """
    if len(good) < 2:
        return None
    before, last = good.iloc[-2], good.iloc[-1]
    if not _same_yardstick(tuple(before[STICKS]), tuple(last[STICKS])):
        return {"yardstick": True, "from": before["commit"]}
    alone = before["seconds"] / last["seconds"] - 1
    beside = last["baseline_ratio"] / before["baseline_ratio"] - 1
    return {
        "from": before["commit"],
        "speed": significant([alone], 4)[0],
        "ratio": significant([beside], 4)[0],
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
    return [
        {
            "kernel": r.kernel,
            "case": r.case,
            "backend": r.backend,
            "status": r.status,
            "why": r.why,
            "at": index[r.commit],
        }
        for r in gone.itertuples(index=False)
    ]
