"""Sizes of the collectives and what follows from them: cases, costs by nccl-tests, knobs that any of them has.

Names of cases are permanent: w4_fp16_64KB is four ranks with S = 64 * 2^10 bytes.  The knobs:

programs      workgroups, which is the number of CUs or SMs taken from other work.
num_warps     waves (warps) per workgroup.
unroll        16-byte moves in flight per lane and rank; a block is lanes x unroll x 16 bytes.
load, store   cache modifiers: "" as the compiler sees fit, ".cg" past L1, ".cv" afresh, ".cs" streaming, ".wt" through.
wait          False leaves the barriers' waiting out; only for tests that run the ranks one by one.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from kernels.spec import Case, Unsupported

KIB, MIB = 1 << 10, 1 << 20

SIZES_KB = (64, 128, 256, 512, 1024, 2048, 4096, 16384, 65536, 262144)
"""S of the cases in units of 2^10 bytes."""

OFTEN_KB = (64, 512, 4096, 65536, 262144)
"""Sizes of the tier `pr`, in fp16 for 2 and 4 ranks."""

CPU_LIMIT_KB = 4096
"""Largest S timed on a CPU: four ranks move some 50 MB a call through one memory."""

DTYPES = ("fp16", "bf16", "fp32")

ARCHES = ("sm_90", "gfx942", "gfx950", "cpu")
"""Architectures with knobs; "cpu" is for the interpreter in tests."""


def cases() -> list[Case]:
    """Every size, dtype and number of ranks."""
    return [
        Case(
            f"w{world}_{dtype}_{label(size)}",
            world=world,
            dtype=dtype,
            KB=size,
            tier="pr" if dtype == "fp16" and world in (2, 4) and size in OFTEN_KB else "nightly",
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


def lanes(arch: str, warps: int) -> int:
    """Threads of a workgroup."""
    return warps * (64 if arch.startswith("gfx") else 32)


def block_bytes(arch: str, warps: int, unroll: int) -> int:
    """Bytes of one rank that a program handles in one step."""
    return lanes(arch, warps) * 16 * unroll


def spread(arch: str, share: int, most: int, warps: int, unroll: int) -> dict[str, Any]:
    """Programs for a share of that many bytes: all loads in flight at once if possible, at most `most` programs."""
    while unroll > 1 and share < most * block_bytes(arch, warps, unroll):
        unroll //= 2
    while warps > 4 and share < most * block_bytes(arch, warps, unroll):
        warps //= 2
    steps = -(-share // block_bytes(arch, warps, unroll))
    return {"programs": max(1, min(most, steps)), "num_warps": warps, "unroll": unroll}


def known(arch: str, what: str) -> None:
    """Unsupported for an architecture without knobs."""
    if arch not in ARCHES:
        raise Unsupported(
            f"no {what} configuration for arch {arch!r}, only for {', '.join(ARCHES)}; "
            f"add one to kernels/{what}/config.py and sweep it"
        )


def shapes(arch: str, share: int) -> list[dict[str, Any]]:
    """(programs, warps, unroll) that a sweep tries for a share of that many bytes of a rank."""
    small = ((16, 16, 1), (32, 8, 1), (32, 16, 1), (64, 8, 1), (64, 16, 1), (128, 8, 1), (128, 4, 1), (128, 16, 1))
    large = (
        (32, 16, 4),
        (64, 16, 2),
        (64, 16, 4),
        (96, 16, 1),
        (96, 16, 2),
        (96, 16, 4),
        (128, 8, 4),
        (128, 16, 1),
        (128, 16, 2),
        (128, 16, 4),
        (132, 32, 1),
        (132, 32, 2),
        (264, 16, 1),
        (264, 8, 4),
    )
    found = []
    for programs, warps, unroll in small if share <= MIB else large:
        warps = max(1, warps // 2) if arch.startswith("gfx") else warps
        steps = -(-share // block_bytes(arch, warps, unroll))
        knobs = {"programs": min(programs, steps), "num_warps": warps, "unroll": unroll}
        if knobs not in found:
            found.append(knobs)
    return found


def first_then(chosen: dict[str, Any], others: Sequence[dict[str, Any]]) -> list[dict[str, Any]]:
    """The present choice, then the others, each once."""
    found = [chosen]
    for knobs in others:
        if knobs not in found:
            found.append(knobs)
    return found
