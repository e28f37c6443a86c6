"""Study c: every knob of the GEMM for itself, over M."""

from __future__ import annotations

from collections.abc import Iterator

import pandas as pd

from ci.studies import frame, plots
from ci.studies.frame import PLACE, Figures, Study, StudyPart, Tried, listed, timed

KNOBS = {
    "num_warps": (2, 4, 8),
    "block_k": (32, 64, 128, 256),
    "num_stages": (2, 3, 4, 5),
    "split_k": (1, 2, 4, 8),
    "programs": (64, 96, 128, 192, 256),
}
"""programs: CUs that a persistent launch takes."""

KNOBS_OF_AMD = {"matrix_instr_nonkdim": (16, 32), "kpack": (1, 2), "waves_per_eu": (0, 1, 2, 3, 4)}


def fastest(rows: pd.DataFrame) -> pd.DataFrame:
    """The fastest point of each case and backend."""
    rows = timed(rows).dropna(subset=["seconds"])
    return rows.loc[sorted(rows.groupby([*PLACE, "case", "backend"], sort=False)["seconds"].idxmin())]


def table(rows: pd.DataFrame) -> pd.DataFrame:
    columns = ("us", "tflops", "peak_percent", "ratio", "low", "high", "launch")
    return listed(timed(fastest(rows), backend=["triton"]), ("N", "K", "M"), columns)


def figures(rows: pd.DataFrame) -> Iterator[Figures]:
    points = timed(rows, backend=["triton"])
    one_knob = points[points["knobs"].map(len) == 1]
    title = "GEMM: one knob changed, time / time of the default"
    yield "knobs", plots.heatmap(title, one_knob, "M", "setting", "ratio", "shape")
    title = "GEMM: best configuration of each M, and the library"
    yield "best", plots.lines(title, fastest(rows), "M", "tflops", "series", log_y=True)


def findings(rows: pd.DataFrame) -> Iterator[str]:
    yield from frame.best_choices(timed(rows, backend=["triton"]), "launch", ["M"], "M")


DEEP_TUNING = Study(
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
                Tried(knobs=KNOBS_OF_AMD, each=True, arches=("gfx",)),
            ),
        ),
    ),
    halving=True,
    table=table,
    figures=figures,
    findings=findings,
)
