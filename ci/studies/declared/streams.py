"""Study h, second part: the library's products of a grouped GEMM one after the other, or on several streams."""

from __future__ import annotations

from collections.abc import Iterator

import pandas as pd

from ci.studies import plots, rules
from ci.studies.frame import each, listed, timed
from ci.studies.types import Figures, Finding, Knobs, Study, StudyPart, Tried

OPERATORS = tuple(f"grouped_gemm_{product}" for product in ("forward", "dgrad", "wgrad"))
MEANS = (16, 32, 64, 128, 256, 512, 1024, 2048, 4096)
CASES = tuple(f"{model}_*_m{mean}_balanced" for model in ("dsv3", "lfm2") for mean in MEANS)


def streams(config: Knobs) -> str:
    """ "serial", or "4 streams", by the knob `streams`."""
    count = int(config.get("streams", 1))
    return "serial" if count == 1 else f"{count} streams"


def experts(case: str, dims: Knobs) -> str:
    """Model, layer and number of experts: a case is named "dsv3_gateup_b8_m2048_mild"."""
    words = case.split("_")[:2]
    return ", ".join([*words, f"{dims['G']} experts"] if "G" in dims else words)


def with_streams(rows: pd.DataFrame) -> pd.DataFrame:
    return timed(rows.assign(streams_text=each(streams, "config")(rows), experts=each(experts, "case", "dims")(rows)))


def table(rows: pd.DataFrame) -> pd.DataFrame:
    keys = ("operation", "model", "layer", "G", "M")
    return listed(with_streams(rows), keys, ("us", "ratio", "low", "high"), spread="streams_text")


def figures(rows: pd.DataFrame) -> Iterator[Figures]:
    rows = with_streams(rows)
    for product in ("forward", "dgrad", "wgrad"):
        panels = plots.by(rows[rows["operation"] == product], "experts", "ratio")
        title = f"Grouped GEMM, {product}: time on streams / time of the serial loop"
        yield product, plots.lines(title, panels, "M", "streams_text")


def findings(rows: pd.DataFrame) -> Iterator[Finding]:
    own = timed(rows, backend=["loop"])
    yield from rules.findings(own, "Serial or on several streams", "M", "setting", "tokens per expert", OPERATORS)


STREAMS = Study(
    name="streams",
    title="Grouped GEMM by the library: serial against several streams",
    question="Up to which group size do several streams pay?",
    source="The multi-stream threshold of Primus-Turbo's grouped GEMM, whose hipBLASLt backend uses four streams.",
    parts=tuple(
        StudyPart(operator, CASES, anchor="loop", tried=(Tried("loop", knobs={"streams": (2, 4, 8)}),))
        for operator in OPERATORS
    ),
    table=table,
    figures=figures,
    findings=findings,
)
