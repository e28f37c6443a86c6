"""Sizes of the collectives: cases, what the ranks contribute, and what cannot be run.

Case names are permanent: w4_fp16_64KB is four ranks with S = 64 * 2^10 bytes.
"""

from __future__ import annotations

import torch

from kernels.numerics import normal, seed_for
from kernels.spec import Case, Unsupported

KIB, MIB = 1 << 10, 1 << 20

SIZES_KB = (64, 128, 256, 512, 1024, 2048, 4096, 16384, 65536, 262144)
"""S of the cases in units of 2^10 bytes."""

OFTEN_KB = (64, 512, 4096, 65536, 262144)
"""Sizes of the tier `pr`, in fp16."""

CPU_LIMIT_KB = 4096
"""Largest S timed on a CPU: four ranks move some 50 MB per call through one memory."""

DTYPES = ("fp16", "bf16", "fp32")


def cases() -> list[Case]:
    """Every size, dtype and number of ranks."""
    return [
        Case(
            f"w{world}_{dtype}_{label(size)}",
            world=world,
            dtype=dtype,
            KB=size,
            tier="pr" if dtype == "fp16" and size in OFTEN_KB else "nightly",
        )
        for world in (2, 4, 8)
        for dtype in DTYPES
        for size in SIZES_KB
    ]


def label(size_kb: int) -> str:
    """64KB, 16MB."""
    return f"{size_kb}KB" if size_kb < 1024 else f"{size_kb // 1024}MB"


def size_class(case: Case) -> str:
    """The key of a size in a table of winners: ranks and S; the dtype changes little."""
    return f"w{case.world}_{label(case.KB)}"


def total_bytes(case: Case) -> int:
    """S in bytes; Unsupported if the ranks' shares are not multiples of 16 bytes."""
    total = int(case.KB * KIB)
    if total % (16 * case.world):
        raise Unsupported(f"{total} bytes are not shared evenly by {case.world} ranks in multiples of 16 bytes")
    return total


def fits_cpu(case: Case) -> None:
    """Unsupported for sizes that a CPU is not asked for."""
    if case.place.device == "cpu" and case.KB > CPU_LIMIT_KB:
        raise Unsupported(
            f"{label(case.KB)} is too much for ranks on a CPU; sizes up to {label(CPU_LIMIT_KB)} are "
            "timed there, GPUs are needed for this one"
        )


def vector(case: Case, seed: int, rank: int) -> torch.Tensor:
    """The vector of a rank [S / itemsize]: normal values of its own seed, so a lost or swapped rank or part shows."""
    elements = total_bytes(case) // int(case.itemsize)
    return normal((elements,), case.dtype, seed_for(seed, case.name, rank), case.place.device)
