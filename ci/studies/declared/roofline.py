"""Study e: how far from the roofline, 60 points of one GPU."""

from __future__ import annotations

from collections.abc import Iterator

import pandas as pd

from ci.studies import plots
from ci.studies.frame import listed, of_device, peak, timed
from ci.studies.types import Figures, Study, StudyPart

TOKENS = tuple(f"n*_m{m}_fp16" for m in (*(2**power for power in range(11)), 4096, 8192))
SMALL_BATCHES = tuple(f"kimi_m{m}_bm16" for m in (4, 8, 16, 32, 64, 128, 256))


def with_bound(rows: pd.DataFrame) -> pd.DataFrame:
    """With what the roofline time of each row is that of: compute, HBM or links; "" for an unknown device."""
    parts = {
        "compute": rows["flops"] / of_device(rows, peak),
        "HBM": rows["hbm_bytes"] / of_device(rows, lambda hardware, dtype, world: hardware.hbm_bandwidth),
        "links": rows["link_bytes"]
        / of_device(rows, lambda hardware, dtype, world: hardware.link_to(max(1, world - 1))),
    }
    return rows.assign(bound=pd.DataFrame(parts).fillna(0.0).idxmax(axis=1).where(rows["roofline_us"].notna(), ""))


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
