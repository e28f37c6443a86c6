"""From knobs to a launch: one plan serves the timed call and the ahead-of-time compilation."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import torch

from kernels._shared.collectives.config import block_bytes
from kernels._shared.collectives.launch import depth, guard
from kernels.all_gather.cases import MIB
from kernels.all_gather.device import push
from kernels.spec import Case, Compilation
from kernels.symmetric_heap import SymmetricHeap

WORD = 4
"""Bytes.  The kernel moves words of this size whatever the dtype is: a copy has no arithmetic."""


def constants(world: int, words: int, arch: str, knobs: Mapping[str, Any]) -> dict[str, Any]:
    """The constants of a launch for a shard of that many words."""
    block = block_bytes(arch, knobs["num_warps"], knobs["unroll"]) // WORD
    return {
        **shared_constants(world, words, arch, knobs),
        "BLOCK": block,
        "EVEN": words % block == 0,
        "BLOCKED": _blocked(knobs.get("order", "interleaved")),
        **guard(words, block, _step(world, knobs), knobs),
    }


def _step(world: int, knobs: Mapping[str, Any]) -> int:
    """Programs of a group."""
    return int(knobs["programs"]) * (knobs["fanout"] or world) // world


def shared_constants(world: int, words: int, arch: str, knobs: Mapping[str, Any]) -> dict[str, Any]:
    """The constants that the kernels of all backends have; ValueError for knobs that do not fit the ranks."""
    fanout = knobs["fanout"] or world
    if world % fanout or knobs["programs"] % (world // fanout):
        raise ValueError(
            f"all-gather knobs: fanout {fanout} must divide the {world} ranks, and programs "
            f"{knobs['programs']} must be a multiple of the {world / fanout:g} groups"
        )
    if words % 4:
        raise ValueError(f"all-gather: a shard of {words * WORD} bytes is not a multiple of 16")
    return {
        "PROGRAMS": knobs["programs"],
        "WORLD": world,
        "FANOUT": fanout,
        "LANES": 1 << (world - 1).bit_length(),
        "LOAD": knobs["load"],
        "STORE": knobs["store"],
        "AMD": arch.startswith("gfx"),
        "WAIT": knobs["wait"],
    }


def partitioned(world: int, knobs: Mapping[str, Any]) -> dict[str, Any]:
    """Knobs of backend `partitioned` as those of the push: every group of programs serves one destination."""
    if knobs["programs"] < world or knobs["programs"] % world:
        raise ValueError(
            f"all-gather partitioned: programs {knobs['programs']} cannot be shared out evenly to "
            f"{world} destinations; take a multiple of {world}"
        )
    return {**knobs, "fanout": 1}


def _blocked(order: str) -> bool:
    if order not in ("interleaved", "blocked"):
        raise ValueError(f"all-gather partitioned: order {order!r} is neither 'interleaved' nor 'blocked'")
    return order == "blocked"


def build(
    case: Case, heap: SymmetricHeap, shard: torch.Tensor, out: torch.Tensor, knobs: Mapping[str, Any]
) -> Callable[[], torch.Tensor]:
    """A call that pushes shard into out of every rank; a collective: all ranks build with the same knobs."""
    fixed = constants(case.world, words_of(shard), case.place.arch, knobs)
    staged = _staged_words(words_of(shard), fixed)
    stage = heap.alloc((2, case.world, staged), torch.int32) if staged else out.view(torch.int32)
    return call_of(push, fixed, case, heap, shard, out, knobs, stage=stage, depth=staged)


def _staged_words(words: int, fixed: Mapping[str, Any]) -> int:
    """Words of a shard that go through a stage."""
    return depth(words, fixed["BLOCK"], fixed["PROGRAMS"] * fixed["FANOUT"] // fixed["WORLD"], fixed["STAGED"])


def words_of(shard: torch.Tensor) -> int:
    """Words of 4 bytes; what is left over makes no word, and constants() refuses it."""
    return shard.numel() * shard.element_size() // WORD


def call_of(
    function: Any,
    fixed: Mapping[str, Any],
    case: Case,
    heap: SymmetricHeap,
    shard: torch.Tensor,
    out: torch.Tensor,
    knobs: Mapping[str, Any],
    **more: Any,
) -> Callable[[], torch.Tensor]:
    """A call of a kernel of this operator with these constants; more: arguments that other kernels do not have."""
    signals = heap.signals(case.world, knobs["programs"])
    launch = function[(knobs["programs"],)]
    tensors = {"shard": shard.view(torch.int32), "out": out.view(torch.int32), "bases": heap.bases, "signals": signals}
    place = {"words": words_of(shard), "rank": case.place.rank}
    arguments = {**tensors, **more, **place, **fixed, "num_warps": knobs["num_warps"]}

    def call() -> torch.Tensor:
        launch(**arguments)
        return out

    return call


def compilation(case: Case, arch: str, knobs: Mapping[str, Any]) -> Compilation:
    """The ahead-of-time compilation of the same launch."""
    fixed = constants(case.world, shard_words(case), arch, knobs)
    staged = _staged_words(shard_words(case), fixed)
    return compilation_of(push, fixed, case, knobs, stage=("*i32", (2, case.world, staged)), depth=staged)


def shard_words(case: Case) -> int:
    """Words of 4 bytes in a shard of the case."""
    return int(case.MB * MIB) // (case.world * WORD)


def compilation_of(
    function: Any, fixed: Mapping[str, Any], case: Case, knobs: Mapping[str, Any], **more: Any
) -> Compilation:
    """The compilation of a kernel of this operator.  The code is the same for all ranks; 3 stands for any."""
    words = shard_words(case)
    arguments = {
        "shard": ("*i32", (words,)),
        "out": ("*i32", (words * case.world,)),
        "bases": ("*i64", (case.world,)),
        "signals": ("*i32", (case.world, knobs["programs"])),
        "words": words,
        **more,
        "rank": 3,
    }
    options, grid = {"num_warps": knobs["num_warps"]}, (knobs["programs"],)
    return Compilation(function.__name__, function, arguments, fixed, options, grid=grid)
