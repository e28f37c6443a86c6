"""Triton kernels of the reduce-scatter: read one's own part from all ranks, or send every rank its part."""

from __future__ import annotations

import triton
import triton.language as tl

from kernels._shared.collectives.device import (
    at_heaps,
    heaps_from,
    parts_to_peers,
    rank_barrier,
    store_inside,
    sum_of_parts,
    summed,
    turn,
)
from kernels._shared.symmetric_device import finish


@triton.jit(do_not_specialize=["rank"])
def pull(
    x, out, bases, signals, count, rank,
    PROGRAMS: tl.constexpr, BLOCK: tl.constexpr, WORLD: tl.constexpr, LANES: tl.constexpr, EVEN: tl.constexpr,
    LOAD: tl.constexpr, STORE: tl.constexpr, AMD: tl.constexpr, WAIT: tl.constexpr,
):  # fmt: skip
    """out [count] is the sum of part `rank` of all ranks' x [WORLD * count], which lies on the symmetric heap.

    signals int32[2, WORLD, PROGRAMS]: a barrier before (inputs are ready) and one after (no rank reads them any more).
    """
    program = tl.program_id(0)
    part = x + rank.to(tl.int64) * count
    sources = at_heaps(part, tl.load(bases + rank), heaps_from(bases, 0, WORLD, WORLD), WORLD)
    rank_barrier(signals, bases, program, rank, PROGRAMS, WORLD, LANES, AMD, WAIT)
    for block in range(program, tl.cdiv(count, BLOCK), PROGRAMS):
        at = block * BLOCK + tl.arange(0, BLOCK)
        total = summed(sources, at, at < count, WORLD, EVEN, LOAD).to(out.dtype.element_ty)
        store_inside(out + at, total, at < count, EVEN, STORE)
    finish(signals + WORLD * PROGRAMS, bases, program, rank, PROGRAMS, WORLD, LANES, AMD, WAIT)


@triton.jit(do_not_specialize=["rank"])
def push(
    x, out, stage, bases, signals, count, rank,
    PROGRAMS: tl.constexpr, BLOCK: tl.constexpr, WORLD: tl.constexpr, LANES: tl.constexpr, EVEN: tl.constexpr,
    LOAD: tl.constexpr, STORE: tl.constexpr, AMD: tl.constexpr, WAIT: tl.constexpr,
):  # fmt: skip
    """Every rank sends part q of its x to rank q, then each adds up what it has received: one barrier.

    stage [2, WORLD, count] on the symmetric heap is a double buffer, used in turn (see turn); x and out anywhere.
    """
    program = tl.program_id(0)
    heaps = heaps_from(bases, rank, WORLD, WORLD)
    half = stage + turn(signals, program, rank, PROGRAMS).to(tl.int64) * WORLD * count
    rows = at_heaps(half + rank.to(tl.int64) * count, heaps[0], heaps, WORLD)
    for block in range(program, tl.cdiv(count, BLOCK), PROGRAMS):
        at = block * BLOCK + tl.arange(0, BLOCK)
        parts_to_peers(x, rows, at, count, at < count, rank, WORLD, EVEN, STORE)
    rank_barrier(signals, bases, program, rank, PROGRAMS, WORLD, LANES, AMD, WAIT)
    for block in range(program, tl.cdiv(count, BLOCK), PROGRAMS):
        at = block * BLOCK + tl.arange(0, BLOCK)
        total = sum_of_parts(x, half, at, count, at < count, rank, WORLD, EVEN, LOAD).to(out.dtype.element_ty)
        store_inside(out + at, total, at < count, EVEN, "")
