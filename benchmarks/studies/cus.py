"""Study g: bandwidth of the collectives over the CUs that they take."""

from __future__ import annotations

from benchmarks.studies.types import Drawn, Listed, Rows, Study, StudyPart, Tried

COUNTS = (4, 8, 16, 24, 32, 48, 64, 80, 96, 112, 128)
"""Programs of ours, channels of the library.  NCCL ends at 64 channels, RCCL at 128 (kernels/_shared/collectives)."""

DRAWN = {
    "all_gather": ("2MB", "32MB", "512MB"),
    "all_reduce": ("512KB", "16MB", "256MB"),
    "reduce_scatter": ("512KB", "16MB", "256MB"),
    "all_to_all": ("512KB", "16MB", "256MB"),
}
"""Sizes in the figures; the table and its CSV have all."""


def _part(operator: str, library: str, *ours: str) -> StudyPart:
    tried = (*(Tried(name, knobs={"programs": COUNTS}) for name in ours), Tried(library, knobs={"channels": COUNTS}))
    return StudyPart(operator, ("w*",), arms=(library, *ours[1:]), tried=tried, ranks=(2, 4, 8))


STUDY = Study(
    name="cus",
    title="Collectives over the number of CUs: library, Triton, Gluon",
    question="How many CUs does a collective take for its bandwidth, and who needs fewer?",
    source="The CU sweeps of iris' ccl benchmarks against RCCL, whose channels are read once per process there.",
    parts=(
        _part("all_gather", "rccl", "triton", "gluon"),
        _part("all_reduce", "rccl_direct", "triton"),
        _part("reduce_scatter", "rccl", "triton"),
        _part("all_to_all", "rccl", "triton"),
    ),
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
