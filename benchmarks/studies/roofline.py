"""Study e: how far from the roofline, 60 points."""

from __future__ import annotations

from benchmarks.studies.types import Drawn, Listed, Rows, Study, StudyPart

TOKENS = tuple(f"n*_m{m}_fp16" for m in (*(2**power for power in range(11)), 4096, 8192))
SMALL_BATCHES = tuple(f"kimi_m{m}_bm16" for m in (4, 8, 16, 32, 64, 128, 256))

STUDY = Study(
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
    table=Listed(
        keys=("operator", "world", "case", "backend"),
        columns=("us", "roofline_us", "roofline_percent", "bound", "intensity", "tflops", "gbs", "busbw"),
    ),
    figures=(
        Drawn(
            "roofline", "roofline", "Roofline: GEMM and MXFP4 experts on one GPU", {"group": "operator"},
            Rows({"world": (1,), "backend": ("triton", "triton_atomic")}),
        ),
        *(
            Drawn(
                f"links_{ranks}", "roofline", f"Roofline with links: GEMM + all-scatter on {ranks} ranks",
                {"group": "backend"}, Rows({"world": (ranks,)}),
            )
            for ranks in (2, 4, 8)
        ),
    ),
)  # fmt: skip
