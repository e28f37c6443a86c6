"""Study b: tile x stages x group of the GEMM."""

from __future__ import annotations

from collections.abc import Iterator

import pandas as pd

from ci.studies import plots, rules
from ci.studies.frame import listed, tried
from ci.studies.types import Figures, Finding, Knobs, Study, StudyPart, Tried

WARPS = {(64, 64): 4, (64, 128): 4, (128, 64): 4, (128, 128): 8, (64, 256): 8, (128, 256): 8, (256, 128): 8}

PLAIN: Knobs = {"variant": "split", "block_k": 64, "split_k": 1, "programs": 0, "parts": 1, "swap": False}
TILES = tuple({**PLAIN, "block_m": m, "block_n": n, "num_warps": warps} for (m, n), warps in WARPS.items())
"""One program per tile, no slices of K: what differs is the tile, with the warps that keep it in registers."""


def table(rows: pd.DataFrame) -> pd.DataFrame:
    keys = ("N", "K", "M", "tile", "num_stages", "group_m")
    columns = ("us", "tflops", "ratio", "low", "high", "to_best", "tiles", "tiles_per_cu")
    return listed(tried(rows, backend=["triton"]), keys, columns)


def figures(rows: pd.DataFrame) -> Iterator[Figures]:
    points = tried(rows, backend=["triton"])
    for knob in ("tile", "num_stages", "group_m") if len(points) else ():
        title = f"GEMM, {knob}: best time with this value / best time of the case, geometric mean"
        reached = rules.marginals(points, knob, "shape")
        yield knob, plots.lines(title, [("", reached, "loss")], knob, "shape", categories=True)
    yield "heat", plots.heatmap("GEMM: time of each tile / best tile of the M", points, "M", "tile", "us", "shape", "x")


def findings(rows: pd.DataFrame) -> Iterator[Finding]:
    points = tried(rows, backend=["triton"])
    yield from rules.findings(points, "Which tile for which M", "M", "tile", "M")
    yield from rules.findings(
        points, "Tiles against CUs: which tile for which fill", "fill", "tile", "tiles of 128 x 128 / CUs"
    )


TILES_STUDY = Study(
    name="tiles",
    title="Tile, stages and group of the GEMM, over M and weight matrices",
    question="Which tile for which M, and is there a rule in tiles against CUs that loses little?",
    source="The tile x stages x group grids of iris' GEMM + all-scatter and of Triton's persistent matmul tutorial.",
    parts=(
        StudyPart(
            "gemm",
            tuple(f"n*_m{m}_fp16" for m in (64, 256, 1024, 4096)),
            arms=("blas",),
            tried=(Tried(points=TILES, knobs={"num_stages": (2, 3, 4), "group_m": (1, 8)}),),
        ),
    ),
    table=table,
    figures=figures,
    findings=findings,
)
