"""Study f: strong and weak scaling of GEMM + all-scatter, and what the links add to the product."""

from __future__ import annotations

from collections.abc import Iterator

import pandas as pd

from benchmarks.points import Knobs
from ci.records.derived import roofline_parts
from ci.studies import plots
from ci.studies.frame import PLACE, Figures, Study, StudyPart, each, listed, timed

LIBRARY = "blas+rccl"
"""The baseline that is the library's product where one rank works alone."""

FUSED = "triton"
"""What is compared with itself alone; everything else with the library's product."""

LIBRARIES = ("blas+rccl", "blas+rccl_most_channels", "blas+rccl_registered")
STRONG = ("N 4096, K 14336, M 64", "N 4096, K 14336, M 1024", "N 8192, K 28672, M 512", "N 4608, K 36864, M 8192")
WEAK = ("2048 columns a rank, K 4096, M 64", "2048 columns a rank, K 4096, M 1024")


def ranks_of(dims: Knobs, world: int) -> int:
    """That share the whole product.  The share of one of `of` ranks is a case of one rank with the dimension `of`."""
    return int(dims.get("of") or world)


def product(dims: Knobs) -> tuple[int, int, int]:
    """(N, K, M) of the whole product."""
    return dims["N"] * int(dims.get("of") or 1), dims["K"], dims["M"]


def line(dims: Knobs, backend: str) -> str:
    """The backend, or what multiplies where one rank works alone."""
    return f"GEMM alone, {'library' if backend == LIBRARY else backend}" if "of" in dims else str(backend)


def scaled(rows: pd.DataFrame) -> pd.DataFrame:
    """The rows with ranks, the product alone that each is compared with, and its speed of all ranks.

    whole: N, K and M of the whole product; weak: what stays the same under weak scaling.
    alone_us: a rank's share of the product by itself, by the same kernel or else by the library; overhead: time / that;
    speedup: the whole product on one rank / time.  all_tflops: of all ranks that share the product; of a share alone,
    as if all of them were as fast.  link_us: least time of the link bytes; link_percent: its share of the time.
    """
    n, k, m = zip(*map(product, rows["dims"]), strict=True)
    ranks = [ranks_of(dims, world) for dims, world in zip(rows["dims"], rows["world"], strict=True)]
    rows = rows.assign(
        ranks=ranks,
        whole=list(map("N {}, K {}, M {}".format, n, k, m)),
        weak=[f"{n // ranks} columns a rank, K {k}, M {m}" for n, k, m, ranks in zip(n, k, m, ranks, strict=True)],
        line=each(line, "dims", "backend")(rows),
        fused=rows["backend"] == FUSED,
    )
    is_alone = (rows["point"] == "") & rows["dims"].map(lambda dims: "of" in dims).astype(bool)
    place = [*PLACE, "whole", "fused", "ranks"]
    alone = timed(rows[is_alone]).groupby(place)["seconds"].min()
    one_rank = alone[alone.index.get_level_values("ranks") == 1].droplevel("ranks").rename("one_rank_s")
    rows = rows.join(alone.rename("alone_s"), on=place).join(one_rank, on=place[:-1])
    link_s = roofline_parts(rows)["links"].where(rows["world"] > 1)
    return rows.assign(
        line_ranks=each("{}, {} ranks".format, "line", "ranks")(rows),
        alone_us=rows["alone_s"] * 1e6,
        overhead=rows["seconds"] / rows["alone_s"],
        speedup=rows["one_rank_s"] / rows["seconds"],
        all_tflops=rows["flops"] * rows["ranks"] / rows["seconds"] / 1e12,
        link_us=link_s * 1e6,
        link_percent=link_s / rows["seconds"] * 100,
    )


def table(rows: pd.DataFrame) -> pd.DataFrame:
    columns = ("us", "all_tflops", "alone_us", "overhead", "speedup", "link_us", "link_percent", "busbw")
    return listed(timed(scaled(rows)), ("whole", "ranks", "line"), columns)


def figures(rows: pd.DataFrame) -> Iterator[Figures]:
    rows = timed(scaled(rows))
    title, own = "GEMM + all-scatter, fp16: time / time of the rank's product alone", rows[rows["world"] > 1]
    yield "overhead", plots.lines(title, own, "M", "overhead", "line_ranks", panel="shape")
    for name, column, values in (("strong", "whole", STRONG), ("weak", "weak", WEAK)):
        title, own = f"GEMM + all-scatter, fp16: {name} scaling", rows[rows[column].isin(values)]
        yield name, plots.lines(title, own, "ranks", "us", "line", panel=column, log_y=True)


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
