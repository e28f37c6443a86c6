"""The cases of the all-gather: every size, dtype and number of ranks.  Names are permanent.

w8_fp16_512MB is eight ranks and 512 MB of output in all; w8_fp16_in8192x8192 is eight ranks that contribute a matrix
of M x N = 8192 x 8192 elements each, as in documents that give the size of the input of a rank: 1 GB of output.
"""

from __future__ import annotations

from kernels.spec import Case, Unsupported

MIB = 1 << 20

SIZES_MB = (2, 4, 8, 16, 32, 64, 128, 256, 512)
"""Total output in MB of 2^20 bytes."""

PULL_REQUEST_MB = (2, 8, 32, 128, 512)
"""Sizes of the tier `pr`, in fp16."""

INPUTS = ((1024, 1024), (2048, 4096), (4096, 4096), (8192, 8192), (16384, 8192), (16384, 16384))
"""(M, N) of the input of a rank in fp16: 2 MB to 512 MB, which is up to 4 GB of output for eight ranks.  The heap
takes the output of every backend of ours (benchmarks/plan.py: heap_bytes): where they do not fit, the arm says so."""

CPU_LIMIT_MB = 32
"""Largest size timed on a CPU: four ranks write 128 MB per call through one memory, some 50 ms on two cores."""


def cases() -> list[Case]:
    """2, 4 and 8 ranks."""
    by_output = [
        Case(f"w{world}_{dtype}_{size}MB", tier=_tier(dtype, size), world=world, dtype=dtype, MB=size)
        for world in (2, 4, 8)
        for dtype in ("fp16", "bf16", "fp32")
        for size in SIZES_MB
    ]
    return by_output + [_by_input(world, m, n) for world in (2, 4, 8) for m, n in INPUTS]


def _by_input(world: int, m: int, n: int) -> Case:
    """A rank's input is [m, n] in fp16; the gathered output is [world * m, n]."""
    output_mb = world * m * n * 2 // MIB
    return Case(f"w{world}_fp16_in{m}x{n}", tier="nightly", world=world, dtype="fp16", MB=output_mb, M=m, N=n)


def _tier(dtype: str, size: int) -> str:
    return "pr" if dtype == "fp16" and size in PULL_REQUEST_MB else "nightly"


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
