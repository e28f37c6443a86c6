"""The history of a case, with its steps."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
from matplotlib.axes import Axes

from ci.history.types import Moved
from ci.records.rates import Rate
from dashboards.figures.studies import canvas
from dashboards.lanes import commits
from dashboards.series import redefined
from dashboards.values import ends_in_rate, headline, in_rate

LEAST_SPAN = 0.02
"""Least height of a history's axis as a share of its values: noise of 0.1 % must not fill the figure."""

MARKERS_BELOW = 40
"""Points of a history get markers while there are fewer commits."""


def history(
    frame: pd.DataFrame,
    machine: str,
    kernel: str,
    case: str,
    path: Path | str,
    rate: str | None = None,
    moved: Sequence[Moved] = (),
) -> Path:
    """Every backend of a case over the commits of a machine, with intervals and a second axis in % of peak.

    frame: columns of `ci.records.store.load` and `ci.records.derived.derive`.  rate: a value of
    `ci.records.rates.Rate`; default: as the case is quoted.
    The line breaks where the benchmark definition changed or nothing was measured.
    moved: steps of the history; those of this case are marked at their first bad commit.
    """
    rows = canvas.chosen(frame, machine=machine, kernel=kernel, case=case)
    wanted = canvas.known_rate(rate) if rate else headline(rows)
    order = commits(rows).reset_index(drop=True)
    index = {commit: i for i, commit in enumerate(order["commit"])}
    with canvas.style():
        figure, axes = canvas.canvas(f"{kernel} / {case} on {machine}", canvas.LABELS[wanted])
        for backend, part in rows.groupby("backend", sort=True):
            at = np.array([index[commit] for commit in part["commit"]])
            _draw_line(axes, _Line(str(backend), part, at, len(order), wanted, canvas.look(rows, str(backend))))
        _span(axes)
        _draw_steps(axes, [one for one in moved if one.key[:2] == (machine, kernel) and one.key.case == case], index)
        _commit_ticks(axes, order)
        _peak_axis(axes, rows, wanted)
        canvas.legend(figure)
        return canvas.save(figure, path)


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
    starts = line.at[redefined(line.rows, np.zeros(len(line.rows)))].tolist()
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
    text = {"xycoords": ("data", "axes fraction"), "textcoords": "offset points", "fontsize": 7, "color": canvas.MARK}
    for start in starts:
        axes.axvline(start - 0.5, color=canvas.MARK, linestyle=":", linewidth=1)
        axes.annotate("benchmark definition changed", (start - 0.5, 1), xytext=(3, -2), va="top", rotation=90, **text)
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


def _draw_steps(axes: Axes, moved: Sequence[Moved], index: dict[str, int]) -> None:
    """A line before the first commit of each new level, with the change of its time at the bottom."""
    text = {"xycoords": ("data", "axes fraction"), "textcoords": "offset points", "fontsize": 7}
    for height, one in enumerate(sorted(moved, key=lambda m: (m.first_bad, m.key.backend))):
        if one.first_bad in index:
            at = index[one.first_bad] - 0.5
            axes.axvline(at, color=canvas.COLOURS[1], linewidth=1)
            said = f"{one.key.backend}: time {one.step.ratio - 1:+.1%}"
            axes.annotate(canvas.plain(said), (at, 0.04 + 0.07 * (height % 4)), xytext=(3, 0), color="#9c4400", **text)
