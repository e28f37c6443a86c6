"""The data of a kernel's page: every series of one kernel in one lane, aligned to the commits of its rows.

They travel in blocks of commits, each complete in itself, so that a new record changes the newest block alone, under a
head that says what there is now.  static/timeline.js joins them to what one block of all commits would be.

Pure: rows in, plain dictionaries and arrays out.  Times travel in microseconds with six significant digits (paired
timing repeats to 0.1 %, and "12.3457" is shorter than "1.23457e-05").  Rates do not travel: static/values.js computes
them from the time and the cost by the formulas of :mod:`ci.records.rates`.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from typing import Any

import numpy as np

from ci.records import rates
from dashboards.lanes import DEFINITION, KEY, PAIRED, Arrays, costs_by_case, natural, redefined, stretches
from dashboards.values import Bools, CostRow, Floats, Ints, count, rounded, significant

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
        found.append(about | {"rate": rates.headline(those[-1]), "costs": [_stated(cost) for cost in those]})
    return found


def _stated(cost: CostRow) -> dict[str, float]:
    """What is known of a cost, exactly; whole numbers without ".0"."""
    known = {name: value for name, value in cost._asdict().items() if value}
    return {name: int(value) if value.is_integer() and value < 2**53 else value for name, value in known.items()}


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
        for (*key, at, beside), *ratio in zip(named, *(significant(rows[name][row]) for name in PAIRED), strict=True):
            point = [at, baselines.setdefault(beside, len(baselines)), *ratio]
            found.setdefault(tuple(key), []).append(point)
    series = [[*key, points] for key, points in found.items()]
    return {"commits": [commit for commit, _, _ in commits], "baselines": list(baselines), "series": series}
