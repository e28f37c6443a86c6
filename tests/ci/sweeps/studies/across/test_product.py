"""The product alone is found for every row, and what the scatter adds to it is what was put in."""

from __future__ import annotations

import math

import pytest

from benchmarks.studies.collectives import SCALING
from ci.sweeps.studies.columns import column, with_own
from tests.ci.sweeps.studies.made_rows import frame

WHOLE = {"M": 64, "N": 4096, "K": 4096}
SHARE = {"M": 64, "N": 2048, "K": 4096, "of": 2}
FLOPS = 2 * 64 * 2048 * 4096
LINK = 64 * 2048 * 2


def rows(**more):
    two = {"dims": WHOLE, "world": 2, "flops": FLOPS, "link_bytes": LINK}
    return frame(
        {"dims": SHARE, "seconds": 10e-6, "flops": FLOPS},
        {"dims": SHARE, "seconds": 8e-6, "flops": FLOPS, "backend": "blas+rccl"},
        {"dims": {**WHOLE, "of": 1}, "seconds": 16e-6, "flops": 2 * FLOPS},
        {**two, "seconds": 15e-6},
        {**two, "seconds": 20e-6, "backend": "bulk"},
        {**two, "seconds": 24e-6, "backend": "blas+rccl", **more},
    )


def said(made, name):
    return column(with_own(SCALING, made), name)


def test_overhead_is_against_who_multiplies():
    """Fused against the fused kernel alone; bulk and the library against the library's product."""
    found = said(rows(), "overhead")
    assert found.tolist() == pytest.approx([1, 1, 1, 1.5, 2.5, 3.0])
    assert said(rows(), "alone_us").tolist() == pytest.approx([10, 8, 16, 10, 8, 8])


def test_speedup_is_against_the_whole_product_on_one_rank():
    found = said(rows(), "speedup")
    assert found[3] == pytest.approx(16 / 15)
    assert found[0] == pytest.approx(1.6)
    assert math.isnan(found[4]), "the library's product on one rank was not measured"


def test_nothing_is_compared_across_machines_regimes_or_failures():
    for more in ({"machine": "other"}, {"regime": "sustained"}):
        assert math.isnan(said(rows(**more), "overhead")[5])
    failed = rows()
    failed.loc[0, "status"] = "wrong"
    assert math.isnan(said(failed, "overhead")[3])


def test_a_point_of_the_share_is_not_the_product_that_others_are_compared_with():
    tried = rows()
    tried.loc[0, "point"] = "abc"
    assert math.isnan(said(tried, "alone_us")[3])


def test_names_and_ranks():
    made = rows()
    assert said(made, "ranks").tolist() == [2, 2, 1, 2, 2, 2]
    assert set(said(made, "whole")) == {"N 4096, K 4096, M 64"}
    assert said(made, "weak").tolist() == [
        *["2048 columns a rank, K 4096, M 64"] * 2,
        "4096 columns a rank, K 4096, M 64",
        *["2048 columns a rank, K 4096, M 64"] * 3,
    ]
    assert said(made, "line").tolist()[:2] == ["GEMM alone, triton", "GEMM alone, library"]
    assert said(made, "line_ranks").tolist()[3] == "triton, 2 ranks"
    assert said(frame({"dims": {"MB": 2}}), "whole").tolist() == [""]


def test_the_links_of_an_h200():
    """450 GB/s to all peers; the time of full links is no time of a rank alone."""
    made = rows()
    assert said(made, "link_us").isna().tolist() == [True] * 3 + [False] * 3
    per_second = LINK / said(made, "link_us")[3] * 1e6
    assert per_second == pytest.approx(450e9)
    assert said(made, "link_percent")[3] == pytest.approx(LINK / 450e9 / 15e-6 * 100)
    assert said(made, "all_tflops")[3] == pytest.approx(2 * FLOPS / 15e-6 / 1e12)
    assert said(made, "all_tflops")[0] == pytest.approx(2 * FLOPS / 10e-6 / 1e12)
