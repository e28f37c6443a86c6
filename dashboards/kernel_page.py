"""The data of a kernel's page: every series of one kernel in one lane, aligned to the commits of its rows.

They travel in blocks of commits, each complete in itself, so that a new record changes the newest block alone, under a
head that says what there is now.  static/timeline.js joins them to what one block of all commits would be.

Pure: columns in, plain dictionaries and arrays out.  Times travel in microseconds with six significant digits (paired
timing repeats to 0.1 %, and "12.3457" is shorter than "1.23457e-05").  Rates do not travel: static/values.js computes
them from the time and the cost by the formulas of :mod:`ci.records.rates`.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from typing import Any

import numpy as np

from dashboards.columns import Bools, Columns, Commits, Floats, Ints, Runs
from dashboards.costs import Costs, plain_cost
from dashboards.lanes import DEFINITION, definition_changes, natural
from dashboards.values import rounded


@dataclasses.dataclass(frozen=True, eq=False)
class _Page:
    """The rows of a kernel with what all its series need.  number: the series of each row; good: has a time."""

    rows: Columns
    series: Runs
    commits: Commits
    costs: Costs
    good: Bools

    @property
    def number(self) -> Ints:
        return self.series.number()


COUNTED = ("at", "good_at")
"""What of a row of the overview is the place of a commit."""


def kernel_head(
    rows: Columns, blocks: Sequence[str], commits: Sequence[Any], shown: Sequence[dict[str, Any]]
) -> dict[str, Any]:
    """What the page of a kernel loads first.

    {"kernel", "cases": [name], "series": [[index of the case, backend, is it a baseline]], "blocks",
     "commits": [[hash, date]], "rows": those of the overview, counting these commits}

    rows: those that last; blocks: paths of its blocks, oldest first; commits, shown: of the overview, its rows.
    """
    last = rows.runs("case", "backend").last
    cases = sorted(rows.texts["case"].present(), key=natural)
    place = {case: n for n, case in enumerate(cases)}
    names = (rows.texts[name][last].list() for name in ("case", "backend"))
    listed = zip(*names, rows.baseline[last].tolist(), strict=True)
    used = sorted({row[name] for row in shown for name in COUNTED if name in row})
    number = {at: n for n, at in enumerate(used)}
    return {
        "kernel": rows.texts["kernel"].at(0),
        "cases": cases,
        "series": [[place[case], backend, baseline] for case, backend, baseline in listed],
        "blocks": blocks,
        "commits": [commits[at] for at in used],
        "rows": [row | {name: number[row[name]] for name in COUNTED if name in row} for row in shown],
    }


def kernel_block(rows: Columns) -> dict[str, Any]:
    """All that the page of a kernel draws of some commits.

    {"kernel", "commits": [[hash, "YYYY-MM-DD HH:MM", env index]], "envs": [...], "whys": [...],
     "cases": [{"name", "tier", "dtype", "world", "rate", "costs": [{field of CostRow: value}], newest last}],
     "definitions": [[digest of the kernel's benchmark definition, of the case's]],
     "series": [{"case", "backend", "baseline", "us", "low", "high", "ratio", "samples", "trials", "cost", "breaks",
                 "bad", "defined"}]}

    defined: [first commit whose row has a definition, its number, the number of the last one], null without any.
    """
    page = _Page(rows, rows.runs("case", "backend"), Commits.of(rows), Costs.of(rows), rows.texts["status"].equal("ok"))
    envs, whys = sorted(set(page.commits.envs)), rows.texts["why"][~page.good].present()
    numbers = {env: n for n, env in enumerate(envs)}
    commits = zip(page.commits.hashes, page.commits.dates, page.commits.envs, strict=True)
    names = page.costs.names
    places = {case: n for n, case in enumerate(sorted(names, key=natural))}
    definitions, defined = _defined(page)
    series = _series(page, places, {why: n for n, why in enumerate(whys)})
    return {
        "kernel": rows.texts["kernel"].at(0),
        "envs": envs,
        "commits": [[commit, date, numbers[env]] for commit, date, env in commits],
        "whys": whys,
        "cases": sorted(_cases(page), key=lambda case: places[case["name"]]),
        "definitions": definitions,
        "series": [one | {"defined": told} for one, told in zip(series, defined, strict=True)],
    }


def _cases(page: _Page) -> list[dict[str, Any]]:
    """One entry per case, by its newest row."""
    newest = page.costs.newest
    texts = (page.rows.texts[name][newest].list() for name in ("case", "tier", "dtype"))
    worlds = _counts(page.rows.numbers["world"][newest]).tolist()
    found = zip(*texts, worlds, page.costs.rates(), page.costs.each, strict=True)
    return [
        {
            "name": name,
            "tier": tier,
            "dtype": dtype,
            "world": None if world < 0 else world,
            "rate": rate,
            "costs": [plain_cost(cost) for cost in costs],
        }
        for name, tier, dtype, world, rate, costs in found
    ]


_LINES = {
    "us": ("seconds", 1e6, 6),
    "low": ("seconds_low", 1e6, 6),
    "high": ("seconds_high", 1e6, 6),
    "ratio": ("baseline_ratio", 1.0, 5),
}
"""Name in the data: column, scale and significant digits."""


def _series(page: _Page, places: dict[str, int], whys: dict[str, int]) -> list[dict[str, Any]]:
    numbers, last = page.rows.numbers, page.series.last
    lines = {name: _lines(page, numbers[column], scale, digits) for name, (column, scale, digits) in _LINES.items()}
    changing = {name: _changes(page, _counts(numbers[name])) for name in ("samples", "trials")}
    changing["cost"] = _changes(page, page.costs.number)
    names = zip(page.rows.texts["case"][last].list(), page.rows.texts["backend"][last].list(), strict=True)
    baseline = page.rows.baseline[last].tolist()
    breaks, bad = _breaks(page), _bad(page, whys)
    found = []
    for n, (case, backend) in enumerate(names):
        every = {name: values[n] for name, values in (lines | changing).items()}
        if baseline[n]:
            del every["ratio"]
        about = {"case": places[case], "backend": backend, "baseline": baseline[n]}
        found.append(about | every | {"breaks": breaks[n], "bad": bad[n]})
    return found


def _lines(page: _Page, values: Floats, scale: float, digits: int) -> Floats:
    """One line per series, one value per commit; NaN where it was not measured."""
    table = np.full((len(page.series), len(page.commits.hashes)), np.nan)
    table[page.number[page.good], page.commits.at[page.good]] = values[page.good] * scale
    return rounded(table, digits)


def _counts(values: Floats) -> Any:
    """Whole numbers, -1 where there is none."""
    return np.where(np.isnan(values), -1, values).astype(np.int64)


def _changes(page: _Page, values: Ints) -> list[list[list[int | None]]]:
    """[[first index, value], ...] of each series: a column of whole numbers that hardly changes, as its changes."""
    number, at, values = page.number[page.good], page.commits.at[page.good], values[page.good]
    first = Runs.of(number, values).first
    pairs = zip(at[first].tolist(), values[first].tolist(), strict=True)
    known = [[i, None if value < 0 else value] for i, value in pairs]
    return _by_series(page, number[first], known)


def _breaks(page: _Page) -> list[list[int]]:
    """Indices of commits from which on another benchmark definition holds: the line is broken before them."""
    row = definition_changes(page.rows, page.number)
    return _by_series(page, page.number[row], page.commits.at[row].tolist())


def _defined(page: _Page) -> tuple[list[list[str]], list[list[int] | None]]:
    """The definitions that occur, and of each series its first commit that has one, that and its last."""
    stated = ~page.rows.texts[DEFINITION[0]].equal("")
    last = page.series.latest(stated)
    backwards = Runs(len(stated) - page.series.bounds[::-1])
    first = len(stated) - 1 - backwards.latest(stated[::-1])[::-1]
    has = np.flatnonzero(last >= 0)
    ends = np.concatenate([first[has], last[has]])
    pairs = list(zip(*(page.rows.texts[name][ends].list() for name in DEFINITION), strict=True))
    number = {pair: n for n, pair in enumerate(sorted(set(pairs)))}
    codes = [number[pair] for pair in pairs]
    found: list[list[int] | None] = [None] * len(page.series)
    told = zip(has.tolist(), page.commits.at[first[has]].tolist(), codes, codes[len(has) :], strict=False)
    for n, at, start, end in told:
        found[n] = [at, start, end]
    return [list(pair) for pair in number], found


def _bad(page: _Page, whys: dict[str, int]) -> list[dict[str, list[Any]]]:
    """{index of the commit: [status, number of the reason]} of each series."""
    row = np.flatnonzero(~page.good)
    texts = (page.rows.texts[name][row].list() for name in ("status", "why"))
    found = [(str(i), [s, whys[w]]) for i, s, w in zip(page.commits.at[row].tolist(), *texts, strict=True)]
    return [dict(pairs) for pairs in _by_series(page, page.number[row], found)]


def _by_series(page: _Page, number: Ints, values: list[Any]) -> list[list[Any]]:
    """The values of each series, given the series of each value, in order."""
    bounds = np.searchsorted(number, np.arange(len(page.series) + 1)).tolist()
    return [values[start:stop] for start, stop in zip(bounds[:-1], bounds[1:], strict=True)]
