"""The page of an operator: the history of every case, its newest numbers with all backends, and its machine code."""

from __future__ import annotations

import itertools
import json
import re
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

import numpy as np
import pandas as pd

from ci.history.exact import CodePoint, CodeRecord, series_rank
from ci.history.types import Direction, Moved, SeriesKey
from ci.records import rates
from ci.records.rates import Rate
from dashboards import charts, table
from dashboards.charts import Option
from dashboards.events import address, moved_words
from dashboards.files import natural, rounded, slug
from dashboards.frame import NAMES, RATIO, RECENT, UNITS, Lane, Series, Site, stretches
from dashboards.table import BACKEND, CASE, COMMIT, OPERATOR, Column, Piece, Table

CHANGE_HELP = (
    f"How much longer a call takes than {RECENT} measured commits before: the quotient of the ratios to the library, "
    "which cancels clocks and heat. Absolute times of different days are not compared."
)
RATIO_HELP = (
    "The library's time / ours in the rounds of the same trials, with its 99 % interval. Above 1 ours is faster."
)
NEWEST = (
    Column(
        "value", "speed", "rate", "At the median time. TFLOPS: FLOP of all ranks / time; GB/s: 10⁹ bytes of a rank."
    ),
    Column("range", "99 % interval", "interval"),
    Column("seconds", "time", "duration", "Median; of a collective, of the slowest rank."),
    Column("peak_share", "of peak", "share", "Least time by the roofline of the device / measured time."),
    Column("ratio", "to the library", "ratio", RATIO_HELP),
    Column("library", "library"),
    Column("change", f"last {RECENT} commits", "change", CHANGE_HELP),
    Column("trials", "trials", "number", "Fresh processes that were timed; the unit of inference."),
    COMMIT,
)
"""Columns of the newest number of a series."""


WIDE = 5
"""Quotient of the largest and the smallest ratio of a chart from which its axis is logarithmic: with another library
beside it a series goes on at another level, and the steps of both are to be seen."""


def kernel_files(site: Site, lane: Lane, sustained: pd.DataFrame) -> Iterator[tuple[str, Any]]:
    """(path, page) of every operator of a lane."""
    for kernel, cases in lane.cases.items():
        own = sustained[(sustained["machine"] == lane.machine) & (sustained["kernel"] == kernel)]
        yield f"{lane.slug}/kernel-{slug(kernel)}", _page(site, lane, kernel, cases, own)


def _page(
    site: Site, lane: Lane, kernel: str, cases: Mapping[str, Sequence[Series]], sustained: pd.DataFrame
) -> dict[str, Any]:
    names = sorted((name for name, those in cases.items() if any(len(one.good) for one in those)), key=natural)
    first = max(names, key=lambda name: max(len(one.good) for one in cases[name]), default="")
    measured = {name: _case(site, lane, cases[name]) for name in names}
    pieces: list[Piece] = []
    if names:
        ordered = [first, *(name for name in names if name != first)]
        pieces.append(table.choice("case", "case", [[name, name] for name in ordered], measured))
        pieces += [table.heading(f"All cases of {kernel}"), all_cases(lane, kernel, cases).piece(filter=True)]
        pieces += over_size(lane, kernel, cases)
    else:
        pieces.append(table.text("Nothing of it was timed on this machine; what was tried is below.", "notice"))
    if len(sustained):
        pieces += [table.heading("Calls back to back, at settled power"), sustained_table(sustained).piece()]
    if len((absent := not_measured(lane, kernel)).rows):
        line = f"{len(absent.rows)} pairs of case and backend have no time on this machine"
        pieces.append(absent.folded(line))
    return {"title": kernel, "commits": lane.commits, "pieces": pieces}


# ---- one case -------------------------------------------------------------------------------------------------------


def _case(site: Site, lane: Lane, those: Sequence[Series]) -> list[Piece]:
    newest = Table(
        f"{those[0].kernel}-{those[0].case}",
        f"newest numbers of {those[0].case}",
        [BACKEND, *NEWEST],
        [[one.backend, *newest_cells(lane, one)] for one in by_speed(lane, those)],
    )
    steps = [moved for one in those for moved in site.steps.get(_key(lane, one), ())]
    return [
        table.facts(case_facts(lane, those)),
        history_chart(site, lane, those),
        *step_lines(site, lane, steps),
        newest.piece(),
        {"kind": "part", "path": f"code/{slug(those[0].kernel)}", "part": those[0].case},
    ]


