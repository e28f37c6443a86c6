"""The published reference points: the file is complete, and what stands beside what."""

from __future__ import annotations

import dataclasses
import datetime

import pandas as pd
import pytest

from ci.studies.plots import AXES, PublishedLine, published_beside, published_lines

LINES = published_lines()


def test_every_line_is_of_an_operator_that_we_have_and_older_than_the_day_it_was_read():
    ours = {
        *("gemm", "all_gather", "all_reduce", "all_to_all", "reduce_scatter", "gemm_all_scatter", "moe_gemm2_mxfp4"),
        *("grouped_gemm_forward", "grouped_gemm_dgrad", "grouped_gemm_wgrad"),
    }
    assert {operator for line in LINES for operator in line.operators} <= ours
    assert max(line.date for line in LINES) <= datetime.date(2026, 11, 22)
    assert len(LINES) >= 30


def test_a_file_on_github_is_cited_at_a_commit():
    for line in LINES:
        if "/blob/" in line.source:
            assert len(line.source.split("/blob/")[1].split("/")[0]) == 40, line.name


def rows(market="MI300X", sizes=(64, 1024), **columns):
    base = {"operator": "gemm_all_scatter", "dtype": "fp16", "world": 8, "market_name": market, "N": 4608}
    return pd.DataFrame([{**base, "M": m, "payload_bytes": m, **columns} for m in sizes])


IRIS = PublishedLine(
    "iris", "iris 07", ["gemm_all_scatter"], "https://example.org/a", "MI300X", 8, "events", datetime.date(2025, 11, 1),
    "us", "µs", "fp16", {"N": 4608}, "M", [(64.0, 40.0), (1024.0, 90.0), (4096.0, 300.0)],
)  # fmt: skip
LEVEL = dataclasses.replace(IRIS, name="maf", y="tflops", unit="TFLOPS", x="", points=(), level=654.0, shape={})


def shown(lines=(IRIS, LEVEL), x="M", y="us", **columns):
    return [line.name for line in published_beside(rows(**columns), x, y, lines)]


def test_a_line_stands_beside_its_shape_on_any_device():
    assert shown(market="H200") == ["iris"]
    assert published_beside(rows(), "M", "us", [IRIS])[0].points == [(64.0, 40.0), (1024.0, 90.0)], (
        "4096 was not measured"
    )
    for other in ({"N": 4096}, {"dtype": "bf16"}, {"world": 2}, {"operator": "gemm"}, {"sizes": (1, 2)}):
        assert shown(**other) == [], other
    assert shown(x="payload_bytes") == []


def test_a_level_stands_beside_its_own_product():
    assert shown(y="tflops") == ["maf"]
    assert shown(y="tflops", market="MI325X") == []


def test_bus_bandwidth_and_time_of_the_same_runs_agree():
    """busbw = 2 (n - 1) / n x bytes / time (rccl-tests, doc/PERFORMANCE.md): a slip in copying a digit shows."""
    lines = {line.name: dict(line.points) for line in LINES}
    for kind in ("", "_graph"):
        speeds, times = (lines[f"rccl_all_reduce_mi300x{kind}_{what}"] for what in ("busbw", "us"))
        both = speeds.keys() & times.keys()
        assert len(both) == 6
        for size in both:
            assert speeds[size] == pytest.approx(2 * 7 / 8 * size / times[size] / 1e3, rel=1e-3)


def test_the_fused_kernel_of_iris_agrees_with_its_own_time():
    lines = {line.name: dict(line.points) for line in LINES}
    ((m, us),) = lines["iris_gemm_all_scatter_us"].items()
    assert lines["iris_gemm_all_scatter_tflops"][m] == pytest.approx(2 * m**3 / us / 1e6, rel=1e-5)


UNITS = {
    "tflops": "TFLOPS",
    "aggregate_tflops": "TFLOPS",
    "us": "µs",
    **dict.fromkeys(("busbw", "gbs", "link_gbs", "gpu_links_gbs"), "GB/s"),
}
"""Quantities that are published, by the name of their column, and the unit that each has."""


@pytest.mark.parametrize("line", LINES, ids=lambda line: line.name)
def test_a_line_is_complete(line):
    assert line.source.startswith("https://")
    assert type(line.date) is datetime.date
    assert all((line.label, line.device, line.method))
    assert UNITS[line.y] == line.unit
    xs = [x for x, _ in line.points]
    assert xs == sorted(set(xs)), "in the order of x, each once"
    assert (line.level is None and line.x in AXES) if xs else (line.level > 0 and not line.x)


def test_a_name_stands_for_one_line():
    assert len({line.name for line in LINES}) == len(LINES)
