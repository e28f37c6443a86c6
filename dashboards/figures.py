"""python -m dashboards.figures: one figure of the records, by matplotlib, for a comment or a paper (`ridgeline plot`).

The suffix of the path chooses the format (.png, .svg, .pdf).  The same records give the same bytes: no date is written.
"""

from __future__ import annotations

import argparse
import os
import sys
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import Any

import matplotlib as mpl
import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from ci.records import derived, store
from dashboards.cases import peaks
from dashboards.files import natural
from dashboards.frame import NAMES, RATIO, Lane, Series, lanes, stretches
from dashboards.machines import MEASURES, devices_by_commit, over_commits
from dashboards.scaling import without_ranks

EXAMPLE = "example:\n  python -m dashboards.figures shapes --kernel gemm --machine h200x1-537ca5d2 --out gemm.png"
STYLE = {"svg.hashsalt": "ridgeline", "svg.fonttype": "none", "font.size": 9, "axes.grid": True, "grid.alpha": 0.3}
COLOURS = ("#0072b2", "#d55e00", "#009e73", "#cc79a7", "#e69f00", "#56b4e9")
"""Okabe and Ito, Color Universal Design (2008): distinct with every common colour vision."""

MARKERS = ("o", "s", "^", "D", "v", "P")
MOST_CASES = 60
"""Cases of one figure of backends: more lines cannot be read on a page of paper."""


class FigureError(ValueError):
    """There is nothing to draw; the text says what there is."""


class Chosen:
    """The records that a figure is drawn of."""

    def __init__(self, wanted: argparse.Namespace) -> None:
        self.results, self.kernel, self.case = wanted.results, wanted.kernel, wanted.case
        self.machine: str | None = wanted.machine

    def lane(self) -> Lane:
        """The one machine that has the operator, or the one that is named."""
        found = [lane for lane in self.lanes() if self.kernel is None or self.kernel in lane.cases]
        there = ", ".join(lane.machine for lane in self.lanes())
        if not there:
            raise FigureError(f"{self.results} holds no records; `ridgeline run` measures and records a commit")
        wanted = [lane for lane in found if self.machine in (None, lane.machine)]
        if len(wanted) == 1:
            return wanted[0]
        what = f"records of {self.kernel}" if self.kernel else "records"
        where = f" on {self.machine}" if self.machine else ""
        many = f"several machines have {what}; name one with --machine"
        raise FigureError(f"{many if wanted else f'there are no {what}{where}'}; there is: {there}")

    def lanes(self) -> list[Lane]:
        """Every machine with records."""
        frame = store.load(self.results)
        return lanes(derived.derive(frame)) if len(frame) else []

    def timed(self, lane: Lane) -> list[Series]:
        """The series of the operator that have a time, of the case if one is named."""
        cases = lane.cases[self.kernel] if self.kernel else {}
        if self.case and self.case not in cases:
            raise FigureError(
                f"{self.kernel} has no case {self.case!r}; it has: {', '.join(sorted(cases, key=natural))}"
            )
        found = [one for case, those in cases.items() if self.case in (None, case) for one in those if len(one.good)]
        if not found:
            raise FigureError(f"nothing of {self.kernel} was timed on {lane.machine}")
        return found


# ---- kinds ----------------------------------------------------------------------------------------------------------


def history(chosen: Chosen) -> Figure:
    """A case over the commits of a machine: the ratio to the library, and the speed below it."""
    lane = chosen.lane()
    those = chosen.timed(lane)
    places = sorted({int(at) for one in those for at in lane.columns["at"][one.good]})
    figure, axes = _axes(2, sharex=True)
    rate = lane.rate[those[0].kernel, those[0].case]
    for axis, name, label in ((axes[0], "ratio", RATIO), (axes[1], "value", NAMES[rate])):
        for one, look in _looks(those):
            good = one.good[np.isfinite(lane.columns[name][one.good])]
            keys = [lane.columns[key][good] for key in ("definition", "library")[: 2 if name == "ratio" else 1]]
            bounds = stretches(*keys) if len(good) else [0]
            for n, (start, stop) in enumerate(zip(bounds[:-1], bounds[1:], strict=True)):
                part = good[start:stop]
                x = np.searchsorted(places, lane.columns["at"][part])
                axis.plot(x, lane.columns[name][part], **{**look, "label": look["label"] if n == 0 else None})
        axis.set_ylabel(label)
    axes[1].set_xticks(range(len(places)), [lane.commits[at].hash[:8] for at in places], rotation=90, fontsize=6)
    return _titled(figure, f"{those[0].kernel}, {those[0].case} on {lane.machine}", axes[1])


