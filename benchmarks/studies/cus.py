"""Study g: bandwidth of the collectives over the CUs that they take."""

from __future__ import annotations

import math

from benchmarks.studies.types import Beside, Column, Drawn, Listed, Row, Rows, Study, StudyPart, Tried

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


LIBRARY = Beside(
    lambda row: (row["case"], cus(row)) if row["baseline"] and cus(row) > 0 else None,
    lambda row: (row["case"], cus(row)),
)
"""With as many CUs in the same case."""

COLUMNS = {
    "cus": Column("CUs", "1", 0, cus),
    "maker": Column("kernel of", "", 0, lambda row: "library" if row["baseline"] else row["backend"]),
    "library_percent": Column(
        "share of the library at equal CUs", "%", 1, lambda row, library: library / row["seconds"] * 100, LIBRARY
    ),
}

STUDY = Study(
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
    columns=COLUMNS,
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
