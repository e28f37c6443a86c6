"""Device functions of collective kernels: move a pointer to a peer's heap, signal the peers, wait for them; and when
loads and stores of a program are done.
"""

from __future__ import annotations

import triton
import triton.language as tl


@triton.jit
def translate(pointer, from_base, to_base, ALIGN: tl.constexpr = 16):
    """The same place in another rank's heap; bases are int64 addresses (SymmetricHeap.bases) in this address space.

    A pointer made from an integer has lost its alignment, and without it Triton stores element by element (2 bytes
    a lane in fp16).  ALIGN restores it; on a pointer it counts bytes.  It must be true of pointer and bases.
    """
    address = pointer.to(tl.int64) + (to_base - from_base)
    return tl.multiple_of(address.to(pointer.dtype), ALIGN)


@triton.jit
def reached(signals, program, rank, PROGRAMS: tl.constexpr):
    """The epoch at which this rank's program has finished its last call, 0 at first."""
    return tl.load(signals + rank * PROGRAMS + program)


@triton.jit
def later(epoch, steps):
    """epoch + steps, which may wrap around: 2^31 are some hours of work for a collective that signals often."""
    return tl.add(epoch, steps, sanitize_overflow=False)


@triton.jit
def flags_at_peers(signals, bases, program, rank, PROGRAMS: tl.constexpr, WORLD: tl.constexpr, LANES: tl.constexpr):
    """Pointers [LANES] to the flags of this rank's program in the heaps of all ranks; signals as for finish."""
    lane = tl.arange(0, LANES)
    own = signals + rank * PROGRAMS + program
    here, there = tl.load(bases + rank), tl.load(bases + lane, mask=lane < WORLD, other=0)
    return (own.to(tl.int64) + (there - here)).to(signals.dtype)


@triton.jit
def announce(flags, rank, epoch, WORLD: tl.constexpr, LANES: tl.constexpr):
    """Raise this program's flags (flags_at_peers) to `epoch` at all peers, at the start of a call.

    Once a peer has seen it (await_peers), all that this rank's stream did before the call is over, and the peer may
    write where that has read.  Nothing is stored that the peer would have to see, so no release is needed, which would
    take 0.8 us on an H200: kernels of a stream start after those before them have ended, their loads done and their
    stores visible.  What the program itself has stored is not covered: see raise_flags.
    """
    lane = tl.arange(0, LANES)
    tl.atomic_xchg(flags, tl.zeros_like(lane) + epoch, mask=(lane < WORLD) & (lane != rank), sem="relaxed", scope="sys")


@triton.jit
def raise_flags(flags, rank, epoch, WORLD: tl.constexpr, LANES: tl.constexpr, AMD: tl.constexpr):
    """Raise this program's flags (flags_at_peers) to `epoch` at all peers; they may then see all that it has stored.

    Once a peer has seen this epoch or a later one (await_peers), its stores before this call are visible to that peer,
    and its loads before this call are done.
    """
    lane = tl.arange(0, LANES)
    stores_done(AMD)
    tl.atomic_xchg(flags, tl.zeros_like(lane) + epoch, mask=(lane < WORLD) & (lane != rank), sem="release", scope="sys")


@triton.jit
def await_peers(
    signals, program, rank, epoch,
    PROGRAMS: tl.constexpr, WORLD: tl.constexpr, LANES: tl.constexpr, WAIT: tl.constexpr = True,
):  # fmt: skip
    """Wait until the same program of all peers has raised its flags to `epoch` or later.

    Only some threads read the flags: a barrier is needed before all threads read what the peers have stored.
    Epochs are compared by their difference, because they wrap around.
    """
    if WAIT:
        lane = tl.arange(0, LANES)
        peer = (lane < WORLD) & (lane != rank)
        arrivals = signals + lane * PROGRAMS + program
        late = 1
        while late > 0:
            seen = tl.atomic_add(arrivals, tl.zeros_like(lane), mask=peer, sem="acquire", scope="sys")
            late = tl.sum(tl.where(peer & (tl.sub(seen, epoch, sanitize_overflow=False) < 0), 1, 0))


@triton.jit
def meet(
    signals, flags, program, rank, epoch,
    PROGRAMS: tl.constexpr, WORLD: tl.constexpr, LANES: tl.constexpr, AMD: tl.constexpr, WAIT: tl.constexpr = True,
):  # fmt: skip
    """What finish does, with this program's flags (flags_at_peers) and the epoch that the call ends with."""
    raise_flags(flags, rank, epoch, WORLD, LANES, AMD)
    await_peers(signals, program, rank, epoch, PROGRAMS, WORLD, LANES, WAIT)
    tl.store(signals + rank * PROGRAMS + program, epoch)


@triton.jit
def finish(
    signals, bases, program, rank,
    PROGRAMS: tl.constexpr, WORLD: tl.constexpr, LANES: tl.constexpr, AMD: tl.constexpr, WAIT: tl.constexpr = True,
    raised=0,
):  # fmt: skip
    """End of a collective kernel: what `program` has stored is visible to all ranks, and theirs to us.

    signals: int32[WORLD, PROGRAMS] on the symmetric heap, zero at first (SymmetricHeap.signals).  Row r of rank q is
    written by rank r: the epoch to which its program has raised its flags last.  A rank's own row is the epoch that it
    has reached, kept in device memory, so that a captured graph can be replayed and nothing has to be zeroed.
    raised: how often this call has raised its flags already, the same for this program on all ranks.  So an epoch is
    the number of completed calls, or more where a call raises them more than once.
    A program meets only the same program of the peers; the kernel ends when all of them have met.  So programs need
    not be resident together on one device, as long as they start in the same order.
    LANES: power of two, at least WORLD.  AMD: see kernels._shared.symmetric_device.  WAIT=False leaves out the
    waiting, for tests that run the ranks one after the other.
    """
    epoch = later(reached(signals, program, rank, PROGRAMS), raised + 1)
    flags = flags_at_peers(signals, bases, program, rank, PROGRAMS, WORLD, LANES)
    meet(signals, flags, program, rank, epoch, PROGRAMS, WORLD, LANES, AMD, WAIT)


@triton.jit
def stores_done(AMD: tl.constexpr):
    """After this, a release by any one thread covers the global stores of all threads of the program.

    NVIDIA: a barrier orders the threads of a block, and a release is cumulative (PTX memory model).  AMD: the barrier
    that Triton emits does not wait for global stores (gfx942 and gfx950, Triton 3.6 to 3.8: `s_barrier` without
    `s_waitcnt vmcnt(0)`), and a release waits for the stores of its own wave only; so every wave drains its own first.
    """
    if AMD:
        tl.inline_asm_elementwise(
            "s_waitcnt vmcnt(0)\n\tv_mov_b32 $0, $1",
            "=v,v,~{memory}",
            [tl.program_id(0)],
            dtype=tl.int32,
            is_pure=False,
            pack=1,
        )
    tl.debug_barrier()


@triton.jit
def loads_done(values, AMD: tl.constexpr):
    """`values`, of 16 or 32 bits, after the loads that made them: nothing that follows waits for these loads again.

    gfx9 counts loads and stores with one counter (vmcnt), in the order of issue.  Where masked stores of loaded values
    follow each other, the compiler does not know how many of them were issued, and has each wait for its value as if
    none was: so it waits for the stores before it.  An empty instruction that takes the values settles them first.
    """
    if AMD:
        PACK: tl.constexpr = 32 // values.dtype.primitive_bitwidth
        values = tl.inline_asm_elementwise("", "=v,0", [values], dtype=values.dtype, is_pure=False, pack=PACK)
    return values
