"""Figures for reports, slides and papers: the history of a case, and a collective's curve over the message size.

The suffix of the path chooses the format (.png, .svg, .pdf).  The same records give the same bytes: no date is written.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import matplotlib as mpl
import numpy as np
import pandas as pd
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import FuncFormatter

from ci import units
from dashboards import series

LABELS = {
    "tflops": "TFLOPS",
    "gbs": "HBM GB/s",
    "algbw": "algbw, GB/s",
    "busbw": "busbw, GB/s",
    "time": "time, µs (less is better)",
}
COLOURS = ("#0072b2", "#d55e00", "#009e73", "#cc79a7", "#e69f00", "#56b4e9")
"""Okabe and Ito, Color Universal Design (2008): told apart with every common colour vision."""

BASELINE = {"color": "#6b7280", "linestyle": (0, (5, 3)), "linewidth": 1.2}
LEAST_SPAN = 0.02
"""Least height of a history's axis as a share of its values: noise of 0.1 % must not fill the figure."""

_STYLE: dict[str, Any] = {
    "svg.hashsalt": "ridgeline",
    "font.size": 9,
    "axes.spines.top": False,
    "axes.grid": True,
    "grid.color": "#e8eaee",
    "axes.axisbelow": True,
    "legend.frameon": False,
}


class FigureError(ValueError):
    """There is nothing to draw; the text says what the records have instead."""


def history(
    frame: pd.DataFrame, machine: str, kernel: str, case: str, path: Path | str, rate: str | None = None
) -> Path:
    """Every backend of a case over the commits of a machine, with intervals and a second axis in % of peak.

    frame: columns of `ci.records.store.load` and `ci.records.derived.derive`.  rate: a key of LABELS;
    default: as the case is quoted.
    The line breaks where the yardstick changed or nothing was measured.
    """
    rows = _rows(frame, machine, kernel, case)
    rate = _known_rate(rate or series.headline_rate(rows))
    order = series.commits(rows).reset_index(drop=True)
    place = {commit: i for i, commit in enumerate(order["commit"])}
    with mpl.rc_context(_STYLE):
        figure, axes = _canvas(f"{kernel} / {case} on {machine}", rate)
        for backend, part in rows.groupby("backend", sort=True):
            _history_line(axes, str(backend), part, place, rate, _look(rows, str(backend)))
        _span(axes)
        _commit_ticks(axes, order)
        _peak_axis(axes, rows, rate)
        axes.legend(loc="best", ncols=4)
        return _save(figure, path)


def curve(frame: pd.DataFrame, machine: str, kernel: str, path: Path | str, rate: str = "busbw") -> Path:
    """The newest record of each collective case of a kernel over its payload; one line per backend, dtype and world."""
    rate = _known_rate(rate)
    rows = _rows(frame, machine, kernel)
    rows = rows[(rows["payload_bytes"] > 0) & (rows["status"] == "ok")].drop_duplicates(series.KEY, keep="last")
    if not len(rows):
        raise FigureError(f"{kernel} on {machine} has no measured case with a payload; curves are for collectives")
    groups = rows.groupby(["dtype", "world"], sort=True)
    with mpl.rc_context(_STYLE):
        figure, axes = _canvas(f"{kernel} on {machine}", rate)
        for (dtype, world), group in groups:
            suffix = f", {dtype}, {world} ranks" if len(groups) > 1 else ""
            for backend, part in group.sort_values("payload_bytes").groupby("backend", sort=True):
                axes.plot(
                    part["payload_bytes"],
                    series.in_rate(part, rate),
                    label=f"{backend}{suffix}",
                    marker=".",
                    **_look(rows, str(backend)),
                )
        axes.set_xscale("log", base=2)
        axes.xaxis.set_major_formatter(FuncFormatter(lambda size, _: _binary(size)))
        axes.set_xlabel("payload")
        if rate == "time":
            axes.set_yscale("log")
        else:
            axes.set_ylim(bottom=0)
        axes.legend(loc="best")
        return _save(figure, path)


def _rows(frame: pd.DataFrame, machine: str, kernel: str, case: str | None = None) -> pd.DataFrame:
    """Tidy rows of one kernel (or case) on a machine; FigureError lists what there is if that is not there."""
    rows = series.tidy(frame)
    for column, wanted in (("machine", machine), ("kernel", kernel), ("case", case)):
        if wanted is None:
            continue
        found = rows[rows[column] == wanted]
        if not len(found):
            raise FigureError(
                f"no record has {column} {wanted!r}; there is: {', '.join(sorted(rows[column].unique())) or 'nothing'}"
            )
        rows = found
    return rows


