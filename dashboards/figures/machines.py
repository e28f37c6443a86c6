"""The health of a machine over time."""

from __future__ import annotations

import datetime
from collections.abc import Sequence
from pathlib import Path

from matplotlib.axes import Axes
from matplotlib.figure import Figure

from ci.history.health import MachineHealth
from ci.history.readings import DeviceHealth
from dashboards.figures.studies import canvas
from dashboards.figures.studies.error import FigureError

PANELS = (
    ("clock_mhz", "clock at work, MHz", 1.0),
    ("power_w", "power at work, W", 1.0),
    ("temperature_c", "highest temperature, °C", 1.0),
    ("throttled", "held back, % of readings", 100.0),
)
"""Field of a device, label, factor."""


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
