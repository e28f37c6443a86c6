"""Study f: strong and weak scaling of GEMM + all-scatter, and what the links add to the product."""

from __future__ import annotations

from collections.abc import Hashable

from benchmarks.studies.types import Beside, Column, Drawn, Listed, Row, Rows, Study, StudyPart

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

COLUMNS = {
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

STUDY = Study(
    name="scaling",
    title="GEMM + all-scatter: strong and weak scaling, and the product alone",
    question="What does the scatter add to a rank's product, and how does each way to do it scale?",
    source="The scaling figures of iris' GEMM + all-scatter: fused, bulk-synchronous and library over M and ranks.",
    parts=(
        StudyPart("gemm_all_scatter", ("n*_w1of*",), arms=("blas+rccl",)),
        StudyPart("gemm_all_scatter", ("n*_fp16_w?",), arms=("bulk", *LIBRARIES), ranks=(2, 4, 8)),
    ),
    columns=COLUMNS,
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