def _known_rate(rate: str) -> str:
    if rate not in LABELS:
        raise FigureError(f"the rate {rate!r} is not known; choose one of {', '.join(LABELS)}")
    return rate


def _canvas(title: str, rate: str) -> tuple[Figure, Axes]:
    figure = Figure(figsize=(8, 3.6), layout="constrained")
    axes = figure.add_subplot()
    axes.set_title(title, loc="left", fontsize=10)
    axes.set_ylabel(LABELS[rate])
    return figure, axes


def _look(rows: pd.DataFrame, backend: str) -> dict[str, Any]:
    """Colour of an own backend by its place among them; every baseline is grey and dashed."""
    own = sorted(rows.loc[~rows["baseline"], "backend"].unique())
    return {"color": COLOURS[own.index(backend) % len(COLOURS)], "linewidth": 1.5} if backend in own else BASELINE


def _history_line(
    axes: Axes, backend: str, part: pd.DataFrame, place: dict[str, int], rate: str, look: dict[str, Any]
) -> None:
    """One backend: a line with its interval per stretch of one yardstick, holes left open, crosses where it failed."""
    ok = (part["status"] == "ok").to_numpy()
    good, bad = part[ok], part[~ok]
    at = good["commit"].map(place).to_numpy()
    starts = series.breaks(part, part["commit"].map(place).to_numpy())
    stretch = np.searchsorted(starts, at, side="right") if starts else np.zeros(len(at), int)
    if not len(good):
        axes.plot([], [], label=f"{backend}, never measured", **look)
    for n in np.unique(stretch):
        lines = {column: np.full(len(place), np.nan) for column in ("value", "low", "high")}
        some = good[stretch == n]
        lines["value"][at[stretch == n]] = series.in_rate(some, rate)
        lines["low"][at[stretch == n]], lines["high"][at[stretch == n]] = series.ends_in_rate(some, rate)
        axes.fill_between(range(len(place)), lines["low"], lines["high"], color=look["color"], alpha=0.2, linewidth=0)
        axes.plot(
            lines["value"], label=backend if n == stretch[0] else None, marker="." if len(place) < 40 else None, **look
        )
    for start in starts:
        axes.axvline(start - 0.5, color="#5b636d", linestyle=":", linewidth=1)
        axes.annotate(
            "yardstick changed",
            (start - 0.5, 1),
            xycoords=("data", "axes fraction"),
            fontsize=7,
            color="#5b636d",
            xytext=(3, -2),
            textcoords="offset points",
            va="top",
        )
    axes.plot(
        bad["commit"].map(place),
        np.full(len(bad), 0.02),
        "x",
        color=look["color"],
        transform=axes.get_xaxis_transform(),
        markersize=5,
    )


def _span(axes: Axes) -> None:
    low, high = axes.get_ylim()
    least = LEAST_SPAN * abs(high)
    if high - low < least:
        middle = (low + high) / 2
        axes.set_ylim(middle - least / 2, middle + least / 2)


def _commit_ticks(axes: Axes, order: pd.DataFrame) -> None:
    count = len(order)
    chosen = sorted({round(i) for i in np.linspace(0, count - 1, min(count, 7))})
    dates = ["" if pd.isna(d) else d.strftime("%Y-%m-%d") for d in order["date"]]
    axes.set_xticks(chosen, [f"{dates[i]}\n{order['commit'][i][:8]}" for i in chosen], fontsize=7)
    axes.set_xlim(-0.5, max(count - 0.5, 0.5))


def _peak_axis(axes: Axes, rows: pd.DataFrame, rate: str) -> None:
    """The same heights in % of peak, if the device is known and the rate has a peak."""
    if rate == "time":
        return
    full = (rows[rate] / rows["peak_share"]).dropna()
    if not len(full):
        return
    roof = 100 / float(full.iloc[-1])
    right = axes.secondary_yaxis("right", functions=(lambda value: value * roof, lambda share: share / roof))
    right.set_ylabel("% of peak")


def _binary(size: float) -> str:
    for prefix in ("Gi", "Mi", "Ki"):
        if size >= units.PREFIXES[prefix]:
            return f"{size / units.PREFIXES[prefix]:g} {prefix}B"
    return f"{size:g} B"


def _save(figure: Figure, path: Path | str) -> Path:
    path = Path(path)
    path.parent.mkdir(parents=True, exist_ok=True)
    dateless: dict[str, dict[str, Any]] = {".svg": {"Date": None}, ".pdf": {"CreationDate": None}}
    figure.savefig(path, dpi=160, metadata=dateless.get(path.suffix.lower()))
    return path
