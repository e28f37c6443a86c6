"""Cases beside each other: every backend of a kernel, its speed over the size of a case, and under the roofline."""

from __future__ import annotations

import contextlib
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
from matplotlib.axes import Axes

from ci.records import derived
from ci.records.rates import Rate
from dashboards.figures import canvas
from dashboards.figures.error import FigureError
from dashboards.lanes import natural
from dashboards.values import ends_in_rate, headline, in_rate

MOST_CASES = 60
"""Cases of one figure of backends: more lines cannot be read on a page of paper."""


def backends(frame: pd.DataFrame, machine: str | None, kernel: str, path: Path | str) -> Path:
    """The newest time of each backend in each case / that of the case's fastest baseline, with 99 % intervals.

    Where a case has no timed baseline, its fastest backend takes that place.
    """
    rows = _newest(frame, machine, kernel)
    cases = sorted(rows["case"].unique(), key=natural)[:MOST_CASES]
    place = {case: len(cases) - 1 - n for n, case in enumerate(cases)}
    rows = rows[rows["case"].isin(cases)].assign(least=_yardstick(rows))
    with canvas.style():
        figure, axes = canvas.canvas(f"{kernel} on {canvas.the_machine(rows)}", "", 1.2 + 0.2 * len(cases))
        for backend, part in rows.groupby("backend", sort=True):
            speed, low, high = (part["least"] / part[name] for name in ("seconds", "seconds_high", "seconds_low"))
            heights = part["case"].map(place)
            looks = canvas.dots(rows, str(backend))
            axes.hlines(heights, low, high, color=looks["color"], linewidth=1, alpha=0.5)
            axes.plot(speed, heights, linestyle="none", label=canvas.plain(str(backend)), **looks)
        axes.axvline(1, color=canvas.MARK, linewidth=1)
        axes.set_yticks(list(place.values()), [canvas.plain(case) for case in place], fontsize=7)
        axes.set_ylim(-0.7, len(cases) - 0.3)
        speeds = rows["least"] / rows["seconds"]
        axes.set_xlim(
            max(0.0, 0.9 * speeds.min()), 1.1 * speeds.max()
        )  # an interval from two trials reaches far beyond
        axes.set_xlabel("speed / speed of the fastest baseline (more is better)")
        canvas.legend(figure)
        return canvas.save(figure, path)


def _yardstick(rows: pd.DataFrame) -> pd.Series:
    """Seconds of the fastest baseline of each row's case, else of its fastest backend."""
    baseline = rows["seconds"].where(rows["baseline"]).groupby(rows["case"]).transform("min")
    return baseline.fillna(rows.groupby("case")["seconds"].transform("min"))


def shapes(frame: pd.DataFrame, machine: str | None, kernel: str, path: Path | str, rate: str | None = None) -> Path:
    """The newest speed of every case over the bytes it must move, one line per backend, with the roof of the device.

    Bytes: payload of a collective, else least HBM traffic.
    """
    rows = _newest(frame, machine, kernel)
    wanted = canvas.known_rate(rate) if rate else headline(rows)
    rows = rows.assign(size=rows["payload_bytes"].where(rows["payload_bytes"] > 0, rows["hbm_bytes"]))
    rows = rows[rows["size"] > 0].sort_values(["size", "case"], kind="stable")
    if not len(rows):
        raise FigureError(f"the cases of {kernel} tell no bytes; there is nothing to draw them over")
    with canvas.style():
        figure, axes = canvas.canvas(f"{kernel} on {canvas.the_machine(rows)}", canvas.LABELS[wanted])
        for backend, part in rows.groupby("backend", sort=True):
            _line(axes, part, wanted, canvas.dots(rows, str(backend)), str(backend))
        roof, highest = rows.drop_duplicates("case"), np.nanmax(in_rate(rows, wanted))
        if wanted is not Rate.TIME and np.isfinite(peak := in_rate(roof, wanted, "roofline_seconds")).any():
            axes.plot(roof["size"], peak, "_", color=canvas.MARK, markersize=11, label="roofline")
            highest = max(highest, np.nanmax(peak))
        canvas.byte_axis(axes, "payload" if (rows["payload_bytes"] > 0).any() else "least HBM traffic")
        axes.set_ylim(0, 1.08 * highest)  # an interval from two trials reaches far beyond
        canvas.legend(figure)
        return canvas.save(figure, path)