def by_speed(lane: Lane, those: Sequence[Series]) -> list[Series]:
    """Those with a time, the fastest newest time first."""
    timed = [one for one in those if len(one.good)]
    return sorted(timed, key=lambda one: float(lane.columns["seconds"][one.good[-1]]))


def newest_cells(lane: Lane, series: Series) -> list[Any]:
    """The cells of NEWEST of a series that has a time."""
    row, rows = int(series.good[-1]), lane.columns
    rate = lane.rate[series.kernel, series.case]
    seconds, value = float(rows["seconds"][row]), float(rows["value"][row])
    ends = [float(rows[name][row]) for name in ("seconds_high", "seconds_low")]
    interval = [value * seconds / end for end in ends] if rate is not Rate.TIME else ends[::-1]
    speed = [value, UNITS[rate]] if rate is not Rate.TIME and np.isfinite(value) else None
    return [
        speed,
        interval if speed and np.isfinite(interval).all() else None,
        seconds,
        float(rows["peak_share"][row]),
        lane.ratio(row) if not series.baseline else None,
        rows["library"][row] if not series.baseline else "a library",
        lane.recent(series) if not series.baseline else None,
        int(rows["trials"][row]) if np.isfinite(rows["trials"][row]) else None,
        lane.commit(row),
    ]


def case_facts(lane: Lane, those: Sequence[Series]) -> list[tuple[str, Any]]:
    """What a case is."""
    row = max(one.newest for one in those if len(one.good))
    cost = {name: float(lane.columns[name][row]) for name in rates.AMOUNT.values()}
    world = lane.columns["world"][row]
    shape = json.loads(lane.columns["shape"][row] or "{}")
    amounts = (
        ("flops", "FLOP"),
        ("hbm_bytes", "B of HBM"),
        ("link_bytes", "B over links"),
        ("payload_bytes", "B payload"),
    )
    costs = [f"{decimal(cost[name])}{unit}" for name, unit in amounts if cost[name] > 0]
    named = [
        ("shape", " ".join(f"{name}={value}" for name, value in shape.items())),
        ("dtype", lane.columns["dtype"][row]),
        ("ranks", str(int(world)) if world > 1 else ""),
        ("tier", lane.columns["tier"][row]),
        ("a rank's cost", ", ".join(costs)),
        ("timed by", lane.columns["method"][row]),
    ]
    return [(name, value) for name, value in named if value]


def decimal(value: float) -> str:
    """137438953472 -> "137.4 G"."""
    for size, prefix in ((1e15, "P"), (1e12, "T"), (1e9, "G"), (1e6, "M"), (1e3, "k")):
        if value >= size:
            return f"{value / size:.4g} {prefix}"
    return f"{value:.4g} "


# ---- history --------------------------------------------------------------------------------------------------------


def _key(lane: Lane, series: Series) -> SeriesKey:
    return SeriesKey(lane.machine, series.kernel, series.backend, series.case)


def history_chart(site: Site, lane: Lane, those: Sequence[Series]) -> Piece:
    """Every backend of a case over its measured commits: the ratio to the library, the speed, the time."""
    timed = [one for one in those if len(one.good)]
    places = np.unique(np.concatenate([lane.columns["at"][one.good] for one in timed]))
    drawn = [one for one in timed if len(one.good) > 1 or not one.baseline or len(places) == 1]
    looks = charts.looks_of(drawn)
    rate, units = lane.rate[those[0].kernel, those[0].case], {}
    ours = [one for one in drawn if np.isfinite(lane.columns["ratio"][one.good]).any() and not one.baseline]
    if ours:
        steps = {one.backend: site.steps.get(_key(lane, one), ()) for one in ours}
        lines = [
            part for one in ours for part in ratio_lines(lane, one, places, looks[one.backend], steps[one.backend])
        ]
        marks = [mark for one in ours for mark in step_marks(site, lane, one, places, steps[one.backend])]
        ratios = np.concatenate([lane.columns["ratio"][one.good] for one in ours])
        wide = np.nanmax(ratios) > WIDE * np.nanmin(ratios)
        axis = {"type": "log"} if wide else {}
        units[RATIO] = charts.over_commits(places, [*lines, *marks], "×", RATIO, one=1, **axis)
    if rate is not Rate.TIME:
        lines = [part for one in drawn for part in value_lines(lane, one, places, looks[one.backend], "value")]
        units[NAMES[rate]] = charts.over_commits(places, lines, UNITS[rate], NAMES[rate])
    lines = [part for one in drawn for part in value_lines(lane, one, places, looks[one.backend], "seconds")]
    units["time"] = charts.over_commits(places, lines, "s", NAMES[Rate.TIME])
    title = f"{those[0].kernel}, {those[0].case}"
    return charts.chart(title, units, 330, zoom=len(places) > 30, key="unit")


