"""Study h: the backends of the grouped GEMM, for each product, model and routing, and the library's on streams."""

from __future__ import annotations

from collections.abc import Iterator

import pandas as pd

from benchmarks.points import Knobs
from ci.studies import plots
from ci.studies.frame import Figures, Study, StudyPart, Tried, best_choices, each, listed, plain, timed
from ci.tables import TableComparison, compare

OPERATORS = tuple(f"grouped_gemm_{product}" for product in ("forward", "dgrad", "wgrad"))
OTHERS = ("torch_grouped", "ck", "hipblaslt_grouped", "gmm", "aiter_gmm", "triton", "autotune")
CASES = tuple(
    f"*_m{mean}_{routing}" for mean in (2048, 4096) for routing in ("balanced", "mild", "extreme", "unbalanced")
)
KEYS = ("operation", "model", "layer", "G", "M", "routing")


def with_model(rows: pd.DataFrame) -> pd.DataFrame:
    """With the model and layer of each case, which is named "dsv3_gateup_b8_m2048_mild"."""
    parts = rows["case"].str.split("_")
    return rows.assign(model=parts.str[0], layer=parts.str[1])


def speeds(rows: pd.DataFrame) -> pd.DataFrame:
    """TFLOPS of each case (rows, by KEYS) and backend (columns)."""
    own = with_model(plain(rows))
    return own.pivot_table(index=list(KEYS), columns="backend", values="tflops", aggfunc="max").reset_index()


def compared(rows: pd.DataFrame) -> TableComparison | None:
    """Every backend against the loop; None where the loop was not measured."""
    table = speeds(rows)
    backends = [name for name in table if name in ("loop", *OTHERS)]
    chosen = {"autotune": [name for name in backends if name != "autotune"]} if "autotune" in backends else {}
    by = [("operation",), ("model",), ("routing",)]
    return compare(table, backends, "loop", by=by, regret=chosen) if "loop" in backends else None


def table(rows: pd.DataFrame) -> pd.DataFrame:
    table = speeds(rows).sort_values(list(KEYS), kind="stable")
    return table.rename(columns=lambda name: name if name in KEYS else f"{name}: tflops").reset_index(drop=True)


def figures(rows: pd.DataFrame) -> Iterator[Figures]:
    means = statistics(rows)
    if len(means):
        title = "Grouped GEMM, bf16: geometric mean of speed / speed of the loop"
        figure, (axes,) = plots.panels(title, 1)
        for name, own in means.groupby("backend", sort=False):
            axes.plot(own["geometric_mean"], own["rows of"], "o", label=str(name))
        yield "means", plots.with_legend(figure)


def statistics(rows: pd.DataFrame) -> pd.DataFrame:
    """Of every backend but the loop, over all rows and each group (`rows of`); none where no loop was measured."""
    comparison = compared(rows)
    tables = [
        table.assign(**{"rows of": table.iloc[:, 0] if table.columns[0] != "backend" else "all"})
        for table in (comparison.against.groups if comparison else ())
    ]
    return pd.concat(tables).query("backend != 'loop' and rows > 0") if tables else pd.DataFrame()


def findings(rows: pd.DataFrame) -> Iterator[str]:
    for _, of in statistics(rows).iterrows():
        yield (
            f"{of['rows of']}: {of['backend']} {of['geometric_mean']:.3f} of the loop (geometric mean), wins "
            f"{of['wins']} of {of['rows']}, {of['worst']:.3f} to {of['best']:.3f}"
        )
    comparison = compared(rows)
    for regret in comparison.regrets if comparison else ():
        of = regret.against.groups[0].iloc[0]
        yield (
            f"{regret.column} against the best of its candidates: {of['geometric_mean']:.3f} in the geometric mean of "
            f"{of['rows']} rows, {of['below']} below 0.95, worst {of['worst']:.3f}"
        )


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


# Study h, second part: the library's products of a grouped GEMM one after the other, or on several streams.


MEANS = (16, 32, 64, 128, 256, 512, 1024, 2048, 4096)
BALANCED = tuple(f"{model}_*_m{mean}_balanced" for model in ("dsv3", "lfm2") for mean in MEANS)


def streams(config: Knobs) -> str:
    """ "serial", or "4 streams", by the knob `streams`."""
    count = int(config.get("streams", 1))
    return "serial" if count == 1 else f"{count} streams"


def with_streams(rows: pd.DataFrame) -> pd.DataFrame:
    """With streams in words, and model, layer and experts of a case."""
    rows = with_model(timed(rows.assign(streams_text=each(streams, "config")(rows))))
    return rows.assign(experts=each("{}, {}, {:g} experts".format, "model", "layer", "G")(rows))


def streams_table(rows: pd.DataFrame) -> pd.DataFrame:
    keys = ("operation", "model", "layer", "G", "M")
    return listed(with_streams(rows), keys, ("us", "ratio", "low", "high"), spread="streams_text")


def streams_figures(rows: pd.DataFrame) -> Iterator[Figures]:
    rows = with_streams(rows)
    for product, own in rows.groupby("operation", sort=False):
        title = f"Grouped GEMM, {product}: time on streams / time of the serial loop"
        yield str(product), plots.lines(title, own, "M", "ratio", "streams_text", panel="experts")


def streams_findings(rows: pd.DataFrame) -> Iterator[str]:
    yield from best_choices(with_streams(rows), "streams_text", ["operation", "M"], "product and tokens per expert")


STREAMS = Study(
    name="streams",
    title="Grouped GEMM by the library: serial against several streams",
    question="Up to which group size do several streams pay?",
    source="The multi-stream threshold of Primus-Turbo's grouped GEMM, whose hipBLASLt backend uses four streams.",
    parts=tuple(
        StudyPart(operator, BALANCED, anchor="loop", tried=(Tried("loop", knobs={"streams": (2, 4, 8)}),))
        for operator in OPERATORS
    ),
    table=streams_table,
    figures=streams_figures,
    findings=streams_findings,
)
