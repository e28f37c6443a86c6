"""Study a: speed over M, from one token to a prefill chunk."""

from __future__ import annotations

from benchmarks.studies.types import Drawn, Listed, Rows, Study, StudyPart

TOKENS = tuple(f"n????_k*_m{2**power}_fp16" for power in range(11))

SPEED = {"column": "tflops", "scale": "log"}
KERNEL, TOTAL = {"column": "kernel_us", "scale": "log"}, {"column": "total_us", "scale": "log"}

STUDY = Study(
    name="m_sweep",
    title="GEMM over M = 1 to 1024, four LLM weight matrices",
    question="From which M on does the matrix unit pay, and how far from the peak is each M?",
    source="The M sweeps of iris' GEMM + all-scatter examples and of hipBLASLt's decode tables, as one grid.",
    parts=(
        StudyPart("gemm", TOKENS, arms=("blas",)),
        StudyPart(
            "gemm_all_scatter",
            tuple(f"{one}_w*" for one in TOKENS),
            arms=("bulk", "blas+rccl"),
            ranks=(2, 4, 8),
        ),
    ),
    whole_call=True,
    table=Listed(
        keys=("operator", "world", "N", "K", "M", "backend"),
        columns=("kernel_us", "total_us", "tflops", "peak_percent", "intensity", "roofline_percent", "ratio"),
    ),
    figures=(
        Drawn(
            "speed", "curve", "GEMM over M, fp16: speed", {"x": "M", "y": "tflops", "group": "series"},
            Rows({"operator": ("gemm",)}),
        ),
        Drawn(
            "times", "panels", "GEMM over M, fp16: kernel alone, and call with synchronisation from the host",
            {"x": "M", "group": "series", "panels": [{"y": KERNEL}, {"y": TOTAL}, {"y": "peak_percent"}]},
            Rows({"operator": ("gemm",)}),
        ),
        *(
            Drawn(
                f"scattered_{ranks}", "panels", f"GEMM + all-scatter over M on {ranks} ranks, fp16: speed",
                {"x": "M", "y": SPEED, "group": "backend", "by": "shape"},
                Rows({"operator": ("gemm_all_scatter",), "world": (ranks,)}),
            )
            for ranks in (2, 4, 8)
        ),
    ),
)  # fmt: skip
