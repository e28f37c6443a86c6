"""Device functions of collective kernels: move a pointer to a peer's heap, and finish together."""

from __future__ import annotations

import triton
import triton.language as tl

from kernels.ordering import stores_done


@triton.jit
def translate(pointer, from_base, to_base, ALIGN: tl.constexpr = 16):
    """The same place in another rank's heap; bases are int64 addresses (SymmetricHeap.bases) in this address space.

    A pointer made from an integer has lost its alignment, and without it Triton stores element by element (2 bytes
    a lane in fp16).  ALIGN restores it; on a pointer it counts bytes.  It must be true of pointer and bases.
    """
    address = pointer.to(tl.int64) + (to_base - from_base)
    return tl.multiple_of(address.to(pointer.dtype), ALIGN)


@triton.jit
def finish(signals, bases, program, rank, PROGRAMS: tl.constexpr, WORLD: tl.constexpr,
           LANES: tl.constexpr, AMD: tl.constexpr, WAIT: tl.constexpr = True):
    """End of a collective kernel: what `program` has stored is visible to all ranks, and theirs to us.

    signals: int32[WORLD, PROGRAMS] on the symmetric heap, zero at first (SymmetricHeap.signals).  Row r of rank q is
    written by rank r: the number of calls its program has completed.  The own row is this rank's own count of calls,
    kept in device memory, so that a captured graph can be replayed and nothing has to be zeroed in between.
    A program meets only the same program of the peers; the kernel ends when all of them have met.  So programs need
    not be resident together on one device, as long as they start in the same order.
    LANES: power of two, at least WORLD.  AMD: see kernels.ordering.  WAIT=False leaves the waiting out, for tests that
    run the ranks one after the other.
    """
    lane = tl.arange(0, LANES)
    peer = (lane < WORLD) & (lane != rank)
    own = signals + rank * PROGRAMS + program
    epoch = tl.load(own) + 1
    here, there = tl.load(bases + rank), tl.load(bases + lane, mask=lane < WORLD, other=0)
    flag = own.to(tl.int64) + (there - here)
    stores_done(AMD)
    tl.atomic_xchg(flag.to(signals.dtype), tl.zeros_like(lane) + epoch, mask=peer, sem="release", scope="sys")
    if WAIT:
        arrivals = signals + lane * PROGRAMS + program
        late = 1
        while late > 0:
            seen = tl.atomic_add(arrivals, tl.zeros_like(lane), mask=peer, sem="acquire", scope="sys")
            late = tl.sum(tl.where(peer & (seen < epoch), 1, 0))
    tl.store(own, epoch)
