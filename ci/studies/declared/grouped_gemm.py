"""Study h: the backends of the grouped GEMM, for each product, model and routing."""

from __future__ import annotations

from collections.abc import Iterator

import pandas as pd

from ci.studies import plots
from ci.studies.frame import plain
from ci.studies.types import Figures, Study, StudyPart
from ci.tables import TableComparison, compare

OPERATORS = tuple(f"grouped_gemm_{product}" for product in ("forward", "dgrad", "wgrad"))
OTHERS = ("torch_grouped", "ck", "hipblaslt_grouped", "gmm", "aiter_gmm", "triton", "autotune")
CASES = tuple(
    f"*_m{mean}_{routing}" for mean in (2048, 4096) for routing in ("balanced", "mild", "extreme", "unbalanced")
)
KEYS = ("operation", "model", "layer", "G", "M", "routing")


def speeds(rows: pd.DataFrame) -> pd.DataFrame:
    """TFLOPS of each case (rows, by KEYS) and backend (columns).  A case is named "dsv3_gateup_b8_m2048_mild"."""
    own = plain(rows)
    model, layer = (own["case"].str.split("_").str[place] for place in (0, 1))
    own = own.assign(model=model, layer=layer)
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
