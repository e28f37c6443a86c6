"""Study i: the second product of MXFP4 experts over M."""

from __future__ import annotations

from collections.abc import Iterator

import pandas as pd

from ci.studies import plots
from ci.studies.frame import Figures, Study, StudyPart, Tried, listed, plain, timed

BATCHES = tuple(f"kimi_m{m}_bm{block}" for m in (4, 8, 16, 32, 64, 128, 256) for block in (16, 32))
LIBRARIES = ("triton_kernels", "humming_w4a16", "humming_w4a8", "aiter_ck", "aiter_mxmoe_atomic", "flydsl_gemm2")


def table(rows: pd.DataFrame) -> pd.DataFrame:
    columns = ("us", "tflops", "gbs", "roofline_percent", "ratio", "low", "high", "baseline_ratio")
    return listed(timed(rows), ("M", "BM", "backend", "non_temporal"), columns)


def figures(rows: pd.DataFrame) -> Iterator[Figures]:
    title = "MXFP4 expert product over M, BM 16 and 32"
    yield "over_m", plots.lines(title, plain(rows), "M", "us", "backend", panel="BM", baselines=LIBRARIES, log_y=True)
    title, points = "MXFP4 expert product: non-temporal loads of the weights", timed(rows, backend=["triton_atomic"])
    yield "non_temporal", plots.lines(title, points, "M", "us", "non_temporal", panel="BM", log_y=True)


MXFP4 = Study(
    name="mxfp4",
    title="MXFP4 expert product over M: ours and the libraries, BM 16 and 32, non-temporal loads",
    question="From which M on is BM 32 better, and do non-temporal loads pay?",
    source="The M list of the published gemm2 tables for Kimi-K2 (7168 x 512, 385 experts, top 9), decode sizes.",
    parts=(
        StudyPart(
            "moe_gemm2_mxfp4",
            BATCHES,
            anchor="triton_atomic",
            arms=("triton_reduce", *LIBRARIES),
            tried=tuple(
                Tried(backend, knobs={"non_temporal": (True, False)}) for backend in ("triton_atomic", "triton_reduce")
            ),
        ),
    ),
    table=table,
    figures=figures,
)
