"""Device functions that collective kernels share, in addition to kernels/_shared/symmetric_device.py."""

from __future__ import annotations

import triton
import triton.language as tl

from kernels._shared.symmetric_device import await_peers, finish, later, raise_flags, reached, translate


@triton.jit
def rank_barrier(
    signals, bases, program, rank,
    PROGRAMS: tl.constexpr, WORLD: tl.constexpr, LANES: tl.constexpr, AMD: tl.constexpr, WAIT: tl.constexpr,
):  # fmt: skip
    """A barrier of the same program of all ranks, after which all threads may read what the peers wrote before it.

    At the start of a kernel it means that the peers' inputs are ready: their kernels start after whatever made them.
    signals: as for finish, int32[WORLD, PROGRAMS] of its own for every barrier of a kernel.
    """
    finish(signals, bases, program, rank, PROGRAMS, WORLD, LANES, AMD, WAIT)
    tl.debug_barrier()  # some threads read the flags, all read the data


@triton.jit
def load_inside(source, inside, EVEN: tl.constexpr, LOAD: tl.constexpr):
    """A block; nothing is read outside.  EVEN: all of it is inside."""
    if EVEN:
        return tl.load(source, cache_modifier=LOAD)
    return tl.load(source, mask=inside, other=0.0, cache_modifier=LOAD)


@triton.jit
def store_inside(target, values, inside, EVEN: tl.constexpr, STORE: tl.constexpr):
    """A block; nothing is written outside.  EVEN: all of it is inside."""
    if EVEN:
        tl.store(target, values, cache_modifier=STORE)
    else:
        tl.store(target, values, mask=inside, cache_modifier=STORE)


@triton.jit
def _added(parts, WORLD: tl.constexpr):
    """fp32 sum in the order of the ranks, so that every run gives the same bits."""
    total = parts[0].to(tl.float32)
    for i in tl.static_range(1, WORLD):
        total += parts[i].to(tl.float32)
    return total


@triton.jit
def summed(sources, at, inside, WORLD: tl.constexpr, EVEN: tl.constexpr, LOAD: tl.constexpr):
    """fp32 sum of sources[i][at] over all ranks i; all loads are issued before the first sum, to be in flight together.

    sources: x of rank 0, 1, 2, ..., from at_heaps.
    """
    parts = (load_inside(tl.multiple_of(sources[0], 16) + at, inside, EVEN, LOAD),)
    for i in tl.static_range(1, WORLD):
        parts = parts + (load_inside(tl.multiple_of(sources[i], 16) + at, inside, EVEN, LOAD),)
    return _added(parts, WORLD)


@triton.jit
def staged_sum(staged, at, count, inside, WORLD: tl.constexpr, EVEN: tl.constexpr, LOAD: tl.constexpr):
    """As summed, over what the ranks have left on this rank: staged[i * count + at]."""
    parts = (load_inside(staged + at, inside, EVEN, LOAD),)
    for i in tl.static_range(1, WORLD):
        parts = parts + (load_inside(staged + i * count + at, inside, EVEN, LOAD),)
    return _added(parts, WORLD)


@triton.jit
def heaps_from(bases, first, WORLD: tl.constexpr, COUNT: tl.constexpr, STEP: tl.constexpr = 1):
    """Bases of the heaps of COUNT ranks: first, first + STEP, first + 2 * STEP, ..., which wrap around at WORLD.

    A rank that starts with itself, or with a step of its own, crowds no link.  They are read once, before any block:
    between stores, gfx942 waits for all stores to peers before it uses what it has loaded (`s_waitcnt vmcnt(0)`), and
    an acquire, as in a wait for peers, discards what is cached close by.
    """
    heaps = (tl.load(bases + first % WORLD),)
    for i in tl.static_range(1, COUNT):
        heaps = heaps + (tl.load(bases + (first + i * STEP) % WORLD),)
    return heaps


