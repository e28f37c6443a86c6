"""From knobs to a launch: one plan serves the timed call and the ahead-of-time compilation."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Callable, Mapping
from typing import Any

import torch

from kernels._shared.collectives.launch import call_of, compilation_of, constants
from kernels._shared.collectives.placing import on_heap
from kernels.all_reduce import device
from kernels.spec import Case, Compilation
from kernels.symmetric_heap import SymmetricHeap


@dataclasses.dataclass(frozen=True)
class Algorithm:
    """One value of the knob `algorithm`.  barriers: rows of signals.

    two_shot: a rank adds up one part, and the output lies on the symmetric heap.  halves: 1 or 2 for a staging buffer
    of that many halves, 0 without one; then the peers read the input, which lies on the symmetric heap instead.
    """

    function: Any
    barriers: int
    two_shot: bool
    halves: int

    def count(self, world: int, elements: int) -> int:
        """Elements that the kernel walks over."""
        return elements // world if self.two_shot else elements

    def stage(self, world: int, count: int) -> tuple[int, ...]:
        """Shape of the staging buffer."""
        return (self.halves, world, count)


ALGORITHMS = {
    "two_shot": Algorithm(device.two_shot, barriers=2, two_shot=True, halves=0),
    "two_shot_push": Algorithm(device.two_shot_push, barriers=1, two_shot=True, halves=1),
    "one_shot_push": Algorithm(device.one_shot_push, barriers=1, two_shot=False, halves=2),
    "one_shot_pull": Algorithm(device.one_shot_pull, barriers=2, two_shot=False, halves=0),
}


def _algorithm(knobs: Mapping[str, Any]) -> Algorithm:
    """The chosen algorithm; ValueError for an unknown one, and for chunks that cannot be."""
    name = knobs["algorithm"]
    if name not in ALGORITHMS:
        raise ValueError(f"all_reduce: algorithm {name!r} is not one of {', '.join(ALGORITHMS)}")
    if name == "two_shot_push" and (knobs["ahead"] < 0 or knobs["chunk"] < 1):
        raise ValueError(
            f"all_reduce: ahead {knobs['ahead']} must be at least 0, else it waits for chunks that no rank has sent, "
            f"and chunk {knobs['chunk']} at least 1 block"
        )
    return ALGORITHMS[name]


def _constants(world: int, count: int, itemsize: int, arch: str, knobs: Mapping[str, Any]) -> dict[str, Any]:
    chunks = {"AHEAD": knobs["ahead"], "CHUNK": knobs["chunk"]} if knobs["algorithm"] == "two_shot_push" else {}
    return {**constants(world, count, itemsize, arch, knobs), **chunks}


def build(case: Case, heap: SymmetricHeap, given: torch.Tensor, knobs: Mapping[str, Any]) -> Callable[[], torch.Tensor]:
    """A call that adds up the `given` of all ranks; a collective: all ranks build with the same knobs.

    What peers read or write lies on the symmetric heap, as with a user who allocates it there: the input of the
    algorithms that read, the output of those in two steps.
    """
    algorithm = _algorithm(knobs)
    count = algorithm.count(case.world, given.numel())
    fixed = _constants(case.world, count, given.element_size(), case.place.arch, knobs)
    tensors = {"x": given, "out": torch.empty_like(given)}
    if algorithm.halves:
        tensors["stage"] = heap.alloc(algorithm.stage(case.world, count), given.dtype)
    else:
        tensors["x"] = on_heap(heap, given)
    if algorithm.two_shot:
        tensors["out"] = heap.alloc(given.shape, given.dtype)
    signals = heap.signals(algorithm.barriers, case.world, knobs["programs"])
    arguments = {**tensors, "signals": signals, "count": count}
    return call_of(case, algorithm.function, arguments, fixed, knobs, tensors["out"])


def compilation(case: Case, arch: str, knobs: Mapping[str, Any]) -> Compilation:
    """The ahead-of-time compilation of the launch."""
    algorithm, itemsize = _algorithm(knobs), int(case.itemsize)
    elements = int(case.KB * 1024) // itemsize
    count = algorithm.count(case.world, elements)
    tensors = {"x": (case.dtype, elements), "out": (case.dtype, elements)}
    if algorithm.halves:
        tensors["stage"] = (case.dtype, math.prod(algorithm.stage(case.world, count)))
    fixed = _constants(case.world, count, itemsize, arch, knobs)
    return compilation_of(case, algorithm.function, arch, tensors, count, fixed, knobs, algorithm.barriers)
