"""Triton kernels of the reduce-scatter: read one's own part from all ranks, or send every rank its part."""

from __future__ import annotations

import triton
import triton.language as tl

from kernels._shared.collectives.device import (
    at_heaps,
    await_chunk,
    chunk_blocks,
    heaps_from,
    parts_to_peers,
    rank_barrier,
    send_chunk,
    store_inside,
    sum_of_parts,
    summed,
    turn,
)
from kernels._shared.collectives.launch import Algorithm, Sum
from kernels._shared.symmetric_device import finish, flags_at_peers, reached


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

    stage [2, WORLD, count] on the symmetric heap is a double buffer, used in turn (see turn); x and out anywhere: only
    their own rank reads and writes them.
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


@triton.jit(do_not_specialize=["rank"])
def push_chunks(
    x, out, stage, bases, signals, count, rank,
    PROGRAMS: tl.constexpr, BLOCK: tl.constexpr, WORLD: tl.constexpr, LANES: tl.constexpr, EVEN: tl.constexpr,
    LOAD: tl.constexpr, STORE: tl.constexpr, AMD: tl.constexpr, WAIT: tl.constexpr, AHEAD: tl.constexpr,
    CHUNK: tl.constexpr,
):  # fmt: skip
    """As push, chunk by chunk: a program adds up chunk c - AHEAD while the peers' values of the next ones come in.

    It is the first half of kernels.all_reduce.device.two_shot_push, and one stage [WORLD, count] is enough for the
    same reason: a peer stores into it in its call k + 1, after it has met this rank's programs at the end of call k,
    which had read it by then.  x and out anywhere; signals int32[WORLD, PROGRAMS].
    """
    program = tl.program_id(0)
    heaps = heaps_from(bases, rank, WORLD, WORLD)
    start = reached(signals, program, rank, PROGRAMS)
    flags = flags_at_peers(signals, bases, program, rank, PROGRAMS, WORLD, LANES)
    rows = at_heaps(stage + rank.to(tl.int64) * count, heaps[0], heaps, WORLD)
    chunks = tl.cdiv(tl.cdiv(count, CHUNK * BLOCK) - program, PROGRAMS)
    for chunk in range(chunks + AHEAD):
        if chunk < chunks:
            send_chunk(
                x, rows, flags, start, chunk, program, count, rank,
                PROGRAMS, BLOCK, CHUNK, WORLD, LANES, EVEN, STORE, AMD,
            )  # fmt: skip
        if chunk >= AHEAD:
            await_chunk(signals, start, chunk - AHEAD, program, rank, PROGRAMS, WORLD, LANES, WAIT)
            first, last = chunk_blocks(chunk - AHEAD, program, count, PROGRAMS, BLOCK, CHUNK)
            for block in range(first, last):
                at = block * BLOCK + tl.arange(0, BLOCK)
                total = sum_of_parts(x, stage, at, count, at < count, rank, WORLD, EVEN, LOAD)
                store_inside(out + at, total.to(out.dtype.element_ty), at < count, EVEN, "")
    finish(signals, bases, program, rank, PROGRAMS, WORLD, LANES, AMD, WAIT, chunks)


# ---- from knobs to a launch: one plan serves the timed call and the ahead-of-time compilation ------------------------


SUM = Sum(
    "reduce_scatter",
    whole=False,
    ahead_is=" chunks",
    algorithms={
        "pull": Algorithm(pull, barriers=2, halves=0),
        "push": Algorithm(push, barriers=1, halves=2),
        "push_chunks": Algorithm(push_chunks, barriers=1, halves=1, chunks=True),
    },
)
build, compilation = SUM.build, SUM.compilation
