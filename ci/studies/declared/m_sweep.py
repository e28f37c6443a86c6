"""Study a: speed of the GEMM over M, from one token to a prefill chunk."""

from __future__ import annotations

from collections.abc import Iterator

import pandas as pd

from ci.studies import plots
from ci.studies.frame import Figures, Study, StudyPart, listed, timed

TOKENS = tuple(f"n????_k*_m{2**power}_fp16" for power in range(11))


def with_calls(rows: pd.DataFrame) -> pd.DataFrame:
    """With the time of the kernel alone, and of a call from host to host."""
    return rows.assign(kernel_us=rows["us"], total_us=rows["whole_s"] * 1e6)


def table(rows: pd.DataFrame) -> pd.DataFrame:
    keys = ("operator", "world", "N", "K", "M", "backend")
    rates = ("kernel_us", "total_us", "tflops", "peak_percent", "intensity", "roofline_percent", "ratio")
    return listed(timed(with_calls(rows)), keys, rates)


def figures(rows: pd.DataFrame) -> Iterator[Figures]:
    alone = with_calls(timed(rows, operator=["gemm"]))
    yield "speed", plots.lines("GEMM over M, fp16: speed", alone, "M", "tflops", "series", log_y=True)
    title = "GEMM over M, fp16: call with synchronisation from the host"
    yield "times", plots.lines(title, alone, "M", "total_us", "series", log_y=True)
    for ranks in (2, 4, 8):
        scattered = timed(rows, operator=["gemm_all_scatter"], world=[ranks])
        title = f"GEMM + all-scatter over M on {ranks} ranks, fp16: speed"
        yield f"scattered_{ranks}", plots.lines(title, scattered, "M", "tflops", "backend", panel="shape", log_y=True)


M_SWEEP = Study(
    name="m_sweep",
    title="GEMM over M = 1 to 1024, four LLM weight matrices",
    question="From which M on does the matrix unit pay, and how far from the peak is each M?",
    source="The M sweeps of iris' GEMM + all-scatter examples and of hipBLASLt's decode tables, as one grid.",
    parts=(
        StudyPart("gemm", TOKENS, arms=("blas",)),
        StudyPart(
            "gemm_all_scatter", tuple(f"{case}_w*" for case in TOKENS), arms=("bulk", "blas+rccl"), ranks=(2, 4, 8)
        ),
    ),
    whole_call=True,
    table=table,
    figures=figures,
)
