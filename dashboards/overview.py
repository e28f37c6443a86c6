"""The data of the first page: newest numbers of every own series of a lane, and what was not measured.

Pure: rows in, plain dictionaries and lists out.
"""

from __future__ import annotations

import dataclasses
import itertools
import math
from collections import defaultdict
from collections.abc import Callable, Collection, Mapping, Sequence
from typing import Any, Self

import numpy as np
import pandas as pd

from ci.records import rates
from ci.records.rates import Rate
from dashboards.lanes import CASE, KEY, Arrays, alike, by_series, commits, costs_by_case, natural, stretches
from dashboards.values import Floats, Ints, count, in_rate, minute, one, significant

SPARK_POINTS = 50
"""Commits in a sparkline of the overview: about two months of nightly runs."""

MOVED_BESIDE_BASELINE = 0.02
MOVED_ALONE = 0.07
"""Least change between two commits that the overview marks: of the speed and of its ratio to the baseline, both, in
the same direction; without a baseline, of the speed alone.  A hint, not a verdict.  Where nothing changed, 97 separate
runs on two H200 (default clocks, 2026-11-20), compared three with three, exceed these limits beside a baseline in 1 %
of the pairs (GEMM of 4096 cubed) and in 0.1 % (M = 64), and alone in 1 %: runs of that GEMM drift by 2.6 % (sd)."""


@dataclasses.dataclass(frozen=True, eq=False)
class LaneSeries:
    """The rows of a lane by series.

    commits: [hash, date, environment] of each.  newest: the last row of each series; good: its rows with a time; rate:
    the unit of its case.  speed: of every row, by unit.
    """

    rows: Arrays
    commits: Sequence[tuple[str, str, str]]
    newest: Ints
    good: Sequence[Ints]
    rate: Sequence[Rate]
    speed: Mapping[Rate, Floats]

    @classmethod
    def of(cls, frame: pd.DataFrame) -> Self:
        """Of the tidy rows of a lane."""
        rows = by_series(frame)
        dated = [(commit, minute(date), env) for commit, date, env in commits(frame).itertuples(index=False)]
        first, last = stretches(*(rows[name] for name in KEY))
        good = np.flatnonzero((rows["status"] == "ok") & ~np.isnan(rows["seconds"]))
        units = {case: rates.headline(costs[-1]) for case, costs in costs_by_case(rows)[0].items()}
        rate = [units[case] for case in zip(*(rows[name][last].tolist() for name in CASE), strict=True)]
        speed = {unit: in_rate(frame, unit)[rows["place"]] for unit in set(rate)}
        return cls(rows, dated, last, np.split(good, np.searchsorted(good, first[1:])), rate, speed)


Declared = Callable[[str, str, str], Collection[str] | None]
"""(kernel, commit, env) -> the cases that the kernel had there; None where no record tells."""


def overview_data(lane: LaneSeries, cpu: bool = False, declared: Declared = lambda *_: None) -> dict[str, Any]:
    """What static/overview.js reads.

    {"commits": [[hash, date]], "rows": one per own series, "absent": arms without a newest time,
     "baselines": [[kernel, [vendor libraries timed beside it]]], "cpu": is it a machine without a GPU,
     "history": see `_history`,
     "newest": {"at": the newest commit, "measured": rows whose number is of that commit, "of": rows with a number}}

    A row is `gone` if its case is declared no more at the newest commit that has its kernel.
    """
    each = [_row(lane, n, cpu) for n in range(len(lane.newest))]
    gone = _gone(lane, each, declared)
    for row in each:
        row["gone"] = (row["kernel"], row["case"]) in gone
    with_own = {(row["kernel"], row["case"]) for row in each if not row["baseline"]}
    found = [row for row in each if not row["baseline"] or (row["kernel"], row["case"]) not in with_own]
    found.sort(key=lambda row: (row["kernel"], natural(row["case"]), row["backend"]))
    _mark_here(found)
    _mark_headlines(found)
    history = _history(found, each)
    for row in each:
        del row["spark_at"]
    told = (*KEY, "status", "why", "at")
    absent = [{name: row[name] for name in told} for row in each if row["status"] != "ok" and not row["gone"]]
    vendors: dict[str, set[str]] = defaultdict(set)
    for row in each:
        if row["baseline"]:
            vendors[row["kernel"]].add(row["backend"])
    measured = [row for row in found if row["value"] is not None and not row["gone"]]
    newest = len(lane.commits) - 1
    return {
        "commits": [[commit, date] for commit, date, _ in lane.commits],
        "rows": found,
        "absent": sorted(absent, key=lambda row: tuple(row[name] for name in ("status", *KEY))),
        "baselines": [[kernel, sorted(names)] for kernel, names in vendors.items()],
        "cpu": cpu,
        "history": history,
        "newest": {"at": newest, "measured": sum(row["good_at"] == newest for row in measured), "of": len(measured)},
    }


