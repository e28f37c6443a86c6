"""Studies d, f and g: collectives over CUs, GEMM + all-scatter over ranks, and what ways to write a kernel gain."""

from __future__ import annotations

import math
from collections.abc import Hashable

from benchmarks.studies.types import Beside, Change, Column, Drawn, Listed, Row, Rows, Study, StudyPart, Tried

# Study g: bandwidth of the collectives over the CUs that they take.

COUNTS = (4, 8, 16, 24, 32, 48, 64, 80, 96, 112, 128)
"""Programs of ours, channels of the library.  NCCL ends at 64 channels, RCCL at 128 (kernels/_shared/collectives)."""

DRAWN = {
    "all_gather": ("2MB", "32MB", "512MB"),
    "all_reduce": ("512KB", "16MB", "256MB"),
    "reduce_scatter": ("512KB", "16MB", "256MB"),
    "all_to_all": ("512KB", "16MB", "256MB"),
}
"""Sizes in the figures; the table and its CSV have all."""


KERNELS = {
    "all_gather": ("rccl", "triton", "gluon"),
    "all_reduce": ("rccl_direct", "triton"),
    "reduce_scatter": ("rccl", "triton"),
    "all_to_all": ("rccl", "triton"),
}
"""The library's baseline with a knob for channels, then ours, by programs."""


def cus(row: Row) -> float:
    """CUs or SMs that a row takes: its knob `channels` or `programs`; NaN where the library chooses for itself."""
    return float(row["config"].get("channels") or row["config"].get("programs") or math.nan)


EQUAL_CUS = Beside(
    lambda row: (row["case"], cus(row)) if row["baseline"] and cus(row) > 0 else None,
    lambda row: (row["case"], cus(row)),
)
"""With as many CUs in the same case."""

CU_COLUMNS = {
    "cus": Column("CUs", "1", 0, cus),
    "maker": Column("kernel of", "", 0, lambda row: "library" if row["baseline"] else row["backend"]),
    "library_percent": Column(
        "share of the library at equal CUs", "%", 1, lambda row, library: library / row["seconds"] * 100, EQUAL_CUS
    ),
}

CUS = Study(
    name="cus",
    title="Collectives over the number of CUs: library, Triton, Gluon",
    question="How many CUs does a collective take for its bandwidth, and who needs fewer?",
    source="The CU sweeps of iris' ccl benchmarks against RCCL, whose channels are read once per process there.",
    parts=tuple(
        StudyPart(
            operator, ("w*",), arms=(library, *ours[1:]), ranks=(2, 4, 8),
            tried=(*(Tried(name, {"programs": COUNTS}) for name in ours), Tried(library, {"channels": COUNTS})),
        )
        for operator, (library, *ours) in KERNELS.items()
    ),
    columns=CU_COLUMNS,
    table=Listed(
        keys=("operator", "world", "dtype", "case", "cus"),
        columns=("busbw", "library_percent"),
        spread="maker",
        rows=Rows({"cus": COUNTS}),
    ),
    figures=tuple(
        Drawn(
            f"{operator}_{ranks}", "cus", f"{operator}, fp16, {ranks} ranks: bandwidth over CUs",
            {"group": "maker", "by": "case", "baselines": ["library"]},
            Rows({"operator": (operator,), "cus": COUNTS, "case": tuple(f"w{ranks}_fp16_{size}" for size in sizes)}),
        )
        for operator, sizes in DRAWN.items()
        for ranks in (2, 4, 8)
    ),
)  # fmt: skip


# Study f: strong and weak scaling of GEMM + all-scatter, and what the links add to the product.


LIBRARY = "blas+rccl"
"""The baseline that is the library's product where one rank works alone."""

FUSED = ("triton", "triton_unguarded")
"""What is compared with itself alone; everything else with the library's product."""

LIBRARIES = ("blas+rccl", "blas+rccl_most_channels", "blas+rccl_registered")
SHARED = {"column": "ranks", "label": "ranks that share the product", "unit": "1", "scale": "log2"}
STRONG = ("N 4096, K 14336, M 64", "N 4096, K 14336, M 1024", "N 8192, K 28672, M 512", "N 4608, K 36864, M 8192")
WEAK = ("2048 columns a rank, K 4096, M 64", "2048 columns a rank, K 4096, M 1024")


def ranks(row: Row) -> int:
    """That share the whole product.  The share of one of `of` ranks is a case of one rank with the dimension `of`."""
    return int(row["dims"].get("of") or row["world"])


def shape(row: Row) -> tuple[int, int, int] | None:
    """(N, K, M) of the whole product; None for a row that has none."""
    dims = row["dims"]
    return (dims["N"] * int(dims.get("of") or 1), dims["K"], dims["M"]) if {"M", "N", "K"} <= dims.keys() else None


def whole(row: Row) -> str:
    """ "N 4096, K 14336, M 64" of the whole product."""
    return "N {}, K {}, M {}".format(*shape(row)) if shape(row) else ""


def weak(row: Row) -> str:
    """What stays the same under weak scaling: "2048 columns a rank, K 4096, M 64"."""
    found = shape(row)
    return f"{found[0] // ranks(row)} columns a rank, K {found[1]}, M {found[2]}" if found else ""


