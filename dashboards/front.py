"""The first page: is something worse than it was, since when and by whom; then one row for each operator."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Container, Iterator, Sequence
from typing import Any

import numpy as np

from ci.history import words
from ci.history.types import HistoryEvent, SeriesKey
from dashboards import charts, table
from dashboards.events import SIGN, address
from dashboards.files import case_address
from dashboards.frame import NAMES, RECENT, UNITS, Lane, Series, Site
from dashboards.kernel import (
    CHANGE_HELP,
    NEWEST,
    RATIO_HELP,
    newest_cells,
    not_measured,
    ratio_lines,
    step_marks,
    value_lines,
)
from dashboards.machines import broken_modules
from dashboards.table import Column, Piece, Table

SHOWN = 50
"""Commits of a line of this page: about two months of nightly runs."""

LEAST_SPAN = 1.1
"""The least ratio of the upper end of an axis of ratios to its lower one: steps of 1 % can be seen, noise is flat."""

MOST_SPAN = 1.5
"""The most: what moves further is cut off, or the steps of all others could not be seen."""


def front_files(site: Site) -> Iterator[tuple[str, Any]]:
    """(path, page) of each lane."""
    for lane in site.lanes:
        yield f"{lane.slug}/front", _page(site, lane)


def _page(site: Site, lane: Lane) -> dict[str, Any]:
    pieces = [*verdict(site, lane), *operators(site, lane), *_left_out(site, lane)]
    return {"title": "", "commits": lane.commits, "pieces": pieces}


# ---- what is open ---------------------------------------------------------------------------------------------------


def verdict(site: Site, lane: Lane) -> Iterator[Piece]:
    """What is open on this machine, and where else something is."""
    events = list(filter(words.is_open, words.in_order_of_need(site.history.events)))
    here = [one for one in events if one.machine == lane.machine]
    slower = [one for one in here if words.is_regression(one)]
    if slower:
        count = "1 regression is" if len(slower) == 1 else f"{len(slower)} regressions are"
        yield table.text(f"{count} open on {lane.machine}", "verdict bad")
    else:
        what = "No regression is open" if here else "Nothing is open"
        yield table.text(f"{what} on {lane.machine} since {lane.commits[0].hash[:8]}", "verdict good")
    if here:
        yield {"kind": "lines", "lines": [_line(one) for one in here]}
    newest = lane.commits[-1]
    looked = f"{len(lane.commits)} commits up to {newest.hash[:8]} of {newest.date[:10]}."
    yield table.text(f"{looked} {_elsewhere(events, lane)}".strip(), "small")


def _line(event: HistoryEvent) -> list[Any]:
    about = f"{words.since(event)}; {words.standing(event)}"
    return [f"{SIGN[event.direction]} {words.headline(event)}", address(event.id), event.direction, about]


def _elsewhere(events: Sequence[HistoryEvent], lane: Lane) -> str:
    others = Counter(one.machine for one in events if one.machine != lane.machine and words.is_regression(one))
    listed = ", ".join(f"{count} on {machine}" for machine, count in sorted(others.items()))
    return f"Regressions elsewhere: {listed}." if listed else "No regression is open on any other machine."


# ---- operators ------------------------------------------------------------------------------------------------------


def operators(site: Site, lane: Lane) -> Iterator[Piece]:
    """One row for each operator: the ratio of its headline case to the library, large; the speeds behind it, small."""
    regressed = {moved.key for event in site.history.events if words.is_regression(event) for moved in event.moved}
    chosen = {kernel: headline_series(lane, kernel, regressed) for kernel in lane.cases}
    shown = {kernel: one for kernel, one in chosen.items() if one}
    ends = {kernel: _drawn_range(lane, one) for kernel, one in shown.items()}
    span = max([LEAST_SPAN, *(high / low for low, high in ends.values())])
    rows = [_operator(site, lane, one, ends[kernel], min(span, MOST_SPAN)) for kernel, one in shown.items()]
    columns = [
        Column("operator", "operator", "case"),
        Column("history", "ratio to the library, one scale for all", "chart", RATIO_HELP),
        Column("ratio", "newest", "ratio", RATIO_HELP),
        Column("change", f"last {RECENT} commits", "change", CHANGE_HELP),
        Column("speeds", "speeds, which wander", "chart", "Both wander with the clock; their ratio does not."),
        Column("value", "ours", "rate"),
        Column("cases", "all its cases", "lines", "The least and the largest newest ratio to the library."),
    ]
    named = f"{lane.machine}-operators"
    yield Table(named, "every operator, by its headline case", columns, rows).piece(look="front")


def headline_series(lane: Lane, kernel: str, regressed: Container[SeriesKey] = ()) -> Series | None:
    """Of our series that were measured lately those that are slower and open, else those of the pull-request tier, else
    all: of these the one with the longest history, then the fastest."""
    timed = [one for those in lane.cases[kernel].values() for one in those if len(one.good)]
    ours = [one for one in timed if not one.baseline] or timed
    if not ours:
        return None
    at, tier = lane.columns["at"], lane.columns["tier"]
    newest = max(int(at[one.good[-1]]) for one in ours)
    ours = [one for one in ours if newest - at[one.good[-1]] <= RECENT]
    worse = [one for one in ours if SeriesKey(lane.machine, kernel, one.backend, one.case) in regressed]
    ours = worse or [one for one in ours if tier[one.newest] == "pr"] or ours
    return max(ours, key=lambda one: (len(one.good), float(lane.columns["value"][one.good[-1]]), one.case))


def _recent(lane: Lane, series: Series) -> list[int]:
    """Places of the last commits at which a series was measured."""
    return sorted({int(at) for at in lane.columns["at"][series.good]})[-SHOWN:]


def _drawn_range(lane: Lane, series: Series) -> tuple[float, float]:
    """The least and the largest drawn ratio; of the newest stretch alone where all would need more than MOST_SPAN."""
    columns, last = lane.columns, series.good[-1]
    rows = series.good[columns["at"][series.good] >= _recent(lane, series)[0]]
    rows = rows[np.isfinite(columns["ratio"][rows])]
    same = [columns[name][rows] == columns[name][last] for name in ("library", "definition")]
    for part in (rows, rows[same[0] & same[1]]):
        ratio = columns["ratio"][part]
        if len(ratio) and ratio.max() / ratio.min() <= MOST_SPAN:
            return float(ratio.min()), float(ratio.max())
    newest = float(columns["ratio"][last])
    return (newest, newest) if np.isfinite(newest) else (1.0, 1.0)


def _operator(site: Site, lane: Lane, one: Series, ends: tuple[float, float], span: float) -> list[Any]:
    places, those = _recent(lane, one), lane.cases[one.kernel][one.case]
    steps = site.steps.get((lane.machine, one.kernel, one.backend, one.case), ())  # type: ignore[call-overload]
    library = next((other for other in those if other.backend == lane.columns["library"][one.good[-1]]), None)
    looks = charts.looks([one.backend], [library.backend] if library else [])
    ratio = [*ratio_lines(lane, one, places, looks[one.backend], steps), *step_marks(site, lane, one, places, steps)]
    large = None
    if ratio:
        middle = math.sqrt(ends[0] * ends[1])
        low, high = (middle * math.sqrt(span) ** sign for sign in (-1, 1))
        option = charts.over_commits(
            places, ratio, "×", "", min=round(low, 3), max=round(high, 3), one=1, **charts.NO_END_LABELS
        )
        large = charts.chart(f"{one.kernel}, {one.case}: ratio to the library", {"": option}, 96, small=True)
    drawn = [other for other in (one, library) if other and len(other.good) > 1]
    lines = [part for other in drawn for part in value_lines(lane, other, places, looks[other.backend], "value")]
    rate = lane.rate[one.kernel, one.case]
    option = charts.over_commits(places, lines, UNITS[rate], "")
    speeds = charts.chart(f"{one.kernel}, {one.case}: {NAMES[rate]}", {"": option}, 96, small=True)
    cells = dict(zip((column.key for column in NEWEST), newest_cells(lane, one), strict=True))
    against = f" beside {cells['library']}" if cells["ratio"] else ""
    link = case_address(one.kernel, lane.machine, one.case)
    about = [one.kernel, link, f"{one.case}: {one.backend}{against}"]
    speed = cells["value"] or [cells["seconds"], "s"]
    if library and len(library.good):
        value = float(lane.columns["value"][library.good[-1]])
        speed = [*speed, [f"{library.backend}", value]]
    shown = speeds if lines else None
    return [about, large, cells["ratio"], cells["change"], shown, speed, _all_cases(lane, one.kernel)]


def _all_cases(lane: Lane, kernel: str) -> list[str]:
    """How the newest ratios of all cases of an operator spread."""
    newest = [lane.ratio(int(one.good[-1])) for one in _ours(lane, kernel)]
    known = sorted(one[0] for one in newest if one)
    cases = len({one.case for one in _ours(lane, kernel)})
    count = "1 case" if cases == 1 else f"{cases} cases"
    if not known:
        return [count, "no library was timed"]
    behind = sum(one[2] < 1 for one in newest if one and math.isfinite(one[2]))
    spread = f"{known[0]:.3f} to {known[-1]:.3f} ×"
    return [spread, f"{count}, {behind} series behind" if behind else f"{count}, none behind"]


def _ours(lane: Lane, kernel: str) -> list[Series]:
    return [one for those in lane.cases[kernel].values() for one in those if len(one.good) and not one.baseline]


# ---- what is not there -----------------------------------------------------------------------------------------------


def _left_out(site: Site, lane: Lane) -> Iterator[Piece]:
    absent = not_measured(lane)
    modules = broken_modules(site, lane)
    if absent.rows or modules:
        yield table.heading("What was not measured, and why")
    for module, why in modules:
        yield table.text(f"{module} could not be imported: {why}", "problem")
    if absent.rows:
        counts = Counter(row[3][0] for row in absent.rows)
        line = ", ".join(f"{count} {status}" for status, count in counts.items())
        yield absent.folded(line)
    for sentence in site.problems:
        yield table.text(sentence, "problem")
