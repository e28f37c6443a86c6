"""Study f: strong and weak scaling of GEMM + all-scatter, and what the links add to the product."""

from __future__ import annotations

from benchmarks.studies.types import Drawn, Listed, Rows, Study, StudyPart

LIBRARIES = ("blas+rccl", "blas+rccl_most_channels", "blas+rccl_registered")
SHARED = {"column": "ranks", "label": "ranks that share the product", "unit": "1", "scale": "log2"}
STRONG = ("N 4096, K 14336, M 64", "N 4096, K 14336, M 1024", "N 8192, K 28672, M 512", "N 4608, K 36864, M 8192")
WEAK = ("2048 columns a rank, K 4096, M 64", "2048 columns a rank, K 4096, M 1024")

STUDY = Study(
    name="scaling",
    title="GEMM + all-scatter: strong and weak scaling, and the product alone",
    question="What does the scatter add to a rank's product, and how does each way to do it scale?",
    source="The scaling figures of iris' GEMM + all-scatter: fused, bulk-synchronous and library over M and ranks.",
    parts=(
        StudyPart("gemm_all_scatter", ("n*_w1of*",), arms=("blas+rccl",)),
        StudyPart("gemm_all_scatter", ("n*_fp16_w?",), arms=("bulk", *LIBRARIES), ranks=(2, 4, 8)),
    ),
    table=Listed(
        keys=("whole", "ranks", "line"),
        columns=("us", "all_tflops", "alone_us", "overhead", "speedup", "link_us", "link_percent", "busbw"),
    ),
    figures=(
        Drawn(
            "overhead", "panels", "GEMM + all-scatter, fp16: time / time of the rank's product alone",
            {"x": "M", "y": "overhead", "group": "line_ranks", "by": "shape", "baselines": []},
            Rows({"world": (2, 4, 8)}),
        ),
        Drawn(
            "strong", "scaling", "GEMM + all-scatter, fp16: strong scaling; link ceiling: time of full links",
            {"x": SHARED, "y": "us", "group": "line", "by": "whole", "ideal": "inverse", "ceiling": "link_us"},
            Rows({"whole": STRONG}),
        ),
        Drawn(
            "weak", "scaling", "GEMM + all-scatter, fp16: weak scaling, a rank's product stays the same",
            {"x": SHARED, "y": "us", "group": "line", "by": "weak", "ideal": "constant"},
            Rows({"weak": WEAK}),
        ),
    ),
)  # fmt: skip