def line(row: Row) -> str:
    """The backend, or what multiplies where one rank works alone."""
    if "of" not in row["dims"]:
        return str(row["backend"])
    return f"GEMM alone, {'library' if row['backend'] == LIBRARY else row['backend']}"


def product(row: Row, count: int) -> Hashable:
    """Whole shape, ranks, and whether the fused kernel multiplies or the library."""
    return shape(row), count, row["backend"] in FUSED


def alone(row: Row) -> Hashable:
    """Of a rank's share by itself, as it is."""
    return product(row, ranks(row)) if "of" in row["dims"] and not row["point"] else None


ALONE = Beside(alone, lambda row: product(row, ranks(row)))
ONE_RANK = Beside(alone, lambda row: product(row, 1))

SCALING_COLUMNS = {
    "ranks": Column("ranks", "1", 0, ranks),
    "whole": Column("whole product", "", 0, whole),
    "weak": Column("a rank's product", "", 0, weak),
    "line": Column("backend", "", 0, line),
    "line_ranks": Column("backend, ranks", "", 0, lambda row: f"{line(row)}, {ranks(row)} ranks"),
    "alone_us": Column("product alone", "µs", 2, lambda row, alone: alone * 1e6, ALONE),
    "overhead": Column("time / time of the product alone", "1", 3, lambda row, alone: row["seconds"] / alone, ALONE),
    "speedup": Column("time on one rank / time", "1", 3, lambda row, one: one / row["seconds"], ONE_RANK),
    "all_tflops": Column(
        "speed of all ranks", "TFLOPS", 1, lambda row: row["flops"] * ranks(row) / row["seconds"] / 1e12
    ),
}
"""all_tflops: of all ranks that share the product; of a share alone, as if all of them were as fast."""

SCALING = Study(
    name="scaling",
    title="GEMM + all-scatter: strong and weak scaling, and the product alone",
    question="What does the scatter add to a rank's product, and how does each way to do it scale?",
    source="The scaling figures of iris' GEMM + all-scatter: fused, bulk-synchronous and library over M and ranks.",
    parts=(
        StudyPart("gemm_all_scatter", ("n*_w1of*",), arms=("blas+rccl",)),
        StudyPart("gemm_all_scatter", ("n*_fp16_w?",), arms=("bulk", *LIBRARIES), ranks=(2, 4, 8)),
    ),
    columns=SCALING_COLUMNS,
    table=Listed(
        keys=("whole", "ranks", "line"),
        columns=("us", "all_tflops", "alone_us", "overhead", "speedup", "link_us", "link_percent", "busbw"),
    ),
    figures=(
        Drawn(
            "overhead", "panels", "GEMM + all-scatter, fp16: time / time of the rank's product alone",
            {"x": "M", "y": "overhead", "group": "line_ranks", "by": "shape", "baselines": []},
            Rows({"world": (2, 4, 8)}),
        ),
        Drawn(
            "strong", "scaling", "GEMM + all-scatter, fp16: strong scaling; link ceiling: time of full links",
            {"x": SHARED, "y": "us", "group": "line", "by": "whole", "ideal": "inverse", "ceiling": "link_us"},
            Rows({"whole": STRONG}),
        ),
        Drawn(
            "weak", "scaling", "GEMM + all-scatter, fp16: weak scaling, a rank's product stays the same",
            {"x": SHARED, "y": "us", "group": "line", "by": "weak", "ideal": "constant"},
            Rows({"weak": WEAK}),
        ),
    ),
)  # fmt: skip


# Study d: what each way to write a kernel's loads and stores is worth, in time and in machine code.


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

CHANGES_STUDY = Study(
    name="changes",
    title="Hint, put, non-temporal, prefetch, wide tiles: before and after",
    question="Does it pay, and what does it do to the machine code?",
    source="The before-and-after tables of the source documents; every change is a knob of a kernel here.",
    parts=tuple(
        StudyPart(
            operator, cases, anchor, arms, tuple(c.tried for c in CHANGES if c.operator == operator), ranks,
        )
        for operator, anchor, arms, cases, ranks in PARTS
    ),
    changes=CHANGES,
    code=True,
    table=Listed(
        keys=("change", "operator", "backend", "case"),
        columns=("before", "after", "change_ratio", "ratio_low", "ratio_high", "registers_before", "registers_after",
                 "spills_before", "spills_after", "instructions_before", "instructions_after", "store_bytes_before",
                 "store_bytes_after"),
        rows=Rows({"change": tuple(change.name for change in CHANGES)}),
    ),
    figures=tuple(
        Drawn(
            operator, "before_after", f"{operator}: before and after",
            {"code": [{"label": label, "before": f"{name}_before", "after": f"{name}_after"} for name, label in (
                ("registers", "registers"), ("spills", "spills"), ("instructions", "instructions"),
                ("store_bytes", "bytes per store"))]},
            Rows({"operator": (operator,), "change": tuple(c.name for c in CHANGES if c.operator == operator)}),
        )
        for operator in dict.fromkeys(part[0] for part in PARTS)
    ),
)  # fmt: skip
