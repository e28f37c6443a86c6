"""python -m dashboards.figures: a chart of the pages as a picture, for a comment or a paper (`ridgeline plot`).

What is drawn is the page's own chart (`dashboards.charts`), each of its units in a panel, by matplotlib.  The suffix of
the path chooses the format (.png, .svg, .pdf).  The same records give the same bytes: no date is written.
"""

from __future__ import annotations

import argparse
import os
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import matplotlib as mpl
import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import EngFormatter

from dashboards import cases, kernel, machines, studies
from dashboards.build import read
from dashboards.files import natural
from dashboards.frame import Commit, Lane, Site
from dashboards.table import Piece

EXAMPLE = "example:\n  python -m dashboards.figures shapes --kernel gemm --machine h200x1-537ca5d2 --out gemm.png"
STYLE = {"svg.hashsalt": "ridgeline", "svg.fonttype": "none", "font.size": 9, "axes.grid": True, "grid.alpha": 0.3}
COLOURS = {
    **{f"--series-{n}": c for n, c in enumerate(("#0072b2", "#d55e00", "#009e73", "#cc79a7", "#e69f00", "#56b4e9"))},
    "--baseline": "#6b7280",
    "--soft": "#6b7280",
    "--bad": "#d1242f",
    "--good": "#1a7f37",
}
"""Of the theme's names, on paper.  Series: Okabe and Ito, Color Universal Design (2008), distinct with every common
colour vision."""

MARKERS = {"circle": "o", "rect": "s", "triangle": "^", "diamond": "D", "roundRect": "P", "pin": "v", "none": ""}
DECIMALS = {"s": None, "B": 0}
"""Of units that take a prefix: 36.5 µs, 67 MB."""


class FigureError(ValueError):
    """There is nothing to draw; the text says what there is."""


# ---- which chart ----------------------------------------------------------------------------------------------------


Wanted = argparse.Namespace
"""machine, kernel, case: names, None where not given."""


def lane_of(site: Site, wanted: Wanted) -> Lane:
    """The one machine that has the operator, or the one that is named."""
    having = [lane for lane in site.lanes if wanted.kernel is None or wanted.kernel in lane.cases]
    chosen = [lane for lane in having if wanted.machine in (None, lane.machine)]
    if len(chosen) == 1:
        return chosen[0]
    what = f"records of {wanted.kernel}" if wanted.kernel else "records"
    where = f" on {wanted.machine}" if wanted.machine else ""
    many = f"several machines have {what}; name one with --machine"
    there = ", ".join(lane.machine for lane in site.lanes)
    raise FigureError(f"{many if chosen else f'there are no {what}{where}'}; there is: {there}")


def history(site: Site, wanted: Wanted) -> tuple[Piece, Lane]:
    lane = lane_of(site, wanted)
    of_case = lane.cases[wanted.kernel]
    timed = [case for case, arms in of_case.items() if any(len(arm.good) for arm in arms)]
    case = _named(wanted.case, timed, f"{wanted.kernel} has no timed case {wanted.case!r}; it has")
    return kernel.history_chart(site, lane, of_case[case]), lane


def shapes(site: Site, wanted: Wanted) -> tuple[Piece, Lane]:
    lane = lane_of(site, wanted)
    pieces = list(kernel.over_size(lane, wanted.kernel, lane.cases[wanted.kernel]))
    if not pieces:
        raise FigureError(f"no two timed cases of {wanted.kernel} tell different bytes; there is nothing to draw over")
    return pieces[-1], lane


def roofline(site: Site, wanted: Wanted) -> tuple[Piece, Lane]:
    lane = lane_of(site, wanted)
    points = [point for point in cases.roofline_points(lane) if wanted.kernel in (None, point.series.kernel)]
    if not points:
        what = wanted.kernel or lane.machine
        raise FigureError(f"no timed case of {what} has FLOP and bytes; there is nothing to draw")
    return cases.roofline_chart(lane, points), lane