@triton.jit
def at_heaps(pointer, here, heaps, COUNT: tl.constexpr):
    """The place of `pointer` in the heaps of COUNT ranks (heaps_from); here: base of this rank's heap."""
    places = (translate(pointer, here, heaps[0]),)
    for i in tl.static_range(1, COUNT):
        places = places + (translate(pointer, here, heaps[i]),)
    return places


@triton.jit
def to_places(values, places, at, inside, COUNT: tl.constexpr, EVEN: tl.constexpr, STORE: tl.constexpr):
    """Store values at places[i] + at for all i < COUNT."""
    for i in tl.static_range(COUNT):
        store_inside(tl.multiple_of(places[i], 16) + at, values, inside, EVEN, STORE)


@triton.jit
def parts_to_peers(x, rows, at, count, inside, rank, WORLD: tl.constexpr, EVEN: tl.constexpr, STORE: tl.constexpr):
    """Store x[q * count + at] in row `rank` of the stage [WORLD, count] of every peer q.

    rows: that row at rank, rank + 1, ..., from at_heaps.  All loads are issued before the first store, to be in flight
    together.
    """
    values = ()
    for i in tl.static_range(1, WORLD):
        values = values + (load_inside(x + ((rank + i) % WORLD).to(tl.int64) * count + at, inside, EVEN, ""),)
    for i in tl.static_range(1, WORLD):
        store_inside(tl.multiple_of(rows[i], 16) + at, values[i - 1], inside, EVEN, STORE)


@triton.jit
def _either(condition, first, second):
    """One of two pointers to 16-byte aligned data, chosen as numbers: on AMD, Triton 3.6 cannot choose pointers."""
    address = tl.where(condition, first.to(tl.int64), second.to(tl.int64))
    return tl.multiple_of(address.to(first.dtype), 16)


@triton.jit
def sum_of_parts(x, stage, at, count, inside, rank, WORLD: tl.constexpr, EVEN: tl.constexpr, LOAD: tl.constexpr):
    """As summed, over part `rank`: its own from x [WORLD, count], the peers' from the stage of parts_to_peers."""
    own = x + rank.to(tl.int64) * count
    parts = (load_inside(_either(rank == 0, own, stage) + at, inside, EVEN, LOAD),)
    for i in tl.static_range(1, WORLD):
        parts = parts + (load_inside(_either(rank == i, own, stage + i * count) + at, inside, EVEN, LOAD),)
    return _added(parts, WORLD)


@triton.jit
def chunk_blocks(chunk, program, count, PROGRAMS: tl.constexpr, BLOCK: tl.constexpr, CHUNK: tl.constexpr):
    """First block of a program's chunk, and the one after its last: CHUNK blocks, fewer at the end of count."""
    first = (program + chunk * PROGRAMS) * CHUNK
    return first, tl.minimum(first + CHUNK, tl.cdiv(count, BLOCK))


@triton.jit
def send_chunk(
    x, rows, flags, start, chunk, program, count, rank,
    PROGRAMS: tl.constexpr, BLOCK: tl.constexpr, CHUNK: tl.constexpr, WORLD: tl.constexpr, LANES: tl.constexpr,
    EVEN: tl.constexpr, STORE: tl.constexpr, AMD: tl.constexpr,
):  # fmt: skip
    """Store this program's chunk of all parts of x to the peers' stages (rows, as for parts_to_peers), and say so.

    The epoch of a program's chunk c is start + c + 1.
    """
    first, last = chunk_blocks(chunk, program, count, PROGRAMS, BLOCK, CHUNK)
    for block in range(first, last):
        at = block * BLOCK + tl.arange(0, BLOCK)
        parts_to_peers(x, rows, at, count, at < count, rank, WORLD, EVEN, STORE)
    raise_flags(flags, rank, later(start, chunk + 1), WORLD, LANES, AMD)


