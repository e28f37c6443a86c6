"""Device code of the step `fences`, made of what our collectives rely on."""

from __future__ import annotations

import triton
import triton.language as tl

from kernels._shared.collectives.device import heaps_from
from kernels._shared.symmetric_device import await_peers, flags_at_peers, later, raise_flags, reached, translate


@triton.jit(do_not_specialize=["rank", "rounds"])
def litmus(
    data, signals, bases, wrong, rank, rounds,
    PROGRAMS: tl.constexpr, BLOCK: tl.constexpr, WORLD: tl.constexpr, LANES: tl.constexpr, AMD: tl.constexpr,
):  # fmt: skip
    """Message passing between the same program of all ranks: data, then a flag; whoever sees the flag reads the data.

    data int32[2, PROGRAMS, WORLD, BLOCK] on the heap: a row per sender, in two halves by turns, so that a sender never
    overwrites what is still read: it has met the reader in the round between.  rounds must be even, for the same reason
    between two launches.
    wrong int32[PROGRAMS, BLOCK] counts the elements that were not those of the round.
    """
    program = tl.program_id(0)
    lane = tl.arange(0, BLOCK)
    heaps = heaps_from(bases, rank, WORLD, WORLD)
    flags = flags_at_peers(signals, bases, program, rank, PROGRAMS, WORLD, LANES)
    first = reached(signals, program, rank, PROGRAMS)
    violations = tl.zeros([BLOCK], tl.int32)
    for i in range(1, rounds + 1):
        epoch = later(first, i)
        half = data + ((i % 2) * PROGRAMS + program) * (WORLD * BLOCK)
        for k in tl.static_range(1, WORLD):
            tl.store(translate(half + rank * BLOCK, heaps[0], heaps[k]) + lane, later(epoch, lane))
        raise_flags(flags, rank, epoch, WORLD, LANES, AMD)
        await_peers(signals, program, rank, epoch, PROGRAMS, WORLD, LANES)
        tl.debug_barrier()  # some threads read the flags, all read the data
        for k in tl.static_range(1, WORLD):
            seen = tl.load(half + ((rank + k) % WORLD) * BLOCK + lane)
            violations += tl.where(seen != later(epoch, lane), 1, 0)
    tl.store(wrong + program * BLOCK + lane, violations)
    tl.debug_barrier()
    tl.store(signals + rank * PROGRAMS + program, later(first, rounds))
