"""Machines: speed over the number of ranks, a collective's bandwidth over the CUs it takes, and health over time."""

from __future__ import annotations

import datetime
from collections.abc import Iterable, Sequence
from pathlib import Path

import pandas as pd
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import FixedLocator, NullLocator, ScalarFormatter

from ci.history.health.machines import MachineHealth
from ci.history.health.readings import DeviceHealth
from ci.history.kept.curves import CurvePoint
from ci.records.rates import Rate
from dashboards.figures import canvas
from dashboards.figures.error import FigureError
from dashboards.lanes import without_ranks
from dashboards.values import headline, in_rate

PANELS = (
    ("clock_mhz", "clock at work, MHz", 1.0),
    ("power_w", "power at work, W", 1.0),
    ("temperature_c", "highest temperature, °C", 1.0),
    ("throttled", "held back, % of readings", 100.0),
)
"""Field of a device, label, factor."""


def scaling(frame: pd.DataFrame, kernel: str, case: str | None, path: Path | str, rate: str | None = None) -> Path:
    """Speed of one problem over the number of ranks, on whichever machines of one product have it.

    case: any of its names; its number of ranks is left out of account.  Default: the problem that takes longest.
    """
    rows = canvas.chosen(frame, kernel=kernel)
    rows = rows[(rows["status"] == "ok") & (rows["world"] > 1)]
    worlds = rows["world"].astype(int)
    rows = rows.assign(shape=[without_ranks(name, world) for name, world in zip(rows["case"], worlds, strict=True)])
    rows = rows[rows.groupby("shape")["world"].transform("nunique") > 1]
    if not len(rows):
        raise FigureError(f"no problem of {kernel} was measured with two numbers of ranks")
    wanted_shape = _wanted(rows, case)
    rows = rows[rows["shape"] == wanted_shape].sort_values("date", kind="stable")
    rows = rows.drop_duplicates(["backend", "world"], keep="last").sort_values("world", kind="stable")
    wanted = canvas.known_rate(rate) if rate else headline(rows)
    with canvas.style():
        figure, axes = canvas.canvas(f"{kernel} / {wanted_shape} on {rows['device'].iloc[-1]}", canvas.LABELS[wanted])
        for backend, part in rows.groupby("backend", sort=True):
            looks = canvas.dots(rows, str(backend))
            axes.plot(part["world"], in_rate(part, wanted), label=canvas.plain(str(backend)), linewidth=1.2, **looks)
        _counts(axes, sorted(rows["world"].unique()), "ranks")
        axes.set_ylim(bottom=0)
        canvas.legend(figure)
        return canvas.save(figure, path)


def _wanted(rows: pd.DataFrame, case: str | None) -> str:
    if case is None:
        return str(rows.loc[rows["seconds"].astype(float).idxmax(), "shape"])
    found = rows[(rows["case"] == case) | (rows["shape"] == case)]
    if not len(found):
        raise FigureError(f"no record has case {case!r}; there is: {', '.join(sorted(rows['shape'].unique()))}")
    return str(found["shape"].iloc[0])


def programs(points: Iterable[CurvePoint], kernel: str | None, case: str | None, path: Path | str) -> Path:
    """Bus bandwidth of one case over the number of CUs (SMs): points of `ci.history.kept.curves`."""
    all_points = list(points)
    found = [one for one in all_points if kernel in (None, one.kernel) and case in (None, one.case)]
    named = sorted({(one.machine, one.kernel, one.case) for one in found})
    if len(named) != 1:
        there = sorted({f"{one.kernel}/{one.case}" for one in all_points}) or ["nothing"]
        raise FigureError(f"a curve is of one case, {len(named)} were chosen; there is: {', '.join(there)}")
    machine, kernel, case = named[0]
    rows = pd.DataFrame([{"backend": one.backend, "baseline": one.baseline} for one in found])
    with canvas.style():
        figure, axes = canvas.canvas(f"{kernel} / {case} on {machine}", canvas.LABELS[Rate.BUSBW])
        for backend in sorted({one.backend for one in found}):
            line = sorted((one.programs, one.busbw) for one in found if one.backend == backend)
            axes.plot(
                *zip(*line, strict=True), label=canvas.plain(backend), linewidth=1.2, **canvas.dots(rows, backend)
            )
        _counts(axes, sorted({one.programs for one in found}), "CUs (AMD), SMs (NVIDIA), channels of a library")
        axes.set_ylim(bottom=0)
        canvas.legend(figure)
        return canvas.save(figure, path)