def of_ranks(site: Site, wanted: Wanted) -> tuple[Piece, None]:
    points = [point for point in cases.newest_points(site) if point.kernel == wanted.kernel]
    pictures = cases.pictures(points)
    if not pictures:
        raise FigureError(f"no problem of {wanted.kernel} was measured with two numbers of ranks")
    shape_of = {point.case: point.shape for point in points}
    shape = shape_of.get(wanted.case, wanted.case or next(iter(pictures)))
    return pictures[_named(shape, pictures, f"no record has case {wanted.case!r}; there is")], None


def machine(site: Site, wanted: Wanted) -> tuple[Piece, None]:
    by_machine = machines.devices_by_commit(site.frame)
    name = wanted.machine or (next(iter(by_machine)) if len(by_machine) == 1 else None)
    why = f"no record of machine {name!r} has readings; there is" if name else "name a machine with --machine; there is"
    return machines.devices_chart(str(name), by_machine[_named(name, by_machine, why)]), None


def sweep(site: Site, wanted: Wanted) -> tuple[Piece, None]:
    sweeps, _ = studies.recorded_sweeps(site.results)
    own = {of.machine: of for of in sweeps.values() if of.operator == wanted.kernel}
    if not own:
        how = "`ridgeline records add --help` says how its lines are taken"
        raise FigureError(f"no sweep of {wanted.kernel} is recorded; {how}")
    name = wanted.machine or (next(iter(own)) if len(own) == 1 else None)
    chosen = own[_named(name, own, "several machines have one; name one with --machine" if not name else "there is")]
    rows = [row for row in chosen.rows if wanted.case in (None, row["case"])]
    chart = studies.sweep_chart(chosen.operator, rows)
    if chart is None:
        there = ", ".join(dict.fromkeys(row["case"] for row in chosen.rows))
        raise FigureError(f"the sweep has no timed case {wanted.case!r}; it has: {there}")
    return chart, None


def _named(name: str | None, there: Sequence[str] | Mapping[str, Any], why: str) -> str:
    if name not in there:
        raise FigureError(f"{why}: {', '.join(sorted(there, key=natural)) or 'nothing'}")
    return str(name)


KINDS: dict[str, Callable[[Site, Wanted], tuple[Piece, Lane | None]]] = {
    "history": history,
    "shapes": shapes,
    "roofline": roofline,
    "scaling": of_ranks,
    "machine": machine,
    "sweep": sweep,
}
NEEDED = {"history": ("kernel", "case"), **dict.fromkeys(("shapes", "scaling", "sweep"), ("kernel",))}
"""Options without which a figure cannot be drawn."""


# ---- a page's chart on paper ----------------------------------------------------------------------------------------


def figure_of(chart: Piece, commits: Sequence[Commit] = ()) -> Figure:
    """A chart of a page, its units below each other.  commits: of the page, where the chart is over commits."""
    units = chart["units"]
    figure = Figure(figsize=(7.2, 1.2 + 2.6 * len(units)), layout="constrained")
    grid = figure.subplots(len(units), 1, sharex=True, squeeze=False)[:, 0]
    for axes, (_, option) in zip(grid, units, strict=True):
        _panel(axes, option, commits)
    grid[-1].set_xlabel(units[0][1]["xAxis"].get("name", ""))
    figure.suptitle(chart["title"], fontsize=10)
    return figure


def _panel(axes: Axes, option: Mapping[str, Any], commits: Sequence[Commit]) -> None:
    x, y = option["xAxis"], option["yAxis"]
    for n, series in enumerate(option["series"]):
        is_new = series["name"] not in {before["name"] for before in option["series"][:n]}
        _draw(axes, series, series["name"] if is_new else None)
    if x.get("type") == "category":
        names = [commits[at].hash[:8] for at in x["data"]] if option.get("commits") else x["data"]
        axes.set_xticks(range(len(names)), names, rotation=90 if max(map(len, names)) > 4 else 0, fontsize=6)
    for axis, described, scale in ((axes.xaxis, x, axes.set_xscale), (axes.yaxis, y, axes.set_yscale)):
        if described.get("type") == "log":
            scale("log", base=described.get("logBase", 10))
        if (unit := described.get("unit")) in DECIMALS:
            axis.set_major_formatter(EngFormatter(unit, DECIMALS[unit]))
    axes.set_ylabel(y["name"])
    axes.set_ylim(y.get("min"), y.get("max"))
    axes.legend(fontsize=7, frameon=False)


