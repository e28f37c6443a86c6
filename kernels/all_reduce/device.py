"""Triton kernels of the all-reduce: one step for few bytes, where latency counts, two in one kernel for many."""

from __future__ import annotations

import triton
import triton.language as tl

from kernels._shared.collectives.device import (
    at_heaps,
    await_chunk,
    chunk_blocks,
    heaps_from,
    load_inside,
    rank_barrier,
    send_chunk,
    staged_sum,
    store_inside,
    sum_of_parts,
    summed,
    to_places,
    turn,
)
from kernels._shared.collectives.launch import Algorithm, Sum
from kernels._shared.symmetric_device import finish, flags_at_peers, reached


@triton.jit(do_not_specialize=["rank"])
def two_shot(
    x, out, bases, signals, count, rank,
    PROGRAMS: tl.constexpr, BLOCK: tl.constexpr, WORLD: tl.constexpr, LANES: tl.constexpr, EVEN: tl.constexpr,
    LOAD: tl.constexpr, STORE: tl.constexpr, AMD: tl.constexpr, WAIT: tl.constexpr,
):  # fmt: skip
    """Rank r sums part r of all ranks' x and stores the sums to all ranks' out; a part has count elements.

    Reduce-scatter and all-gather in one pass: a block is read from all ranks, added in registers, and written to all,
    so reads come in over the links while sums go out, and nothing is staged.  x and out [WORLD * count] lie on the
    symmetric heap; signals int32[2, WORLD, PROGRAMS] for a barrier before and one after.

    Before: a peer has started this call, so its x is ready, and its stream no longer reads the output of the call
    before: only then does this program read the one and write the other.  After: the peers have read this rank's x,
    which may now be overwritten, and have stored all of its out.
    """
    program = tl.program_id(0)
    part, heaps = rank.to(tl.int64) * count, heaps_from(bases, rank, WORLD, WORLD)
    sources = at_heaps(x + part, heaps[0], heaps_from(bases, 0, WORLD, WORLD), WORLD)
    places = at_heaps(out + part, heaps[0], heaps, WORLD)
    rank_barrier(signals, bases, program, rank, PROGRAMS, WORLD, LANES, AMD, WAIT)
    for block in range(program, tl.cdiv(count, BLOCK), PROGRAMS):
        at = block * BLOCK + tl.arange(0, BLOCK)
        total = summed(sources, at, at < count, WORLD, EVEN, LOAD)
        to_places(total.to(out.dtype.element_ty), places, at, at < count, WORLD, EVEN, STORE)
    finish(signals + WORLD * PROGRAMS, bases, program, rank, PROGRAMS, WORLD, LANES, AMD, WAIT)


@triton.jit(do_not_specialize=["rank"])
def two_shot_push(
    x, out, stage, bases, signals, count, rank,
    PROGRAMS: tl.constexpr, BLOCK: tl.constexpr, WORLD: tl.constexpr, LANES: tl.constexpr, EVEN: tl.constexpr,
    LOAD: tl.constexpr, STORE: tl.constexpr, AMD: tl.constexpr, WAIT: tl.constexpr, AHEAD: tl.constexpr,
    CHUNK: tl.constexpr,
):  # fmt: skip
    """As two_shot, but all that goes over the links is stored, nothing is read from a peer.

    A program walks over its chunks, of CHUNK blocks each.  It stores its x's values of chunk c of part q to rank q's
    stage, for all peers q, and raises its flags.  Then it waits for the flags of chunk c - AHEAD, adds up part
    `rank` of that chunk and stores the sums to all ranks' out.  So the values of AHEAD chunks are in flight meanwhile.

    x [WORLD * count] may lie anywhere; out [WORLD * count] and stage [WORLD, count] are on the symmetric heap; signals
    int32[WORLD, PROGRAMS].  There is no barrier at the start and one buffer for staging is enough:

    * A peer stores into this rank's stage in its call k + 1.  It has left its call k, so it has met all programs of
      this rank at the end of call k, and those had read their stage by then (raise_flags: their loads are done).
    * A peer stores into this rank's out in its call k only after this rank's program has raised its flags in call k: so
      this rank has started the call, and what its stream did with the output of call k - 1 is over.
    * x is read by its own rank alone.

    There is no deadlock: a program raises its flags for chunk c before it waits for chunk c of the peers.  It has as
    many chunks on every rank, so the epochs, which go on from call to call, are the same there.
    """
    program = tl.program_id(0)
    heaps = heaps_from(bases, rank, WORLD, WORLD)
    start = reached(signals, program, rank, PROGRAMS)
    flags = flags_at_peers(signals, bases, program, rank, PROGRAMS, WORLD, LANES)
    rows = at_heaps(stage + rank.to(tl.int64) * count, heaps[0], heaps, WORLD)
    places = at_heaps(out + rank.to(tl.int64) * count, heaps[0], heaps, WORLD)
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
                to_places(total.to(out.dtype.element_ty), places, at, at < count, WORLD, EVEN, STORE)
    finish(signals, bases, program, rank, PROGRAMS, WORLD, LANES, AMD, WAIT, chunks)


