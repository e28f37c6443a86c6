"""Study h, second part: the library's products of a grouped GEMM one after the other, or on several streams."""

from __future__ import annotations

from collections.abc import Iterator

import pandas as pd

from ci.studies import frame, plots
from ci.studies.frame import each, listed, timed
from ci.studies.types import Figures, Knobs, Study, StudyPart, Tried

OPERATORS = tuple(f"grouped_gemm_{product}" for product in ("forward", "dgrad", "wgrad"))
MEANS = (16, 32, 64, 128, 256, 512, 1024, 2048, 4096)
CASES = tuple(f"{model}_*_m{mean}_balanced" for model in ("dsv3", "lfm2") for mean in MEANS)


def streams(config: Knobs) -> str:
    """ "serial", or "4 streams", by the knob `streams`."""
    count = int(config.get("streams", 1))
    return "serial" if count == 1 else f"{count} streams"


def with_streams(rows: pd.DataFrame) -> pd.DataFrame:
    """With streams in words, and model, layer and experts of a case, which is named "dsv3_gateup_b8_m2048_mild"."""
    rows = timed(rows.assign(streams_text=each(streams, "config")(rows)))
    rows[["model", "layer"]] = rows["case"].str.split("_", expand=True)[[0, 1]]
    return rows.assign(experts=each("{}, {}, {:g} experts".format, "model", "layer", "G")(rows))


def table(rows: pd.DataFrame) -> pd.DataFrame:
    keys = ("operation", "model", "layer", "G", "M")
    return listed(with_streams(rows), keys, ("us", "ratio", "low", "high"), spread="streams_text")


def figures(rows: pd.DataFrame) -> Iterator[Figures]:
    rows = with_streams(rows)
    for product, own in rows.groupby("operation", sort=False):
        title = f"Grouped GEMM, {product}: time on streams / time of the serial loop"
        yield str(product), plots.lines(title, own, "M", "ratio", "streams_text", panel="experts")


def findings(rows: pd.DataFrame) -> Iterator[str]:
    yield from frame.best_choices(
        with_streams(rows), "streams_text", ["operation", "M"], "product and tokens per expert"
    )


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
