"""Charts of pages: ECharts options, made here and hosted by one script (static/chart.js).

The script adds what a page knows and a build does not: the theme's colours (a colour is the name of a variable of
static/style.css), the texts of axes by their unit, when to draw, what a click opens.  Beside ECharts' own keys:

option["commits"]: xAxis.data are places in the page's list of commits.
xAxis["unit"], yAxis["unit"]: what a value is: a unit that is printed behind it, or "s", "B", "%".
series: "dash": of its line; "low", "high": ends of the 99 % interval of each value, drawn as bars; "hollow": indices of
values of one or two trials, which are marked and have no bar; "tips": text of each value; "links": address of each.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Protocol

import numpy as np
import numpy.typing as npt

from dashboards.files import rounded

Option = dict[str, Any]

DASHES = ("solid", [7, 4], [2, 3], [9, 3, 2, 3], [14, 4], [1, 4])
COLOURS = 6
"""Of series, in static/style.css."""


def looks(own: Sequence[str], libraries: Sequence[str]) -> dict[str, dict[str, Any]]:
    """Colour and dash of each name: ours in colour, libraries grey, and no two dashed alike."""
    dash = dict(zip((*own, *libraries), DASHES * (1 + (len(own) + len(libraries)) // len(DASHES)), strict=False))
    ours = {name: {"color": f"--series-{n % COLOURS}", "dash": dash[name]} for n, name in enumerate(own)}
    return ours | {name: {"color": "--baseline", "dash": dash[name]} for name in libraries}


class Arm(Protocol):
    """What lines are drawn of."""

    @property
    def backend(self) -> str: ...
    @property
    def baseline(self) -> bool: ...


def looks_of(arms: Iterable[Arm]) -> dict[str, dict[str, Any]]:
    """Colour and dash of every backend of some arms."""
    names = sorted({(arm.baseline, arm.backend) for arm in arms})
    return looks([name for baseline, name in names if not baseline], [name for baseline, name in names if baseline])


def line(name: str, data: Sequence[Any], look: Mapping[str, Any], **more: Any) -> Option:
    """A line through values; None is a hole."""
    return {"type": "line", "name": name, "data": data, **look, **more}


def level(name: str, data: Sequence[Any], colour: str) -> Option:
    """The middle of a stretch between two steps, behind its line."""
    style = {"type": "solid", "width": 7, "opacity": 0.25}
    return {"type": "line", "name": name, "data": data, "color": colour, "lineStyle": style, "level": True}


def legend(looks: Mapping[str, Mapping[str, Any]]) -> dict[str, Any]:
    """A piece of a page: the names of the lines of several charts."""
    return {"kind": "legend", "series": [{"type": "line", "name": name, **look} for name, look in looks.items()]}


def points(name: str, data: Sequence[Any], colour: str, **more: Any) -> Option:
    """Points without a line."""
    return {"type": "scatter", "name": name, "data": data, "color": colour, **more}


NO_END_LABELS: Mapping[str, Any] = {"axisLabel": {"showMinLabel": False, "showMaxLabel": False}}
"""Of an axis whose ends are no round numbers."""


def _axis_within_reach(series: Sequence[Option]) -> Mapping[str, Any]:
    """Ends of an axis, where intervals reach farther beyond the values than those span: there they are cut off."""
    with_ends = [one for one in series if "low" in one]
    if not with_ends:
        return {}
    data, lows, highs = (np.concatenate([one[name] for one in with_ends]) for name in ("data", "low", "high"))
    low, high = float(np.fmin.reduce(data)), float(np.fmax.reduce(data))
    least, most = float(np.fmin.reduce(lows)), float(np.fmax.reduce(highs))
    reach = max(high - low, abs(high) / 20)
    if least >= low - reach and most <= high + reach:
        return {}
    return {"min": rounded(max(least, low - reach)), "max": rounded(min(most, high + reach)), **NO_END_LABELS}


def over_commits(places: Sequence[int], series: Sequence[Option], unit: str, name: str, **y: Any) -> Option:
    """Values over commits, whose places in the page's list are given."""
    return {
        "commits": True,
        "xAxis": {"type": "category", "data": places},
        "yAxis": {"name": name, "unit": unit, "scale": True, **_axis_within_reach(series), **y},
        "series": series,
    }


def over(x: Mapping[str, Any], y: Mapping[str, Any], series: Sequence[Option]) -> Option:
    """Values over values; x, y: {"name", "unit", "type": "log" or "value"}."""
    return {"xAxis": {"type": "log", **x}, "yAxis": {"type": "log", **y}, "series": series}


def chart(title: str, units: Mapping[str, Option], height: int = 300, **more: Any) -> dict[str, Any]:
    """A piece of a page.  units: by the name that its button has, what is drawn; the first one at first."""
    return {"kind": "chart", "title": title, "units": [[name, option] for name, option in units.items()]} | {
        "height": height,
        **more,
    }


_TENS = 10.0 ** np.arange(309)


def numbers(values: Any, digits: int = 6) -> npt.NDArray[np.float64]:
    """Values as a chart has them, in so many significant digits; NaN, which a page gets as null, for what is none."""
    values = np.asarray(values, np.float64)
    with np.errstate(divide="ignore", invalid="ignore"):
        size = np.floor(np.log10(np.abs(values)))
    shift = digits - 1 - np.where(np.isfinite(size), size, 0).astype(np.int64)
    up, down = _TENS[np.clip(shift, 0, 308)], _TENS[np.clip(-shift, 0, 308)]
    return np.round(np.where(np.isfinite(values), values, np.nan) * up / down) * down / up