def ratio_lines(
    lane: Lane, series: Series, places: Sequence[int], look: Mapping[str, Any], steps: Iterable[Moved] = ()
) -> Iterator[Option]:
    """A line for each stretch under one definition beside one library, and the levels between its steps."""
    rows, good = lane.columns, _drawn(lane, series, places, "ratio")
    if not len(good):
        return
    begins = [lane.place[one.first_bad] for one in steps if one.first_bad in lane.place]
    bounds = stretches(rows["definition"][good], rows["library"][good])
    for start, stop in zip(bounds[:-1], bounds[1:], strict=True):
        part = good[start:stop]
        yield _line(lane, series.backend, part, places, look, ("ratio", "ratio_low", "ratio_high"))
        cuts = np.flatnonzero(np.isin(rows["at"][part][1:], begins)) + 1
        for level in np.split(part, cuts) if len(cuts) else ():
            middle = float(np.exp(np.mean(np.log(rows["ratio"][level]))))
            data = _aligned(places, np.searchsorted(places, rows["at"][level]), rounded(middle))
            yield charts.level(series.backend, data, look["color"])


def value_lines(
    lane: Lane, series: Series, places: Sequence[int], look: Mapping[str, Any], name: str
) -> Iterator[Option]:
    """A line for each stretch under one definition; name: "value" or "seconds"."""
    rows, good = lane.columns, _drawn(lane, series, places, name)
    if len(good):
        bounds = stretches(rows["definition"][good])
        for start, stop in zip(bounds[:-1], bounds[1:], strict=True):
            columns = ("seconds", "seconds_low", "seconds_high") if name == "seconds" else (name,)
            yield _line(lane, series.backend, good[start:stop], places, look, columns)


def _drawn(lane: Lane, series: Series, places: Sequence[int], name: str) -> Any:
    """The rows of a series that have a value at one of the places of a chart, which are in order."""
    good = series.good
    return good[np.isfinite(lane.columns[name][good]) & (lane.columns["at"][good] >= places[0])]


def _line(
    lane: Lane, name: str, part: Any, places: Sequence[int], look: Mapping[str, Any], columns: Sequence[str]
) -> Option:
    at = np.searchsorted(places, lane.columns["at"][part])
    value, *names = columns
    hollow = at[lane.of_few_trials[part]]
    more: dict[str, Any] = {"hollow": hollow} if len(hollow) else {}
    ends = {end: lane.drawn_ends[name][part] for end, name in zip(("low", "high"), names, strict=False)}
    if ends and np.isfinite(ends["low"]).any():
        more |= {end: _aligned(places, at, values) for end, values in ends.items()}
    return charts.line(name, _aligned(places, at, lane.drawn[value][part]), look, **more)


def _aligned(places: Sequence[int], at: Any, values: Any) -> Any:
    """Values at some of the places of a chart; NaN at the others."""
    aligned = np.full(len(places), np.nan)
    aligned[at] = values
    return aligned


def step_marks(
    site: Site, lane: Lane, series: Series, places: Sequence[int], steps: Iterable[Moved]
) -> Iterator[Option]:
    """A mark at the first commit of each step of a series, which opens its event."""
    rows, good = lane.columns, _drawn(lane, series, places, "ratio")
    for one in steps:
        at = np.flatnonzero(rows["commit"][good] == one.first_bad)
        if len(at):
            row = int(good[at[-1]])
            slower = one.direction is Direction.SLOWER
            event = site.event_of.get((one.key, one.first_bad))
            yield charts.points(
                "steps",
                [[int(np.searchsorted(places, rows["at"][row])), float(rows["ratio"][row])]],
                "--bad" if slower else "--good",
                symbol="triangle",
                symbolSize=13,
                symbolRotate=180 if slower else 0,
                tips=[moved_words(one)],
                links=[address(event) if event else None],
            )


