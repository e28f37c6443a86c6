"""Studies a, b, c and e, of the GEMM: speed over M, tiles, all knobs, and the distance from the roofline."""

from __future__ import annotations

from benchmarks.studies.types import Drawn, Listed, Rows, Study, StudyPart, Tried

# Study a: speed over M, from one token to a prefill chunk.

SWEPT_TOKENS = tuple(f"n????_k*_m{2**power}_fp16" for power in range(11))

SPEED = {"column": "tflops", "scale": "log"}
KERNEL, TOTAL = {"column": "kernel_us", "scale": "log"}, {"column": "total_us", "scale": "log"}

M_SWEEP = Study(
    name="m_sweep",
    title="GEMM over M = 1 to 1024, four LLM weight matrices",
    question="From which M on does the matrix unit pay, and how far from the peak is each M?",
    source="The M sweeps of iris' GEMM + all-scatter examples and of hipBLASLt's decode tables, as one grid.",
    parts=(
        StudyPart("gemm", SWEPT_TOKENS, arms=("blas",)),
        StudyPart(
            "gemm_all_scatter",
            tuple(f"{one}_w*" for one in SWEPT_TOKENS),
            arms=("bulk", "blas+rccl"),
            ranks=(2, 4, 8),
        ),
    ),
    whole_call=True,
    table=Listed(
        keys=("operator", "world", "N", "K", "M", "backend"),
        columns=("kernel_us", "total_us", "tflops", "peak_percent", "intensity", "roofline_percent", "ratio"),
    ),
    figures=(
        Drawn(
            "speed", "curve", "GEMM over M, fp16: speed", {"x": "M", "y": "tflops", "group": "series"},
            Rows({"operator": ("gemm",)}),
        ),
        Drawn(
            "times", "panels", "GEMM over M, fp16: kernel alone, and call with synchronisation from the host",
            {"x": "M", "group": "series", "panels": [{"y": KERNEL}, {"y": TOTAL}, {"y": "peak_percent"}]},
            Rows({"operator": ("gemm",)}),
        ),
        *(
            Drawn(
                f"scattered_{ranks}", "panels", f"GEMM + all-scatter over M on {ranks} ranks, fp16: speed",
                {"x": "M", "y": SPEED, "group": "backend", "by": "shape"},
                Rows({"operator": ("gemm_all_scatter",), "world": (ranks,)}),
            )
            for ranks in (2, 4, 8)
        ),
    ),
)  # fmt: skip


# Study b: tile x stages x group.


WARPS = {(64, 64): 4, (64, 128): 4, (128, 64): 4, (128, 128): 8, (64, 256): 8, (128, 256): 8, (256, 128): 8}

PLAIN = {"variant": "split", "block_k": 64, "split_k": 1, "programs": 0, "parts": 1, "swap": False}
TILES = tuple({**PLAIN, "block_m": m, "block_n": n, "num_warps": warps} for (m, n), warps in WARPS.items())
"""One program per tile, no slices of K: what differs is the tile, with the warps that keep it in registers."""

