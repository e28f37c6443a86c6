"""Scaling: speed over the number of ranks on machines of one product."""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np

from dashboards import charts, table
from dashboards.files import natural, slug
from dashboards.frame import NAMES, UNITS, Commit, Lane, Series, Site
from dashboards.table import Column, Piece, Table

MOST = 24
"""Pictures of an operator: of those with the most numbers of ranks, the largest sizes first."""


class Point(NamedTuple):
    """The newest number of a backend in a case of several ranks."""

    device: str
    kernel: str
    case: str
    shape: str
    backend: str
    baseline: bool
    world: int
    value: float
    seconds: float
    unit: str
    name: str
    bytes: float
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


def newest_points(site: Site) -> list[Point]:
    """The newest number of each backend of each problem and number of ranks on each product."""
    lanes = sorted(site.lanes, key=lambda lane: lane.commits[-1].date)  # the newest number stays
    points = (point for lane in lanes for point in _points(lane))
    return list({(one.device, one.kernel, one.shape, one.backend, one.world): one for one in points}.values())


def _points(lane: Lane) -> Iterator[Point]:
    payload = lane.columns["payload_bytes"]
    for one in lane.series:
        row = int(one.good[-1]) if len(one.good) else -1
        world = float(lane.columns["world"][row]) if row >= 0 else 1.0
        if world > 1 and np.isfinite(lane.columns["value"][row]):
            yield _point(lane, one, row, int(world), float(payload[row]))


def _point(lane: Lane, one: Series, row: int, world: int, payload: float) -> Point:
    rate = lane.rate[one.kernel, one.case]
    value, seconds = (float(lane.columns[name][row]) for name in ("value", "seconds"))
    link = f"kernels/{slug(one.kernel)}.html#machine={lane.machine}&case={one.case}"
    shape = without_ranks(one.case, world)
    named = (str(lane.newest["device"]), one.kernel, one.case, shape, one.backend, one.baseline)
    return Point(*named, world, value, seconds, UNITS[rate], NAMES[rate], payload, lane.machine, lane.commit(row), link)


def _product(points: Sequence[Point]) -> Iterator[Piece]:
    """Of each operator, a picture for each problem with two or more numbers of ranks; a table of all points."""
    for kernel in sorted({one.kernel for one in points}):
        own = [one for one in points if one.kernel == kernel]
        if drawn := pictures(own):
            yield table.heading(kernel)
            yield charts.legend(charts.looks_of(own))
            yield {"kind": "grid", "pieces": list(drawn.values())}
    columns = [
        Column("kernel", "operator"),
        Column("shape", "problem", "case"),
        Column("ranks", "ranks", "number"),
        Column("backend", "backend"),
        Column("value", "speed", "rate"),
        Column("seconds", "time", "duration"),
        Column("machine", "machine"),
        Column("commit", "commit", "commit"),
    ]
    ordered = sorted(points, key=lambda one: (one.kernel, natural(one.shape), one.world, one.seconds))
    rows = [
        [
            one.kernel,
            [one.shape, one.link],
            one.world,
            one.backend,
            [one.value, one.unit],
            one.seconds,
            one.machine,
            one.commit,
        ]
        for one in ordered
    ]
    shown = Table("scaling", "newest numbers of several ranks", columns, rows).piece(filter=True)
    yield table.fold([f"All {len(rows)} numbers of several ranks"], [shown])


def pictures(points: Sequence[Point]) -> dict[str, Piece]:
    """By problem, a chart of each of an operator's that has two numbers of ranks or more, the largest size first."""
    looks, by_shape = charts.looks_of(points), dict[str, list[Point]]()
    for point in sorted(points, key=lambda one: natural(one.shape)):
        by_shape.setdefault(point.shape, []).append(point)
    several = [shape for shape, own in by_shape.items() if len({one.world for one in own}) > 1]
    several.sort(key=lambda shape: -max(one.bytes for one in by_shape[shape]))
    return {shape: _picture(by_shape[shape], looks) for shape in several[:MOST]}


def _picture(points: Sequence[Point], looks: Mapping[str, Mapping[str, Any]]) -> Piece:
    worlds = sorted({one.world for one in points})
    series = []
    for backend in sorted({one.backend for one in points}):
        look, own = looks[backend], {one.world: one for one in points if one.backend == backend}
        links = [own[world].link if world in own else None for world in worlds]
        data = [own[world].value if world in own else None for world in worlds]
        series.append(charts.line(backend, data, look, links=links))
    axis = {"type": "category", "data": [str(world) for world in worlds], "name": "ranks"}
    option = {"xAxis": axis, "yAxis": {"name": points[0].name, "unit": points[0].unit, "min": 0}, "series": series}
    return charts.chart(
        f"{points[0].kernel}, {points[0].shape}", {points[0].name: option}, 240, named=True, legend=False
    )
