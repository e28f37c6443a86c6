"""Triton kernels of the all-reduce: one step for few bytes, where latency counts, two in one kernel for many."""

from __future__ import annotations

import triton
import triton.language as tl

from kernels.collectives.device import meet, staged_sum, summed, to_all, turn
from kernels.symmetric_device import finish


@triton.jit(do_not_specialize=["rank"])
def two_shot(x, out, bases, signals, count, rank, PROGRAMS: tl.constexpr, BLOCK: tl.constexpr, WORLD: tl.constexpr,
             LANES: tl.constexpr, EVEN: tl.constexpr, LOAD: tl.constexpr, STORE: tl.constexpr, AMD: tl.constexpr,
             WAIT: tl.constexpr):
    """Rank r sums part r of all ranks' x and stores the sums to all ranks' out; a part has count elements.

    Reduce-scatter and all-gather in one pass: a block is read from all ranks, added in registers, and written to all,
    so reads come in over the links while sums go out, and nothing is staged.  x and out [WORLD * count] lie on the
    symmetric heap; signals int32[2, WORLD, PROGRAMS] for a barrier before (inputs are ready) and one after.
    """
    program = tl.program_id(0)
    here = tl.load(bases + rank)
    meet(signals, bases, program, rank, PROGRAMS, WORLD, LANES, AMD, WAIT)
    part = rank.to(tl.int64) * count
    for block in range(program, tl.cdiv(count, BLOCK), PROGRAMS):
        at = block * BLOCK + tl.arange(0, BLOCK)
        total = summed(x + part, at, at < count, bases, here, WORLD, EVEN, LOAD)
        to_all(total.to(out.dtype.element_ty), out + part, at, at < count, bases, rank, here, WORLD, EVEN, STORE)
    finish(signals + WORLD * PROGRAMS, bases, program, rank, PROGRAMS, WORLD, LANES, AMD, WAIT)


@triton.jit(do_not_specialize=["rank"])
def one_shot_push(x, out, stage, bases, signals, count, rank, PROGRAMS: tl.constexpr, BLOCK: tl.constexpr,
                  WORLD: tl.constexpr, LANES: tl.constexpr, EVEN: tl.constexpr, LOAD: tl.constexpr,
                  STORE: tl.constexpr, AMD: tl.constexpr, WAIT: tl.constexpr):
    """Every rank sends all of x to all ranks, then each adds up what it has got: one way over the links, one barrier.

    stage [2, WORLD, count] on the symmetric heap is a double buffer, used in turn: the next call may write one half
    while a slow peer still reads the other.  x and out [count] may lie anywhere.
    """
    program = tl.program_id(0)
    here = tl.load(bases + rank)
    half = stage + turn(signals, program, rank, PROGRAMS).to(tl.int64) * WORLD * count
    for block in range(program, tl.cdiv(count, BLOCK), PROGRAMS):
        at = block * BLOCK + tl.arange(0, BLOCK)
        if EVEN:
            values = tl.load(x + at)
        else:
            values = tl.load(x + at, mask=at < count, other=0.0)
        to_all(values, half + rank.to(tl.int64) * count, at, at < count, bases, rank, here, WORLD, EVEN, STORE)
    meet(signals, bases, program, rank, PROGRAMS, WORLD, LANES, AMD, WAIT)
    for block in range(program, tl.cdiv(count, BLOCK), PROGRAMS):
        at = block * BLOCK + tl.arange(0, BLOCK)
        total = staged_sum(half, at, count, at < count, WORLD, EVEN, LOAD)
        if EVEN:
            tl.store(out + at, total.to(out.dtype.element_ty))
        else:
            tl.store(out + at, total.to(out.dtype.element_ty), mask=at < count)


@triton.jit(do_not_specialize=["rank"])
def one_shot_pull(x, out, bases, signals, count, rank, PROGRAMS: tl.constexpr, BLOCK: tl.constexpr,
                  WORLD: tl.constexpr, LANES: tl.constexpr, EVEN: tl.constexpr, LOAD: tl.constexpr,
                  STORE: tl.constexpr, AMD: tl.constexpr, WAIT: tl.constexpr):
    """Every rank reads all ranks' x and adds it up.  x [count] lies on the symmetric heap, out anywhere.

    signals int32[2, WORLD, PROGRAMS]: a barrier before (inputs are ready) and one after (nobody reads them any more).
    """
    program = tl.program_id(0)
    here = tl.load(bases + rank)
    meet(signals, bases, program, rank, PROGRAMS, WORLD, LANES, AMD, WAIT)
    for block in range(program, tl.cdiv(count, BLOCK), PROGRAMS):
        at = block * BLOCK + tl.arange(0, BLOCK)
        total = summed(x, at, at < count, bases, here, WORLD, EVEN, LOAD)
        if EVEN:
            tl.store(out + at, total.to(out.dtype.element_ty), cache_modifier=STORE)
        else:
            tl.store(out + at, total.to(out.dtype.element_ty), mask=at < count, cache_modifier=STORE)
    finish(signals + WORLD * PROGRAMS, bases, program, rank, PROGRAMS, WORLD, LANES, AMD, WAIT)