def _counts(axes: Axes, values: Sequence[int], label: str) -> None:
    """Whole numbers on a logarithmic axis, each with its tick."""
    axes.set_xscale("log", base=2)
    axes.xaxis.set_major_locator(FixedLocator([float(one) for one in values]))
    axes.xaxis.set_minor_locator(NullLocator())
    axes.xaxis.set_major_formatter(ScalarFormatter())
    axes.set_xlabel(label)


def health(found: Sequence[MachineHealth], machine: str | None, path: Path | str) -> Path:
    """Clock, power, temperature and throttling of each GPU, and the noise of the machine, session by session."""
    if machine is None and len(found) == 1:
        machine = found[0].machine
    one = next((entry for entry in found if entry.machine == machine), None)
    if one is None:
        there = ", ".join(entry.machine for entry in found) or "nothing"
        wrong = "name a machine with --machine" if machine is None else f"no notes are of machine {machine!r}"
        raise FigureError(f"{wrong}; there is: {there}")
    with canvas.style():
        figure = Figure(figsize=(8, 8), layout="constrained")
        panels = figure.subplots(len(PANELS) + 1, 1, sharex=True)
        panels[0].set_title(canvas.plain(f"{one.machine}, {one.product}"), loc="left", fontsize=10)
        for axes, (field, label, factor) in zip(panels, PANELS, strict=False):
            _devices(axes, one, field, factor)
            axes.set_ylabel(label, fontsize=8)
        noise = [None if session.noise is None else 100 * session.noise for session in one.sessions]
        panels[-1].plot(range(len(noise)), [float("nan") if n is None else n for n in noise], "o-", color=canvas.MARK)
        panels[-1].set_ylabel("noise between trials, %", fontsize=8)
        panels[-1].set_ylim(bottom=0)
        panels[-2].set_ylim(0, max(1.0, panels[-2].get_ylim()[1]))
        _sessions(panels[-1], one)
        panels[0].legend(loc="best", ncols=4, fontsize=7)
        return canvas.save(figure, path)


def _devices(axes: Axes, one: MachineHealth, field: str, factor: float) -> None:
    """One line per GPU; the first have the larger rings, so that equal values hide none."""
    count = max((len(session.devices) for session in one.sessions), default=0)
    for gpu in range(count):
        values = [_value(s.devices[gpu], field, factor) if gpu < len(s.devices) else float("nan") for s in one.sessions]
        ring = {"markersize": 4 + 1.5 * (count - 1 - gpu), "markerfacecolor": "none", "linewidth": 1.2}
        colour = canvas.COLOURS[gpu % len(canvas.COLOURS)]
        axes.plot(
            range(len(values)), values, "-" if gpu < 6 else "--", marker="o", color=colour, label=f"GPU {gpu}", **ring
        )


def _value(device: DeviceHealth, field: str, factor: float) -> float:
    value = getattr(device, field)
    return float("nan") if value is None else float(value) * factor


def _sessions(axes: Axes, one: MachineHealth) -> None:
    last = len(one.sessions) - 1
    chosen = sorted({round(last * n / 6) for n in range(7)}) if last > 6 else range(last + 1)
    days = [datetime.datetime.fromtimestamp(session.at_ms / 1000, datetime.UTC) for session in one.sessions]
    labels = [f"{days[n]:%Y-%m-%d}\n{one.sessions[n].commit[:8]}" for n in chosen]
    axes.set_xticks(list(chosen), labels, fontsize=7)
