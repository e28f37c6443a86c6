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
def _loaded(source, inside, EVEN: tl.constexpr, LOAD: tl.constexpr):
    """One part; nothing is read outside."""
    if EVEN:
        return tl.load(source, cache_modifier=LOAD)
    return tl.load(source, mask=inside, other=0.0, cache_modifier=LOAD)


@triton.jit
def _added(parts, WORLD: tl.constexpr):
    """fp32 sum in the order of the ranks, so that every run gives the same bits."""
    total = parts[0].to(tl.float32)
    for i in tl.static_range(1, WORLD):
        total += parts[i].to(tl.float32)
    return total


@triton.jit
def summed(x, at, inside, bases, here, WORLD: tl.constexpr, EVEN: tl.constexpr, LOAD: tl.constexpr):
    """fp32 sum of x[at] over all ranks; all loads are written down before the first sum, to be in flight together."""
    parts = (_loaded(translate(x, here, tl.load(bases)) + at, inside, EVEN, LOAD),)
    for i in tl.static_range(1, WORLD):
        parts = parts + (_loaded(translate(x, here, tl.load(bases + i)) + at, inside, EVEN, LOAD),)
    return _added(parts, WORLD)


@triton.jit
def staged_sum(staged, at, count, inside, WORLD: tl.constexpr, EVEN: tl.constexpr, LOAD: tl.constexpr):
    """As summed, over what the ranks have left on this rank: staged[i * count + at]."""
    parts = (_loaded(staged + at, inside, EVEN, LOAD),)
    for i in tl.static_range(1, WORLD):
        parts = parts + (_loaded(staged + i * count + at, inside, EVEN, LOAD),)
    return _added(parts, WORLD)


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
