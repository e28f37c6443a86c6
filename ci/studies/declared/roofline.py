"""Study e: how far from the roofline, 60 points of one GPU, and where 1,200 configurations of a product lie."""

from __future__ import annotations

from collections.abc import Iterator

import pandas as pd

from ci.records.derived import roofline_parts
from ci.studies import plots
from ci.studies.frame import Figures, Study, StudyPart, Tried, listed, timed

TOKENS = tuple(f"n*_m{m}_fp16" for m in (*(2**power for power in range(11)), 4096, 8192))
SMALL_BATCHES = tuple(f"kimi_m{m}_bm16" for m in (4, 8, 16, 32, 64, 128, 256))


def with_bound(rows: pd.DataFrame) -> pd.DataFrame:
    """With what the roofline time of each row is that of: compute, HBM or links; "" for an unknown device."""
    bound = roofline_parts(rows).fillna(0.0).idxmax(axis=1)
    return rows.assign(bound=bound.where(rows["roofline_us"].notna(), ""))


def table(rows: pd.DataFrame) -> pd.DataFrame:
    columns = ("us", "roofline_us", "roofline_percent", "bound", "intensity", "tflops", "gbs", "busbw")
    return listed(timed(with_bound(rows)), ("operator", "world", "case", "backend"), columns)


def figures(rows: pd.DataFrame) -> Iterator[Figures]:
    alone = timed(rows, world=[1], backend=["triton", "triton_atomic"])
    title = "GEMM and MXFP4 experts on one GPU: share of the roofline"
    yield "roofline", plots.lines(title, alone, "intensity", "roofline_percent", "operator")
    for ranks in (2, 4, 8):
        title = f"GEMM + all-scatter on {ranks} ranks: share of the roofline, links included"
        own = timed(rows, world=[ranks])
        yield f"links_{ranks}", plots.lines(title, own, "M", "roofline_percent", "backend", panel="shape")


ROOFLINE = Study(
    name="roofline",
    title="Roofline: GEMM, MXFP4 experts, GEMM + all-scatter",
    question="Is a case bound by compute, by HBM or by the links, and how far from that bound is it?",
    source="Williams, Waterman, Patterson, CACM 52(4), 2009; ceilings: kernels/hardware.py.  On one GPU 60 points: "
    "52 GEMMs (4 weight matrices, 13 M) and 8 expert products.",
    parts=(
        StudyPart("gemm", TOKENS, arms=("blas",)),
        StudyPart("moe_gemm2_mxfp4", (*SMALL_BATCHES, "kimi_m16384_bm64"), "triton_atomic", ("triton_reduce",)),
        StudyPart(
            "gemm_all_scatter",
            ("n*_m64_fp16_w*", "n*_m256_fp16_w*", "n*_m1024_fp16_w*", "n4608_k36864_m8192_fp16_w*"),
            arms=("blas+rccl",),
            ranks=(2, 4, 8),
        ),
    ),
    table=table,
    figures=figures,
)


# Study e, second part: where 1,200 configurations of one product lie under the roofline.


GRID = {
    "block_m": (64, 128, 256),
    "block_n": (128, 256),
    "block_k": (64, 128),
    "num_warps": (4, 8),
    "num_stages": (2, 3, 4, 5, 6),
    "group_m": (1, 4, 8, 16, 32),
    "tma": (False, True),
    "split_k": (1,),
    "cut": ("all",),
    "programs": (0,),
}
"""3 x 2 x 2 x 2 x 5 x 5 x 2 = 1,200 points."""


def grid_table(rows: pd.DataFrame) -> pd.DataFrame:
    keys = ("tile", "num_warps", "num_stages", "group_m", "tma")
    columns = ("us", "tflops", "roofline_percent", "ratio", "low", "high", "trials")
    return listed(timed(rows, backend=["triton"]), keys, columns)


def grid_figures(rows: pd.DataFrame) -> Iterator[Figures]:
    points = timed(rows)
    title = "Time of the best configuration with each tile and number of stages"
    yield "heat", plots.heatmap(title, points, "num_stages", "tile", "us", relative="all")


ROOFLINE_GRID = Study(
    name="roofline_grid",
    title="Roofline, 1,200 configurations of one rank's product",
    question="How much of the roofline does the configuration alone decide?",
    source="Issue 14: the 1,200-point grid of the GEMM part of GEMM + all-scatter, by configuration.",
    parts=(StudyPart("gemm_all_scatter", ("n4608_k36864_m8192_fp16_w1of8",), tried=(Tried(knobs=GRID),)),),
    halving=True,
    table=grid_table,
    figures=grid_figures,
)
