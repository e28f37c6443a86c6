"""From knobs to a launch: one plan serves the timed call and the ahead-of-time compilation."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import torch

from kernels._shared.collectives.launch import call_of, compilation_of, constants, depth, guard
from kernels.all_to_all.device import push
from kernels.spec import Case, Compilation
from kernels.symmetric_heap import SymmetricHeap

WORD = 4
"""Bytes.  The kernel moves words of this size whatever the dtype is: a copy has no arithmetic."""


def _constants(world: int, words: int, arch: str, knobs: Mapping[str, Any]) -> dict[str, Any]:
    """The constants of a launch for parts of that many words."""
    groups = knobs["groups"]
    if world % groups or knobs["programs"] % groups:
        raise ValueError(
            f"all_to_all: groups {groups} must divide the {world} ranks and the {knobs['programs']} programs"
        )
    fixed = constants(world, words, WORD, arch, knobs)
    return {**fixed, "GROUPS": groups, **guard(words, fixed["BLOCK"], fixed["PROGRAMS"] // groups, knobs)}


def _staged_words(words: int, fixed: Mapping[str, Any]) -> int:
    """Words of a part that go through a stage."""
    return depth(words, fixed["BLOCK"], fixed["PROGRAMS"] // fixed["GROUPS"], fixed["STAGED"])


def build(case: Case, heap: SymmetricHeap, given: torch.Tensor, knobs: Mapping[str, Any]) -> Callable[[], torch.Tensor]:
    """A call that pushes the parts of `given` to their receivers; a collective: all build with the same knobs."""
    words = given.numel() * given.element_size() // (WORD * case.world)
    fixed = _constants(case.world, words, case.place.arch, knobs)
    out, staged = heap.alloc(given.shape, given.dtype), _staged_words(words, fixed)
    arguments = {
        "x": given.view(torch.int32),
        "out": out.view(torch.int32),
        "stage": heap.alloc((2, case.world, staged), torch.int32) if staged else out.view(torch.int32),
        "depth": staged,
        "count": words,
        "signals": heap.signals(case.world, knobs["programs"]),
    }
    return call_of(case, push, arguments, fixed, knobs, out)


def compilation(case: Case, arch: str, knobs: Mapping[str, Any]) -> Compilation:
    """The ahead-of-time compilation of the launch."""
    total = int(case.KB * 1024) // WORD
    words = total // case.world
    fixed = _constants(case.world, words, arch, knobs)
    staged = _staged_words(words, fixed)
    tensors = {"x": ("i32", total), "out": ("i32", total), "stage": ("i32", 2 * case.world * staged)}
    return compilation_of(case, push, arch, tensors, words, fixed, knobs, depth=staged)
