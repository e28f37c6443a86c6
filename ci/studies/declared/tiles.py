"""Study b: tile x stages x group of the GEMM."""

from __future__ import annotations

import math
from collections.abc import Iterator

import pandas as pd

from benchmarks.points import Knobs
from ci.studies import frame, plots
from ci.studies.frame import PLACE, Figures, Study, StudyPart, Tried, each, listed, tried

WARPS = {(64, 64): 4, (64, 128): 4, (128, 64): 4, (128, 128): 8, (64, 256): 8, (128, 256): 8, (256, 128): 8}

PLAIN: Knobs = {"variant": "split", "block_k": 64, "split_k": 1, "programs": 0, "parts": 1, "swap": False}
TILES = tuple({**PLAIN, "block_m": m, "block_n": n, "num_warps": warps} for (m, n), warps in WARPS.items())
"""One program per tile, no slices of K: what differs is the tile, with the warps that keep it in registers."""


def tiles(config: Knobs, dims: Knobs, world: int) -> float:
    """Tiles of a rank's output, times slices of K; NaN for a launch without tiles."""
    m, n = config.get("block_m"), config.get("block_n")
    if not (m and n and "M" in dims and "N" in dims):
        return math.nan
    return float(-(-dims["M"] // m) * -(-dims["N"] // int(world) // n) * config.get("split_k", 1))


def points_tried(rows: pd.DataFrame) -> pd.DataFrame:
    """With time / time of the best point of the case, tiles against CUs, and `fill`: 128 x 128 tiles against CUs."""
    best = rows.groupby([*PLACE, "case", "backend"])["seconds"].transform("min")
    square = [tiles({"block_m": 128, "block_n": 128}, *of) for of in zip(rows["dims"], rows["world"], strict=True)]
    rows = rows.assign(to_best=rows["seconds"] / best, tiles=each(tiles, "config", "dims", "world")(rows), fill=square)
    units = rows["compute_units"].astype(float)
    return tried(rows.assign(tiles_per_cu=rows["tiles"] / units, fill=rows["fill"] / units), backend=["triton"])


def table(rows: pd.DataFrame) -> pd.DataFrame:
    keys = ("N", "K", "M", "tile", "num_stages", "group_m")
    columns = ("us", "tflops", "ratio", "low", "high", "to_best", "tiles", "tiles_per_cu")
    return listed(points_tried(rows), keys, columns)


def figures(rows: pd.DataFrame) -> Iterator[Figures]:
    points = points_tried(rows)
    for knob in ("tile", "num_stages", "group_m") if len(points) else ():
        title = f"GEMM, {knob}: best time with this value / best time of the case, geometric mean"
        yield knob, plots.lines(title, frame.losses(points, knob, ["shape"]), knob, "loss", "shape")
    yield "heat", plots.heatmap("GEMM: time of each tile / best tile of the M", points, "M", "tile", "us", "shape", "x")


def findings(rows: pd.DataFrame) -> Iterator[str]:
    points = points_tried(rows)
    yield from frame.best_choices(points, "tile", ["M"], "M")
    yield from frame.best_choices(points, "tile", ["fill"], "tiles of 128 x 128 / CUs")


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