@triton.jit(do_not_specialize=["rank"])
def one_shot_push(
    x, out, stage, bases, signals, count, rank,
    PROGRAMS: tl.constexpr, BLOCK: tl.constexpr, WORLD: tl.constexpr, LANES: tl.constexpr, EVEN: tl.constexpr,
    LOAD: tl.constexpr, STORE: tl.constexpr, AMD: tl.constexpr, WAIT: tl.constexpr,
):  # fmt: skip
    """Every rank sends all of x to all ranks, then each adds up what it has received: one trip, one barrier.

    stage [2, WORLD, count] on the symmetric heap is a double buffer, used in turn: the next call may write one half
    while a slow peer still reads the other (see turn).  x and out [count] may lie anywhere: only their own rank reads
    and writes them, so what its stream does with them before and after a call is no one else's business.
    """
    program = tl.program_id(0)
    heaps = heaps_from(bases, rank, WORLD, WORLD)
    half = stage + turn(signals, program, rank, PROGRAMS).to(tl.int64) * WORLD * count
    places = at_heaps(half + rank.to(tl.int64) * count, heaps[0], heaps, WORLD)
    for block in range(program, tl.cdiv(count, BLOCK), PROGRAMS):
        at = block * BLOCK + tl.arange(0, BLOCK)
        to_places(load_inside(x + at, at < count, EVEN, ""), places, at, at < count, WORLD, EVEN, STORE)
    rank_barrier(signals, bases, program, rank, PROGRAMS, WORLD, LANES, AMD, WAIT)
    for block in range(program, tl.cdiv(count, BLOCK), PROGRAMS):
        at = block * BLOCK + tl.arange(0, BLOCK)
        total = staged_sum(half, at, count, at < count, WORLD, EVEN, LOAD)
        store_inside(out + at, total.to(out.dtype.element_ty), at < count, EVEN, "")


@triton.jit(do_not_specialize=["rank"])
def one_shot_pull(
    x, out, bases, signals, count, rank,
    PROGRAMS: tl.constexpr, BLOCK: tl.constexpr, WORLD: tl.constexpr, LANES: tl.constexpr, EVEN: tl.constexpr,
    LOAD: tl.constexpr, STORE: tl.constexpr, AMD: tl.constexpr, WAIT: tl.constexpr,
):  # fmt: skip
    """Every rank reads all ranks' x and adds it up.  x [count] lies on the symmetric heap, out anywhere.

    signals int32[2, WORLD, PROGRAMS]: a barrier before (inputs are ready) and one after (no rank reads them any more).
    """
    program = tl.program_id(0)
    sources = at_heaps(x, tl.load(bases + rank), heaps_from(bases, 0, WORLD, WORLD), WORLD)
    rank_barrier(signals, bases, program, rank, PROGRAMS, WORLD, LANES, AMD, WAIT)
    for block in range(program, tl.cdiv(count, BLOCK), PROGRAMS):
        at = block * BLOCK + tl.arange(0, BLOCK)
        total = summed(sources, at, at < count, WORLD, EVEN, LOAD)
        store_inside(out + at, total.to(out.dtype.element_ty), at < count, EVEN, STORE)
    finish(signals + WORLD * PROGRAMS, bases, program, rank, PROGRAMS, WORLD, LANES, AMD, WAIT)


# ---- from knobs to a launch: one plan serves the timed call and the ahead-of-time compilation ------------------------


SUM = Sum(
    "all_reduce",
    whole=True,
    ahead_is=", else it waits for chunks that no rank has sent",
    algorithms={
        "two_shot": Algorithm(two_shot, barriers=2, halves=0),
        "two_shot_push": Algorithm(two_shot_push, barriers=1, halves=1, chunks=True),
        "one_shot_push": Algorithm(one_shot_push, barriers=1, halves=2, part=False),
        "one_shot_pull": Algorithm(one_shot_pull, barriers=2, halves=0, part=False),
    },
)
build, compilation = SUM.build, SUM.compilation
