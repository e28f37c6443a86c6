"""Knobs that every collective has, and what a sweep tries of them.

programs      workgroups, which is the number of CUs or SMs taken from other work.
num_warps     waves (warps) per workgroup.
unroll        16-byte moves in flight per lane and rank; a block is lanes x unroll x 16 bytes.
load, store   cache modifiers: "" is the compiler's choice, ".cg" past L1, ".cv" uncached, ".cs" streaming, ".wt" write
              through.
wait          False leaves out the waiting of the barriers; only for tests that run the ranks one after the other.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from kernels._shared.collectives.cases import MIB
from kernels.spec import Case, Unsupported

ARCHES = ("sm_90", "gfx942", "gfx950", "cpu")
"""Architectures with knobs; "cpu" is for the interpreter in tests."""

SMALL_SHARES = (
    (16, 16, 1), (32, 8, 1), (32, 16, 1), (64, 8, 1), (64, 16, 1), (128, 8, 1), (128, 4, 1), (128, 16, 1)
)  # fmt: skip
LARGE_SHARES = (
    (32, 16, 4), (64, 16, 2), (64, 16, 4), (96, 16, 1), (96, 16, 2), (96, 16, 4), (128, 8, 4), (128, 16, 1),
    (128, 16, 2), (128, 16, 4), (132, 32, 1), (132, 32, 2), (264, 16, 1), (264, 8, 4)
)  # fmt: skip
"""(programs, warps of 32, unroll) that a sweep tries for shares of a rank up to 1 MB, and for larger ones."""


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


def known(arch: str, operator: str) -> None:
    """Unsupported for an architecture without knobs."""
    if arch not in ARCHES:
        raise Unsupported(
            f"no {operator} configuration for arch {arch!r}, only for {', '.join(ARCHES)}; "
            f"add one to kernels/{operator}/config.py and sweep it"
        )


def shapes(arch: str, share: int) -> list[dict[str, Any]]:
    """Programs, warps and unroll that a sweep tries for a share of that many bytes of a rank."""
    found = []
    for programs, warps, unroll in SMALL_SHARES if share <= MIB else LARGE_SHARES:
        warps = max(1, warps // 2) if arch.startswith("gfx") else warps
        steps = -(-share // block_bytes(arch, warps, unroll))
        knobs = {"programs": min(programs, steps), "num_warps": warps, "unroll": unroll}
        if knobs not in found:
            found.append(knobs)
    return found


def with_algorithms(chosen: dict[str, Any], arch: str, shares: Sequence[tuple[str, int]]) -> list[dict[str, Any]]:
    """What a sweep tries of some algorithms and their bytes per rank; the chosen `load` fits the chosen one only."""
    return [
        {**chosen, "algorithm": name, **shape, "load": chosen["load"] if name == chosen["algorithm"] else ""}
        for name, share in shares
        for shape in shapes(arch, share)
    ]


def in_chunks(
    algorithm: str, case: Case, arch: str, programs: int, warps: int, unroll: int, ahead: int, chunk: int
) -> dict[str, Any]:
    """Knobs of a sum in chunks.  A block of all ranks is in registers at once: for 8 of them blocks are smaller.

    AMD: 1024 lanes would have too few registers for it.
    """
    amd = arch.startswith("gfx")
    return {
        "algorithm": algorithm,
        "programs": programs,
        "num_warps": min(8, warps // 2) if amd else warps,
        "unroll": min(unroll, max(1, 16 // case.world)),
        "ahead": ahead,
        "chunk": chunk,
        "load": ".cv" if amd else ".cg",
        "store": "",
    }