def backends(chosen: Chosen) -> Figure:
    """The newest speed of each backend in each case beside that of the case's fastest library."""
    lane = chosen.lane()
    those = chosen.timed(lane)
    cases = sorted({one.case for one in those}, key=natural)[:MOST_CASES]
    figure, (axis,) = _axes(1, height=1.5 + 0.28 * len(cases))
    seconds = {(one.case, one.backend): float(lane.columns["seconds"][one.good[-1]]) for one in those}
    libraries = {one.backend for one in those if one.baseline}
    best = {
        case: min((s for (c, b), s in seconds.items() if c == case and b in libraries), default=None) for case in cases
    }
    least = {case: best[case] or min(s for (c, _), s in seconds.items() if c == case) for case in cases}
    for backend, look in _by_backend(those):
        own = [case for case in cases if (case, backend) in seconds]
        speeds = [least[case] / seconds[case, backend] for case in own]
        axis.plot(speeds, [cases.index(case) for case in own], **{**look, "linestyle": ""})
    axis.set_yticks(range(len(cases)), cases)
    axis.invert_yaxis()
    axis.axvline(1, color="#6b7280", lw=0.8)
    axis.set_xlabel("speed / speed of the fastest library (more is better)")
    return _titled(figure, f"{chosen.kernel}: backends beside each other on {lane.machine}", axis)


def shapes(chosen: Chosen) -> Figure:
    """The newest speed of every case over the bytes it must move: payload of a collective, else least HBM traffic."""
    lane = chosen.lane()
    those = chosen.timed(lane)
    rates = [lane.rate[one.kernel, one.case] for one in those]
    rate = max(set(rates), key=rates.count)
    figure, (axis,) = _axes(1)
    for backend, look in _by_backend(those):
        own = [int(one.good[-1]) for one in those if one.backend == backend and lane.rate[one.kernel, one.case] is rate]
        points = sorted((_bytes(lane, row), float(lane.columns["value"][row])) for row in own if _bytes(lane, row) > 0)
        if points:
            payload = lane.columns["payload_bytes"][own[0]] > 0
            axis.plot(*zip(*points, strict=True), **{**look, **({} if payload else {"linestyle": ""})})
    if not axis.lines:
        raise FigureError(f"the cases of {chosen.kernel} tell no bytes; there is nothing to draw them over")
    axis.set_xscale("log", base=2)
    axis.set_xlabel("payload or least HBM traffic of a rank, bytes")
    axis.set_ylabel(NAMES[rate])
    return _titled(figure, f"{chosen.kernel} over size on {lane.machine}", axis)


def _bytes(lane: Lane, row: int) -> float:
    payload, hbm = (float(lane.columns[name][row]) for name in ("payload_bytes", "hbm_bytes"))
    return payload if payload > 0 else hbm


