"""From knobs to a launch: one plan serves the timed call and the ahead-of-time compilation."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import torch

from kernels._shared.collectives.launch import call_of, compilation_of, constants
from kernels._shared.collectives.placing import on_heap
from kernels.reduce_scatter import device
from kernels.spec import Case, Compilation
from kernels.symmetric_heap import SymmetricHeap

ALGORITHMS = {"pull": (device.pull, 2), "push": (device.push, 1)}
"""Kernel and its number of barriers, by the knob `algorithm`."""


def _function(knobs: Mapping[str, Any]) -> tuple[Any, int]:
    name = knobs["algorithm"]
    if name not in ALGORITHMS:
        raise ValueError(f"reduce_scatter: algorithm {name!r} is not one of {', '.join(ALGORITHMS)}")
    return ALGORITHMS[name]


def build(case: Case, heap: SymmetricHeap, given: torch.Tensor, knobs: Mapping[str, Any]) -> Callable[[], torch.Tensor]:
    """A call that adds up this rank's part of the `given` of all ranks; a collective: all build with the same knobs.

    Where peers read the input, it lies on the symmetric heap, as with a user who allocates it there.
    """
    function, barriers = _function(knobs)
    count = given.numel() // case.world
    fixed = constants(case.world, count, given.element_size(), case.place.arch, knobs)
    tensors = {"x": given, "out": torch.empty(count, dtype=given.dtype, device=given.device)}
    if knobs["algorithm"] == "pull":
        tensors["x"] = on_heap(heap, given)
    else:
        tensors["stage"] = heap.alloc((2, case.world, count), given.dtype)
    arguments = {**tensors, "signals": heap.signals(barriers, case.world, knobs["programs"]), "count": count}
    return call_of(case, function, arguments, fixed, knobs, tensors["out"])


def compilation(case: Case, arch: str, knobs: Mapping[str, Any]) -> Compilation:
    """The ahead-of-time compilation of the launch."""
    function, barriers = _function(knobs)
    elements = int(case.KB * 1024) // int(case.itemsize)
    count = elements // case.world
    tensors = {"x": (case.dtype, elements), "out": (case.dtype, count)}
    if knobs["algorithm"] == "push":
        tensors["stage"] = (case.dtype, 2 * elements)
    fixed = constants(case.world, count, int(case.itemsize), arch, knobs)
    return compilation_of(case, function, arch, tensors, count, fixed, knobs, barriers)
