"""Triton kernel of the all-to-all: every rank pushes its parts into the outputs of their receivers."""

from __future__ import annotations

import triton
import triton.language as tl

from kernels._shared.collectives.device import heaps_from, load_inside, store_inside
from kernels._shared.symmetric_device import finish, translate


@triton.jit(do_not_specialize=["rank"])
def push(
    x, out, bases, signals, count, rank,
    PROGRAMS: tl.constexpr, BLOCK: tl.constexpr, WORLD: tl.constexpr, LANES: tl.constexpr, EVEN: tl.constexpr,
    LOAD: tl.constexpr, STORE: tl.constexpr, AMD: tl.constexpr, WAIT: tl.constexpr, GROUPS: tl.constexpr,
):  # fmt: skip
    """Part q of x [WORLD * count] goes to part `rank` of rank q's out [WORLD * count], on the symmetric heap.

    Elements are words of 4 bytes, moved 16 bytes at a time.  GROUPS divides WORLD and PROGRAMS: that many groups of
    programs share the receivers.  In step i rank r sends to rank r + i, so no link is crowded.
    """
    program = tl.program_id(0)
    group = program % GROUPS
    here, heaps = tl.load(bases + rank), heaps_from(bases, rank + group, WORLD, WORLD // GROUPS, GROUPS)
    slot = out + rank.to(tl.int64) * count
    for block in range(program // GROUPS, tl.cdiv(count, BLOCK), PROGRAMS // GROUPS):
        at = block * BLOCK + tl.arange(0, BLOCK)
        parts = ()
        for i in tl.static_range(WORLD // GROUPS):  # loads first: a load between stores would wait for them
            peer = (rank + group + i * GROUPS) % WORLD
            parts = parts + (load_inside(x + peer.to(tl.int64) * count + at, at < count, EVEN, LOAD),)
        for i in tl.static_range(WORLD // GROUPS):
            store_inside(translate(slot, here, heaps[i]) + at, parts[i], at < count, EVEN, STORE)
    finish(signals, bases, program, rank, PROGRAMS, WORLD, LANES, AMD, WAIT)
