"""Triton kernel of the all-gather: every rank pushes its shard into the output of all ranks."""

from __future__ import annotations

import triton
import triton.language as tl

from kernels._shared.collectives.device import heaps_from, load_inside, to_heaps
from kernels._shared.symmetric_device import finish


@triton.jit(do_not_specialize=["rank"])
def push(
    shard, out, bases, signals, words, rank,
    PROGRAMS: tl.constexpr, BLOCK: tl.constexpr, WORLD: tl.constexpr, FANOUT: tl.constexpr, LANES: tl.constexpr,
    EVEN: tl.constexpr, LOAD: tl.constexpr, STORE: tl.constexpr, AMD: tl.constexpr, WAIT: tl.constexpr,
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
    program = tl.program_id(0)
    if BLOCKED:
        group, first = program // (PROGRAMS // GROUPS), program % (PROGRAMS // GROUPS)
    else:
        group, first = program % GROUPS, program // GROUPS
    here, heaps = tl.load(bases + rank), heaps_from(bases, rank + group, WORLD, FANOUT, GROUPS)
    mine = out + rank.to(tl.int64) * words
    for block in range(first, tl.cdiv(words, BLOCK), PROGRAMS // GROUPS):
        at = block * BLOCK + tl.arange(0, BLOCK)
        values = load_inside(shard + at, at < words, EVEN, LOAD)
        to_heaps(values, mine, at, at < words, here, heaps, FANOUT, EVEN, STORE)
    finish(signals, bases, program, rank, PROGRAMS, WORLD, LANES, AMD, WAIT)
