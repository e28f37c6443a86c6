"""From knobs to a launch: one plan serves the timed call and the ahead-of-time compilation."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from typing import Any

import torch

from kernels.all_reduce import device
from kernels.collectives.launch import INTERPRETED, call_of, compilation_of, constants
from kernels.spec import Case, Compilation
from kernels.symmetric_heap import SymmetricHeap

__all__ = ["INTERPRETED", "build", "compilation"]

FUNCTIONS = {
    "two_shot": device.two_shot,
    "two_shot_push": device.two_shot_push,
    "one_shot_push": device.one_shot_push,
    "one_shot_pull": device.one_shot_pull,
}
"""By the knob `way`."""

BARRIERS = {"two_shot": 2, "two_shot_push": 1, "one_shot_push": 1, "one_shot_pull": 2}
"""Rows of signals, by way."""


def _plan(world: int, elements: int, itemsize: int, arch: str, knobs: Mapping[str, Any]) -> tuple[int, dict[str, Any]]:
    """(elements that the kernel walks over, constants)."""
    way = knobs["way"]
    if way not in FUNCTIONS:
        raise ValueError(f"all_reduce: way {way!r} is not one of {', '.join(FUNCTIONS)}")
    count = elements // world if way.startswith("two_shot") else elements
    fixed = constants(world, count, itemsize, arch, knobs)
    if way == "two_shot_push":
        if knobs["ahead"] < 0:
            raise ValueError(
                f"all_reduce: ahead {knobs['ahead']} would wait for chunks that nobody has sent; it must be at least 0"
            )
        fixed["AHEAD"] = knobs["ahead"]
    return count, fixed


def _stage(way: str, world: int, count: int) -> tuple[int, ...] | None:
    """Shape of the staging buffer, if the way has one."""
    return {"one_shot_push": (2, world, count), "two_shot_push": (world, count)}.get(way)


def build(case: Case, heap: SymmetricHeap, given: torch.Tensor, knobs: Mapping[str, Any]) -> Callable[[], torch.Tensor]:
    """A call that adds up all ranks' `given`; a collective: all ranks build with the same knobs.

    What peers read or write lies on the symmetric heap, as with a user who allocates it there: the input of the ways
    that read, the output of those in two steps.
    """
    way = knobs["way"]
    count, fixed = _plan(case.world, given.numel(), given.element_size(), case.place.arch, knobs)
    stage = _stage(way, case.world, count)
    tensors = {"x": given, "out": torch.empty_like(given)}
    if stage:
        tensors["stage"] = heap.alloc(stage, given.dtype)
    else:
        tensors["x"] = heap.alloc(given.shape, given.dtype).copy_(given)
    if way.startswith("two_shot"):
        tensors["out"] = heap.alloc(given.shape, given.dtype)
    arguments = {**tensors, "signals": heap.signals(BARRIERS[way], case.world, knobs["programs"]), "count": count}
    return call_of(case, FUNCTIONS[way], arguments, fixed, knobs, tensors["out"])


def compilation(case: Case, arch: str, knobs: Mapping[str, Any]) -> Compilation:
    """The ahead-of-time compilation of the launch."""
    way, itemsize = knobs["way"], int(case.itemsize)
    elements = int(case.KB * 1024) // itemsize
    count, fixed = _plan(case.world, elements, itemsize, arch, knobs)
    stage = _stage(way, case.world, count)
    tensors = {"x": (case.dtype, elements), "out": (case.dtype, elements)}
    if stage:
        tensors["stage"] = (case.dtype, math.prod(stage))
    return compilation_of(case, FUNCTIONS[way], arch, tensors, count, fixed, knobs, BARRIERS[way])
