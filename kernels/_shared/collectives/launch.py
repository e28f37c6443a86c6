"""From knobs to a launch of a collective kernel: constants, call and ahead-of-time compilation."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Mapping
from typing import Any

import torch

from kernels._shared.collectives.cases import block_bytes, lanes, on_heap
from kernels.hardware import compute_units
from kernels.spec import Case, Compilation
from kernels.symmetric_heap import SymmetricHeap

REGISTERS = 65536
"""Of a streaming multiprocessor, Hopper."""


def constants(world: int, count: int, itemsize: int, arch: str, knobs: Mapping[str, Any]) -> dict[str, Any]:
    """Constants of a collective kernel; count: elements that a program walks over in blocks."""
    block = block_bytes(arch, knobs["num_warps"], knobs["unroll"]) // itemsize
    return {**constants_of_all(world, arch, knobs), "BLOCK": block, "EVEN": count % block == 0}


def constants_of_all(world: int, arch: str, knobs: Mapping[str, Any]) -> dict[str, Any]:
    """Constants of every collective kernel."""
    return {
        "PROGRAMS": knobs["programs"],
        "WORLD": world,
        "LANES": 1 << (world - 1).bit_length(),
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
    staged = min(knobs["staged"], steps)
    if staged < 0:
        raise ValueError(f"staged {knobs['staged']}: it must be at least 0")
    return {"MEET": staged < steps, "STAGED": staged, "AHEAD": bool(knobs["ahead"])}


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
    compiling: Mapping[str, int],
    out: torch.Tensor,
) -> Callable[[], torch.Tensor]:
    """A call that launches and returns out.  compiling: options of the compiler."""
    launch = function[(fixed["PROGRAMS"],)]
    place = {"bases": case.place.heap.bases, "rank": case.place.rank}
    every = {**arguments, **place, **fixed, **compiling}

    def call() -> torch.Tensor:
        launch(**every)
        return out

    return call


def compilation_of(
    case: Case,
    function: Any,
    tensors: Mapping[str, tuple[str, int]],
    fixed: Mapping[str, Any],
    compiling: Mapping[str, int],
    barriers: int = 1,
    **counts: int,
) -> Compilation:
    """The ahead-of-time compilation of the same launch.  The code is the same for all ranks; 3 stands for any.

    tensors: (type, elements) by parameter name.  barriers: rows of signals, one for each barrier of the kernel.
    counts: the kernel's other arguments, elements by parameter name.
    """
    arguments: dict[str, Any] = {name: (f"*{kind}", (size,)) for name, (kind, size) in tensors.items()}
    signals = (barriers, case.world, fixed["PROGRAMS"])
    arguments |= {"bases": ("*i64", (case.world,)), "signals": ("*i32", signals), **counts, "rank": 3}
    grid = (fixed["PROGRAMS"],)
    return Compilation(function.__name__, function, arguments, fixed, compiling, grid=grid)


# ---- the launches of operators that add, with their algorithms by name -----------------------------------------------


@dataclasses.dataclass(frozen=True)
class Algorithm:
    """One value of the knob `algorithm` of a sum.  barriers: rows of signals.  part: a rank adds up one part, not all.

    halves: 1 or 2 for a staging buffer of that many halves, 0 without one; then the peers read the input, which lies
    on the symmetric heap instead.  chunks: it sends in chunks, by the knobs `ahead` and `chunk`.
    """

    function: Any
    barriers: int
    halves: int
    part: bool = True
    chunks: bool = False


@dataclasses.dataclass(frozen=True)
class Sum:
    """Launches of all_reduce or reduce_scatter.  whole: every rank gets the whole sum, not its part.

    ahead_is: what is said of the knob `ahead` when it is below 0.
    """

    operator: str
    whole: bool
    ahead_is: str
    algorithms: Mapping[str, Algorithm]

    def build(
        self, case: Case, heap: SymmetricHeap, given: torch.Tensor, knobs: Mapping[str, Any]
    ) -> Callable[[], torch.Tensor]:
        """A call that adds up the `given` of all ranks; a collective: all ranks build with the same knobs.

        What peers read or write lies on the symmetric heap, as with a user who allocates it there: the input of the
        algorithms that read, the whole output of those that add up parts.
        """
        algorithm, count, out, fixed = self._plan(case, given.numel(), case.place.arch, knobs)
        tensors = {"x": given, "out": torch.empty(out, dtype=given.dtype, device=given.device)}
        if algorithm.halves:
            tensors["stage"] = heap.alloc((algorithm.halves, case.world, count), given.dtype)
        else:
            tensors["x"] = on_heap(heap, given)
        if self.whole and algorithm.part:
            tensors["out"] = heap.alloc(given.shape, given.dtype)
        signals = heap.signals(algorithm.barriers, case.world, knobs["programs"])
        arguments = {**tensors, "signals": signals, "count": count}
        compiling = options(case, case.place.arch, knobs)
        return call_of(case, algorithm.function, arguments, fixed, compiling, tensors["out"])

    def compilation(self, case: Case, arch: str, knobs: Mapping[str, Any]) -> Compilation:
        """The ahead-of-time compilation of the launch."""
        elements = int(case.KB * 1024) // int(case.itemsize)
        algorithm, count, out, fixed = self._plan(case, elements, arch, knobs)
        tensors = {"x": (case.dtype, elements), "out": (case.dtype, out)}
        if algorithm.halves:
            tensors["stage"] = (case.dtype, algorithm.halves * case.world * count)
        compiling = options(case, arch, knobs)
        return compilation_of(case, algorithm.function, tensors, fixed, compiling, algorithm.barriers, count=count)

    def _plan(
        self, case: Case, elements: int, arch: str, knobs: Mapping[str, Any]
    ) -> tuple[Algorithm, int, int, dict[str, Any]]:
        """(algorithm, elements that a program walks over, those of the output, constants); ValueError for knobs."""
        name = knobs["algorithm"]
        if name not in self.algorithms:
            raise ValueError(f"{self.operator}: algorithm {name!r} is not one of {', '.join(self.algorithms)}")
        algorithm = self.algorithms[name]
        if algorithm.chunks and (knobs["ahead"] < 0 or knobs["chunk"] < 1):
            raise ValueError(
                f"{self.operator}: ahead {knobs['ahead']} must be at least 0{self.ahead_is}, "
                f"and chunk {knobs['chunk']} at least 1 block"
            )
        count = elements // case.world if algorithm.part else elements
        chunks = {"AHEAD": knobs["ahead"], "CHUNK": knobs["chunk"]} if algorithm.chunks else {}
        fixed = {**constants(case.world, count, int(case.itemsize), arch, knobs), **chunks}
        return algorithm, count, elements if self.whole else count, fixed
