"""Study i: the second product of MXFP4 experts over M."""

from __future__ import annotations

from benchmarks.studies.types import Drawn, Listed, Rows, Study, StudyPart, Tried

BATCHES = tuple(f"kimi_m{m}_bm{block}" for m in (4, 8, 16, 32, 64, 128, 256) for block in (16, 32))
LIBRARIES = ("triton_kernels", "humming_w4a16", "humming_w4a8", "aiter_ck", "aiter_mxmoe_atomic", "flydsl_gemm2")
TIME = {"column": "us", "scale": "log"}

STUDY = Study(
    name="mxfp4",
    title="MXFP4 expert product over M: ours and the libraries, BM 16 and 32, non-temporal loads",
    question="From which M on is BM 32 better, do non-temporal loads pay, and are the bits the same everywhere?",
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
        StudyPart(
            "moe_gemm2_mxfp4", ("kimi_m16_bm16_exact",), anchor="triton_reduce",
            arms=("triton_atomic", *LIBRARIES), check=True,
        ),
    ),
    table=Listed(
        keys=("M", "BM", "backend", "non_temporal"),
        columns=("us", "tflops", "gbs", "roofline_percent", "ratio", "low", "high", "baseline_ratio"),
    ),
    figures=(
        Drawn(
            "over_m", "panels", "MXFP4 expert product over M, BM 16 and 32",
            {"x": "M", "y": TIME, "group": "backend", "by": "BM", "baselines": list(LIBRARIES)}, Rows(pick="plain"),
        ),
        Drawn(
            "non_temporal", "panels", "MXFP4 expert product: non-temporal loads of the weights",
            {"x": "M", "y": TIME, "group": "non_temporal", "by": "BM"}, Rows({"backend": ("triton_atomic",)}),
        ),
    ),
)  # fmt: skip
