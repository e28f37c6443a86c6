"""From knobs to a launch: one plan serves the timed call and the ahead-of-time compilation."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Mapping
from typing import Any

import torch

from kernels._shared.collectives.launch import call_of, compilation_of, constants
from kernels._shared.collectives.placing import on_heap
from kernels.reduce_scatter import device
from kernels.spec import Case, Compilation
from kernels.symmetric_heap import SymmetricHeap


@dataclasses.dataclass(frozen=True)
class Scatter:
    """One value of the knob `algorithm`.  barriers: rows of signals; halves: of the staging buffer, 0 without one."""

    function: Any
    barriers: int
    halves: int


ALGORITHMS = {
    "pull": Scatter(device.pull, barriers=2, halves=0),
    "push": Scatter(device.push, barriers=1, halves=2),
    "push_chunks": Scatter(device.push_chunks, barriers=1, halves=1),
}


def _algorithm(knobs: Mapping[str, Any]) -> Scatter:
    """The chosen algorithm; ValueError for an unknown one, and for chunks that cannot be."""
    name = knobs["algorithm"]
    if name not in ALGORITHMS:
        raise ValueError(f"reduce_scatter: algorithm {name!r} is not one of {', '.join(ALGORITHMS)}")
    if name == "push_chunks" and (knobs["ahead"] < 0 or knobs["chunk"] < 1):
        raise ValueError(
            f"reduce_scatter: ahead {knobs['ahead']} must be at least 0 chunks, "
            f"and chunk {knobs['chunk']} at least 1 block"
        )
    return ALGORITHMS[name]


def _constants(world: int, count: int, itemsize: int, arch: str, knobs: Mapping[str, Any]) -> dict[str, Any]:
    chunks = {"AHEAD": knobs["ahead"], "CHUNK": knobs["chunk"]} if knobs["algorithm"] == "push_chunks" else {}
    return {**constants(world, count, itemsize, arch, knobs), **chunks}


def build(case: Case, heap: SymmetricHeap, given: torch.Tensor, knobs: Mapping[str, Any]) -> Callable[[], torch.Tensor]:
    """A call that adds up this rank's part of the `given` of all ranks; a collective: all build with the same knobs.

    Where peers read the input, it lies on the symmetric heap, as with a user who allocates it there.
    """
    algorithm = _algorithm(knobs)
    count = given.numel() // case.world
    fixed = _constants(case.world, count, given.element_size(), case.place.arch, knobs)
    tensors = {"x": given, "out": torch.empty(count, dtype=given.dtype, device=given.device)}
    if algorithm.halves:
        tensors["stage"] = heap.alloc((algorithm.halves, case.world, count), given.dtype)
    else:
        tensors["x"] = on_heap(heap, given)
    arguments = {**tensors, "signals": heap.signals(algorithm.barriers, case.world, knobs["programs"]), "count": count}
    return call_of(case, algorithm.function, arguments, fixed, knobs, tensors["out"])


def compilation(case: Case, arch: str, knobs: Mapping[str, Any]) -> Compilation:
    """The ahead-of-time compilation of the launch."""
    algorithm = _algorithm(knobs)
    elements = int(case.KB * 1024) // int(case.itemsize)
    count = elements // case.world
    tensors = {"x": (case.dtype, elements), "out": (case.dtype, count)}
    if algorithm.halves:
        tensors["stage"] = (case.dtype, algorithm.halves * elements)
    fixed = _constants(case.world, count, int(case.itemsize), arch, knobs)
    return compilation_of(case, algorithm.function, arch, tensors, count, fixed, knobs, algorithm.barriers)
