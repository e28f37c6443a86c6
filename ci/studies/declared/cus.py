"""Study g: bandwidth of the collectives over the CUs that they take."""

from __future__ import annotations

import math
from collections.abc import Iterator

import pandas as pd

from benchmarks.points import Knobs
from ci.studies import plots
from ci.studies.frame import PLACE, Figures, Study, StudyPart, Tried, each, listed, timed

COUNTS = (4, 8, 16, 24, 32, 48, 64, 80, 96, 112, 128)
"""Programs of ours, channels of the library.  NCCL ends at 64 channels, RCCL at 128 (kernels/_shared/collectives)."""

DRAWN = {
    "all_gather": ("2MB", "32MB", "512MB"),
    "all_reduce": ("512KB", "16MB", "256MB"),
    "reduce_scatter": ("512KB", "16MB", "256MB"),
    "all_to_all": ("512KB", "16MB", "256MB"),
}
"""Sizes in the figures; the table has all."""

KERNELS = {
    "all_gather": ("rccl", "triton", "gluon"),
    "all_reduce": ("rccl_direct", "triton"),
    "reduce_scatter": ("rccl", "triton"),
    "all_to_all": ("rccl", "triton"),
}
"""The library's baseline with a knob for channels, then ours, by programs."""


def cus(config: Knobs) -> float:
    """CUs or SMs that a launch takes: its knob `channels` or `programs`; NaN where the library chooses for itself."""
    return float(config.get("channels") or config.get("programs") or math.nan)


def by_cus(rows: pd.DataFrame) -> pd.DataFrame:
    """The rows with `cus`, `maker`, and `library_percent`, the library's time with as many CUs / time."""
    rows = rows.assign(
        cus=each(cus, "config")(rows), maker=rows["backend"].astype(str).where(~rows["baseline"], "library")
    )
    place = [*PLACE, "case", "cus"]
    library = timed(rows, maker=["library"]).dropna(subset=["cus"]).groupby(place)["seconds"].min()
    rows = rows.join(library.rename("library_s"), on=place)
    return rows.assign(library_percent=rows["library_s"] / rows["seconds"] * 100)


def table(rows: pd.DataFrame) -> pd.DataFrame:
    own = timed(by_cus(rows), cus=COUNTS)
    return listed(own, ("operator", "world", "dtype", "case", "cus"), ("busbw", "library_percent"), spread="maker")


def figures(rows: pd.DataFrame) -> Iterator[Figures]:
    rows = by_cus(rows)
    for operator, sizes in DRAWN.items():
        for ranks in (2, 4, 8):
            cases = [f"w{ranks}_fp16_{size}" for size in sizes]
            own = timed(rows, operator=[operator], cus=COUNTS, case=cases)
            title = f"{operator}, fp16, {ranks} ranks: bandwidth over CUs"
            figure = plots.lines(title, own, "cus", "busbw", "maker", panel="case", baselines=["library"])
            yield f"{operator}_{ranks}", figure


CUS = Study(
    name="cus",
    title="Collectives over the number of CUs: library, Triton, Gluon",
    question="How many CUs does a collective take for its bandwidth, and who needs fewer?",
    source="The CU sweeps of iris' ccl benchmarks against RCCL, whose channels are read once per process there.",
    parts=tuple(
        StudyPart(
            operator,
            ("w*",),
            arms=(library, *ours[1:]),
            ranks=(2, 4, 8),
            tried=(*(Tried(name, {"programs": COUNTS}) for name in ours), Tried(library, {"channels": COUNTS})),
        )
        for operator, (library, *ours) in KERNELS.items()
    ),
    table=table,
    figures=figures,
)
