"""The roofline of a machine: what cases achieve over their intensity, under the roofs of the device."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Mapping
from typing import Any

import numpy as np

from ci.records import derived
from dashboards import charts, table
from dashboards.files import natural, slug
from dashboards.frame import Lane, Site
from dashboards.table import Column, Piece, Table
from kernels.hardware import Hardware

SYMBOLS = ("circle", "rect", "triangle", "diamond", "roundRect", "pin")


def roofline_files(site: Site) -> Iterator[tuple[str, Any]]:
    """(path, page) of each lane."""
    for lane in site.lanes:
        yield f"{lane.slug}/roofline", {"title": "Roofline", "pieces": list(_pieces(lane))}


def _pieces(lane: Lane) -> Iterator[Piece]:
    flops, hbm = (lane.columns[name] for name in ("flops", "hbm_bytes"))
    shown = []
    for one in lane.series:
        row = int(one.good[-1]) if len(one.good) else -1
        if row >= 0 and not one.baseline and flops[row] > 0 and hbm[row] > 0:
            shown.append((one, row, flops[row] / hbm[row], flops[row] / lane.columns["seconds"][row] / 1e12))
    if not shown:
        yield table.text("No timed case of this machine has FLOP and bytes: there is nothing to draw.", "notice")
        return
    hardware = derived.hardware_of(lane.newest)
    dtypes = {str(lane.columns["dtype"][row]) for _, row, *_ in shown}
    roofs = peaks(hardware, dtypes) if hardware else {}
    intensity = [x for *_, x, _ in shown]
    series = list(_roofs(hardware, roofs, min(intensity), max(intensity))) if hardware else []
    kernels = sorted({one.kernel for one, *_ in shown})
    for n, kernel in enumerate(kernels):
        own = [(one, row, x, y) for one, row, x, y in shown if one.kernel == kernel]
        series.append(
            charts.points(
                kernel,
                [[x, y] for *_, x, y in own],
                f"--series-{n % charts.COLOURS}",
                symbol=SYMBOLS[n % len(SYMBOLS)],
                symbolSize=8,
                tips=[f"{one.case}, {one.backend}" for one, *_ in own],
                links=[_link(lane, one.kernel, one.case) for one, *_ in own],
            )
        )
    option = charts.over(
        {"name": "intensity: FLOP per byte of least HBM traffic", "unit": ""},
        {"name": "TFLOPS of one device", "unit": "TFLOPS"},
        series,
    )
    yield charts.chart(f"roofline of {lane.machine}", {"TFLOPS": option}, 460)
    if not hardware:
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
    rows = [
        [
            one.kernel,
            [one.case, _link(lane, one.kernel, one.case)],
            one.backend,
            x,
            [y, "TFLOPS"],
            [hbm[row] / float(lane.columns["seconds"][row]) / 1e9, "GB/s"],
            float(lane.columns["peak_share"][row]),
            lane.commit(row),
        ]
        for one, row, x, y in sorted(shown, key=lambda each: (each[0].kernel, natural(each[0].case), each[0].backend))
    ]
    shown = Table(f"{lane.machine}-roofline", "cases under the roof", columns, rows).piece(filter=True)
    yield table.fold([f"The {len(rows)} points as a table"], [shown])


def _link(lane: Lane, kernel: str, case: str) -> str:
    return f"kernels/{slug(kernel)}.html#machine={lane.machine}&case={case}"


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
