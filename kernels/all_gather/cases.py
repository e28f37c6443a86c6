"""The cases of the all-gather: every size, dtype and number of ranks.  Names are permanent."""

from __future__ import annotations

from kernels.spec import Case, Unsupported

MIB = 1 << 20

SIZES_MB = (2, 4, 8, 16, 32, 64, 128, 256, 512)
"""Total output in MB of 2^20 bytes."""

CPU_LIMIT_MB = 32
"""Largest size timed on a CPU: four ranks write 128 MB per call through one memory, some 50 ms on two cores."""


def cases() -> list[Case]:
    """2, 4 and 8 ranks."""
    return [
        Case(f"w{world}_{dtype}_{size}MB", tier=_tier(world, dtype, size), world=world, dtype=dtype, MB=size)
        for world in (2, 4, 8)
        for dtype in ("fp16", "bf16", "fp32")
        for size in SIZES_MB
    ]


def _tier(world: int, dtype: str, size: int) -> str:
    return "pr" if dtype == "fp16" and world in (2, 4) and size in (2, 8, 32, 128, 512) else "nightly"


def shard_elements(case: Case) -> int:
    """Elements that a rank contributes."""
    return int(case.MB * MIB // (case.world * case.itemsize))


def fits_cpu(case: Case) -> None:
    """Unsupported for sizes that are not timed on a CPU."""
    if case.place.device == "cpu" and case.MB > CPU_LIMIT_MB:
        raise Unsupported(
            f"{case.MB} MB is too much for ranks on a CPU; sizes up to {CPU_LIMIT_MB} MB are timed "
            "there, GPUs are needed for this one"
        )
