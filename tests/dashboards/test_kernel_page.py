"""The data of a kernel's page: holes, reasons and costs."""

from __future__ import annotations

import numpy as np

from ci.records import derived
from dashboards import lanes
from tests.dashboards import synthetic
from tests.dashboards.shown import kernel_data

MI300X = "mi300x-8-0f3a9c1e"


def test_a_new_cost_starts_where_it_was_measured_first() -> None:
    frame = synthetic.one_case(6, hbm_bytes=[10**8] * 3 + [2 * 10**8] * 3)
    data = kernel_data(lanes.tidy(derived.derive(frame)))
    baseline, triton = data["series"]
    costs = data["cases"][0]["costs"]
    assert [start for start, _ in triton["cost"]] == [0, 3]
    assert [costs[number]["hbm_bytes"] for _, number in triton["cost"]] == [10**8, 2 * 10**8]
    assert [start for start, _ in baseline["cost"]] == [0]
    assert costs[baseline["cost"][0][1]] == {
        "flops": 2 * 64 * 4096 * 14336,
        "hbm_bytes": 2 * (64 * 14336 + 14336 * 4096 + 64 * 4096),
        "world": 1,
        "roofline_seconds": 2 * (64 * 14336 + 14336 * 4096 + 64 * 4096) / 5.3e12,
    }


def test_the_cost_that_a_case_shows_is_the_newest_that_is_stated() -> None:
    frame = synthetic.one_case(4)
    frame = frame[~frame["baseline"]].assign(flops=[1e12, 1e12, 1e12, np.nan], hbm_bytes=[1e8, 2e8, 1e8, np.nan])
    frame = lanes.tidy(derived.derive(frame))
    data = kernel_data(frame)
    costs = data["cases"][0]["costs"]
    assert [cost.get("hbm_bytes") for cost in costs] == [None, 2e8, 1e8]
    assert data["series"][0]["cost"] == [[0, 2], [1, 1], [2, 2], [3, 0]]
    assert data["cases"][0]["rate"] == "tflops", "a record without notes does not change the unit"


def test_what_was_not_measured_is_a_hole_with_its_reason() -> None:
    frame = synthetic.history(5, synthetic.CASES[:1], machines=[MI300X], backends=("triton",))
    third = frame["commit"].drop_duplicates().iloc[2]
    spoilt = synthetic.spoil(frame, (frame["commit"] == third) & (frame["backend"] == "triton"), "wrong", "off by one")
    data = kernel_data(lanes.tidy(spoilt))
    triton = data["series"][1]
    assert [us is None for us in triton["us"]] == [False, False, True, False, False]
    assert {i: (status, data["whys"][why]) for i, (status, why) in triton["bad"].items()} == {
        "2": ("wrong", "off by one")
    }


def test_infinities_and_missing_numbers_never_reach_the_page() -> None:
    frame = synthetic.one_case(4, seconds=[1e-3, np.inf, -np.inf, np.nan], seconds_low=np.nan)
    triton = kernel_data(frame)["series"][1]
    assert triton["us"] == [1000.0, None, None, None]
    assert triton["low"] == [None] * 4
