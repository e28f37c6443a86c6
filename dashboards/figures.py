"""Figures for reports, slides and papers: the history of a case, and a collective's curve over the message size.

The suffix of the path chooses the format (.png, .svg, .pdf).  The same records give the same bytes: no date is written.
"""

from __future__ import annotations

import dataclasses
from pathlib import Path
from typing import Any

import matplotlib as mpl
import numpy as np
import pandas as pd
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import FuncFormatter

from ci.records.rates import Rate
from dashboards.lanes import KEY, breaks, commits, tidy
from dashboards.values import ends_in_rate, headline, in_rate

LABELS = {
    Rate.TFLOPS: "TFLOPS",
    Rate.GBS: "HBM GB/s",
    Rate.ALGBW: "algbw, GB/s",
    Rate.BUSBW: "busbw, GB/s",
    Rate.TIME: "time, µs (less is better)",
}
COLOURS = ("#0072b2", "#d55e00", "#009e73", "#cc79a7", "#e69f00", "#56b4e9")
"""Okabe and Ito, Color Universal Design (2008): distinct with every common colour vision."""

BASELINE = {"color": "#6b7280", "linestyle": (0, (5, 3)), "linewidth": 1.2}
MARK = "#5b636d"
LEAST_SPAN = 0.02
"""Least height of a history's axis as a share of its values: noise of 0.1 % must not fill the figure."""

MARKERS_BELOW = 40
"""Points of a history get markers while there are fewer commits."""

