"""Study f: strong and weak scaling of GEMM + all-scatter, and what the links add to the product."""

from __future__ import annotations

from collections.abc import Iterator

import pandas as pd

from ci.studies import plots
from ci.studies.frame import each, listed, seconds_of, timed
from ci.studies.types import Figures, Knobs, Study, StudyPart

LIBRARY = "blas+rccl"
"""The baseline that is the library's product where one rank works alone."""

FUSED = ("triton", "triton_unguarded")
"""What is compared with itself alone; everything else with the library's product."""

LIBRARIES = ("blas+rccl", "blas+rccl_most_channels", "blas+rccl_registered")
STRONG = ("N 4096, K 14336, M 64", "N 4096, K 14336, M 1024", "N 8192, K 28672, M 512", "N 4608, K 36864, M 8192")
WEAK = ("2048 columns a rank, K 4096, M 64", "2048 columns a rank, K 4096, M 1024")


def ranks_of(dims: Knobs, world: int) -> int:
    """That share the whole product.  The share of one of `of` ranks is a case of one rank with the dimension `of`."""
    return int(dims.get("of") or world)


def shape(dims: Knobs) -> tuple[int, int, int] | None:
    """(N, K, M) of the whole product; None for a row that has none."""
    return (dims["N"] * int(dims.get("of") or 1), dims["K"], dims["M"]) if {"M", "N", "K"} <= dims.keys() else None


def product_words(dims: Knobs) -> str:
    """ "N 4096, K 14336, M 64" of the whole product."""
    product = shape(dims)
    return "N {}, K {}, M {}".format(*product) if product else ""


def weak(dims: Knobs, ranks: int) -> str:
    """What stays the same under weak scaling: "2048 columns a rank, K 4096, M 64"."""
    product = shape(dims)
    return f"{product[0] // ranks} columns a rank, K {product[1]}, M {product[2]}" if product else ""


def line(dims: Knobs, backend: str) -> str:
    """The backend, or what multiplies where one rank works alone."""
    return f"GEMM alone, {'library' if backend == LIBRARY else backend}" if "of" in dims else str(backend)


def scaled(rows: pd.DataFrame) -> pd.DataFrame:
    """The rows with ranks, the product alone that each is compared with, and its speed of all ranks.

    alone_us: a rank's share of the product by itself, by the same kernel or else by the library; overhead: time / that;
    speedup: the whole product on one rank / time.  all_tflops: of all ranks that share the product; of a share alone,
    as if all of them were as fast.
    """
    rows = rows.assign(
        ranks=each(ranks_of, "dims", "world")(rows),
        whole=each(product_words, "dims")(rows),
        line=each(line, "dims", "backend")(rows),
    )
    rows = rows.assign(
        weak=each(weak, "dims", "ranks")(rows), line_ranks=each("{}, {} ranks".format, "line", "ranks")(rows)
    )
    fused = rows["backend"].isin(FUSED)
    products = [(shape(dims), own) for dims, own in zip(rows["dims"], fused, strict=True)]
    at_ranks = list(zip(products, rows["ranks"], strict=True))
    is_alone = [("of" in dims and not point) for dims, point in zip(rows["dims"], rows["point"], strict=True)]
    shares = [place if alone else None for place, alone in zip(at_ranks, is_alone, strict=True)]
    alone_s = seconds_of(rows, shares, at_ranks)
    one_rank_s = seconds_of(rows, shares, [(product, 1) for product in products])
    return rows.assign(
        alone_us=alone_s * 1e6,
        overhead=rows["seconds"] / alone_s,
        speedup=one_rank_s / rows["seconds"],
        all_tflops=rows["flops"] * rows["ranks"] / rows["seconds"] / 1e12,
    )


def table(rows: pd.DataFrame) -> pd.DataFrame:
    columns = ("us", "all_tflops", "alone_us", "overhead", "speedup", "link_us", "link_percent", "busbw")
    return listed(timed(scaled(rows)), ("whole", "ranks", "line"), columns)


def figures(rows: pd.DataFrame) -> Iterator[Figures]:
    rows = scaled(rows)
    panels = plots.by(timed(rows, world=(2, 4, 8)), "shape", "overhead")
    title = "GEMM + all-scatter, fp16: time / time of the rank's product alone"
    yield "overhead", plots.lines(title, panels, "M", "line_ranks")
    for name, what, values, kind in (("strong", "whole", STRONG, "inverse"), ("weak", "weak", WEAK, "constant")):
        panels = plots.by(timed(rows, **{what: values}), what, "us")
        title = f"GEMM + all-scatter, fp16: {name} scaling; dotted: ideal from the fewest ranks"
        ideal = plots.ideal(kind, "ranks", "us", "line")
        yield name, plots.lines(title, panels, "ranks", "line", log_y=["us"], decorate=ideal)


SCALING = Study(
    name="scaling",
    title="GEMM + all-scatter: strong and weak scaling, and the product alone",
    question="What does the scatter add to a rank's product, and how does each way to do it scale?",
    source="The scaling figures of iris' GEMM + all-scatter: fused, bulk-synchronous and library over M and ranks.",
    parts=(
        StudyPart("gemm_all_scatter", ("n*_w1of*",), arms=("blas+rccl",)),
        StudyPart("gemm_all_scatter", ("n*_fp16_w?",), arms=("bulk", *LIBRARIES), ranks=(2, 4, 8)),
    ),
    table=table,
    figures=figures,
)
