"""Study h: the backends of the grouped GEMM side by side, for each product, model and routing."""

from __future__ import annotations

from benchmarks.studies.types import Compared, Drawn, Listed, Rows, Study, StudyPart

OPERATORS = tuple(f"grouped_gemm_{product}" for product in ("forward", "dgrad", "wgrad"))
OTHERS = ("torch_grouped", "ck", "hipblaslt_grouped", "gmm", "aiter_gmm", "triton", "autotune")
CASES = tuple(
    f"*_m{mean}_{routing}" for mean in (2048, 4096) for routing in ("balanced", "mild", "extreme", "unbalanced")
)
CANDIDATES = ("loop", *OTHERS[:-1])

STUDY = Study(
    name="grouped_gemm",
    title="Grouped GEMM: backends side by side",
    question="Which backend for which product, model and routing, and does autotune choose the best of them?",
    source="The backend tables of Primus-Turbo's grouped GEMM (benchmark/ops/training, 2026-08): means, wins, "
    "autotune against the best of its candidates.  Balanced and its unbalanced routing, and two harder ones of ours.",
    parts=tuple(StudyPart(operator, CASES, anchor="loop", arms=OTHERS) for operator in OPERATORS),
    compared=Compared(
        keys=("operation", "model", "layer", "G", "M", "routing"),
        baseline="loop",
        value="tflops",
        score="higher",
        by=(("operation",), ("model",), ("routing",)),
        regret={"autotune": CANDIDATES},
    ),
    table=Listed(
        keys=("operation", "model", "layer", "G", "M", "routing"), columns=("tflops",), spread="backend",
        rows=Rows(pick="plain"),
    ),
    figures=(
        Drawn(
            "backends", "bars", "Grouped GEMM, bf16: speed of each backend in each case",
            {"x": "case", "y": "tflops", "group": "backend", "by": "operation", "baselines": ["loop"]},
            Rows(pick="plain"),
        ),
        Drawn(
            "means", "bars", "Grouped GEMM, bf16: geometric mean of speed / speed of the loop",
            {"x": {"column": "rows_of", "label": "rows", "unit": "1", "scale": "category"},
             "y": {"column": "mean_ratio", "label": "speed / speed of the loop", "unit": "1"},
             "group": "backend", "geomean": False},
            Rows(pick="plain"), reshape="comparison",
        ),
    ),
)  # fmt: skip