AXES = tuple(
    {"x": {"column": name, "label": label, "unit": "1", "scale": "category"}, "where": {"axis": name}}
    for name, label in (("tile", "tile"), ("num_stages", "stages"), ("group_m", "group"))
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


# Study c: every knob of the GEMM for itself, over M.


TUNED_KNOBS = {
    "num_warps": (2, 4, 8),
    "block_k": (32, 64, 128, 256),
    "num_stages": (2, 3, 4, 5),
    "split_k": (1, 2, 4, 8),
    "programs": (64, 96, 128, 192, 256),
}
"""programs: CUs that a persistent launch takes."""

OF_AMD = {"matrix_instr_nonkdim": (16, 32), "kpack": (1, 2), "waves_per_eu": (0, 1, 2, 3, 4)}

DEEP_TUNING = Study(
    name="deep_tuning",
    title="Deep tuning of the GEMM over M: warps, matrix instruction, K step, CUs, kpack, waves per EU",
    question="Which configuration is best for each M, and which of its knobs matter?",
    source="The deep-tuning chapter of the source documents; knobs that only AMD has are tried on AMD only.",
    parts=(
        StudyPart(
            "gemm",
            tuple(f"n4096_k*_m{2**power}_fp16" for power in range(11)),
            arms=("blas",),
            tried=(
                Tried(candidates=True),
                Tried(knobs=TUNED_KNOBS, each=True),
                Tried(knobs=OF_AMD, each=True, arches=("gfx",)),
            ),
        ),
    ),
    halving=True,
    table=Listed(
        keys=("N", "K", "M"),
        columns=("us", "tflops", "peak_percent", "ratio", "low", "high", "launch"),
        rows=Rows({"backend": ("triton",)}, pick="best"),
    ),
    figures=(
        Drawn(
            "knobs", "heatmap", "GEMM: one knob changed, time / time of the default",
            {"x": "M", "y": "setting", "value": "ratio", "relative": None, "by": "shape"},
            Rows({"backend": ("triton",), "changes": (1,)}),
        ),
        Drawn(
            "best", "curve", "GEMM: best configuration of each M, and the library",
            {"x": "M", "y": "tflops", "group": "series", "baselines": ["blas"]}, Rows(pick="best"),
        ),
    ),
    guidance=("launch_by_m",),
)  # fmt: skip


# Study e: how far from the roofline, 60 points.


ROOF_TOKENS = tuple(f"n*_m{m}_fp16" for m in (*(2**power for power in range(11)), 4096, 8192))
SMALL_BATCHES = tuple(f"kimi_m{m}_bm16" for m in (4, 8, 16, 32, 64, 128, 256))

ROOFLINE = Study(
    name="roofline",
    title="Roofline: GEMM, MXFP4 experts, GEMM + all-scatter",
    question="Is a case bound by compute, by HBM or by the links, and how far from that bound is it?",
    source="Williams, Waterman, Patterson, CACM 52(4), 2009; ceilings: kernels/hardware.py.  On one GPU 60 points: "
    "52 GEMMs (4 weight matrices, 13 M) and 8 expert products.",
    parts=(
        StudyPart("gemm", ROOF_TOKENS, arms=("blas",)),
        StudyPart("moe_gemm2_mxfp4", (*SMALL_BATCHES, "kimi_m16384_bm64"), "triton_atomic", ("triton_reduce",)),
        StudyPart(
            "gemm_all_scatter",
            ("n*_m64_fp16_w*", "n*_m256_fp16_w*", "n*_m1024_fp16_w*", "n4608_k36864_m8192_fp16_w*"),
            arms=("blas+rccl",),
            ranks=(2, 4, 8),
        ),
    ),
    table=Listed(
        keys=("operator", "world", "case", "backend"),
        columns=("us", "roofline_us", "roofline_percent", "bound", "intensity", "tflops", "gbs", "busbw"),
    ),
    figures=(
        Drawn(
            "roofline", "roofline", "Roofline: GEMM and MXFP4 experts on one GPU", {"group": "operator"},
            Rows({"world": (1,), "backend": ("triton", "triton_atomic")}),
        ),
        *(
            Drawn(
                f"links_{ranks}", "roofline", f"Roofline with links: GEMM + all-scatter on {ranks} ranks",
                {"group": "backend"}, Rows({"world": (ranks,)}),
            )
            for ranks in (2, 4, 8)
        ),
    ),
)  # fmt: skip


# Study e, second part: where 1,200 configurations of one product lie under the roofline.


GRID = {
    "block_m": (64, 128, 256),
    "block_n": (128, 256),
    "block_k": (64, 128),
    "num_warps": (4, 8),
    "num_stages": (2, 3, 4, 5, 6),
    "group_m": (1, 4, 8, 16, 32),
    "tma": (False, True),
    "split_k": (1,),
    "cut": ("all",),
    "programs": (0,),
}
"""3 x 2 x 2 x 2 x 5 x 5 x 2 = 1,200 points."""

ROOFLINE_GRID = Study(
    name="roofline_grid",
    title="Roofline, 1,200 configurations of one rank's product",
    question="How much of the roofline does the configuration alone decide?",
    source="Issue 14: the 1,200-point grid of the GEMM part of GEMM + all-scatter, coloured by configuration.",
    parts=(
        StudyPart("gemm_all_scatter", ("n4608_k36864_m8192_fp16_w1of8",), tried=(Tried(knobs=GRID),)),
    ),
    halving=True,
    table=Listed(
        keys=("tile", "num_warps", "num_stages", "group_m", "tma"),
        columns=("us", "tflops", "roofline_percent", "ratio", "low", "high", "trials"),
        rows=Rows({"backend": ("triton",)}),
    ),
    figures=(
        Drawn("roofline", "roofline", "Roofline: 1,200 configurations of one product", {"group": "tile"}),
        Drawn(
            "heat", "heatmap", "Time of the best configuration with each tile and number of stages",
            {"x": "num_stages", "y": "tile", "value": "us", "better": "lower", "relative": "all"},
        ),
    ),
)  # fmt: skip
