"""Triton kernel of the all-to-all: every rank pushes its parts into the outputs of their receivers."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import torch
import triton
import triton.language as tl

from kernels._shared.collectives.device import (
    at_heaps,
    await_start,
    heaps_from,
    load_block,
    staged_places,
    store_inside,
    take_staged,
)
from kernels._shared.collectives.launch import call_of, compilation_of, constants, depth, guard, options
from kernels._shared.symmetric_device import announce, flags_at_peers, later, loads_done, meet, reached
from kernels.spec import Case, Compilation
from kernels.symmetric_heap import SymmetricHeap


@triton.jit
def _load_parts(
    x, block, blocks, count, first, BLOCK: tl.constexpr, WORLD: tl.constexpr, GROUPS: tl.constexpr,
    EVEN: tl.constexpr, LOAD: tl.constexpr,
):  # fmt: skip
    """A block of the parts of ranks first, first + GROUPS, ...: all loads before the first store, to be in flight."""
    at = block * BLOCK + tl.arange(0, BLOCK)
    parts = ()
    for i in tl.static_range(WORLD // GROUPS):
        peer = (first + i * GROUPS) % WORLD
        parts = parts + (load_block(x + peer.to(tl.int64) * count, at, block, blocks, count, EVEN, LOAD),)
    return parts


@triton.jit
def _loaded(parts, COUNT: tl.constexpr, AMD: tl.constexpr):
    """The parts, after the loads that made them: see kernels._shared.symmetric_device.loads_done."""
    settled = ()
    for i in tl.static_range(COUNT):
        settled = settled + (loads_done(parts[i], AMD),)
    return settled


@triton.jit
def _store_parts(
    parts, places, block, count, BLOCK: tl.constexpr, COUNT: tl.constexpr, EVEN: tl.constexpr,
    STORE: tl.constexpr,
):  # fmt: skip
    """A block of the parts to the receivers' places."""
    at = block * BLOCK + tl.arange(0, BLOCK)
    for i in tl.static_range(COUNT):
        store_inside(tl.multiple_of(places[i], 16) + at, parts[i], at < count, EVEN, STORE)


@triton.jit(do_not_specialize=["rank"])
def push(
    x, out, stage, bases, signals, count, depth, rank,
    PROGRAMS: tl.constexpr, BLOCK: tl.constexpr, WORLD: tl.constexpr, LANES: tl.constexpr, EVEN: tl.constexpr,
    LOAD: tl.constexpr, STORE: tl.constexpr, AMD: tl.constexpr, WAIT: tl.constexpr, GROUPS: tl.constexpr,
    MEET: tl.constexpr, STAGED: tl.constexpr, AHEAD: tl.constexpr,
):  # fmt: skip
    """Part q of x [WORLD * count] goes to part `rank` of rank q's out [WORLD * count], on the symmetric heap.

    Elements are words of 4 bytes, moved 16 bytes at a time.  GROUPS divides WORLD and PROGRAMS: that many groups of
    programs share the receivers.  In step i rank r sends to rank r + i, so no link is crowded.
    MEET, STAGED, AHEAD, stage, depth and signals are those of the all-gather's push, for the same reasons.
    """
    STEP: tl.constexpr = PROGRAMS // GROUPS
    COUNT: tl.constexpr = WORLD // GROUPS
    program = tl.program_id(0)
    group, first = program % GROUPS, program // GROUPS
    start = reached(signals, program, rank, PROGRAMS)
    flags = flags_at_peers(signals, bases, program, rank, PROGRAMS, WORLD, LANES)
    if MEET:
        announce(flags, rank, later(start, 1), WORLD, LANES)
    here, heaps = tl.load(bases + rank), heaps_from(bases, rank + group, WORLD, COUNT, GROUPS)
    slot, blocks = out + rank.to(tl.int64) * count, tl.cdiv(count, BLOCK)
    direct = first + STAGED * STEP
    half = stage + ((start >> (1 if MEET else 0)) & 1).to(tl.int64) * WORLD * depth
    if STAGED > 0:
        places = staged_places(slot, half + rank.to(tl.int64) * depth, group, here, heaps, COUNT, GROUPS)
        for block in range(first, tl.minimum(direct, blocks), STEP):
            parts = _load_parts(x, block, blocks, count, rank + group, BLOCK, WORLD, GROUPS, EVEN, LOAD)
            _store_parts(parts, places, block, count, BLOCK, COUNT, EVEN, STORE)
    if MEET or STAGED == 0:
        parts = _load_parts(x, direct, blocks, count, rank + group, BLOCK, WORLD, GROUPS, EVEN, LOAD)
        if MEET:
            await_start(signals, program, rank, later(start, 1), PROGRAMS, WORLD, LANES, WAIT)
        parts = _loaded(parts, COUNT, AMD)
        places = at_heaps(slot, here, heaps, COUNT)
        for block in range(direct, blocks, STEP):
            if AHEAD:
                following = _load_parts(x, block + STEP, blocks, count, rank + group, BLOCK, WORLD, GROUPS, EVEN, LOAD)
                _store_parts(parts, places, block, count, BLOCK, COUNT, EVEN, STORE)
            else:
                _store_parts(parts, places, block, count, BLOCK, COUNT, EVEN, STORE)
                following = _load_parts(x, block + STEP, blocks, count, rank + group, BLOCK, WORLD, GROUPS, EVEN, LOAD)
            parts = following
    meet(signals, flags, program, rank, later(start, 2 if MEET else 1), PROGRAMS, WORLD, LANES, AMD, WAIT)
    if STAGED > 0:
        tl.debug_barrier()  # some threads read the flags, all read the data
        for block in range(first, tl.minimum(direct, blocks), STEP):
            take_staged(half, out, block, group, rank, count, depth, BLOCK, WORLD, GROUPS, EVEN, AMD)


# ---- from knobs to a launch: one plan serves the timed call and the ahead-of-time compilation ------------------------


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
    return call_of(case, push, arguments, fixed, options(case, case.place.arch, knobs), out)


def compilation(case: Case, arch: str, knobs: Mapping[str, Any]) -> Compilation:
    """The ahead-of-time compilation of the launch."""
    total = int(case.KB * 1024) // WORD
    words = total // case.world
    fixed = _constants(case.world, words, arch, knobs)
    staged = _staged_words(words, fixed)
    tensors = {"x": ("i32", total), "out": ("i32", total), "stage": ("i32", 2 * case.world * staged)}
    return compilation_of(case, push, tensors, fixed, options(case, arch, knobs), count=words, depth=staged)
