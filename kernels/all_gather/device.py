"""Triton kernel of the all-gather: every rank pushes its shard into the output of all ranks.

**Why no barrier is needed between calls.**  Rank r may read the output of call k until it makes call k + 1, and peers
write into that very output.  Two means keep them off, and a call may use both:

* MEET.  A program announces at its start that its rank has begun the call, and waits for the same program of all peers
  before it stores into their outputs.  r's call k + 1 begins after all that r's stream did with the output of call k;
  the announcement comes after that, then the peer's wait, then its stores.
* STAGED.  The first blocks of a program go to a stage of the receiver, which copies them to its output itself at the
  end of its call.  So nothing has to be waited for, but the blocks go through memory once more.  The stage has two
  halves, used in turn: p stores into half k % 2 in its call k, after it ended its call k - 1, in which it had seen the
  flag that r's program raised at the end of its call k - 1, which began after r's call k - 2 had read that half.

And a call that has ended on r's stream has all of its output: every program of every peer has stored its blocks before
it raised its flags for the last time in a call (release), and r's program of the same number, which takes the same
blocks, has seen these flags (acquire) before it copied what was staged and ended.  The shard is read by its own rank
alone.  All of this is counted in device memory, so a call may be captured, as often as one likes in one graph, and
replayed.
"""

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
from kernels._shared.ordering import loads_done
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

    MEET, and STAGED blocks of each program, guard the outputs, as said above; neither: the caller must.  stage
    [2, WORLD, depth] is on the symmetric heap; depth are the words of a shard that go through it.  signals int32[WORLD,
    PROGRAMS] as for kernels._shared.symmetric_device.finish; a call with MEET raises its flags twice.
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
        values = loads_done(values, AMD)
        places = at_heaps(mine, here, heaps, FANOUT)
        _push_blocks(values, shard, places, direct, blocks, words, STEP, BLOCK, FANOUT, EVEN, LOAD, STORE, AHEAD)
    meet(signals, flags, program, rank, later(start, 2 if MEET else 1), PROGRAMS, WORLD, LANES, AMD, WAIT)
    if STAGED > 0:
        tl.debug_barrier()  # some threads read the flags, all read the data
        for block in range(first, tl.minimum(direct, blocks), STEP):
            take_staged(half, out, block, group, rank, words, depth, BLOCK, WORLD, GROUPS, EVEN, AMD)
