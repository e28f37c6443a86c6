"""The data of the first page: newest numbers of every own series of a lane, and what was not measured.

Pure: columns in, plain dictionaries and lists out.
"""

from __future__ import annotations

import dataclasses
import functools
import itertools
from collections.abc import Callable, Collection, Iterator, Sequence
from typing import Any

import numpy as np

from ci.records.rates import Rate
from dashboards.columns import NUMBERS, Bools, Columns, Commits, Floats, Ints, Runs
from dashboards.costs import RATES, Costs, in_rates
from dashboards.lanes import KEY, alike, natural
from dashboards.values import significant

SPARK_POINTS = 50
"""Commits in a sparkline of the overview: about two months of nightly runs."""

MOVED_BESIDE_BASELINE = 0.02
MOVED_ALONE = 0.07
"""Least change between two commits that the overview marks: of the speed and of its ratio to the baseline, both, in
the same direction; without a baseline, of the speed alone.  A hint, not a verdict.  Where nothing changed, 97 separate
runs on two H200 (default clocks, 2026-11-20), compared three with three, exceed these limits beside a baseline in 1 %
of the pairs (GEMM of 4096 cubed) and in 0.1 % (M = 64), and alone in 1 %: runs of that GEMM drift by 2.6 % (sd)."""


@dataclasses.dataclass(frozen=True, eq=False)
class _Lane:
    """The rows of a lane with what all its series need.

    cpu: of a machine without a GPU.  rate: the unit of each series; newest: its last row; good: rows with a time; last,
    before: of each series its last good row and the one before, -1 where there is none.
    """

    rows: Columns
    series: Runs
    commits: Commits
    rate: list[Rate]
    good: Bools
    last: Ints
    before: Ints
    cpu: bool = False

    @classmethod
    def of(cls, rows: Columns, cpu: bool = False) -> _Lane:
        series, costs = rows.runs(*KEY), Costs.of(rows)
        units = costs.rates()
        case = rows.runs("kernel", "case").number()[series.first].tolist()
        good = rows.texts["status"].equal("ok") & ~np.isnan(rows.numbers["seconds"])
        last = series.latest(good)
        earlier = good.copy()
        earlier[last[last >= 0]] = False
        return cls(rows, series, Commits.of(rows), [units[n] for n in case], good, last, series.latest(earlier), cpu)

    @property
    def newest(self) -> Ints:
        return self.series.last

    @functools.cached_property
    def unit(self) -> Ints:
        """The number of each series' rate."""
        return np.array([RATES.index(rate) for rate in self.rate], np.int64)


Declared = Callable[[str, str, str], Collection[str] | None]
"""(kernel, commit, env) -> the cases that the kernel had there; None where no record tells."""


def overview_data(rows: Columns, cpu: bool = False, declared: Declared = lambda *_: None) -> dict[str, Any]:
    """What static/overview.js reads.

    {"commits": [[hash, date]], "rows": one per own series, "absent": arms without a newest time,
     "baselines": [[kernel, [vendor libraries timed beside it]]], "cpu": is it a machine without a GPU,
     "history": see `_history`,
     "newest": {"at": the newest commit, "measured": rows whose number is of that commit, "of": rows with a number}}

    A row is `gone` if its case is declared no more at the newest commit that has its kernel.
    """
    lane = _Lane.of(rows, cpu)
    each = list(_rows(lane))
    gone = _gone(lane, each, declared)
    for row in each:
        row["gone"] = (row["kernel"], row["case"]) in gone
    found = _shown(lane, each)
    history = _history(found, each)
    for row in each:
        del row["spark_at"]
    measured = [row for row in found if row["value"] is not None and not row["gone"]]
    newest = len(lane.commits.hashes) - 1
    return {
        "commits": dated(lane.commits),
        "rows": found,
        "absent": [row for row in _absent(lane) if (row["kernel"], row["case"]) not in gone],
        "baselines": _baselines(lane),
        "cpu": cpu,
        "history": history,
        "newest": {"at": newest, "measured": sum(row["good_at"] == newest for row in measured), "of": len(measured)},
    }


UNITS = {
    Rate.TFLOPS: "TFLOPS",
    Rate.GBS: "GB/s of HBM",
    Rate.ALGBW: "GB/s algbw",
    Rate.BUSBW: "GB/s busbw",
    Rate.TIME: "microseconds",
}


