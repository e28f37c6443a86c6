"""Study d: what each way to write a kernel's loads and stores is worth, in time and in machine code."""

from __future__ import annotations

from collections.abc import Iterator

import pandas as pd

from ci.studies import plots
from ci.studies.changes import METRICS, SIDES, before_and_after
from ci.studies.frame import listed
from ci.studies.types import Change, Figures, Study, StudyPart

SCATTERED = ("n4096_k14336_m64_fp16_w?", "n4096_k4096_m1024_fp16_w?", "n4096_k4096_m1024_fp16_w1of2")
GATHERED = ("w?_fp16_2MB", "w?_fp16_32MB", "w?_fp16_512MB")
MATRIX = ("w?_fp16_in8192x8192",)
EXPERTS = ("kimi_m16_bm16", "kimi_m256_bm32", "kimi_m16384_bm64")
TILE = {"programs": 64, "num_warps": 4, "vector": 16, "width": 8192}

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


def table(rows: pd.DataFrame) -> pd.DataFrame:
    columns = ("before", "after", "change_ratio", "ratio_low", "ratio_high")
    code = (f"{metric}_{side}" for metric in METRICS for side in SIDES)
    return listed(before_and_after(rows, CHANGES), ("change", "operator", "backend", "case"), (*columns, *code))


def figures(rows: pd.DataFrame) -> Iterator[Figures]:
    pairs = before_and_after(rows, CHANGES)
    for operator in dict.fromkeys(part[0] for part in PARTS):
        own = pairs[pairs["operator"] == operator]
        names = [f"{change}: {case}" for change, case in zip(own["change"], own["case"], strict=True)]
        columns = ("change_ratio", "ratio_low", "ratio_high")
        yield operator, plots.intervals(f"{operator}: after / before", own, names, columns, "change")


CHANGES_STUDY = Study(
    name="changes",
    title="Hint, put, non-temporal, prefetch, wide tiles: before and after",
    question="Does it pay, and what does it do to the machine code?",
    source="The before-and-after tables of the source documents; every change is a knob of a kernel here.",
    parts=tuple(
        StudyPart(operator, cases, anchor, arms, tuple(c.tried for c in CHANGES if c.operator == operator), ranks)
        for operator, anchor, arms, cases, ranks in PARTS
    ),
    changes=CHANGES,
    code=True,
    table=table,
    figures=figures,
)