def _row(lane: LaneSeries, n: int, cpu: bool) -> dict[str, Any]:
    """A series: its newest record, its last number in the unit of the case, the step to that, and the recent line."""
    rows, newest, good, rate = lane.rows, lane.newest[n], lane.good[n], lane.rate[n]
    told = {name: rows[name][newest] for name in (*KEY, "tier", "dtype", "status", "why")}
    told |= {"baseline": bool(rows["baseline"][newest]), "world": count(rows["world"][newest])}
    told |= {"rate": rate, "at": int(rows["at"][newest])}
    if not len(good):
        return told | {"value": None, "spark": [], "spark_at": [], "step": None}
    last = good[-1]
    recent = good[-SPARK_POINTS:]
    recent = recent[alike(rows, recent, last)]
    return told | {
        "value": one(lane.speed[rate][last]),
        "us": one(rows["seconds"][last] * 1e6),
        "share": one(rows["peak_share"][last], 4),
        "ratio": one(rows["baseline_ratio"][last], 4),
        "baseline_name": rows["baseline_name"][last] or None,
        "good_at": int(rows["at"][last]),
        "step": _step(rows, good[-2], last, cpu) if len(good) > 1 else None,
        "spark": significant(lane.speed[rate][recent], 4),
        "spark_at": rows["at"][recent].tolist(),
    }


def _step(rows: Arrays, before: int, last: int, cpu: bool) -> dict[str, Any]:
    """The change of speed against the commit before, as shares: of the time, and of the ratio to the baseline.

    `moved` is "faster" or "slower" only if the intervals are apart and the speed has changed enough, and so has the
    ratio to the baseline where there is one: that takes out what heat does to the whole device.  Never on a CPU: its
    times differ by tens of percent from process to process.
    """
    origin = rows["commit"][before]
    if not alike(rows, before, last):
        return {"redefined": True, "from": origin}
    alone = rows["seconds"][before] / rows["seconds"][last] - 1
    beside = rows["baseline_ratio"][last] / rows["baseline_ratio"][before] - 1
    low, high = rows["seconds_low"], rows["seconds_high"]
    apart = low[last] > high[before] or high[last] < low[before]
    if math.isfinite(beside):
        moved = apart and alone * beside > 0 and min(abs(alone), abs(beside)) >= MOVED_BESIDE_BASELINE
    else:
        moved = apart and abs(alone) >= MOVED_ALONE
    return {
        "from": origin,
        "speed": one(alone, 4),
        "ratio": one(beside, 4),
        "moved": ("faster" if alone > 0 else "slower") if moved and not cpu else None,
        "env": rows["env"][before] != rows["env"][last],
    }


def _gone(lane: LaneSeries, rows: Sequence[dict[str, Any]], declared: Declared) -> set[tuple[str, str]]:
    """(kernel, case) of what is declared no more; asked only where a case lacks the newest record of its kernel."""
    newest: dict[str, int] = defaultdict(int)
    last: dict[tuple[str, str], int] = defaultdict(int)
    for row in rows:
        key = row["kernel"], row["case"]
        newest[row["kernel"]] = max(row["at"], newest[row["kernel"]])
        last[key] = max(row["at"], last[key])
    there = {
        kernel: declared(kernel, lane.commits[newest[kernel]][0], lane.commits[newest[kernel]][2])
        for kernel in sorted({kernel for (kernel, _), at in last.items() if at < newest[kernel]})
    }
    return {(kernel, case) for kernel, case in last if (cases := there.get(kernel)) is not None and case not in cases}


GROUPS = {"TFLOPS": (Rate.TFLOPS,), "GB/s of HBM": (Rate.GBS,), "GB/s over links": (Rate.BUSBW, Rate.ALGBW)}
"""The pictures of the history, and the rates that are drawn in them."""


def _history(shown: Sequence[dict[str, Any]], every: Sequence[dict[str, Any]]) -> list[dict[str, Any]]:
    """The recent numbers of one headline of each kernel and unit, that with most of them, and of the library beside it.

    [{"unit", "lines": [{"kernel", "case", "backend", "baseline", "rate", "at": [commit], "values"}]}]
    """
    of_arm = {tuple(row[name] for name in KEY): row for row in every}
    found = []
    for unit, drawn in GROUPS.items():
        of_unit = (row for row in shown if row["headline"] and row["spark"] and row["rate"] in drawn)
        of_kernel = itertools.groupby(of_unit, key=lambda row: row["kernel"])
        own = [max(rows, key=lambda row: (len(row["spark"]), row["value"] or 0.0)) for _, rows in of_kernel]
        pairs = [(row, of_arm.get((row["kernel"], row["case"], row["baseline_name"]))) for row in own]
        lines = [
            {name: row[name] for name in (*KEY, "baseline", "rate")} | {"at": row["spark_at"], "values": row["spark"]}
            for row in itertools.chain.from_iterable(pairs)
            if row and row["spark"]
        ]
        found += [{"unit": unit, "lines": lines}] if lines else []
    return found


NOT_FOR_HERE = ("unsupported", "skipped")
"""Statuses of a case that was not tried: the backend or the case is not for this machine."""


