"""The data of the first page and of a kernel's page: newest numbers of every own series, and their histories.

Pure: rows in, plain dictionaries, lists and arrays out.
"""

from __future__ import annotations

import dataclasses
import itertools
import math
from collections import defaultdict
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Self

import numpy as np
import pandas as pd

from ci.records import rates
from ci.records.rates import Rate
from ci.trials.trial import Declaration
from dashboards.lanes import (
    CASE,
    DEFINITION,
    KEY,
    PAIRED,
    Arrays,
    alike,
    by_series,
    commits,
    costs_by_case,
    natural,
    redefined,
    stretches,
)
from dashboards.values import Bools, CostRow, Floats, Ints, count, in_rate, minute, rounded, told

SPARK_POINTS = 50
"""Commits in a sparkline of the overview: about two months of nightly runs."""

SPARK_DIGITS = 4

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
    the unit of its case.  speed: of every row, by unit; lines: the same in the digits of a sparkline.
    """

    rows: Arrays
    commits: Sequence[tuple[str, str, str]]
    newest: Ints
    good: Sequence[Ints]
    rate: Sequence[Rate]
    speed: Mapping[Rate, Floats]
    lines: Mapping[Rate, Floats]

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
        lines = {unit: rounded(values, SPARK_DIGITS) for unit, values in speed.items()}
        return cls(rows, dated, last, np.split(good, np.searchsorted(good, first[1:])), rate, speed, lines)


Declared = Callable[[str, str, str], Declaration | None]
"""(kernel, commit, env) -> the kernel as it was declared there; None where no record tells."""


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
    history = _history(lane, found, each, declared)
    for row in each:
        del row[RECENT]
    absent = [
        {name: row[name] for name in (*KEY, "status", "why", "at")}
        for row in each
        if row["status"] != "ok" and not row["gone"]
    ]
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


RECENT = "recent"
"""Of a row: which rows of the lane its line is made of; no row of the page carries it."""


def _row(lane: LaneSeries, n: int, cpu: bool) -> dict[str, Any]:
    """A series: its newest record, its last number in the unit of the case, the step to that, and the recent line."""
    rows, newest, good, rate = lane.rows, lane.newest[n], lane.good[n], lane.rate[n]
    about = {name: rows[name][newest] for name in (*KEY, "tier", "dtype", "status", "why")}
    about |= {"baseline": bool(rows["baseline"][newest]), "world": count(rows["world"][newest])}
    about |= {"rate": rate, "at": int(rows["at"][newest])}
    if not len(good):
        return about | {"value": None, "spark": [], RECENT: [], "step": None}
    last = good[-1]
    recent = good[-SPARK_POINTS:]
    recent = recent[alike(rows, recent, last)]
    return about | {
        "value": told(lane.speed[rate][last]),
        "us": rows["seconds"][last] * 1e6,
        "share": rows["peak_share"][last],
        "ratio": rows["baseline_ratio"][last],
        "baseline_name": rows["baseline_name"][last] or None,
        "good_at": int(rows["at"][last]),
        "step": _step(rows, good[-2], last, cpu) if len(good) > 1 else None,
        "spark": lane.lines[rate][recent],
        RECENT: recent,
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
        "speed": alone,
        "ratio": beside,
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
    return {(kernel, case) for kernel, case in last if (found := there.get(kernel)) and case not in found.cases}


GROUPS = {"TFLOPS": (Rate.TFLOPS,), "GB/s of HBM": (Rate.GBS,), "GB/s over links": (Rate.BUSBW, Rate.ALGBW)}
"""The pictures of the history, and the rates that are drawn in them."""


def _history(
    lane: LaneSeries, shown: Sequence[dict[str, Any]], every: Sequence[dict[str, Any]], declared: Declared
) -> list[dict[str, Any]]:
    """The recent numbers of one headline of each kernel and unit (`_headline`), and of its library.

    [{"unit", "lines": [{"kernel", "case", "backend", "baseline", "rate", "at": [commit], "values", "ratios"}]}]
    "ratios" are those of the records, of trials that timed both: to the baseline of the newest one.
    """
    of_arm = {tuple(row[name] for name in KEY): row for row in every}
    found = []
    for unit, drawn in GROUPS.items():
        of_unit = (row for row in shown if row["headline"] and len(row["spark"]) and row["rate"] in drawn)
        of_kernel = itertools.groupby(of_unit, key=lambda row: row["kernel"])
        own = [_headline(lane, list(some), declared) for _, some in of_kernel]
        pairs = [(row, of_arm.get((row["kernel"], row["case"], row["baseline_name"]))) for row in own]
        lines = [
            {name: row[name] for name in (*KEY, "baseline", "rate")} | _line(lane.rows, row)
            for row in itertools.chain.from_iterable(pairs)
            if row and len(row["spark"])
        ]
        found += [{"unit": unit, "lines": lines}] if lines else []
    return found


def _headline(lane: LaneSeries, rows: Sequence[dict[str, Any]], declared: Declared) -> dict[str, Any]:
    """Of headlines of a kernel the longest, then the fastest, of the backend that is declared first and is among them.

    A declaration names first what users get; what chooses by times, or keeps an older way, comes later.
    """
    names = {row["backend"] for row in rows}
    if len(names) > 1:
        commit, _, env = lane.commits[max(row["at"] for row in rows)]
        found = declared(rows[0]["kernel"], commit, env)
        first = next((name for name in found.backends if name in names), None) if found else None
        rows = [row for row in rows if first in (None, row["backend"])]
    return max(rows, key=lambda row: (len(row["spark"]), row["value"] or 0.0))


def _line(rows: Arrays, row: Mapping[str, Any]) -> dict[str, Any]:
    recent = row[RECENT]
    same = rows["baseline_name"][recent] == rows["baseline_name"][recent[-1]]
    ratios = np.where(same, rows["baseline_ratio"][recent], np.nan)
    return {"at": rows["at"][recent].tolist(), "values": row["spark"], "ratios": rounded(ratios, SPARK_DIGITS)}


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

    def numbers(values: Floats) -> Floats:
        return np.where(measured, values, np.nan)

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
        "value": numbers(np.array([lane.speed[rate][n] for rate, n in zip(lane.rate, at, strict=True)], float)),
        "microseconds": numbers(rows["seconds"][at] * 1e6),
        "microseconds_low": numbers(rows["seconds_low"][at] * 1e6),
        "microseconds_high": numbers(rows["seconds_high"][at] * 1e6),
        "peak_share": numbers(rows["peak_share"][at]),
        "baseline": rows["baseline_name"][at].tolist(),
        "baseline_ratio": numbers(rows["baseline_ratio"][at]),
        "samples": list(map(count, numbers(rows["samples"][at]))),
        "trials": list(map(count, numbers(rows["trials"][at]))),
    }
    return [told(dict(zip(columns, row, strict=True))) for row in zip(*columns.values(), strict=True)]


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


# The data of a kernel's page: every series of one kernel in one lane, aligned to the commits of its rows.
#
# They travel in blocks of commits, each complete in itself, so that a new record changes the newest block alone, under
# a head that says what there is now.  static/timeline.js joins them to what one block of all commits would be.
#
# Times travel in microseconds with six significant digits (paired timing repeats to 0.1 %, and "12.3457" is shorter
# than "1.23457e-05").  Rates do not travel: static/values.js computes them from the time and the cost by the formulas
# of :mod:`ci.records.rates`.


COUNTED = ("at", "good_at")
"""What of a row of the overview is the place of a commit."""


def kernel_head(
    rows: Arrays, blocks: Sequence[str], commits: Sequence[Any], shown: Sequence[dict[str, Any]]
) -> dict[str, Any]:
    """What the page of a kernel loads first.

    {"kernel", "cases": [name], "series": [[index of the case, backend, is it a baseline]], "blocks",
     "commits": [[hash, date]], "rows": those of the overview, counting these commits}

    rows: those that last; blocks: paths of its blocks, oldest first; commits, shown: of the overview, its rows.
    """
    _, last = stretches(rows["case"], rows["backend"])
    cases = sorted(set(rows["case"]), key=natural)
    place = {case: n for n, case in enumerate(cases)}
    listed = zip(*(rows[name][last].tolist() for name in ("case", "backend", "baseline")), strict=True)
    used = sorted({row[name] for row in shown for name in COUNTED if name in row})
    number = {at: n for n, at in enumerate(used)}
    return {
        "kernel": rows["kernel"][0],
        "cases": cases,
        "series": [[place[case], backend, baseline] for case, backend, baseline in listed],
        "blocks": blocks,
        "commits": [commits[at] for at in used],
        "rows": [row | {name: number[row[name]] for name in COUNTED if name in row} for row in shown],
    }


Dated = Sequence[tuple[str, str, str]]
"""[hash, date, environment] of the commits of a lane."""


@dataclasses.dataclass(frozen=True, eq=False)
class _Series:
    """The rows of a kernel with what all its series need.

    at: the commit of each row among those of the kernel, of which there are so many; number: its series; last: the last
    row of each series; good: whether it was measured.
    """

    rows: Arrays
    commits: int
    at: Ints
    number: Ints
    last: Ints
    good: Bools

    def lines(self, name: str, scale: float, digits: int) -> Floats:
        """One line per series, one value per commit; NaN where it was not measured."""
        table = np.full((len(self.last), self.commits), np.nan)
        table[self.number[self.good], self.at[self.good]] = self.rows[name][self.good] * scale
        return rounded(table, digits)

    def changes(self, values: Ints) -> list[list[list[int | None]]]:
        """[[first index, value], ...] of each series: whole numbers that hardly change, -1 where there is none."""
        row = np.flatnonzero(self.good)
        row = row[stretches(self.number[row], values[row])[0]]
        pairs = zip(self.at[row].tolist(), values[row].tolist(), strict=True)
        return self.split(row, [[i, None if value < 0 else value] for i, value in pairs])

    def split(self, row: Ints, values: list[Any]) -> list[list[Any]]:
        """Values that belong to some rows, in their order, by series."""
        bounds = np.searchsorted(self.number[row], np.arange(len(self.last) + 1)).tolist()
        return [values[start:stop] for start, stop in zip(bounds[:-1], bounds[1:], strict=True)]


_LINES = {
    "us": ("seconds", 1e6, 6),
    "low": ("seconds_low", 1e6, 6),
    "high": ("seconds_high", 1e6, 6),
    "ratio": ("baseline_ratio", 1.0, 5),
}
"""Name in the data: column, scale and significant digits."""


def kernel_block(rows: Arrays, commits: Dated) -> dict[str, Any]:
    """All that the page of a kernel draws of some commits.

    {"kernel", "commits": [[hash, "YYYY-MM-DD HH:MM", env index]], "envs": [...], "whys": [...],
     "cases": [{"name", "tier", "dtype", "world", "rate", "costs": [{field of CostRow: value}], newest last}],
     "definitions": [[digest of the kernel's benchmark definition, of the case's]],
     "series": [{"case", "backend", "baseline", "us", "low", "high", "ratio", "samples", "trials", "cost", "breaks",
                 "bad", "defined"}]}

    defined: [first commit whose row has a definition, its number, the number of the last one], null without any.
    """
    used, at = np.unique(rows["at"], return_inverse=True)
    first, last = stretches(rows["case"], rows["backend"])
    number = np.repeat(np.arange(len(first)), last - first + 1)
    page = _Series(rows, len(used), at, number, last, rows["status"] == "ok")
    shown = [commits[n] for n in used.tolist()]
    envs, whys = sorted({env for _, _, env in shown}), sorted(set(rows["why"][~page.good]))
    costs, cost = costs_by_case(rows)
    names = sorted((name for _, name in costs), key=natural)
    definitions, defined = _defined(page)
    lines = {name: page.lines(*how) for name, how in _LINES.items()}
    changing = {name: page.changes(_counts(rows[name])) for name in ("samples", "trials")} | {
        "cost": page.changes(cost)
    }
    broken = redefined(rows, number)
    breaks, bad = page.split(broken, at[broken].tolist()), _bad(page, whys)
    series = []
    for n, (case, backend, baseline) in enumerate(
        zip(*(rows[name][last].tolist() for name in ("case", "backend", "baseline")), strict=True)
    ):
        every = {name: values[n] for name, values in (lines | changing).items() if not (baseline and name == "ratio")}
        about = {"case": names.index(case), "backend": backend, "baseline": baseline}
        series.append(about | every | {"breaks": breaks[n], "bad": bad[n], "defined": defined[n]})
    return {
        "kernel": rows["kernel"][0],
        "envs": envs,
        "commits": [[commit, date, envs.index(env)] for commit, date, env in shown],
        "whys": whys,
        "cases": sorted(_cases(rows, costs), key=lambda case: names.index(case["name"])),
        "definitions": definitions,
        "series": series,
    }


def _cases(rows: Arrays, costs: dict[tuple[str, str], list[CostRow]]) -> list[dict[str, Any]]:
    """One entry per case, by its newest row."""
    found = []
    for start, last in zip(*stretches(rows["case"]), strict=True):
        row, name = start + rows["place"][start : last + 1].argmax(), rows["case"][start]
        those = costs[rows["kernel"][start], name]
        about = {
            "name": name,
            "tier": rows["tier"][row],
            "dtype": rows["dtype"][row],
            "world": count(rows["world"][row]),
        }
        found.append(about | {"rate": rates.headline(those[-1]), "costs": [cost.known() for cost in those]})
    return found


def _counts(values: Floats) -> Ints:
    """Whole numbers, -1 where there is none."""
    return np.where(np.isnan(values), -1, values).astype(np.int64)


def _defined(page: _Series) -> tuple[list[list[str]], list[list[int] | None]]:
    """The definitions that occur, and of each series its first commit that has one, that and its last."""
    kernel, case = (page.rows[name] for name in DEFINITION)
    stated = np.flatnonzero(kernel != "")
    first, last = (stated[ends] for ends in stretches(page.number[stated]))
    pairs = [list(zip(kernel[ends], case[ends], strict=True)) for ends in (first, last)]
    number = {pair: n for n, pair in enumerate(sorted({*pairs[0], *pairs[1]}))}
    found: list[list[int] | None] = [None] * len(page.last)
    for n, at, start, end in zip(page.number[first].tolist(), page.at[first].tolist(), *pairs, strict=True):
        found[n] = [at, number[start], number[end]]
    return [list(pair) for pair in number], found


def _bad(page: _Series, whys: Sequence[str]) -> list[dict[str, list[Any]]]:
    """{index of the commit: [status, number of the reason]} of each series."""
    row, number = np.flatnonzero(~page.good), {why: n for n, why in enumerate(whys)}
    texts = (page.rows[name][row].tolist() for name in ("status", "why"))
    found = [(str(i), [s, number[w]]) for i, s, w in zip(page.at[row].tolist(), *texts, strict=True)]
    return [dict(pairs) for pairs in page.split(row, found)]


def paired_block(rows: Arrays, commits: Dated) -> dict[str, Any]:
    """What was timed round by round beside something else, in a block of commits: static/views/compare.js reads it.

    {"commits": [hash], "baselines": [name], "series": [[kernel, case, backend, [[index of the commit, index of the
    baseline, its time / the row's time, low, high of the 99 % interval]]]]}.  Two ratios to one baseline, each from
    rounds that both ran in, are compared without what the device does to both.
    """
    found: dict[tuple[str, str, str], list[Any]] = {}
    baselines: dict[str, int] = {}
    if PAIRED[0] in rows:
        values = np.stack([rows[name] for name in PAIRED])
        row = np.flatnonzero((values > 0).all(axis=0) & (rows["status"] == "ok"))
        named = zip(*(rows[name][row].tolist() for name in (*KEY, "at", "paired_with")), strict=True)
        ratios = (rounded(rows[name][row]).tolist() for name in PAIRED)
        for (*key, at, beside), *ratio in zip(named, *ratios, strict=True):
            point = [at, baselines.setdefault(beside, len(baselines)), *ratio]
            found.setdefault(tuple(key), []).append(point)
    series = [[*key, points] for key, points in found.items()]
    return {"commits": [commit for commit, _, _ in commits], "baselines": list(baselines), "series": series}
