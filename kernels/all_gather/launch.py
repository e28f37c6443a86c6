"""From knobs to a launch: one plan serves the timed call and the ahead-of-time compilation."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import torch
from triton import knobs as triton_knobs

from kernels.all_gather.config import MIB, block_bytes
from kernels.all_gather.device import push
from kernels.spec import Case, Compilation
from kernels.symmetric_heap import SymmetricHeap

INTERPRETED = bool(triton_knobs.runtime.interpret)
"""Whether the kernel runs in Triton's interpreter, on CPU tensors."""

WORD = 4
"""Bytes.  The kernel moves words of this size whatever the dtype is: a copy has no arithmetic."""


def constants(world: int, words: int, arch: str, knobs: Mapping[str, Any]) -> dict[str, Any]:
    """The constants of a launch for a shard of that many words."""
    fanout = knobs["fanout"] or world
    if world % fanout or knobs["programs"] % (world // fanout):
        raise ValueError(f"all-gather knobs: fanout {fanout} must divide the {world} ranks, and programs "
                         f"{knobs['programs']} must be a multiple of the {world / fanout:g} groups")
    if words % 4:
        raise ValueError(f"all-gather: a shard of {words * WORD} bytes is not a multiple of 16")
    block = block_bytes(arch, knobs["num_warps"], knobs["unroll"]) // WORD
    return {"PROGRAMS": knobs["programs"], "BLOCK": block, "WORLD": world, "FANOUT": fanout,
            "LANES": 1 << (world - 1).bit_length(), "EVEN": words % block == 0, "LOAD": knobs["load"],
            "STORE": knobs["store"], "AMD": arch.startswith("gfx"), "WAIT": knobs["wait"]}


def build(case: Case, heap: SymmetricHeap, shard: torch.Tensor, out: torch.Tensor,
          knobs: Mapping[str, Any]) -> Callable[[], torch.Tensor]:
    """A call that pushes shard into out of every rank; a collective: all ranks build with the same knobs."""
    words = shard.numel() * shard.element_size() // WORD
    fixed = constants(case.world, words, case.place.arch, knobs)
    signals = heap.signals(case.world, knobs["programs"])
    launch = push[(knobs["programs"],)]
    arguments = {"shard": shard.view(torch.int32), "out": out.view(torch.int32), "bases": heap.bases,
                 "signals": signals, "words": words, "rank": case.place.rank, **fixed, "num_warps": knobs["num_warps"]}

    def call() -> torch.Tensor:
        launch(**arguments)
        return out
    return call


def compilation(case: Case, arch: str, knobs: Mapping[str, Any]) -> Compilation:
    """The ahead-of-time compilation of the same launch.  The code is the same for all ranks; 3 stands for any."""
    words = case.MB * MIB // (case.world * WORD)
    arguments = {"shard": ("*i32", (words,)), "out": ("*i32", (words * case.world,)), "bases": ("*i64", (case.world,)),
                 "signals": ("*i32", (case.world, knobs["programs"])), "words": words, "rank": 3}
    return Compilation("push", push, arguments, constants(case.world, words, arch, knobs),
                       {"num_warps": knobs["num_warps"]})
