"""From knobs to a launch of a collective kernel: constants, call and ahead-of-time compilation."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import torch

from kernels._shared.collectives.config import block_bytes, lanes
from kernels.hardware import compute_units
from kernels.spec import Case, Compilation

REGISTERS = 65536
"""Of a streaming multiprocessor, Hopper."""


def constants(world: int, count: int, itemsize: int, arch: str, knobs: Mapping[str, Any]) -> dict[str, Any]:
    """Constants of every collective kernel; count: elements that a program walks over in blocks."""
    block = block_bytes(arch, knobs["num_warps"], knobs["unroll"]) // itemsize
    return {
        "PROGRAMS": knobs["programs"],
        "BLOCK": block,
        "WORLD": world,
        "LANES": 1 << (world - 1).bit_length(),
        "EVEN": count % block == 0,
        "LOAD": knobs["load"],
        "STORE": knobs["store"],
        "AMD": arch.startswith("gfx"),
        "WAIT": knobs["wait"],
    }


def guard(count: int, block: int, step: int, knobs: Mapping[str, Any]) -> dict[str, Any]:
    """Constants that say how a push keeps off outputs that their ranks still use; see device.py of the all-gather.

    count: elements of a shard or part, which `step` programs share out in blocks of that many elements.
    """
    steps = -(-count // (block * step))
    staged, guarded = min(knobs["staged"], steps), knobs.get("guarded", True)
    if staged < 0 or (staged and not guarded):
        raise ValueError(f"staged {knobs['staged']}: it must be at least 0, and 0 without a guard")
    return {"MEET": guarded and staged < steps, "STAGED": staged, "AHEAD": bool(knobs["ahead"])}


def depth(count: int, block: int, step: int, staged: int) -> int:
    """Elements of a shard or part that go through a stage."""
    return min(count, staged * step * block)


def options(case: Case, arch: str, knobs: Mapping[str, Any]) -> dict[str, int]:
    """Options of the compiler.  NVIDIA: all registers of an SM for the programs that share it.

    Left to itself, ptxas trades the loads in flight of a thread for more resident threads than are launched: with 16
    warps it takes 40 registers and reads the ranks one after the other (seen with Triton 3.6 and 3.8).
    """
    chosen = {"num_warps": knobs["num_warps"]}
    if arch.startswith("sm_"):
        together = -(-knobs["programs"] // compute_units(case, arch))
        chosen["maxnreg"] = min(248, REGISTERS // (lanes(arch, knobs["num_warps"]) * together) // 8 * 8)
    return chosen


def call_of(
    case: Case,
    function: Any,
    arguments: Mapping[str, Any],
    fixed: Mapping[str, Any],
    knobs: Mapping[str, Any],
    out: torch.Tensor,
) -> Callable[[], torch.Tensor]:
    """A call that launches and returns out."""
    launch = function[(fixed["PROGRAMS"],)]
    place = {"bases": case.place.heap.bases, "rank": case.place.rank}
    every = {**arguments, **place, **fixed, **options(case, case.place.arch, knobs)}

    def call() -> torch.Tensor:
        launch(**every)
        return out

    return call


def compilation_of(
    case: Case,
    function: Any,
    arch: str,
    tensors: Mapping[str, tuple[str, int]],
    count: int,
    fixed: Mapping[str, Any],
    knobs: Mapping[str, Any],
    barriers: int = 1,
    **more: Any,
) -> Compilation:
    """The ahead-of-time compilation of the same launch.  The code is the same for all ranks; 3 stands for any.

    tensors: (type, elements) by parameter name.  barriers: rows of signals, one for each barrier of the kernel.  more:
    arguments that other kernels do not have.
    """
    arguments: dict[str, Any] = {name: (f"*{kind}", (size,)) for name, (kind, size) in tensors.items()}
    signals = (barriers, case.world, fixed["PROGRAMS"])
    arguments |= {"bases": ("*i64", (case.world,)), "signals": ("*i32", signals), "count": count, **more, "rank": 3}
    grid = (fixed["PROGRAMS"],)
    return Compilation(function.__name__, function, arguments, fixed, options(case, arch, knobs), grid=grid)
