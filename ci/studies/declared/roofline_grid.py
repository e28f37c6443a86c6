"""Study e, second part: where 1,200 configurations of one product lie under the roofline."""

from __future__ import annotations

from collections.abc import Iterator

import pandas as pd

from ci.studies import plots
from ci.studies.frame import listed, timed
from ci.studies.types import Figures, Study, StudyPart, Tried

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


def table(rows: pd.DataFrame) -> pd.DataFrame:
    keys = ("tile", "num_warps", "num_stages", "group_m", "tma")
    columns = ("us", "tflops", "roofline_percent", "ratio", "low", "high", "trials")
    return listed(timed(rows, backend=["triton"]), keys, columns)


def figures(rows: pd.DataFrame) -> Iterator[Figures]:
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
    table=table,
    figures=figures,
)
