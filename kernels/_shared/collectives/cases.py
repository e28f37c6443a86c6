"""What the collectives share: cases, what the ranks contribute, what cannot be run, what they need of a place, knobs.

Case names are permanent: w4_fp16_64KB is four ranks with S = 64 * 2^10 bytes.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import torch

from kernels._shared.libraries import launcher
from kernels.numerics import normal, seed_for
from kernels.spec import Case, Unsupported
from kernels.symmetric_heap import HeapError, LoneHeap, SymmetricHeap

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


# What a collective needs of the place where it runs, checked before anything is launched.


def heap_of(case: Case) -> Any:
    """The symmetric heap of the case's ranks; Unsupported without one, with the number of GPUs of this machine.

    One rank alone needs none: it gets plain memory of its device.
    """
    heap = case.place.heap
    if heap is None and case.world == 1:
        return LoneHeap(case.place.device)
    if heap is None or heap.world != case.world:
        gpus = torch.cuda.device_count() if torch.cuda.is_available() else 0
        raise Unsupported(
            f"{case.world} ranks with a symmetric heap are needed (kernels.symmetric_heap.create); "
            f"there is {'none' if heap is None else f'one of {heap.world}'}, and this machine has "
            f"{gpus} GPU{'' if gpus == 1 else 's'}"
        )
    return heap


def on_heap(heap: SymmetricHeap, given: torch.Tensor) -> torch.Tensor:
    """`given` if it lies on the symmetric heap, where peers can read it; else a copy there, made once, now."""
    try:
        heap.peer(heap.rank, given)
    except HeapError:
        return heap.alloc(given.shape, given.dtype).copy_(given)
    return given


def accept(case: Case, dtypes: Sequence[str]) -> None:
    """Unsupported unless the dtype is one of these."""
    if case.dtype not in dtypes:
        raise Unsupported(f"dtype {case.dtype} is not supported, only {', '.join(dtypes)}")


def need_group(case: Case) -> None:
    """Unsupported unless there is a process group for the library's collectives."""
    if not torch.distributed.is_initialized():
        raise Unsupported(
            "the process group is not initialised; torch.distributed.init_process_group is needed "
            f"with {case.world} ranks"
        )


def only_on_cpu(case: Case) -> None:
    """Unsupported on a GPU: plain copies by the host are for machines without one."""
    if case.place.device != "cpu":
        raise Unsupported("plain copies and a barrier are timed on a CPU only; on a GPU use triton or the baseline")


def collective_launcher(case: Case, load: Callable[[], Any]) -> Any:
    """The module that launches a collective operator, imported by `load`, after all refusals that need no GPU."""
    accept(case, DTYPES)
    total_bytes(case)
    return launcher(case, load)


# Knobs that every collective has, and what a sweep tries of them.
#
# programs      workgroups, which is the number of CUs or SMs taken from other work.
# num_warps     waves (warps) per workgroup.
# unroll        16-byte moves in flight per lane and rank; a block is lanes x unroll x 16 bytes.
# load, store   cache modifiers: "" is the compiler's choice, ".cg" past L1, ".cv" uncached, ".cs" streaming, ".wt"
#               write through.
# wait          False leaves out the waiting of the barriers; only for tests that run the ranks one after the other.


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
