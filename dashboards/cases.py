"""Pages over all cases: the roofline of a machine under its device's roofs, and scaling over the number of ranks."""

from __future__ import annotations

import contextlib
import itertools
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np

from ci.records import derived
from ci.records.rates import Rate
from dashboards import charts, table
from dashboards.files import case_address, natural
from dashboards.frame import NAMES, UNITS, Commit, Lane, Series, Site
from dashboards.table import BACKEND, CASE, COMMIT, OPERATOR, Column, Piece, Table
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
                links=[case_address(point.series.kernel, lane.machine, point.series.case) for point in own],
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
        OPERATOR,
        CASE,
        BACKEND,
        Column("intensity", "FLOP / byte", "number"),
        Column("tflops", "one device", "rate"),
        Column("hbm", "least HBM traffic", "rate"),
        Column("peak_share", "of the roof", "share", "Least time by matrix units, HBM and links / measured time."),
        COMMIT,
    ]
    points.sort(key=lambda point: (point.series.kernel, natural(point.series.case), point.series.backend))
    rows = [
        [
            point.series.kernel,
            [point.series.case, case_address(point.series.kernel, lane.machine, point.series.case)],
            point.series.backend,
            point.intensity,
            [point.tflops, "TFLOPS"],
            [point.tflops / point.intensity * 1e3, "GB/s"],
            float(lane.columns["peak_share"][point.row]),
            lane.commit(point.row),
        ]
        for point in points
    ]
    shown = Table(f"{lane.machine}-roofline", "cases under the roof", columns, rows)
    yield shown.folded(f"The {len(rows)} points as a table")


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


# Scaling: speed over the number of ranks on machines of one product.


MOST = 24
"""Pictures of an operator: of those with the most numbers of ranks, the largest sizes first."""


class ScalingPoint(NamedTuple):
    """The newest number of a backend in a case of several ranks."""

    device: str
    kernel: str
    shape: str
    backend: str
    baseline: bool
    world: int
    value: float
    seconds: float
    bytes: float
    rate: Rate
    machine: str
    commit: Commit
    link: str


def without_ranks(case: str, world: int) -> str:
    """The name of a case without its number of ranks: "w4_fp16_64MB" is "fp16_64MB" with 4 ranks."""
    return "_".join(part for part in case.split("_") if part != f"w{world}") or case


def scaling_files(site: Site) -> Iterator[tuple[str, Any]]:
    """scaling: a choice of products."""
    points = sorted(newest_points(site), key=lambda point: point.device)
    products = itertools.groupby(points, key=lambda point: point.device)
    shown = {device: list(_product(list(those))) for device, those in products}
    pieces: list[Piece] = []
    if shown:
        pieces.append(table.choice("device", "product", [[device, device] for device in shown], shown))
    else:
        pieces.append(table.text("No case of several ranks was timed.", "notice"))
    yield "scaling", {"title": "Scaling", "pieces": pieces}


def newest_points(site: Site) -> list[ScalingPoint]:
    """The newest number of each backend of each problem and number of ranks on each product."""
    lanes = sorted(site.lanes, key=lambda lane: lane.commits[-1].date)  # the newest number stays
    points = (point for lane in lanes for point in _points(lane))
    return list({(one.device, one.kernel, one.shape, one.backend, one.world): one for one in points}.values())


def _points(lane: Lane) -> Iterator[ScalingPoint]:
    for one in lane.series:
        row = int(one.good[-1]) if len(one.good) else -1
        world = float(lane.columns["world"][row]) if row >= 0 else 1.0
        if world > 1 and np.isfinite(lane.columns["value"][row]):
            device, shape = str(lane.newest["device"]), without_ranks(one.case, int(world))
            numbers = [float(lane.columns[name][row]) for name in ("value", "seconds", "payload_bytes")]
            place = (lane.rate[one.kernel, one.case], lane.machine, lane.commit(row))
            link = case_address(one.kernel, lane.machine, one.case)
            yield ScalingPoint(device, one.kernel, shape, one.backend, one.baseline, int(world), *numbers, *place, link)


def _product(points: Sequence[ScalingPoint]) -> Iterator[Piece]:
    """Of each operator, a picture for each problem with two or more numbers of ranks; a table of all points."""
    for kernel in sorted({one.kernel for one in points}):
        own = [one for one in points if one.kernel == kernel]
        if drawn := pictures(own):
            yield table.heading(kernel)
            yield charts.legend(charts.looks_of(own))
            yield {"kind": "grid", "pieces": list(drawn.values())}
    columns = [
        OPERATOR,
        Column("shape", "problem", "case"),
        Column("ranks", "ranks", "number"),
        BACKEND,
        Column("value", "speed", "rate"),
        Column("seconds", "time", "duration"),
        Column("machine", "machine"),
        COMMIT,
    ]
    ordered = sorted(points, key=lambda one: (one.kernel, natural(one.shape), one.world, one.seconds))
    rows = [
        [
            one.kernel,
            [one.shape, one.link],
            one.world,
            one.backend,
            [one.value, UNITS[one.rate]],
            one.seconds,
            one.machine,
            one.commit,
        ]
        for one in ordered
    ]
    shown = Table("scaling", "newest numbers of several ranks", columns, rows)
    yield shown.folded(f"All {len(rows)} numbers of several ranks")


def pictures(points: Sequence[ScalingPoint]) -> dict[str, Piece]:
    """By problem, a chart of each of an operator's that has two numbers of ranks or more, the largest size first."""
    looks, by_shape = charts.looks_of(points), dict[str, list[ScalingPoint]]()
    for point in sorted(points, key=lambda one: natural(one.shape)):
        by_shape.setdefault(point.shape, []).append(point)
    several = [shape for shape, own in by_shape.items() if len({one.world for one in own}) > 1]
    several.sort(key=lambda shape: -max(one.bytes for one in by_shape[shape]))
    return {shape: _picture(by_shape[shape], looks) for shape in several[:MOST]}


def _picture(points: Sequence[ScalingPoint], looks: Mapping[str, Mapping[str, Any]]) -> Piece:
    worlds = sorted({one.world for one in points})
    series = []
    for backend in sorted({one.backend for one in points}):
        look, own = looks[backend], {one.world: one for one in points if one.backend == backend}
        links = [own[world].link if world in own else None for world in worlds]
        data = [own[world].value if world in own else None for world in worlds]
        series.append(charts.line(backend, data, look, links=links))
    axis = {"type": "category", "data": [str(world) for world in worlds], "name": "ranks"}
    first, name = points[0], NAMES[points[0].rate]
    option = {"xAxis": axis, "yAxis": {"name": name, "unit": UNITS[first.rate], "min": 0}, "series": series}
    return charts.chart(f"{first.kernel}, {first.shape}", {name: option}, 240, named=True, legend=False)