def newest(rows: Columns) -> list[dict[str, Any]]:
    """The newest number of every arm, vendor libraries too, with the same columns for all: for CSV and JSON files.

    microseconds: median time, low and high: its 99 % interval, null where it never had one.  value: in `unit`.
    status, why: of the newest record; commit, date, env: of the record with the number, else of the newest.
    """
    lane = _Lane.of(rows)
    measured = lane.last >= 0
    at = np.where(measured, lane.last, lane.newest)
    values = {name: np.where(measured, rows.numbers[name][at], np.nan) for name in NUMBERS}
    status, why = (rows.texts[name][lane.newest].list() for name in ("status", "why"))
    texts = {name: rows.texts[name][at].list() for name in (*KEY, "tier", "dtype")}
    place = lane.commits.at[at].tolist()
    columns: dict[str, list[Any]] = {
        **texts,
        "ranks": [None if world != world else int(world) for world in rows.numbers["world"][at].tolist()],
        "vendor": rows.baseline[lane.newest].tolist(),
        "status": status,
        "why": why,
        "commit": [lane.commits.hashes[n] for n in place],
        "date": [lane.commits.dates[n] for n in place],
        "env": [lane.commits.envs[n] for n in place],
        "unit": [UNITS[rate] for rate in lane.rate],
        "value": significant(in_rates(rows[at], lane.unit, values["seconds"])),
        "microseconds": significant(values["seconds"] * 1e6),
        "microseconds_low": significant(values["seconds_low"] * 1e6),
        "microseconds_high": significant(values["seconds_high"] * 1e6),
        "peak_share": significant(values["peak_share"], 4),
        "baseline": rows.texts["baseline_name"][at].list(),
        "baseline_ratio": significant(values["baseline_ratio"], 5),
        "samples": [None if count != count else int(count) for count in values["samples"].tolist()],
        "trials": [None if count != count else int(count) for count in values["trials"].tolist()],
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


def dated(commits: Commits) -> list[list[str]]:
    """[hash, date] of each commit."""
    return [[commit, date] for commit, date in zip(commits.hashes, commits.dates, strict=True)]


def _gone(lane: _Lane, rows: Sequence[dict[str, Any]], declared: Declared) -> set[tuple[str, str]]:
    """(kernel, case) of what is declared no more; asked only where a case lacks the newest record of its kernel."""
    newest: dict[str, int] = {}
    for row in rows:
        newest[row["kernel"]] = max(row["at"], newest.get(row["kernel"], 0))
    last: dict[tuple[str, str], int] = {}
    for row in rows:
        key = row["kernel"], row["case"]
        last[key] = max(row["at"], last.get(key, 0))
    there = {
        kernel: declared(kernel, lane.commits.hashes[newest[kernel]], lane.commits.envs[newest[kernel]])
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
    for unit, rates in GROUPS.items():
        of_unit = (row for row in shown if row["headline"] and row["spark"] and row["rate"] in rates)
        of_kernel = itertools.groupby(of_unit, key=lambda row: row["kernel"])
        own = [max(rows, key=lambda row: (len(row["spark"]), row["value"] or 0.0)) for _, rows in of_kernel]
        pairs = [(row, of_arm.get((row["kernel"], row["case"], row["baseline_name"]))) for row in own]
        lines = [_line(one) for pair in pairs for one in pair if one and one["spark"]]
        found += [{"unit": unit, "lines": lines}] if lines else []
    return found


def _line(row: dict[str, Any]) -> dict[str, Any]:
    told = {name: row[name] for name in (*KEY, "baseline", "rate")}
    return {**told, "at": row["spark_at"], "values": row["spark"]}


def _shown(lane: _Lane, rows: Sequence[dict[str, Any]]) -> list[dict[str, Any]]:
    """The rows of own series, in the order of the table."""
    found = [row for row, shown in zip(rows, _own(lane).tolist(), strict=True) if shown]
    found.sort(key=lambda row: (row["kernel"], natural(row["case"]), row["backend"]))
    _mark_here(found)
    _mark_headlines(found)
    return found


def _baselines(lane: _Lane) -> list[list[Any]]:
    """[kernel, [its vendor libraries]] of each kernel that has any."""
    last = lane.newest[lane.rows.baseline[lane.newest]]
    found: dict[str, set[str]] = {}
    for kernel, backend in zip(*(lane.rows.texts[name][last].list() for name in ("kernel", "backend")), strict=True):
        found.setdefault(kernel, set()).add(backend)
    return [[kernel, sorted(names)] for kernel, names in found.items()]


def _own(lane: _Lane) -> Bools:
    """Series that are shown: ours, and the baselines of a case that has nothing else."""
    case = lane.rows.runs("kernel", "case").number()[lane.series.first]
    own = ~lane.rows.baseline[lane.newest]
    has_own = np.zeros(int(case.max(initial=-1)) + 1, bool)
    has_own[case[own]] = True
    shown: Bools = own | ~has_own[case]
    return shown


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


def _rows(lane: _Lane) -> Iterator[dict[str, Any]]:
    """One row per series."""
    rows, newest = lane.rows, lane.newest
    texts = {name: rows.texts[name][newest].list() for name in (*KEY, "tier", "dtype", "status", "why")}
    world = rows.numbers["world"][newest].tolist()
    baseline, at = rows.baseline[newest].tolist(), lane.commits.at[newest].tolist()
    measured = _measured(lane)
    for n, numbers in enumerate(measured):
        yield {
            **{name: values[n] for name, values in texts.items()},
            "baseline": baseline[n],
            "world": None if world[n] != world[n] else int(world[n]),
            "rate": lane.rate[n],
            "at": at[n],
            **numbers,
        }


def _measured(lane: _Lane) -> list[dict[str, Any]]:
    """Of each series its last good row in the unit of the case, the step to it, and the recent line."""
    rows, last = lane.rows, lane.last
    numbers = {name: rows.numbers[name][last] for name in ("seconds", "peak_share", "baseline_ratio")}
    values = {
        "value": significant(in_rates(rows[last], lane.unit, numbers["seconds"])),
        "us": significant(numbers["seconds"] * 1e6),
        "share": significant(numbers["peak_share"], 4),
        "ratio": significant(numbers["baseline_ratio"], 4),
        "baseline_name": [name or None for name in rows.texts["baseline_name"][last].list()],
        "good_at": lane.commits.at[last].tolist(),
        "step": _steps(lane),
    }
    values["spark"], values["spark_at"] = _sparks(lane)
    nothing = {"value": None, "spark": [], "spark_at": [], "step": None}
    return [
        {name: column[n] for name, column in values.items()} if row >= 0 else nothing
        for n, row in enumerate(last.tolist())
    ]


def _sparks(lane: _Lane) -> tuple[list[list[float | None]], list[list[int]]]:
    """The recent good rows of each series that have the benchmark definition of the last, and their commits."""
    number = lane.series.number()
    good = np.flatnonzero(lane.good)
    behind = np.append(np.flatnonzero(np.diff(number[good])) + 1, len(good))
    end = behind[np.searchsorted(behind, np.arange(len(good)), side="right")] if len(good) else good
    recent = good[end - np.arange(len(good)) <= SPARK_POINTS]
    recent = recent[alike(lane.rows, recent, lane.last[number[recent]])]
    values = significant(
        in_rates(lane.rows[recent], lane.unit[number[recent]], lane.rows.numbers["seconds"][recent]), 4
    )
    bounds = np.searchsorted(number[recent], np.arange(len(lane.series) + 1)).tolist()
    parts, at = list(itertools.pairwise(bounds)), lane.commits.at[recent].tolist()
    return [values[start:stop] for start, stop in parts], [at[start:stop] for start, stop in parts]


def _steps(lane: _Lane) -> list[dict[str, Any] | None]:
    """Of each series the change of speed against the commit before, as shares: of the time, and of the ratio.

    `moved` is "faster" or "slower" only if the intervals are apart and the speed has changed enough, and so has the
    ratio to the baseline where there is one: that takes out what heat does to the whole device.  Never on a CPU: its
    times differ by tens of percent from process to process.
    """
    before, last = lane.rows[lane.before], lane.rows[lane.last]
    alone = before.numbers["seconds"] / last.numbers["seconds"] - 1
    beside = last.numbers["baseline_ratio"] / before.numbers["baseline_ratio"] - 1
    columns = zip(
        (lane.before >= 0).tolist(),
        alike(lane.rows, lane.before, lane.last).tolist(),
        before.texts["commit"].list(),
        significant(alone, 4),
        significant(beside, 4),
        [None] * len(alone) if lane.cpu else _moved(alone, beside, before, last),
        (before.texts["env"].codes != last.texts["env"].codes).tolist(),
        strict=True,
    )
    return [_step(*one) for one in columns]


def _step(
    known: bool, same: bool, origin: str, speed: float | None, ratio: float | None, moved: str | None, env: bool
) -> dict[str, Any] | None:
    if not known:
        return None
    if not same:
        return {"redefined": True, "from": origin}
    return {"from": origin, "speed": speed, "ratio": ratio, "moved": moved, "env": env}


def _moved(alone: Floats, beside: Floats, before: Columns, last: Columns) -> list[str | None]:
    low, high = "seconds_low", "seconds_high"
    apart = (last.numbers[low] > before.numbers[high]) | (last.numbers[high] < before.numbers[low])
    together = (alone * beside > 0) & (np.minimum(np.abs(alone), np.abs(beside)) >= MOVED_BESIDE_BASELINE)
    moved = apart & np.where(np.isfinite(beside), together, np.abs(alone) >= MOVED_ALONE)
    ways = zip(moved.tolist(), (alone > 0).tolist(), strict=True)
    return [("faster" if faster else "slower") if is_moved else None for is_moved, faster in ways]


def _absent(lane: _Lane) -> list[dict[str, Any]]:
    """Arms whose newest record has no time, with the reason; baselines too."""
    gone = lane.newest[~lane.rows.texts["status"].equal("ok")[lane.newest]]
    texts = (lane.rows.texts[name][gone].list() for name in (*KEY, "status", "why"))
    found = zip(*texts, lane.commits.at[gone].tolist(), strict=True)
    rows = [dict(zip((*KEY, "status", "why", "at"), one, strict=True)) for one in found]
    return sorted(rows, key=lambda row: tuple(row[name] for name in ("status", *KEY)))