@triton.jit
def await_chunk(
    signals, start, chunk, program, rank,
    PROGRAMS: tl.constexpr, WORLD: tl.constexpr, LANES: tl.constexpr, WAIT: tl.constexpr,
):  # fmt: skip
    """Wait for a chunk of all peers (send_chunk); then all threads may read it from this rank's stage."""
    await_peers(signals, program, rank, later(start, chunk + 1), PROGRAMS, WORLD, LANES, WAIT)
    tl.debug_barrier()  # some threads read the flags, all read the data


@triton.jit
def turn(signals, program, rank, PROGRAMS: tl.constexpr):
    """0 and 1 in turn, call by call: which half of a double buffer this call uses, equal on all ranks.

    Two halves are enough: a peer's call k + 2 starts after it has met this rank's program in call k + 1, and that
    program came after all of call k here.
    """
    return reached(signals, program, rank, PROGRAMS) & 1  # not % 2, which is -1 once the epochs have wrapped around


@triton.jit
def await_start(
    signals, program, rank, epoch,
    PROGRAMS: tl.constexpr, WORLD: tl.constexpr, LANES: tl.constexpr, WAIT: tl.constexpr,
):  # fmt: skip
    """Wait until the same program of all peers has announced this call; then all threads may write to the peers."""
    await_peers(signals, program, rank, epoch, PROGRAMS, WORLD, LANES, WAIT)
    tl.debug_barrier()  # some threads read the flags, all write the data


@triton.jit
def load_block(source, at, block, blocks, words, EVEN: tl.constexpr, LOAD: tl.constexpr):
    """Words source[at] of a block; nothing is read outside, and of a block past the last one nothing at all."""
    if EVEN:
        return tl.load(source + at, mask=block < blocks, cache_modifier=LOAD)
    return tl.load(source + at, mask=at < words, cache_modifier=LOAD)


@triton.jit
def staged_places(own, row, group, here, heaps, COUNT: tl.constexpr, GROUPS: tl.constexpr):
    """Where blocks go whose receivers may not be ready for them: row `rank` of the stages of COUNT receivers.

    row: that of this rank's own stage.  In step 0 of group 0 a rank is its own receiver: that place is `own`.
    """
    places = (own,)
    if GROUPS > 1:
        places = (_either(group == 0, own, translate(row, here, heaps[0])),)
    for i in tl.static_range(1, COUNT):
        places = places + (translate(row, here, heaps[i]),)
    return places


@triton.jit
def take_staged(
    half, out, block, group, rank, words, depth,
    BLOCK: tl.constexpr, WORLD: tl.constexpr, GROUPS: tl.constexpr, EVEN: tl.constexpr, AMD: tl.constexpr,
):  # fmt: skip
    """Copy a block that peers have staged on this rank, half [WORLD, depth], to out [WORLD, words].

    It was sent by the same program of the ranks whose step i, for some i, has this rank as the receiver.  On AMD it is
    read past the caches, which stores of other devices do not update.
    """
    LOAD: tl.constexpr = ".cv" if AMD else ""
    at = block * BLOCK + tl.arange(0, BLOCK)
    FANOUT: tl.constexpr = WORLD // GROUPS
    FIRST: tl.constexpr = 1 if GROUPS == 1 else 0
    parts = ()
    for i in tl.static_range(FIRST, FANOUT):
        sender = (rank + 2 * WORLD - group - i * GROUPS) % WORLD
        inside = (at < words) & (sender != rank)
        parts = parts + (load_inside(half + sender.to(tl.int64) * depth + at, inside, EVEN and i > 0, LOAD),)
    for i in tl.static_range(FIRST, FANOUT):
        sender = (rank + 2 * WORLD - group - i * GROUPS) % WORLD
        inside = (at < words) & (sender != rank)
        store_inside(out + sender.to(tl.int64) * words + at, parts[i - FIRST], inside, EVEN and i > 0, "")
