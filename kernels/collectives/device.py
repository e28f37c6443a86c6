"""Device functions that collective kernels share, beside kernels/symmetric_device.py."""

from __future__ import annotations

import triton
import triton.language as tl

from kernels.symmetric_device import finish, translate


@triton.jit
def meet(signals, bases, program, rank, PROGRAMS: tl.constexpr, WORLD: tl.constexpr, LANES: tl.constexpr,
         AMD: tl.constexpr, WAIT: tl.constexpr):
    """A barrier of the same program of all ranks, after which all threads may read what the peers wrote before it.

    At the start of a kernel it says: the peers' inputs are ready, since their kernels come after whatever made them.
    signals: as for finish, int32[WORLD, PROGRAMS] of its own for every barrier of a kernel.
    """
    finish(signals, bases, program, rank, PROGRAMS, WORLD, LANES, AMD, WAIT)
    tl.debug_barrier()  # the flags are read by some threads, the data by all


@triton.jit
def summed(x, at, inside, bases, here, WORLD: tl.constexpr, EVEN: tl.constexpr, LOAD: tl.constexpr):
    """fp32 sum of x[at] over all ranks, always in the order of the ranks, so that every run gives the same bits."""
    for i in tl.static_range(WORLD):
        source = translate(x, here, tl.load(bases + i)) + at
        if EVEN:
            part = tl.load(source, cache_modifier=LOAD)
        else:
            part = tl.load(source, mask=inside, other=0.0, cache_modifier=LOAD)
        if i == 0:
            total = part.to(tl.float32)
        else:
            total += part.to(tl.float32)
    return total


@triton.jit
def added(staged, at, count, inside, WORLD: tl.constexpr, EVEN: tl.constexpr, LOAD: tl.constexpr):
    """As summed, over the parts that the ranks have left on this rank: staged[i * count + at]."""
    for i in tl.static_range(WORLD):
        if EVEN:
            part = tl.load(staged + i * count + at, cache_modifier=LOAD)
        else:
            part = tl.load(staged + i * count + at, mask=inside, other=0.0, cache_modifier=LOAD)
        if i == 0:
            total = part.to(tl.float32)
        else:
            total += part.to(tl.float32)
    return total


@triton.jit
def to_all(values, out, at, inside, bases, rank, here, WORLD: tl.constexpr, EVEN: tl.constexpr, STORE: tl.constexpr):
    """Store values at out + at on every rank: the own one, then rank + 1, rank + 2, ..., so that no link is crowded."""
    for i in tl.static_range(WORLD):
        target = translate(out, here, tl.load(bases + (rank + i) % WORLD)) + at
        if EVEN:
            tl.store(target, values, cache_modifier=STORE)
        else:
            tl.store(target, values, mask=inside, cache_modifier=STORE)


@triton.jit
def turn(signals, program, rank, PROGRAMS: tl.constexpr):
    """0 and 1 in turn, call by call: which half of a double buffer this call uses, equal on all ranks.

    Two halves are enough: a peer's call k + 2 starts after it has met this rank's program in call k + 1, and that
    program came after all of call k here.
    """
    return tl.load(signals + rank * PROGRAMS + program) % 2