def _draw(axes: Axes, series: Mapping[str, Any], label: str | None) -> None:
    """A series; one without a value at a place is joined over it."""
    points = np.array(list(_points(series["data"])), float).reshape(-1, 2)
    colour = COLOURS[series["color"]]
    marker = "v" if series.get("symbolRotate") else MARKERS[series.get("symbol", "circle")]
    if series.get("level"):
        axes.plot(*points.T, color=colour, lw=5, alpha=0.25)
        return
    is_line, dash = series["type"] == "line", series.get("dash", "solid")
    line = ("solid" if dash == "solid" else (0, [part / 1.5 for part in dash])) if is_line else ""
    axes.plot(*points.T, color=colour, linestyle=line, marker=marker, markersize=3.5, linewidth=1.3, label=label)
    hollow = points[np.isin(points[:, 0], series.get("hollow", ()))]
    axes.plot(*hollow.T, color=colour, linestyle="", marker=marker, markersize=3.5, markerfacecolor="white")
    if "low" in series:
        axes.vlines(range(len(series["low"])), series["low"], series["high"], color=colour, alpha=0.35, lw=2)


def _points(data: Sequence[Any]) -> Iterator[tuple[float, float]]:
    """(x, y) of what has a value; of a plain value the place is x."""
    for place, value in enumerate(data):
        x, y = value if isinstance(value, (list, tuple)) else (place, value)
        if y is not None and np.isfinite(y):
            yield x, y


def main(arguments: Sequence[str] | None = None) -> int:
    """Exit code 0: drawn, its path on stdout; 3: there is nothing to draw, or it cannot be written."""
    parser = argparse.ArgumentParser(
        prog="python -m dashboards.figures",
        description=(__doc__ or "").strip(),
        formatter_class=argparse.RawDescriptionHelpFormatter,
        epilog=EXAMPLE,
    )
    parser.add_argument("what", choices=KINDS)
    parser.add_argument("--results", type=Path, default=Path("results"), metavar="DIR")
    parser.add_argument("--out", type=Path, required=True, metavar="FILE")
    for name in ("machine", "kernel", "case"):
        parser.add_argument(f"--{name}", metavar="NAME")
    wanted = parser.parse_args(arguments)
    try:
        for option in NEEDED.get(wanted.what, ()):
            if getattr(wanted, option) is None:
                raise FigureError(f"a figure {wanted.what!r} needs --{option}")
        site = read(wanted.results)
        if not site.lanes:
            raise FigureError(f"{wanted.results} holds no records; `ridgeline run` measures and records a commit")
        chart, lane = KINDS[wanted.what](site, wanted)
        with mpl.rc_context(STYLE):
            save(figure_of(chart, lane.commits if lane else ()), wanted.out)
    except (FigureError, OSError) as error:
        print(f"error: {error}", file=sys.stderr)
        return 3
    print(wanted.out)
    return 0


def save(figure: Figure, path: Path) -> None:
    """Write a figure wholly or not at all."""
    path.parent.mkdir(parents=True, exist_ok=True)
    draft = path.with_name(f".{path.stem}.{os.getpid()}{path.suffix}")
    no_date = {".svg": {"Date": None}, ".pdf": {"CreationDate": None}, ".png": {"Software": None}}
    try:
        figure.savefig(draft, dpi=160, metadata=no_date.get(path.suffix.lower(), {}))
        os.replace(draft, path)
    finally:
        draft.unlink(missing_ok=True)


if __name__ == "__main__":
    sys.exit(main())