def _line(axes: Axes, rows: pd.DataFrame, rate: Rate, looks: dict[str, Any], name: str) -> None:
    low, high = ends_in_rate(rows, rate)
    axes.vlines(rows["size"], low, high, color=looks["color"], linewidth=1, alpha=0.5)
    joined = "-" if (rows["payload_bytes"] > 0).all() else "none"  # sizes of one thing; shapes of a GEMM are not
    axes.plot(rows["size"], in_rate(rows, rate), label=canvas.plain(name), linestyle=joined, linewidth=1.2, **looks)


def roofline(frame: pd.DataFrame, machine: str | None, kernel: str | None, path: Path | str) -> Path:
    """TFLOPS of one device over the intensity of each case (FLOP / HBM byte), under the roofs of the device.

    The roof is the lesser of the peak of the matrix units, by dtype, and intensity x HBM bandwidth (Williams, Waterman,
    Patterson, CACM 52(4), 2009).
    """
    rows = _newest(frame, machine, kernel)
    rows = rows[(rows["flops"] > 0) & (rows["hbm_bytes"] > 0)]
    if not len(rows):
        raise FigureError(f"no timed case of {kernel or 'this machine'} has FLOP and bytes; there is nothing to draw")
    rows = rows.assign(intensity=rows["flops"] / rows["hbm_bytes"], speed=rows["flops"] / rows["seconds"] / 1e12)
    with canvas.style():
        what = kernel or "all operators"
        figure, axes = canvas.canvas(f"{what} on {canvas.the_machine(rows)}", "TFLOPS per device", 4.2)
        by = "backend" if kernel else "kernel"
        for n, (name, part) in enumerate(rows.groupby(by, sort=True)):
            looks = canvas.dots(rows, str(name)) if kernel else _nth(n)
            axes.plot(part["intensity"], part["speed"], linestyle="none", label=canvas.plain(str(name)), **looks)
        _roofs(axes, rows)
        canvas.log_axes(axes)
        axes.set_xlabel("intensity, FLOP per byte of HBM")
        figure.legend(loc="outside right upper", fontsize=8)
        return canvas.save(figure, path)


def _nth(place: int) -> dict[str, Any]:
    """Look of the n-th operator."""
    return {
        "color": canvas.COLOURS[place % len(canvas.COLOURS)],
        "marker": canvas.MARKERS[(place // len(canvas.COLOURS) + place) % len(canvas.MARKERS)],
        "markersize": 5,
    }


def _roofs(axes: Axes, rows: pd.DataFrame) -> None:
    hardware = derived.hardware_of(rows.iloc[-1])
    if hardware is None:
        return
    reach = np.geomspace(rows["intensity"].min() / 2, rows["intensity"].max() * 2, 64)
    for n, dtype in enumerate(sorted(rows["dtype"].unique())):
        with contextlib.suppress(ValueError):  # a dtype without matrix units has no roof
            roof = np.minimum(hardware.peak(dtype), reach * hardware.hbm_bandwidth) / 1e12
            axes.plot(reach, roof, color=canvas.MARK, linestyle=("-", "--", ":", "-.")[n % 4], label=f"roof, {dtype}")


def _newest(frame: pd.DataFrame, machine: str | None, kernel: str | None) -> pd.DataFrame:
    """The newest timed row of every case and backend of one machine."""
    rows = canvas.chosen(frame, kernel=kernel, machine=machine)
    machine = canvas.the_machine(rows)
    timed = rows[(rows["status"] == "ok") & (rows["seconds"] > 0)]
    if not len(timed):
        raise FigureError(f"{kernel or 'nothing'} on {machine} has no timed case")
    return timed.drop_duplicates(["kernel", "case", "backend"], keep="last")
