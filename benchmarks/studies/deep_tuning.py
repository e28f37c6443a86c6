"""Study c: every knob of the GEMM for itself, over M."""

from __future__ import annotations

from benchmarks.studies.types import Drawn, Listed, Rows, Study, StudyPart, Tried

KNOBS = {
    "num_warps": (2, 4, 8),
    "block_k": (32, 64, 128, 256),
    "num_stages": (2, 3, 4, 5),
    "split_k": (1, 2, 4, 8),
    "programs": (64, 96, 128, 192, 256),
}
"""programs: CUs that a persistent launch takes."""

OF_AMD = {"matrix_instr_nonkdim": (16, 32), "kpack": (1, 2), "waves_per_eu": (0, 1, 2, 3, 4)}

STUDY = Study(
    name="deep_tuning",
    title="Deep tuning of the GEMM over M: warps, matrix instruction, K step, CUs, kpack, waves per EU",
    question="Which configuration is best for each M, and which of its knobs matter?",
    source="The deep-tuning chapter of the source documents; knobs that only AMD has are tried on AMD only.",
    parts=(
        StudyPart(
            "gemm",
            tuple(f"n4096_k*_m{2**power}_fp16" for power in range(11)),
            arms=("blas",),
            tried=(
                Tried(candidates=True),
                Tried(knobs=KNOBS, each=True),
                Tried(knobs=OF_AMD, each=True, arches=("gfx",)),
            ),
        ),
    ),
    halving=True,
    table=Listed(
        keys=("N", "K", "M"),
        columns=("us", "tflops", "peak_percent", "ratio", "low", "high", "launch"),
        rows=Rows({"backend": ("triton",)}, pick="best"),
    ),
    figures=(
        Drawn(
            "knobs", "heatmap", "GEMM: one knob changed, time / time of the default",
            {"x": "M", "y": "setting", "value": "ratio", "relative": None, "by": "shape"},
            Rows({"backend": ("triton",), "changes": (1,)}),
        ),
        Drawn(
            "best", "curve", "GEMM: best configuration of each M, and the library",
            {"x": "M", "y": "tflops", "group": "series", "baselines": ["blas"]}, Rows(pick="best"),
        ),
    ),
    guidance=("launch_by_m",),
)  # fmt: skip
