"""From knobs to a launch: one plan serves the timed call and the ahead-of-time compilation."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import torch

from kernels.all_reduce import device
from kernels.collectives.launch import INTERPRETED, call_of, compilation_of, constants
from kernels.spec import Case, Compilation
from kernels.symmetric_heap import SymmetricHeap

__all__ = ["INTERPRETED", "build", "compilation"]

FUNCTIONS = {"two_shot": device.two_shot, "one_shot_push": device.one_shot_push, "one_shot_pull": device.one_shot_pull}
"""By the knob `way`."""


def _plan(world: int, elements: int, itemsize: int, arch: str,
          knobs: Mapping[str, Any]) -> tuple[Any, int, dict[str, Any], int]:
    """(kernel, elements it walks over, constants, barriers)."""
    if knobs["way"] not in FUNCTIONS:
        raise ValueError(f"all_reduce: way {knobs['way']!r} is not one of {', '.join(FUNCTIONS)}")
    count = elements // world if knobs["way"] == "two_shot" else elements
    return (FUNCTIONS[knobs["way"]], count, constants(world, count, itemsize, arch, knobs),
            1 if knobs["way"] == "one_shot_push" else 2)


def build(case: Case, heap: SymmetricHeap, given: torch.Tensor, knobs: Mapping[str, Any]) -> Callable[[], torch.Tensor]:
    """A call that adds up all ranks' `given`; a collective: all ranks build with the same knobs.

    Ways in which peers read the input have it on the symmetric heap, as a user would who allocates it there.
    """
    function, count, fixed, barriers = _plan(case.world, given.numel(), given.element_size(), case.place.arch, knobs)
    tensors = {"x": given, "out": torch.empty_like(given)}
    if function is device.one_shot_push:
        tensors["stage"] = heap.alloc((2, case.world, count), given.dtype)
    else:
        tensors["x"] = heap.alloc(given.shape, given.dtype).copy_(given)
    if function is device.two_shot:
        tensors["out"] = heap.alloc(given.shape, given.dtype)
    arguments = {**tensors, "signals": heap.signals(barriers, case.world, knobs["programs"]), "count": count}
    return call_of(case, function, arguments, fixed, knobs, tensors["out"])


def compilation(case: Case, arch: str, knobs: Mapping[str, Any]) -> Compilation:
    """The ahead-of-time compilation of the launch."""
    itemsize = int(case.itemsize)
    elements = int(case.KB * 1024) // itemsize
    function, count, fixed, barriers = _plan(case.world, elements, itemsize, arch, knobs)
    tensors = {"x": (case.dtype, elements), "out": (case.dtype, elements)}
    if function is device.one_shot_push:
        tensors["stage"] = (case.dtype, 2 * case.world * count)
    return compilation_of(case, function, arch, tensors, count, fixed, knobs, barriers)