def step_lines(site: Site, lane: Lane, steps: Sequence[Moved]) -> Iterator[Piece]:
    """The steps of a case in words, the newest first."""
    place = lane.place
    ordered = sorted(steps, key=lambda one: (-place.get(one.first_bad, -1), one.key))
    if ordered:
        events = [site.event_of.get((one.key, one.first_bad)) for one in ordered]
        links = [address(event) if event else None for event in events]
        lines = [[moved_words(one), link, one.direction] for one, link in zip(ordered, links, strict=True)]
        yield {"kind": "lines", "lines": lines}


# ---- all cases ------------------------------------------------------------------------------------------------------


def all_cases(lane: Lane, kernel: str, cases: Mapping[str, Sequence[Series]]) -> Table:
    """The newest number of each of our backends in each case; of a case without one, of the libraries."""
    rows = []
    for case in sorted(cases, key=natural):
        timed = by_speed(lane, cases[case])
        for one in [one for one in timed if not one.baseline] or timed:
            rows.append([[case, f"#case={case}"], one.backend, *newest_cells(lane, one)])
    columns = [CASE, BACKEND, *NEWEST]
    return Table(f"{kernel}-cases", f"newest numbers of all cases of {kernel}", columns, rows)


def not_measured(lane: Lane, kernel: str = "") -> Table:
    """What has no newest time, and why."""
    rows = [
        [one.kernel, one.case, one.backend, [lane.columns["status"][one.newest], lane.columns["why"][one.newest]]]
        for one in lane.series
        if kernel in ("", one.kernel) and lane.columns["status"][one.newest] != "ok"
    ]
    rows.sort(key=lambda row: (row[3][0], row[0], natural(row[1]), row[2]))
    columns = [OPERATOR, Column("case", "case"), BACKEND]
    name = f"{kernel or lane.machine}-not-measured"
    return Table(name, "what was not measured, and why", [*columns, Column("status", "why", "status")], rows)


def over_size(lane: Lane, kernel: str, cases: Mapping[str, Sequence[Series]]) -> Iterator[Piece]:
    """The newest speed of every case over the bytes that it must move, a mark for each backend; nothing for one size.

    Of cases that are quoted in different units, those of the most frequent one.
    """
    columns = lane.columns
    every = [one for name in sorted(cases, key=natural) for one in cases[name] if len(one.good)]
    quoted = Counter({one.case: lane.rate[kernel, one.case] for one in every}.values())
    rate = max(quoted, key=quoted.__getitem__, default=Rate.TIME)
    found: dict[str, list[tuple[float, float, str]]] = {}
    has_payload = False
    for one in (one for one in every if lane.rate[kernel, one.case] is rate):
        payload, hbm, value = (float(columns[of][one.good[-1]]) for of in ("payload_bytes", "hbm_bytes", "value"))
        has_payload |= payload > 0
        size = payload if payload > 0 else hbm
        if size > 0 and np.isfinite(value):
            found.setdefault(one.backend, []).append((size, value, one.case))
    if len({size for those in found.values() for size, *_ in those}) < 2:
        return
    looks, series = charts.looks_of(every), []
    symbols = dict(zip(looks, ("circle", "rect", "triangle", "diamond", "roundRect", "pin") * 9, strict=False))
    for backend, those in sorted(found.items()):
        those.sort()
        data, tips = [[size, value] for size, value, _ in those], [case for *_, case in those]
        links = [f"#case={case}" for case in tips]
        more = {"symbol": symbols[backend], "symbolSize": 8, "tips": tips, "links": links}
        series.append(charts.points(backend, data, looks[backend]["color"], **more))
    x = {"name": "payload" if has_payload else "least HBM traffic of a rank", "unit": "B", "logBase": 2}
    values = [value for those in found.values() for _, value, _ in those]
    kind = "log" if max(values) > 10 * min(values) else "value"
    option = charts.over(x, {"name": NAMES[rate], "unit": UNITS[rate], "type": kind}, series)
    yield table.heading("Newest speed over the size of a case")
    yield charts.chart(f"{kernel} over size", {NAMES[rate]: option}, 320)


