"""Study h, second part: the library's products of a grouped GEMM one after the other, or on several streams."""

from __future__ import annotations

from benchmarks.studies.types import Column, Drawn, Listed, Row, Rows, Study, StudyPart, Tried

OPERATORS = tuple(f"grouped_gemm_{product}" for product in ("forward", "dgrad", "wgrad"))
MEANS = (16, 32, 64, 128, 256, 512, 1024, 2048, 4096)
CASES = tuple(f"{model}_*_m{mean}_balanced" for model in ("dsv3", "lfm2") for mean in MEANS)


def streams(row: Row) -> str:
    """ "serial", or "4 streams", by the knob `streams`."""
    count = int(row["config"].get("streams", 1))
    return "serial" if count == 1 else f"{count} streams"


def experts(row: Row) -> str:
    """Model, layer and number of experts: a case is named "dsv3_gateup_b8_m2048_mild"."""
    named = row["case"].split("_")[:2]
    return ", ".join([*named, f"{row['dims']['G']} experts"] if "G" in row["dims"] else named)


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
    columns={
        "streams_text": Column("how", "", 0, streams),
        "experts": Column("model, layer, experts", "", 0, experts),
    },
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