def roofline(chosen: Chosen) -> Figure:
    """TFLOPS of one device over the intensity of each case (FLOP / HBM byte), under the roofs of the device."""
    lane = chosen.lane()
    rows = lane.columns
    shown = [
        (one.kernel, int(one.good[-1]))
        for one in lane.series
        if len(one.good) and not one.baseline and chosen.kernel in (None, one.kernel)
    ]
    shown = [(name, row) for name, row in shown if rows["flops"][row] > 0 and rows["hbm_bytes"][row] > 0]
    if not shown:
        raise FigureError(
            f"no timed case of {chosen.kernel or lane.machine} has FLOP and bytes; there is nothing to draw"
        )
    figure, (axis,) = _axes(1)
    intensity = {row: rows["flops"][row] / rows["hbm_bytes"][row] for _, row in shown}
    for n, kernel in enumerate(sorted({name for name, _ in shown})):
        own = [row for name, row in shown if name == kernel]
        x, y = [intensity[row] for row in own], [rows["flops"][row] / rows["seconds"][row] / 1e12 for row in own]
        axis.plot(x, y, label=kernel, color=COLOURS[n % 6], marker=MARKERS[n % 6], linestyle="", markersize=4)
    hardware = derived.hardware_of(lane.newest)
    ends = np.array([min(intensity.values()) / 2, max(intensity.values()) * 2])
    for dtype, peak in peaks(hardware, {str(rows["dtype"][row]) for _, row in shown}).items() if hardware else ():
        x = np.geomspace(*ends, 200)
        y = np.minimum(x * hardware.hbm_bandwidth, peak) / 1e12
        axis.plot(x, y, lw=1, color="#6b7280", label=f"roof, {dtype}")
    axis.set(xscale="log", yscale="log", xlabel="FLOP per byte of least HBM traffic", ylabel="TFLOPS of one device")
    known = "" if hardware else ", whose peaks are not known: without roofs"
    return _titled(figure, f"roofline of {lane.machine}{known}", axis)


def scaling(chosen: Chosen) -> Figure:
    """Speed of one problem over the number of ranks, on whichever machines have it; --case is any of its names."""
    found: dict[str, dict[tuple[str, int], tuple[Lane, Series]]] = {}
    for lane in sorted(chosen.lanes(), key=lambda lane: lane.commits[-1].date):
        for one in (
            one for those in lane.cases.get(chosen.kernel or "", {}).values() for one in those if len(one.good)
        ):
            world = int(lane.columns["world"][one.good[-1]])
            if world > 1:
                found.setdefault(without_ranks(one.case, world), {})[one.backend, world] = (lane, one)
    several = {shape: points for shape, points in found.items() if len({world for _, world in points}) > 1}
    if not several:
        raise FigureError(f"no problem of {chosen.kernel} was measured with two numbers of ranks")
    names = {shape: {shape, *(one.case for _, one in points.values())} for shape, points in several.items()}
    shape = next((shape for shape in several if chosen.case in (None, *names[shape])), None)
    if shape is None:
        raise FigureError(f"no record has case {chosen.case!r}; there is: {', '.join(sorted(several))}")
    points = several[shape]
    figure, (axis,) = _axes(1)
    for backend, look in _by_backend([one for _, one in points.values()]):
        own = sorted((world, *pair) for (name, world), pair in points.items() if name == backend)
        values = [float(lane.columns["value"][one.good[-1]]) for _, lane, one in own]
        axis.plot([world for world, *_ in own], values, **look)
    lane, one = next(iter(points.values()))
    axis.set(xlabel="ranks", ylabel=NAMES[lane.rate[one.kernel, one.case]])
    axis.set_xticks(sorted({world for _, world in points}))
    return _titled(figure, f"{chosen.kernel}, {shape}", axis)


def machine(chosen: Chosen) -> Figure:
    """What each GPU of a machine reported at work, commit by commit."""
    found = devices_by_commit(store.load(chosen.results))
    name = chosen.machine or (next(iter(found)) if len(found) == 1 else None)
    if name not in found:
        wrong = f"no record of machine {name!r} has readings" if name else "name a machine with --machine"
        raise FigureError(f"{wrong}; there is: {', '.join(sorted(found)) or 'nothing'}")
    lines = {field: over_commits(found[name], field, of[2]) for field, of in MEASURES.items()}
    read = [field for field, of in lines.items() if any(value is not None for one in of for value in one)]
    figure, axes = _axes(len(read), sharex=True, height=1.4 * len(read) + 1)
    for axis, field in zip(axes, read, strict=True):
        for n, values in enumerate(lines[field]):
            axis.plot([np.nan if value is None else value for value in values], **_look(f"GPU {n}", n, False))
        label, unit, _ = MEASURES[field]
        axis.set_ylabel(f"{label},\n{unit}", fontsize=7)
    axes[-1].set_xticks(range(len(found[name])), [one.hash[:8] for one in found[name]], rotation=90, fontsize=6)
    return _titled(figure, name, axes[0])