def sustained_table(rows: pd.DataFrame) -> Table:
    """Sustained calls beside spaced ones: time, ratio to the vendor library in either regime."""
    columns = [
        CASE,
        BACKEND,
        Column("sustained", "back to back", "duration", "Time of a call in a burst, at settled power."),
        Column("spaced", "spaced", "duration", "Time of a call with cold caches, its commit may be another."),
        Column("sustained_ratio", "to the library, back to back", "ratio", RATIO_HELP),
        Column("spaced_ratio", "to the library, spaced", "ratio", RATIO_HELP),
        COMMIT,
    ]
    cells = [
        [
            [row["case"], f"#case={row['case']}"],
            row["backend"],
            row["seconds"],
            row["seconds_spaced"] if np.isfinite(row["seconds_spaced"]) else None,
            _ratio_of(row, ""),
            _ratio_of(row, "_spaced"),
            [row["commit"], ""],
        ]
        for row in sorted(
            rows.to_dict("records"), key=lambda row: (natural(row["case"]), row["baseline"], row["backend"])
        )
    ]
    return Table(f"{rows['kernel'].iloc[0]}-sustained", "calls back to back beside spaced ones", columns, cells)


def _ratio_of(row: Mapping[Any, Any], regime: str) -> list[float] | None:
    ratio = [row[f"paired_{end}{regime}"] for end in ("ratio", "low", "high")]
    return ratio if np.isfinite(ratio[0]) else None


# ---- machine code ---------------------------------------------------------------------------------------------------

_LABEL = re.compile(r"^(?P<case>.*?) \[(?P<label>.*)\]$")
"""A configuration is a case, and in brackets what the benchmark calls it where a case compiles to several."""

CODE = (
    Column("code", "code"),
    Column("metric", "count"),
    Column("value", "newest", "number"),
    Column("before", "before", "number"),
    Column("commit", "last changed", "commit"),
)


def code_files(site: Site) -> Iterator[tuple[str, Any]]:
    """(path, pieces by case) of the recorded machine code of every operator: newest counts and their last change."""
    newest = sorted({one.commit: one for one in site.code}.values(), key=lambda one: one.date_ms)
    found: dict[str, dict[str, list[list[Any]]]] = {kernel: {} for kernel in site.kernels()}
    if newest:
        changed = [record for earlier, record in itertools.pairwise(newest) if record.values != earlier.values]
        changes = _last_changes([newest[0], *changed])
        for point in sorted(newest[-1].values, key=_rank):
            match = _LABEL.match(point.configuration)
            case, label = (match["case"], match["label"]) if match else (point.configuration, "")
            name = " ".join(filter(None, (point.arch, point.backend, label)))
            row = [name, point.series.replace("_", " "), newest[-1].values[point], *changes.get(point, (None, None))]
            found.setdefault(point.kernel, {}).setdefault(case, []).append(row)
    for kernel, cases in found.items():
        yield f"code/{slug(kernel)}", {case: [_code(kernel, case, rows)] for case, rows in cases.items()}


def _last_changes(records: Sequence[CodeRecord]) -> dict[CodePoint, list[Any]]:
    """[value before, commit] of the last change of each count that ever changed.  records: oldest first."""
    now, changes = dict[CodePoint, float | None](), dict[CodePoint, list[Any]]()
    for record in records:
        for point, value in record.values.items():
            if now.setdefault(point, value) != value:
                changes[point] = [now[point], [record.commit, ""]]
                now[point] = value
    return changes


def _rank(point: CodePoint) -> tuple[Any, ...]:
    return point.kernel, natural(point.configuration), point.arch, point.backend, series_rank(point.series)


def _code(kernel: str, case: str, rows: Sequence[Sequence[Any]]) -> Piece:
    names = sorted({row[0].split()[0] for row in rows})
    line = f"Machine code of {case}: {', '.join(names)}"
    return Table(f"{kernel}-{case}-code", f"machine code of {case}", CODE, rows, group="code").folded(line)
