"""Triton kernels of the reduce-scatter: read the own part from all ranks, or send every rank its part."""

from __future__ import annotations

import triton
import triton.language as tl

from kernels.collectives.device import meet, staged_sum, summed, turn
from kernels.symmetric_device import finish, translate


@triton.jit(do_not_specialize=["rank"])
def pull(x, out, bases, signals, count, rank, PROGRAMS: tl.constexpr, BLOCK: tl.constexpr, WORLD: tl.constexpr,
         LANES: tl.constexpr, EVEN: tl.constexpr, LOAD: tl.constexpr, STORE: tl.constexpr, AMD: tl.constexpr,
         WAIT: tl.constexpr):
    """out [count] is the sum of part `rank` of all ranks' x [WORLD * count], which lies on the symmetric heap.

    signals int32[2, WORLD, PROGRAMS]: a barrier before (inputs are ready) and one after (nobody reads them any more).
    """
    program = tl.program_id(0)
    here = tl.load(bases + rank)
    meet(signals, bases, program, rank, PROGRAMS, WORLD, LANES, AMD, WAIT)
    part = x + rank.to(tl.int64) * count
    for block in range(program, tl.cdiv(count, BLOCK), PROGRAMS):
        at = block * BLOCK + tl.arange(0, BLOCK)
        total = summed(part, at, at < count, bases, here, WORLD, EVEN, LOAD).to(out.dtype.element_ty)
        if EVEN:
            tl.store(out + at, total, cache_modifier=STORE)
        else:
            tl.store(out + at, total, mask=at < count, cache_modifier=STORE)
    finish(signals + WORLD * PROGRAMS, bases, program, rank, PROGRAMS, WORLD, LANES, AMD, WAIT)


@triton.jit(do_not_specialize=["rank"])
def push(x, out, stage, bases, signals, count, rank, PROGRAMS: tl.constexpr, BLOCK: tl.constexpr, WORLD: tl.constexpr,
         LANES: tl.constexpr, EVEN: tl.constexpr, LOAD: tl.constexpr, STORE: tl.constexpr, AMD: tl.constexpr,
         WAIT: tl.constexpr):
    """Every rank sends part q of its x to rank q, then each adds up what it has got: one barrier.

    stage [2, WORLD, count] on the symmetric heap is a double buffer, used in turn (see turn); x and out anywhere.
    """
    program = tl.program_id(0)
    here = tl.load(bases + rank)
    half = stage + turn(signals, program, rank, PROGRAMS).to(tl.int64) * WORLD * count
    slot = half + rank.to(tl.int64) * count
    for block in range(program, tl.cdiv(count, BLOCK), PROGRAMS):
        at = block * BLOCK + tl.arange(0, BLOCK)
        for i in tl.static_range(WORLD):
            peer = (rank + i) % WORLD
            target = translate(slot, here, tl.load(bases + peer)) + at
            source = x + peer.to(tl.int64) * count + at
            if EVEN:
                tl.store(target, tl.load(source), cache_modifier=STORE)
            else:
                tl.store(target, tl.load(source, mask=at < count), mask=at < count, cache_modifier=STORE)
    meet(signals, bases, program, rank, PROGRAMS, WORLD, LANES, AMD, WAIT)
    for block in range(program, tl.cdiv(count, BLOCK), PROGRAMS):
        at = block * BLOCK + tl.arange(0, BLOCK)
        total = staged_sum(half, at, count, at < count, WORLD, EVEN, LOAD).to(out.dtype.element_ty)
        if EVEN:
            tl.store(out + at, total)
        else:
            tl.store(out + at, total, mask=at < count)