def _mark_here(rows: list[dict[str, Any]]) -> None:
    """`here`: is there a number, or a failure?  What cannot be measured on this machine is counted instead."""
    for row in rows:
        row["here"] = not row["gone"] and (row["value"] is not None or row["status"] not in NOT_FOR_HERE)


def _mark_headlines(rows: list[dict[str, Any]]) -> None:
    """`headline`: a row of the pull-request tier, or of the first case of a kernel without any, that is here."""
    with_pr = {row["kernel"] for row in rows if row["tier"] == "pr" and row["here"]}
    first: dict[str, str] = {}
    for row in rows:
        is_first = row["here"] and first.setdefault(row["kernel"], row["case"]) == row["case"]
        row["headline"] = row["here"] and (row["tier"] == "pr" if row["kernel"] in with_pr else is_first)


# ---- files for other programs ---------------------------------------------------------------------------------------

UNITS = {
    Rate.TFLOPS: "TFLOPS",
    Rate.GBS: "GB/s of HBM",
    Rate.ALGBW: "GB/s algbw",
    Rate.BUSBW: "GB/s busbw",
    Rate.TIME: "microseconds",
}


def newest(lane: LaneSeries) -> list[dict[str, Any]]:
    """The newest number of every arm, vendor libraries too, with the same columns for all: for CSV and JSON files.

    microseconds: median time, low and high: its 99 % interval, null where it never had one.  value: in `unit`.
    status, why: of the newest record; commit, date, env: of the record with the number, else of the newest.
    """
    rows, measured = lane.rows, np.array([len(good) > 0 for good in lane.good], bool)
    at = np.array([good[-1] if len(good) else last for good, last in zip(lane.good, lane.newest, strict=True)], int)
    place = [lane.commits[n] for n in rows["at"][at].tolist()]

    def numbers(values: Floats, digits: int = 6) -> list[float | None]:
        return significant(np.where(measured, values, np.nan), digits)

    columns: dict[str, Sequence[Any]] = {
        **{name: rows[name][at].tolist() for name in (*KEY, "tier", "dtype")},
        "ranks": list(map(count, rows["world"][at])),
        "vendor": rows["baseline"][lane.newest].tolist(),
        "status": rows["status"][lane.newest].tolist(),
        "why": rows["why"][lane.newest].tolist(),
        "commit": [commit for commit, _, _ in place],
        "date": [date for _, date, _ in place],
        "env": [env for _, _, env in place],
        "unit": [UNITS[rate] for rate in lane.rate],
        "value": numbers(np.array([lane.speed[rate][n] for rate, n in zip(lane.rate, at, strict=True)])),
        "microseconds": numbers(rows["seconds"][at] * 1e6),
        "microseconds_low": numbers(rows["seconds_low"][at] * 1e6),
        "microseconds_high": numbers(rows["seconds_high"][at] * 1e6),
        "peak_share": numbers(rows["peak_share"][at], 4),
        "baseline": rows["baseline_name"][at].tolist(),
        "baseline_ratio": numbers(rows["baseline_ratio"][at], 5),
        "samples": list(map(count, np.where(measured, rows["samples"][at], np.nan))),
        "trials": list(map(count, np.where(measured, rows["trials"][at], np.nan))),
    }
    return [dict(zip(columns, one, strict=True)) for one in zip(*columns.values(), strict=True)]


COLUMNS = {
    "kernel, case, backend": "the arm: what is computed, its shape, and by what",
    "tier, dtype, ranks": "of the case",
    "vendor": "true for a vendor's library, which the others are compared with",
    "status, why": "of the newest record: ok, or why there is no time",
    "commit, date, env": "of the record that the number is from (UTC), else of the newest",
    "unit, value": "speed in the unit in which the case is quoted, at the median time; of microseconds less is better",
    "microseconds, microseconds_low, microseconds_high": "median time and its 99 % interval",
    "peak_share": "least possible time by the roofline of the device / time, 0 to 1",
    "baseline, baseline_ratio": "fastest vendor library at that commit; its time / this time, above 1 this is faster",
    "samples, trials": "how many times were measured, in how many processes",
}
"""What the columns of :func:`newest` mean, in their order."""


def columns_text() -> str:
    """A text for people who open data/: which files there are, and their columns."""
    lines = [f"{names}\n    {meaning}" for names, meaning in COLUMNS.items()]
    head = """MACHINE/overview.json and .csv: the newest number of every arm of a machine.
MACHINE/kernel-NAME.csv: the same of one kernel.
MACHINE/kernel-NAME.json: which cases and series a kernel has, and "blocks", the files of its history, oldest first.
MACHINE/0/kernel-NAME.json and so on: the blocks, 64 commits of the machine each: "commits" [hash, date, place in
"envs"], "cases", and "series" with one value per commit: us (median, microseconds), low, high (99 % interval), ratio
(vendor's time / time); null where nothing was measured, "bad" then says why.  samples, trials and cost are
[first index, value] where they change.  A full block is never written again.
The .js files are the same for the pages.  A cell of a CSV file that a spreadsheet would run begins with an apostrophe.

Columns of the newest numbers:
"""
    return head + "\n".join(lines) + "\n"
