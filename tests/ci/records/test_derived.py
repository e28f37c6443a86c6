"""Derived columns against the formulas worked out by hand, row by row."""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest

from ci.records import derived as derive
from ci.records import store as records
from kernels.hardware import DEVICES, by_market_name, roofline_seconds
from kernels.spec import Cost

GEMM = {
    "machine": "m",
    "commit": "a" * 40,
    "env": "e",
    "kernel": "gemm",
    "backend": "triton",
    "baseline": False,
    "case": "c",
    "market_name": "MI300X",
    "arch": "gfx942",
    "device": "AMD Instinct MI300X",
    "dtype": "fp16",
    "world": 1,
    "seconds": 1e-3,
    "flops": 2.0 * 4096**3,
    "hbm_bytes": 3.0 * 4096**2 * 2,
    "link_bytes": 0.0,
    "payload_bytes": 0.0,
}
GATHER = {
    **GEMM,
    "kernel": "all_gather",
    "flops": 0.0,
    "hbm_bytes": 2e9,
    "link_bytes": 0.875e9,
    "payload_bytes": 1e9,
    "world": 8,
    "seconds": 4e-3,
}


def frame(*rows: dict[str, Any]) -> pd.DataFrame:
    return derive.derive(pd.DataFrame(rows))


def test_gemm_by_hand() -> None:
    row = frame(GEMM).iloc[0]
    assert row["tflops"] == pytest.approx(137.438953472)
    assert row["gbs"] == pytest.approx(100.663296)
    assert row["peak_share"] == pytest.approx(2 * 4096**3 / 1307.4e12 / 1e-3)
    assert math.isnan(row["algbw"])
    assert math.isnan(row["busbw"])


def test_all_gather_follows_nccl_tests() -> None:
    """nccl-tests: algbw = S / t, busbw = algbw * (n - 1) / n for an all-gather."""
    row = frame(GATHER).iloc[0]
    assert row["algbw"] == pytest.approx(250.0)
    assert row["busbw"] == pytest.approx(250.0 * 7 / 8)
    assert math.isnan(row["tflops"]), "a copy has no FLOP rate"
    assert row["peak_share"] == pytest.approx(0.875e9 / 448e9 / 4e-3)


def test_flops_are_those_of_all_ranks() -> None:
    one, eight = frame(GEMM, {**GEMM, "world": 8})["tflops"]
    assert eight == pytest.approx(8 * one)


def test_roofline_of_every_known_device_is_that_of_the_kernels_package() -> None:
    for device in DEVICES:
        for base in (GEMM, GATHER, {**GATHER, "world": 2}):
            row = frame({**base, "market_name": device.market_name}).iloc[0]
            cost = Cost(*(int(base[key]) for key in ("flops", "hbm_bytes", "link_bytes", "payload_bytes")))
            world = int(base["world"])
            expected = roofline_seconds(cost, "fp16", device, world) / base["seconds"]
            assert row["peak_share"] == pytest.approx(expected), device.market_name


def test_a_partition_is_measured_by_its_own_peak() -> None:
    whole = by_market_name("MI300X")
    part = {
        **GEMM,
        "market_name": "MI300X (1/8 partition)",
        "compute_units": 38.0,
        "chip_id": "74a1",
        "memory_bytes": 192.0 * 2**30,
    }
    assert frame(part).iloc[0]["peak_share"] == pytest.approx(2 * 4096**3 / (whole.peak("fp16") / 8) / 1e-3)


@pytest.mark.parametrize(
    "change",
    [
        {"market_name": "", "arch": "cpu"},
        {"market_name": None, "arch": "gfx1201"},
        {"dtype": "int4"},
        {"flops": np.nan},
    ],
)
def test_no_share_where_the_peak_or_the_cost_is_unknown(change: dict[str, Any]) -> None:
    assert math.isnan(frame({**GEMM, **change}).iloc[0]["peak_share"])


def test_ratio_to_the_fastest_baseline_beside_it_and_its_name() -> None:
    rows = [
        GEMM,
        {**GEMM, "backend": "blas", "baseline": True, "seconds": 0.8e-3},
        {**GEMM, "backend": "slow library", "baseline": True, "seconds": 2e-3},
        {**GEMM, "backend": "blas", "baseline": True, "seconds": 0.1e-3, "machine": "another"},
        {**GEMM, "backend": "blas", "baseline": True, "seconds": 0.1e-3, "env": "another"},
        {**GEMM, "backend": "blas", "baseline": True, "seconds": np.nan, "case": "d"},
        {**GEMM, "case": "d"},
    ]
    found = frame(*rows)
    ratio, name = found["baseline_ratio"], found["baseline_name"]
    assert ratio[0] == pytest.approx(0.8), "above 1 ours is faster, and 1 ms against 0.8 ms is slower"
    assert ratio[1] == pytest.approx(1.0)
    assert math.isnan(ratio[6]), "a baseline that failed is not a baseline"
    assert list(name) == ["blas", "blas", "blas", "blas", "blas", "", ""]


def test_rows_keep_their_order_and_index() -> None:
    base = pd.DataFrame([GATHER, GEMM], index=[7, 3])
    derived = derive.derive(base)
    assert list(derived.index) == [7, 3]
    assert list(base.columns) == list(GATHER), "the frame that was given is left alone"
    pd.testing.assert_series_equal(derived["gbs"], pd.Series([500.0, 100.663296], index=[7, 3], name="gbs"))


def test_an_empty_frame_stays_empty(tmp_path: Path) -> None:
    empty = derive.derive(records.load(tmp_path))
    assert len(empty) == 0
    assert {"tflops", "gbs", "algbw", "busbw", "peak_share", "baseline_ratio", "baseline_name"} <= set(empty.columns)
