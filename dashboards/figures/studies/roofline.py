"""Points under the ceilings of a device: matrix units, HBM, and, of what uses links, the links.

A ceiling is the lesser of the peak of the matrix units and intensity x bandwidth (Williams, Waterman, Patterson, CACM
52(4), 2009).  Over the bytes of the links it is the same with their bandwidth.
"""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Iterator, Mapping
from typing import Any

import numpy as np
import pandas as pd

from dashboards.figures.studies import columns
from dashboards.figures.studies.columns import numeric
from dashboards.figures.studies.error import FigureError
from dashboards.figures.studies.lines import published_dash, reference_name
from dashboards.figures.studies.picture import Marks, Picture, PictureAxis, PicturePanel, numbers
from dashboards.figures.studies.spec import FigureSpec

MOST_NAMED = 12
"""Points with their name beside them; of more, the names cover each other."""

NEEDED = ("flops", "hbm_bytes", "seconds")


@dataclasses.dataclass(frozen=True)
class _Memory:
    """What moves the bytes of a panel.  bandwidth: GB/s."""

    name: str
    column: str
    bandwidth: float


def roofline(spec: FigureSpec, data: pd.DataFrame) -> Picture:
    """TFLOPS over FLOP per byte of HBM; where links carry bytes, also over FLOP per byte of the links."""
    columns.needed(data, "a roofline", NEEDED)
    timed = data.assign(_flops=numeric(data, "flops"), _seconds=numeric(data, "seconds"))
    timed = timed[(timed["_flops"] > 0) & (timed["_seconds"] > 0) & (numeric(timed, "hbm_bytes") > 0)]
    if not len(timed):
        raise FigureError("no row has FLOP, HBM bytes and seconds; there is nothing to draw under a roofline")
    notes = [f"{len(data) - len(timed)} of {len(data)} rows have no time or cost and are not drawn"]
    panels = tuple(_panel(spec, timed, memory) for memory in _memories(spec, timed))
    return Picture(spec.title, panels, len(panels), tuple(notes if len(timed) < len(data) else ()))


def _ceilings(spec: FigureSpec) -> Mapping[str, Any]:
    said = spec.keys.get("ceilings")
    if not said:
        raise FigureError(
            "a roofline needs 'ceilings': {'peak_tflops': {dtype: number}, 'hbm_gbs': number, 'link_gbs'}"
        )
    return said


def _memories(spec: FigureSpec, rows: pd.DataFrame) -> Iterator[_Memory]:
    said = _ceilings(spec)
    yield _Memory("HBM", "hbm_bytes", float(said["hbm_gbs"]))
    if said.get("link_gbs") and "link_bytes" in rows.columns and (numeric(rows, "link_bytes") > 0).any():
        yield _Memory("links", "link_bytes", float(said["link_gbs"]))


def _panel(spec: FigureSpec, rows: pd.DataFrame, memory: _Memory) -> PicturePanel:
    rows = rows.assign(_x=rows["_flops"] / numeric(rows, memory.column), _y=rows["_flops"] / rows["_seconds"] / 1e12)
    rows = rows[np.isfinite(rows["_x"])]
    points, roofs = tuple(_points(spec, rows)), tuple(_roofs(spec, rows, memory))
    x = PictureAxis(f"intensity, FLOP per byte of {memory.name}", "log")
    y = PictureAxis("speed, TFLOPS per device", "log")
    return PicturePanel("", x, y, (*roofs, *points, *_levels(spec)))


def _points(spec: FigureSpec, rows: pd.DataFrame) -> Iterator[Marks]:
    group = spec.column("group", rows)
    label = spec.column("label", rows, "case" if "case" in rows.columns else "")
    for look in columns.groups(rows, group, spec.names("baselines")):
        part = columns.within(rows, group, look)
        if len(part):
            names = tuple(columns.texts(part, label)) if label else ()
            named = bool(names) and len(rows) <= MOST_NAMED
            at = numbers(part["_x"]), numbers(part["_y"])
            looks = {"look": look.look, "dashed": look.dashed, "hollow": look.dashed > 0}
            yield Marks(look.name or "measured", "dots", *at, **looks, labels=names, named=named)


def _roofs(spec: FigureSpec, rows: pd.DataFrame, memory: _Memory) -> Iterator[Marks]:
    """The ridge of each dtype in three points: its slope, its corner, its level."""
    said = _ceilings(spec)
    for n, (dtype, peak) in enumerate(sorted(said["peak_tflops"].items())):
        corner = float(peak) * 1e3 / memory.bandwidth
        least, most = min(rows["_x"].min(), corner) / 2, max(rows["_x"].max(), corner) * 2
        xs = [least, corner, most]
        ys = [least * memory.bandwidth / 1e3, float(peak), float(peak)]
        name = f"roof, {dtype}: {peak:g} TFLOPS, {memory.name} {memory.bandwidth:g} GB/s"
        yield Marks(name, "rule", numbers(xs), numbers(ys), dashed=n)


def _levels(spec: FigureSpec) -> Iterator[Marks]:
    """Published speeds, which have no intensity of ours."""
    for n, one in enumerate(spec.published):
        if one.get("unit") == "TFLOPS" and one.get("y") is not None:
            x = math.nan if one.get("x") is None else float(one["x"])
            name = f"published: {reference_name(one)}"
            yield Marks(name, "rule", (x,), (float(one["y"]),), dashed=published_dash(n))
