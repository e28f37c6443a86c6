"""Triton kernel of the all-gather: every rank pushes its shard into the output of all ranks."""

from __future__ import annotations

import triton
import triton.language as tl

from kernels._shared.collectives.device import (
    at_heaps,
    await_start,
    heaps_from,
    load_block,
    staged_places,
    take_staged,
    to_places,
)
from kernels._shared.symmetric_device import announce, flags_at_peers, later, meet, reached


@triton.jit
def _stage_blocks(
    shard, places, first, last, blocks, words,
    STEP: tl.constexpr, BLOCK: tl.constexpr, FANOUT: tl.constexpr, EVEN: tl.constexpr, LOAD: tl.constexpr,
    STORE: tl.constexpr,
):  # fmt: skip
    """Blocks first to last of the shard to places: the stages of the receivers, and this rank's own output."""
    for block in range(first, last, STEP):
        at = block * BLOCK + tl.arange(0, BLOCK)
        values = load_block(shard, at, block, blocks, words, EVEN, LOAD)
        to_places(values, places, at, at < words, FANOUT, EVEN, STORE)


@triton.jit
def _push_blocks(
    values, shard, places, first, blocks, words,
    STEP: tl.constexpr, BLOCK: tl.constexpr, FANOUT: tl.constexpr, EVEN: tl.constexpr, LOAD: tl.constexpr,
    STORE: tl.constexpr, AHEAD: tl.constexpr,
):  # fmt: skip
    """Blocks from first on, of which `values` is the first one, to the outputs of the receivers.

    AHEAD: the next block is loaded before one is stored, so that no load waits for stores.
    """
    for block in range(first, blocks, STEP):
        at = block * BLOCK + tl.arange(0, BLOCK)
        after = at + STEP * BLOCK
        if AHEAD:
            following = load_block(shard, after, block + STEP, blocks, words, EVEN, LOAD)
            to_places(values, places, at, at < words, FANOUT, EVEN, STORE)
        else:
            to_places(values, places, at, at < words, FANOUT, EVEN, STORE)
            following = load_block(shard, after, block + STEP, blocks, words, EVEN, LOAD)
        values = following


@triton.jit(do_not_specialize=["rank"])
def push(
    shard, out, stage, bases, signals, words, depth, rank,
    PROGRAMS: tl.constexpr, BLOCK: tl.constexpr, WORLD: tl.constexpr, FANOUT: tl.constexpr, LANES: tl.constexpr,
    EVEN: tl.constexpr, LOAD: tl.constexpr, STORE: tl.constexpr, AMD: tl.constexpr, WAIT: tl.constexpr,
    MEET: tl.constexpr, STAGED: tl.constexpr, AHEAD: tl.constexpr,
    BLOCKED: tl.constexpr = False,
):  # fmt: skip
    """shard [words] to out[rank * words:] on every rank; out lies on the symmetric heap.  A word is 4 bytes.

    A program reads a block once and stores it to FANOUT destinations; WORLD / FANOUT groups of programs share them.
    Destinations are staggered: in step i rank r writes to rank r + i, so at any time every rank receives from
    one other and no link is crowded.  A lane moves 16 bytes (4 words) at a time; words is a multiple of 4.
    BLOCKED: a group is a run of programs, else every GROUPS-th program.
    LOAD and STORE are cache modifiers; EVEN says that words is a multiple of BLOCK.
    """
    GROUPS: tl.constexpr = WORLD // FANOUT
    STEP: tl.constexpr = PROGRAMS // GROUPS
    program = tl.program_id(0)
    if BLOCKED:
        group, first = program // STEP, program % STEP
    else:
        group, first = program % GROUPS, program // GROUPS
    start = reached(signals, program, rank, PROGRAMS)
    flags = flags_at_peers(signals, bases, program, rank, PROGRAMS, WORLD, LANES)
    if MEET:
        announce(flags, rank, later(start, 1), WORLD, LANES)
    here, heaps = tl.load(bases + rank), heaps_from(bases, rank + group, WORLD, FANOUT, GROUPS)
    mine, blocks = out + rank.to(tl.int64) * words, tl.cdiv(words, BLOCK)
    direct = first + STAGED * STEP
    half = stage + ((start >> (1 if MEET else 0)) & 1).to(tl.int64) * WORLD * depth
    if STAGED > 0:
        row = half + rank.to(tl.int64) * depth
        places = staged_places(mine, row, group, here, heaps, FANOUT, GROUPS)
        _stage_blocks(
            shard, places, first, tl.minimum(direct, blocks), blocks, words, STEP, BLOCK, FANOUT, EVEN, LOAD, STORE
        )
    if MEET or STAGED == 0:
        values = load_block(shard, direct * BLOCK + tl.arange(0, BLOCK), direct, blocks, words, EVEN, LOAD)
        if MEET:
            await_start(signals, program, rank, later(start, 1), PROGRAMS, WORLD, LANES, WAIT)
        places = at_heaps(mine, here, heaps, FANOUT)
        _push_blocks(values, shard, places, direct, blocks, words, STEP, BLOCK, FANOUT, EVEN, LOAD, STORE, AHEAD)
    meet(signals, flags, program, rank, later(start, 2 if MEET else 1), PROGRAMS, WORLD, LANES, AMD, WAIT)
    if STAGED > 0:
        tl.debug_barrier()  # some threads read the flags, all read the data
        for block in range(first, tl.minimum(direct, blocks), STEP):
            take_staged(half, out, block, group, rank, words, depth, BLOCK, WORLD, GROUPS, EVEN, "")
