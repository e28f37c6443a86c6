"""Study d: what each way to write a kernel's loads and stores is worth."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import pandas as pd

from benchmarks.points import Knobs
from ci.studies import plots
from ci.studies.frame import PLACE, Figures, Study, StudyPart, Tried, Value, listed, timed

SCATTERED = ("n4096_k14336_m64_fp16_w?", "n4096_k4096_m1024_fp16_w?", "n4096_k4096_m1024_fp16_w1of2")
GATHERED = ("w?_fp16_2MB", "w?_fp16_32MB", "w?_fp16_512MB")
MATRIX = ("w?_fp16_in8192x8192",)
EXPERTS = ("kimi_m16_bm16", "kimi_m256_bm32", "kimi_m16384_bm64")
TILE = {"programs": 64, "num_warps": 4, "vector": 16, "width": 8192}


@dataclasses.dataclass(frozen=True)
class Change:
    """One thing that is changed in a backend: the point `off` against the point `on`, each over config().

    cases: patterns, of the part's cases only these.  arches: as of Tried.
    """

    name: str
    operator: str
    off: Mapping[str, Value]
    on: Mapping[str, Value]
    cases: tuple[str, ...]
    backend: str = "triton"
    arches: tuple[str, ...] = ()

    @property
    def tried(self) -> Tried:
        """Both as points."""
        return Tried(self.backend, points=(self.off, self.on), arches=self.arches, cases=self.cases)


CHANGES = (
    Change("vectorisation hint", "gemm_all_scatter", {"hint": False}, {"hint": True}, SCATTERED),
    Change("put instead of store", "gemm_all_scatter", {"scatter": "store"}, {"scatter": "put"}, SCATTERED),
    Change("non-temporal stores", "all_gather", {"store": ""}, {"store": ".cs"}, GATHERED),
    Change("prefetch before the stores", "all_gather", {"ahead": False}, {"ahead": True}, GATHERED),
    Change("16-byte moves", "all_gather", {"vector": 0}, {"vector": 16}, GATHERED, "gluon"),
    Change("wide tile instead of rows", "all_gather", {**TILE, "rows": 8, "columns": 256},
           {**TILE, "rows": 1, "columns": 2048}, MATRIX, "gluon"),
    Change("non-temporal loads", "moe_gemm2_mxfp4", {"non_temporal": False}, {"non_temporal": True}, EXPERTS,
           "triton_atomic"),
    Change("prologue under the kernel before", "moe_gemm2_mxfp4", {"overlap": False}, {"overlap": True}, EXPERTS[:1],
           "triton_atomic", arches=("sm_",)),
    Change("prologue prefetch of a stage", "moe_gemm2_mxfp4", {"num_stages": 1}, {"num_stages": 2}, EXPERTS,
           "triton_atomic", arches=("gfx",)),
)  # fmt: skip
PARTS = (
    ("gemm_all_scatter", "triton", (), SCATTERED[2:], (1,)),
    ("gemm_all_scatter", "triton", (), SCATTERED[:2], (2, 4, 8)),
    ("all_gather", "triton", ("gluon",), (*GATHERED, *MATRIX), (2, 4, 8)),
    ("moe_gemm2_mxfp4", "triton_atomic", (), EXPERTS, (1,)),
)
"""Operator, anchor, other backends with a change, cases, ranks."""

RATIO = ("change_ratio", "ratio_low", "ratio_high")

Row = Mapping[Any, Any]


def before_and_after(rows: pd.DataFrame, declared: Sequence[Change] = CHANGES) -> pd.DataFrame:
    """A row for each change, case and machine that has both points with a time: that of the point that was tried, with

    `change`, its name; `before`, `after`, µs; `change_ratio`, `ratio_low`, `ratio_high`, after / before with its
    interval.
    """
    pairs = []
    for (_, _, operator, case, backend), own in timed(rows).groupby([*PLACE, "case", "backend"], sort=False):
        points = own.to_dict("records")
        for change in declared:
            if (change.operator, change.backend) == (operator, backend) and change.tried.at(str(case)):
                off, on = (row_with(points, knobs) for knobs in (change.off, change.on))
                if off and on and off is not on:
                    pairs.append({**(on if on["knobs"] else off), "change": change.name, **numbers(off, on)})
    return pd.DataFrame(pairs, columns=None if pairs else [*rows, "change", "before", "after", *RATIO])


def row_with(points: Sequence[Row], knobs: Knobs) -> Row | None:
    """The row of a change's knobs: its launch has them, and is else the default; of several, that which changes least.

    A point that is the default is not measured again.  A default of which nothing says its values of these knobs, a
    call's own, is the side that was not measured.
    """
    named = [row for row in points if knobs.items() <= row["config"].items() and set(row["knobs"]) <= set(knobs)]
    unnamed = [row for row in points if not row["knobs"] and not set(knobs) & set(row["config"])]
    return min(named or unnamed, key=lambda row: len(row["knobs"]), default=None)


def numbers(off: Row, on: Row) -> dict[str, float]:
    """Each side is a ratio to the same anchor, with its interval: the logarithmic half widths add up in squares."""
    halves = (0.0 if row["is_anchor"] else math.log(row["high"] / row["low"]) / 2 for row in (off, on))
    ratio, half = on["ratio"] / off["ratio"], math.hypot(*halves)
    ends = (ratio, ratio * math.exp(-half), ratio * math.exp(half))
    return {"before": off["seconds"] * 1e6, "after": on["seconds"] * 1e6, **dict(zip(RATIO, ends, strict=True))}


def table(rows: pd.DataFrame) -> pd.DataFrame:
    columns = ("before", "after", *RATIO)
    return listed(before_and_after(rows), ("change", "operator", "backend", "case"), columns)


def figures(rows: pd.DataFrame) -> Iterator[Figures]:
    for operator, own in before_and_after(rows).groupby("operator", sort=False):
        figure, (axes,) = plots.panels(f"{operator}: after / before", 1, height=0.8 + 0.2 * len(own))
        ratio, low, high = (own[name] for name in RATIO)
        names = [f"{change}: {case}" for change, case in zip(own["change"], own["case"], strict=True)]
        axes.errorbar(ratio, names, xerr=[ratio - low, high - ratio], fmt="o")
        axes.axvline(1.0, color=plots.GREY)
        axes.invert_yaxis()
        yield str(operator), figure


CHANGES_STUDY = Study(
    name="changes",
    title="Hint, put, non-temporal, prefetch, wide tiles: before and after",
    question="Does it pay?",
    source="The before-and-after tables of the source documents; every change is a knob of a kernel here.",
    parts=tuple(
        StudyPart(operator, cases, anchor, arms, tuple(c.tried for c in CHANGES if c.operator == operator), ranks)
        for operator, anchor, arms, cases, ranks in PARTS
    ),
    table=table,
    figures=figures,
)