BINARY = ((2**30, "GiB"), (2**20, "MiB"), (2**10, "KiB"), (1, "B"))

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

    frame: columns of `ci.records.store.load` and `ci.records.derived.derive`.  rate: a value of
    `ci.records.rates.Rate`; default: as the case is quoted.
    The line breaks where the benchmark definition changed or nothing was measured.
    """
    rows = _rows(frame, machine, kernel, case)
    wanted = _known_rate(rate) if rate else headline(rows)
    order = commits(rows).reset_index(drop=True)
    index = {commit: i for i, commit in enumerate(order["commit"])}
    with mpl.rc_context(_STYLE):
        figure, axes = _canvas(f"{kernel} / {case} on {machine}", wanted)
        for backend, part in rows.groupby("backend", sort=True):
            at = part["commit"].map(index).to_numpy()
            _draw_line(axes, _Line(str(backend), part, at, len(order), wanted, _look(rows, str(backend))))
        _span(axes)
        _commit_ticks(axes, order)
        _peak_axis(axes, rows, wanted)
        axes.legend(loc="best", ncols=4)
        return _save(figure, path)


def curve(frame: pd.DataFrame, machine: str, kernel: str, path: Path | str, rate: str = "busbw") -> Path:
    """The newest record of each collective case of a kernel over its payload; one line per backend, dtype and world."""
    wanted = _known_rate(rate)
    rows = _rows(frame, machine, kernel)
    rows = rows[(rows["payload_bytes"] > 0) & (rows["status"] == "ok")].drop_duplicates(KEY, keep="last")
    if not len(rows):
        raise FigureError(f"{kernel} on {machine} has no measured case with a payload; curves are for collectives")
    groups = rows.groupby(["dtype", "world"], sort=True)
    with mpl.rc_context(_STYLE):
        figure, axes = _canvas(f"{kernel} on {machine}", wanted)
        for (dtype, world), group in groups:
            suffix = f", {dtype}, {world} ranks" if len(groups) > 1 else ""
            for backend, part in group.sort_values("payload_bytes").groupby("backend", sort=True):
                look = _look(rows, str(backend)) | {"label": f"{backend}{suffix}", "marker": "."}
                axes.plot(part["payload_bytes"], in_rate(part, wanted), **look)
        _payload_axes(axes, wanted)
        axes.legend(loc="best")
        return _save(figure, path)


def _rows(frame: pd.DataFrame, machine: str, kernel: str, case: str | None = None) -> pd.DataFrame:
    """Tidy rows of one kernel (or case) on a machine; FigureError lists what there is if that is not there."""
    rows = tidy(frame)
    for column, wanted in (("machine", machine), ("kernel", kernel), ("case", case)):
        if wanted is None:
            continue
        found = rows[rows[column] == wanted]
        if not len(found):
            present = ", ".join(sorted(rows[column].unique())) or "nothing"
            raise FigureError(f"no record has {column} {wanted!r}; there is: {present}")
        rows = found
    return rows


def _known_rate(rate: str) -> Rate:
    try:
        return Rate(rate)
    except ValueError:
        raise FigureError(f"the rate {rate!r} is not known; choose one of {', '.join(LABELS)}") from None


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


@dataclasses.dataclass(frozen=True)
class _Line:
    """One backend of a history.  at: index of the commit of each row; commits: how many there are."""

    backend: str
    rows: pd.DataFrame
    at: np.ndarray
    commits: int
    rate: Rate
    look: dict[str, Any]

    def aligned(self, values: np.ndarray, select: np.ndarray) -> np.ndarray:
        """Values of the selected rows, one per commit, NaN elsewhere."""
        line = np.full(self.commits, np.nan)
        line[self.at[select]] = values[select]
        return line


def _draw_line(axes: Axes, line: _Line) -> None:
    """One stretch per benchmark definition with its interval, holes left open, crosses where a case failed."""
    ok = (line.rows["status"] == "ok").to_numpy()
    starts = breaks(line.rows, line.at)
    stretch = np.searchsorted(starts, line.at, side="right")
    values, (low, high) = in_rate(line.rows, line.rate), ends_in_rate(line.rows, line.rate)
    label = line.backend if ok.any() else f"{line.backend}, never measured"
    marker = "." if line.commits < MARKERS_BELOW else None
    if not ok.any():
        axes.plot([], [], label=label, **line.look)
    for n in np.unique(stretch[ok]):
        some = ok & (stretch == n)
        ends = line.aligned(low, some), line.aligned(high, some)
        axes.fill_between(range(line.commits), *ends, color=line.look["color"], alpha=0.2, linewidth=0)
        axes.plot(line.aligned(values, some), label=label, marker=marker, **line.look)
        label = None
    _draw_marks(axes, line, starts, line.at[~ok])


def _draw_marks(axes: Axes, line: _Line, starts: list[int], failed: np.ndarray) -> None:
    """A dotted line where a new benchmark definition starts, crosses at the bottom where a case failed."""
    text = {"xycoords": ("data", "axes fraction"), "textcoords": "offset points", "fontsize": 7, "color": MARK}
    for start in starts:
        axes.axvline(start - 0.5, color=MARK, linestyle=":", linewidth=1)
        axes.annotate("benchmark definition changed", (start - 0.5, 1), xytext=(3, -2), va="top", **text)
    height, bottom = np.full(len(failed), 0.02), axes.get_xaxis_transform()
    axes.plot(failed, height, "x", color=line.look["color"], transform=bottom, markersize=5)


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


def _peak_axis(axes: Axes, rows: pd.DataFrame, rate: Rate) -> None:
    """The same heights in % of peak, if the device is known and the rate has a peak."""
    if rate is Rate.TIME:
        return
    peaks = in_rate(rows, rate, "roofline_seconds")
    peaks = peaks[np.isfinite(peaks)]
    if not len(peaks):
        return
    percent = 100 / float(peaks[-1])
    right = axes.secondary_yaxis("right", functions=(lambda value: value * percent, lambda share: share / percent))
    right.set_ylabel("% of peak")


def _payload_axes(axes: Axes, rate: Rate) -> None:
    axes.set_xscale("log", base=2)
    axes.xaxis.set_major_formatter(FuncFormatter(lambda size, _: _binary(size)))
    axes.set_xlabel("payload")
    if rate is Rate.TIME:
        axes.set_yscale("log")
    else:
        axes.set_ylim(bottom=0)


def _binary(size: float) -> str:
    scale, unit = next((pair for pair in BINARY if size >= pair[0]), BINARY[-1])
    return f"{size / scale:g} {unit}"


def _save(figure: Figure, path: Path | str) -> Path:
    path = Path(path)
    path.parent.mkdir(parents=True, exist_ok=True)
    dateless: dict[str, dict[str, Any]] = {".svg": {"Date": None}, ".pdf": {"CreationDate": None}}
    figure.savefig(path, dpi=160, metadata=dateless.get(path.suffix.lower()))
    return path
