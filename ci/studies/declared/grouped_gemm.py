"""Study h: the backends of the grouped GEMM, for each product, model and routing."""

from __future__ import annotations

from collections.abc import Iterator

import pandas as pd

from ci.studies import plots
from ci.studies.backends import backend_findings, backend_means
from ci.studies.frame import listed, plain
from ci.studies.types import Figures, Finding, Study, StudyPart

OPERATORS = tuple(f"grouped_gemm_{product}" for product in ("forward", "dgrad", "wgrad"))
OTHERS = ("torch_grouped", "ck", "hipblaslt_grouped", "gmm", "aiter_gmm", "triton", "autotune")
CASES = tuple(
    f"*_m{mean}_{routing}" for mean in (2048, 4096) for routing in ("balanced", "mild", "extreme", "unbalanced")
)
KEYS = ("operation", "model", "layer", "G", "M", "routing")
COMPARED = {
    "keys": KEYS,
    "value": "tflops",
    "baseline": "loop",
    "score": "higher",
    "by": (("operation",), ("model",), ("routing",)),
    "regret": {"autotune": ("loop", *OTHERS[:-1])},
}


def table(rows: pd.DataFrame) -> pd.DataFrame:
    return listed(plain(rows), KEYS, ("tflops",), spread="backend")


def figures(rows: pd.DataFrame) -> Iterator[Figures]:
    own = plain(rows)
    title = "Grouped GEMM, bf16: speed of each backend in each case"
    yield "backends", plots.dots(title, plots.by(own, "operation", "tflops"), "case", "backend", ["loop"])
    title = "Grouped GEMM, bf16: geometric mean of speed / speed of the loop"
    means = backend_means(own, **COMPARED)
    yield "means", plots.dots(title, [("", means, "mean_ratio")], "rows_of", "backend", geometric_mean=False)


def findings(rows: pd.DataFrame) -> Iterator[Finding]:
    yield from backend_findings(plain(rows), **COMPARED)


GROUPED_GEMM = Study(
    name="grouped_gemm",
    title="Grouped GEMM: backends side by side",
    question="Which backend for which product, model and routing, and does autotune choose the best of them?",
    source="The backend tables of Primus-Turbo's grouped GEMM (benchmark/ops/training, 2026-08): means, wins, "
    "autotune against the best of its candidates.  Balanced and its unbalanced routing, and two harder ones of ours.",
    parts=tuple(StudyPart(operator, CASES, anchor="loop", arms=OTHERS) for operator in OPERATORS),
    table=table,
    figures=figures,
    findings=findings,
)