def sweep(chosen: Chosen) -> Figure:
    """The points of an operator's newest recorded sweep beside their anchor."""
    from ci.sweeps import measured as sweeps
    from dashboards.studies import newest_sweeps

    found = []
    for paths in newest_sweeps(chosen.results):
        try:
            one = sweeps.read(paths)
        except sweeps.SweepError:
            continue
        if str(one.frame["operator"].iloc[0]) == chosen.kernel and chosen.machine in (None, one.origin.machine):
            found.append(one)
    if len(found) != 1:
        there = ", ".join(one.origin.machine for one in found)
        none = f"no sweep of {chosen.kernel} is recorded; `ridgeline records add --help` says how its lines are taken"
        raise FigureError(f"several machines have one; name one with --machine: {there}" if found else none)
    frame = found[0].frame[found[0].frame["ratio"].notna()]
    cases = [case for case in dict.fromkeys(frame["case"]) if chosen.case in (None, case)]
    if not cases:
        raise FigureError(f"the sweep has no case {chosen.case!r}; it has {', '.join(dict.fromkeys(frame['case']))}")
    figure, (axis,) = _axes(1, height=1.5 + 0.3 * len(cases))
    for n, (backend, own) in enumerate(frame[frame["case"].isin(cases)].groupby("backend")):
        places = [cases.index(case) for case in own["case"]]
        axis.plot(own["ratio"], places, **{**_look(str(backend), n, False), "linestyle": ""})
    axis.set_yticks(range(len(cases)), cases)
    axis.axvline(1, color="#6b7280", lw=0.8)
    axis.set_xlabel("time / the anchor's time (less is better)")
    return _titled(figure, f"{chosen.kernel}: points beside their anchor on {found[0].origin.machine}", axis)


# ---- what all of them share -----------------------------------------------------------------------------------------


def _axes(count: int, height: float = 0.0, **more: Any) -> tuple[Figure, list[Axes]]:
    figure = Figure(figsize=(7.2, height or 1.4 + 2.4 * count), layout="constrained")
    grid = figure.subplots(count, 1, squeeze=False, **more)
    return figure, list(grid[:, 0])


def _look(name: str, place: int, baseline: bool) -> dict[str, Any]:
    style = {"marker": MARKERS[place % 6], "markersize": 3.5, "linewidth": 1.3, "label": name}
    if baseline:
        return {**style, "color": "#6b7280", "linestyle": (0, (5, 3))}
    return {**style, "color": COLOURS[place % 6], "linestyle": "-" if place < 6 else (0, (3, 1.5))}


def _by_backend(those: Iterable[Series]) -> list[tuple[str, dict[str, Any]]]:
    names = sorted({(one.baseline, one.backend) for one in those})
    return [(backend, _look(backend, n, baseline)) for n, (baseline, backend) in enumerate(names)]


def _looks(those: Sequence[Series]) -> list[tuple[Series, dict[str, Any]]]:
    looks = dict(_by_backend(those))
    return [(one, looks[one.backend]) for one in those]


def _titled(figure: Figure, title: str, legend: Axes) -> Figure:
    figure.suptitle(title, fontsize=10)
    legend.legend(fontsize=7, frameon=False)
    return figure


KINDS: dict[str, Callable[[Chosen], Figure]] = {
    one.__name__: one for one in (history, backends, shapes, roofline, scaling, machine, sweep)
}
NEEDED = {"history": ("kernel", "case"), **dict.fromkeys(("backends", "shapes", "scaling", "sweep"), ("kernel",))}
"""Options without which a figure cannot be drawn."""


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
        with mpl.rc_context(STYLE):
            save(KINDS[wanted.what](Chosen(wanted)), wanted.out)
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
