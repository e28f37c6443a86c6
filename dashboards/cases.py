"""The roofline of a machine: what cases achieve over their intensity, under the roofs of the device."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np

from ci.records import derived
from dashboards import charts, table
from dashboards.files import natural, slug
from dashboards.frame import Lane, Series, Site
from dashboards.table import Column, Piece, Table
from kernels.hardware import Hardware

SYMBOLS = ("circle", "rect", "triangle", "diamond", "roundRect", "pin")


def roofline_files(site: Site) -> Iterator[tuple[str, Any]]:
    """(path, page) of each lane."""
    for lane in site.lanes:
        yield f"{lane.slug}/roofline", {"title": "Roofline", "pieces": list(_pieces(lane))}


class Point(NamedTuple):
    """The newest number of one of our series.  row: in the lane; intensity: FLOP per byte; tflops: of one device."""

    series: Series
    row: int
    intensity: float
    tflops: float


def roofline_points(lane: Lane) -> list[Point]:
    """Of every timed case that has FLOP and bytes, without the libraries."""
    flops, hbm, seconds = (lane.columns[name] for name in ("flops", "hbm_bytes", "seconds"))
    newest = [(one, int(one.good[-1])) for one in lane.series if len(one.good) and not one.baseline]
    return [
        Point(one, row, flops[row] / hbm[row], flops[row] / seconds[row] / 1e12)
        for one, row in newest
        if flops[row] > 0 and hbm[row] > 0
    ]


def roofline_chart(lane: Lane, points: Sequence[Point]) -> Piece:
    """Points by operator, under the roofs of the device, where those are known."""
    hardware, intensity = derived.hardware_of(lane.newest), [point.intensity for point in points]
    series = []
    if hardware:
        roofs = peaks(hardware, {str(lane.columns["dtype"][point.row]) for point in points})
        series += _roofs(hardware, roofs, min(intensity), max(intensity))
    for n, kernel in enumerate(sorted({point.series.kernel for point in points})):
        own = [point for point in points if point.series.kernel == kernel]
        series.append(
            charts.points(
                kernel,
                [[point.intensity, point.tflops] for point in own],
                f"--series-{n % charts.COLOURS}",
                symbol=SYMBOLS[n % len(SYMBOLS)],
                symbolSize=8,
                tips=[f"{point.series.case}, {point.series.backend}" for point in own],
                links=[_link(lane, point.series) for point in own],
            )
        )
    option = charts.over(
        {"name": "intensity: FLOP per byte of least HBM traffic", "unit": ""},
        {"name": "TFLOPS of one device", "unit": "TFLOPS"},
        series,
    )
    return charts.chart(f"roofline of {lane.machine}", {"TFLOPS": option}, 460)


def _pieces(lane: Lane) -> Iterator[Piece]:
    points = roofline_points(lane)
    if not points:
        yield table.text("No timed case of this machine has FLOP and bytes: there is nothing to draw.", "notice")
        return
    yield roofline_chart(lane, points)
    if not derived.hardware_of(lane.newest):
        yield table.text("This device is not in kernels/hardware, so no roof is drawn; add it there.", "notice")
    columns = [
        Column("kernel", "operator"),
        Column("case", "case", "case"),
        Column("backend", "backend"),
        Column("intensity", "FLOP / byte", "number"),
        Column("tflops", "one device", "rate"),
        Column("hbm", "least HBM traffic", "rate"),
        Column("peak_share", "of the roof", "share", "Least time by matrix units, HBM and links / measured time."),
        Column("commit", "commit", "commit"),
    ]
    points.sort(key=lambda point: (point.series.kernel, natural(point.series.case), point.series.backend))
    rows = [
        [
            point.series.kernel,
            [point.series.case, _link(lane, point.series)],
            point.series.backend,
            point.intensity,
            [point.tflops, "TFLOPS"],
            [point.tflops / point.intensity * 1e3, "GB/s"],
            float(lane.columns["peak_share"][point.row]),
            lane.commit(point.row),
        ]
        for point in points
    ]
    shown = Table(f"{lane.machine}-roofline", "cases under the roof", columns, rows).piece(filter=True)
    yield table.fold([f"The {len(rows)} points as a table"], [shown])


def _link(lane: Lane, series: Series) -> str:
    return f"kernels/{slug(series.kernel)}.html#machine={lane.machine}&case={series.case}"


def peaks(hardware: Hardware, dtypes: set[str]) -> dict[str, float]:
    """FLOP/s of the matrix units for each dtype that they have."""
    found = {}
    for dtype in sorted(dtypes):
        with contextlib.suppress(ValueError):
            found[dtype] = hardware.peak(dtype)
    return found


def _roofs(hardware: Hardware, roofs: Mapping[str, float], low: float, high: float) -> Iterator[charts.Option]:
    ends = (low / 2, high * 2)
    levels: dict[float, list[str]] = {}
    for dtype, peak in roofs.items():
        levels.setdefault(peak, []).append(dtype)
    for n, (peak, dtypes) in enumerate(levels.items()):
        ridge = peak / hardware.hbm_bandwidth
        xs = np.array([ends[0], min(max(ridge, ends[0]), ends[1]), ends[1]])
        ys = np.minimum(xs * hardware.hbm_bandwidth, peak) / 1e12
        name = f"roof, {', '.join(dtypes)}: {peak / 1e12:.4g} TFLOPS, {hardware.hbm_bandwidth / 1e12:.3g} TB/s"
        look = {"color": "--soft", "dash": charts.DASHES[1 + n % (len(charts.DASHES) - 1)]}
        data = np.column_stack([xs, ys]).tolist()
        yield charts.line(name, data, look, lineStyle={"width": 1.5}, symbol="none")
