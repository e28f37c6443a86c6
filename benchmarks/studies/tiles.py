"""Study b: tile x stages x group."""

from __future__ import annotations

from benchmarks.studies.types import Drawn, Listed, Rows, Study, StudyPart, Tried

WARPS = {(64, 64): 4, (64, 128): 4, (128, 64): 4, (128, 128): 8, (64, 256): 8, (128, 256): 8, (256, 128): 8}

PLAIN = {"variant": "split", "block_k": 64, "split_k": 1, "programs": 0, "parts": 1, "swap": False}
TILES = tuple({**PLAIN, "block_m": m, "block_n": n, "num_warps": warps} for (m, n), warps in WARPS.items())
"""One program per tile, no slices of K: what differs is the tile, with the warps that keep it in registers."""

AXES = tuple(
    {"x": {"column": name, "label": label, "unit": "1", "scale": "category"}, "where": {"axis": name}}
    for name, label in (("tile", "tile"), ("num_stages", "stages"), ("group_m", "group"))
)

STUDY = Study(
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
    table=Listed(
        keys=("N", "K", "M", "tile", "num_stages", "group_m"),
        columns=("us", "tflops", "ratio", "low", "high", "to_best", "tiles", "tiles_per_cu"),
        rows=Rows({"backend": ("triton",)}, pick="tried"),
    ),
    figures=(
        Drawn(
            "chart", "panels", "GEMM: tile, stages and group",
            {
                "y": {"column": "loss", "label": "best time with this value / best time", "unit": "1"},
                "group": "shape",
                "panels": list(AXES),
            },
            Rows({"backend": ("triton",)}, pick="tried"),
            reshape="marginals",
        ),
        Drawn(
            "heat", "heatmap", "GEMM: time of each tile / best tile of the M",
            {"x": "M", "y": "tile", "value": "us", "better": "lower", "relative": "x", "by": "shape"},
            Rows({"backend": ("triton",)}, pick="tried"),
        ),
    ),
    guidance=("tile_by_m", "tile_by_rounds"),
)  # fmt: skip
