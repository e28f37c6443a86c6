"""Study h, second part: the library's products of a grouped GEMM one after the other, or on several streams."""

from __future__ import annotations

from benchmarks.studies.types import Drawn, Listed, Rows, Study, StudyPart, Tried

OPERATORS = tuple(f"grouped_gemm_{product}" for product in ("forward", "dgrad", "wgrad"))
MEANS = (16, 32, 64, 128, 256, 512, 1024, 2048, 4096)
CASES = tuple(f"{model}_*_m{mean}_balanced" for model in ("dsv3", "lfm2") for mean in MEANS)

STUDY = Study(
    name="streams",
    title="Grouped GEMM by the library: serial against several streams",
    question="Up to which group size do several streams pay?",
    source="The multi-stream threshold of Primus-Turbo's grouped GEMM, whose hipBLASLt backend uses four streams.",
    parts=tuple(
        StudyPart(operator, CASES, anchor="loop", tried=(Tried("loop", knobs={"streams": (2, 4, 8)}),))
        for operator in OPERATORS
    ),
    guidance=("streams_by_m",),
    table=Listed(
        keys=("operation", "model", "layer", "G", "M"), columns=("us", "ratio", "low", "high"), spread="streams_text",
    ),
    figures=tuple(
        Drawn(
            product, "panels", f"Grouped GEMM, {product}: time on streams / time of the serial loop",
            {"x": "M", "y": "ratio", "group": "streams_text", "by": "experts"},
            Rows({"operation": (product,)}),
        )
        for product in ("forward", "dgrad", "wgrad")
    ),
)  # fmt: skip
