"""Triton kernels of GEMM + all-scatter: a rank's columns of C = A @ W^T, stored to all ranks as they are computed.

A rank owns the columns [rank * N, (rank + 1) * N) of out [M, WORLD * N]; N is the number of its own columns throughout.
All operands are row-major and contiguous, sums are fp32.

**Why no barrier is needed between calls.**  With MEET a program announces at its start that its rank has begun the
call, and waits for the same program of all peers before it first stores into their outputs, as the all-gather does:
what a rank's stream did with the output of the call before comes before its announcement.
The wait comes after the first product, which hides it.
"""

from __future__ import annotations

import triton
import triton.language as tl

from kernels._shared.collectives.device import at_heaps, await_start, heaps_from, to_places
from kernels._shared.ordering import loads_done, stores_done
from kernels._shared.symmetric_device import announce, finish, flags_at_peers, later, reached, translate
from kernels._shared.tile_product import halves, product, spread, sum_of_slices, tile_at


@triton.jit
def _base(heaps, rank, i: tl.constexpr, WORLD: tl.constexpr, AMD: tl.constexpr):
    """Base of the heap of rank + i.  heaps: on AMD all bases, loaded before the first tile; else a pointer to them.

    AMD keeps them in scalar registers.  On gfx9 one counter counts loads and stores, so to wait for a base between two
    peers would be to wait for the stores to the first of them.  On NVIDIA nothing waits for stores, and every thread
    would hold the bases all the time.
    """
    if AMD:
        found = heaps[i]
    else:
        found = tl.load(heaps + ((rank + i) % WORLD if i else rank))
    return found


@triton.jit
def _scatter(
    tile, out, at, inside, heaps, rank, WORLD: tl.constexpr, PUT: tl.constexpr, ALIGN: tl.constexpr, AMD: tl.constexpr
):
    """Store a tile at out + at on every rank, its own first, then rank + 1, rank + 2, ...: no link is crowded.

    heaps: see _base.

    PUT: the peers get what is read back from this rank's own copy, in the layout that is best for copying, not what
    the matrix unit left in registers.
    """
    here = _base(heaps, rank, 0, WORLD, AMD)
    tl.store(translate(out, here, here, ALIGN) + at, tile, mask=inside)
    if PUT:
        stores_done(AMD)
        tile = tl.load(translate(out, here, here, ALIGN) + at, mask=inside, cache_modifier=".cg")
        tile = loads_done(tile, AMD)
    for i in tl.static_range(1, WORLD):
        there = _base(heaps, rank, i, WORLD, AMD)
        tl.store(translate(out, here, there, ALIGN) + at, tile, mask=inside)


@triton.jit
def _cells(m0, n0, M, N, rank, ROWS: tl.constexpr, COLUMNS: tl.constexpr, WORLD: tl.constexpr):
    """Mask of the part of a block inside this rank's columns, and the block's offsets in out, both [ROWS, COLUMNS]."""
    m, n = m0 + tl.arange(0, ROWS), n0 + tl.arange(0, COLUMNS)
    return (m < M)[:, None] & (n < N)[None, :], m[:, None] * (WORLD * N) + (rank * N + n)[None, :]


@triton.jit
def _scatter_halves(
    slices, row, col, out, heaps, M, N, rank,
    BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr, SPLIT_K: tl.constexpr, WORLD: tl.constexpr, PUT: tl.constexpr,
    ALIGN: tl.constexpr, AMD: tl.constexpr,
):  # fmt: skip
    """Add up and store a large tile, one half after the other: the sums and addresses of the whole tile do not fit
    in registers together.  slices: fp32 [SPLIT_K, BLOCK_M * BLOCK_N]."""
    HALF: tl.constexpr = BLOCK_N // 2
    for left in tl.static_range(0, BLOCK_N, HALF):
        cell = tl.arange(0, BLOCK_M)[:, None] * BLOCK_N + (left + tl.arange(0, HALF))[None, :]
        total = sum_of_slices(slices + cell, BLOCK_M, HALF, SPLIT_K, BLOCK_M * BLOCK_N)
        inside, at = _cells(row * BLOCK_M, col * BLOCK_N + left, M, N, rank, BLOCK_M, HALF, WORLD)
        _scatter(total.to(out.dtype.element_ty), out, at, inside, heaps, rank, WORLD, PUT, ALIGN, AMD)


@triton.jit
def _begun(
    signals, bases, program, rank,
    PROGRAMS: tl.constexpr, WORLD: tl.constexpr, LANES: tl.constexpr, MEET: tl.constexpr,
):  # fmt: skip
    """Announce the call, with MEET; the epoch at which the peers have announced theirs.  signals: as for finish."""
    epoch = 0
    if MEET:
        epoch = later(reached(signals, program, rank, PROGRAMS), 1)
        flags = flags_at_peers(signals, bases, program, rank, PROGRAMS, WORLD, LANES)
        announce(flags, rank, epoch, WORLD, LANES)
    return epoch


@triton.jit
def _tiles(
    a, w, out, heaps, workspace, arrivals, signals, program, epoch, M, N, K, rank, start, before, tiles,
    BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr, BLOCK_K: tl.constexpr, GROUP_M: tl.constexpr, SPLIT_K: tl.constexpr,
    PROGRAMS: tl.constexpr, TMA: tl.constexpr, SWAP: tl.constexpr, EVEN_K: tl.constexpr, WORLD: tl.constexpr,
    LANES: tl.constexpr, PUT: tl.constexpr, ALIGN: tl.constexpr, AMD: tl.constexpr, MEET: tl.constexpr,
    WAIT: tl.constexpr,
):  # fmt: skip
    """This program's share of `tiles` tiles, those after the first `before`, each in SPLIT_K slices of K.

    With SPLIT_K > 1 every slice writes its fp32 partial sums to workspace[tile, slice, BLOCK_M * BLOCK_N]; the slice
    that arrives last at arrivals[tile] adds them in the order of the slices and stores the tile to all ranks, so the
    result does not depend on which was last; it sets the counter back to 0, so nothing has to be cleared between calls.
    No slice waits for another, so programs need not be resident together.
    epoch: of _begun; with MEET, the peers' `program` is waited for by who stores to them: after the first whole tile's
    product, and by a slice that is the last of its tile.
    """
    rows, cols, steps = tl.cdiv(M, BLOCK_M), tl.cdiv(N, BLOCK_N), tl.cdiv(K, BLOCK_K)
    per_slice = tl.cdiv(steps, SPLIT_K)
    stored = start - PROGRAMS
    for item in tl.range(start, tiles * SPLIT_K, PROGRAMS):
        row, col = tile_at(before + item % tiles, rows, cols, GROUP_M)
        first = (item // tiles) * per_slice
        acc = product(
            a, w, row, col, first, tl.minimum(first + per_slice, steps), M, N, K, BLOCK_M, BLOCK_N, BLOCK_K, TMA,
            SWAP, EVEN_K,
        )  # fmt: skip
        if SWAP:
            acc = acc.T
        stored += PROGRAMS  # counted apart from `item`, so that the epilogue does not hold the prefetching back
        row, col = tile_at(before + stored % tiles, rows, cols, GROUP_M)
        inside, at = _cells(row * BLOCK_M, col * BLOCK_N, M, N, rank, BLOCK_M, BLOCK_N, WORLD)
        if SPLIT_K == 1:
            if MEET:  # noqa: SIM102  # a constant of the compiler, then a value of the kernel
                if stored == start:
                    await_start(signals, program, rank, epoch, PROGRAMS, WORLD, LANES, WAIT)
            _scatter(acc.to(out.dtype.element_ty), out, at, inside, heaps, rank, WORLD, PUT, ALIGN, AMD)
        else:
            cell = tl.arange(0, BLOCK_M)[:, None] * BLOCK_N + tl.arange(0, BLOCK_N)[None, :]
            tile, part = stored % tiles, stored // tiles
            slices = workspace + tile * (SPLIT_K * BLOCK_M * BLOCK_N)
            sums = slices + cell
            tl.store(sums + part * (BLOCK_M * BLOCK_N), acc, cache_modifier=".cg")
            stores_done(AMD)
            arrived = tl.atomic_add(arrivals + tile, 1, sem="acq_rel", scope="gpu")
            if arrived == SPLIT_K - 1:
                if MEET:
                    await_start(signals, program, rank, epoch, PROGRAMS, WORLD, LANES, WAIT)
                if BLOCK_M * BLOCK_N <= 128 * 128:
                    total = sum_of_slices(sums, BLOCK_M, BLOCK_N, SPLIT_K, BLOCK_M * BLOCK_N)
                    _scatter(total.to(out.dtype.element_ty), out, at, inside, heaps, rank, WORLD, PUT, ALIGN, AMD)
                else:
                    _scatter_halves(
                        slices, row, col, out, heaps, M, N, rank, BLOCK_M, BLOCK_N, SPLIT_K, WORLD, PUT, ALIGN, AMD
                    )
                tl.store(arrivals + tile, 0)


@triton.jit(do_not_specialize=["rank"])
def fused(
    a, w, out, bases, signals, workspace, arrivals, M, N, K, rank,
    BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr, BLOCK_K: tl.constexpr, GROUP_M: tl.constexpr, SPLIT_K: tl.constexpr,
    REST: tl.constexpr, PROGRAMS: tl.constexpr, XCDS: tl.constexpr, TMA: tl.constexpr, SWAP: tl.constexpr,
    EVEN_K: tl.constexpr, WORLD: tl.constexpr, LANES: tl.constexpr, PUT: tl.constexpr, ALIGN: tl.constexpr,
    AMD: tl.constexpr, MEET: tl.constexpr, WAIT: tl.constexpr,
):  # fmt: skip
    """PROGRAMS programs walk over all (tile, K slice) pairs; a and w are pointers, or descriptors when TMA.

    SWAP multiplies the transposed tile, with the weights as rows of the matrix unit (64 on Hopper): for few tokens.
    REST cuts only the tiles left over by the whole rounds of PROGRAMS tiles, so no program idles in the last round.
    Their slices come first: then programs finish whole tiles at different times, and the stores of some to the peers
    overlap the multiplication of others, instead of all crowding the links at once.
    workspace and arrivals: room for the tiles that are cut.
    """
    pid = tl.program_id(0)
    tiles = tl.cdiv(M, BLOCK_M) * tl.cdiv(N, BLOCK_N)
    start = spread(pid, PROGRAMS, XCDS)
    whole = tiles - tiles % PROGRAMS if REST else 0
    epoch = _begun(signals, bases, pid, rank, PROGRAMS, WORLD, LANES, MEET)
    heaps = heaps_from(bases, rank, WORLD, WORLD) if AMD else bases
    _tiles(
        a, w, out, heaps, workspace, arrivals, signals, pid, epoch, M, N, K, rank, start, whole, tiles - whole,
        BLOCK_M, BLOCK_N, BLOCK_K, GROUP_M, SPLIT_K, PROGRAMS, TMA, SWAP, EVEN_K, WORLD, LANES, PUT, ALIGN, AMD, MEET,
        WAIT,
    )  # fmt: skip
    if REST:
        _tiles(
            a, w, out, heaps, workspace, arrivals, signals, pid, epoch, M, N, K, rank, start, 0, whole, BLOCK_M,
            BLOCK_N, BLOCK_K, GROUP_M, 1, PROGRAMS, TMA, SWAP, EVEN_K, WORLD, LANES, PUT, ALIGN, AMD, MEET, WAIT,
        )  # fmt: skip
    finish(signals, bases, pid, rank, PROGRAMS, WORLD, LANES, AMD, WAIT, 1 if MEET else 0)


@triton.jit
def _copies_done(value):
    """Wait until the copy engine has written all that this thread gave it; a release then covers those writes too.

    Triton waits only until the engine has read its source.  The fence orders what the engine (the async proxy) wrote
    before what follows (PTX memory model); `value` is passed through, to tie the instruction to its place.
    """
    return tl.inline_asm_elementwise(
        "cp.async.bulk.wait_group 0;\n\tfence.proxy.async;\n\tmov.b32 $0, $1;",
        "=r,r",
        [value],
        dtype=tl.int32,
        is_pure=False,
        pack=1,
    )


@triton.jit
def _copy_to_all(
    c0, c1, c2, c3, c4, c5, c6, c7, m, n, part, WORLD: tl.constexpr, WIDTH: tl.constexpr, PARTS: tl.constexpr
):
    """Give a tile to the copy engine, once for each rank, in 1, 2 or 4 column parts of WIDTH: less shared memory."""
    if PARTS == 1:
        tile = part.to(c0.dtype)
        c0.store([m, n], tile)
        if WORLD > 1:
            c1.store([m, n], tile)
        if WORLD > 2:
            c2.store([m, n], tile)
            c3.store([m, n], tile)
        if WORLD > 4:
            c4.store([m, n], tile)
            c5.store([m, n], tile)
            c6.store([m, n], tile)
            c7.store([m, n], tile)
    else:
        left, right = halves(part)
        _copy_to_all(c0, c1, c2, c3, c4, c5, c6, c7, m, n, left, WORLD, WIDTH, PARTS // 2)
        _copy_to_all(c0, c1, c2, c3, c4, c5, c6, c7, m, n + WIDTH * (PARTS // 2), right, WORLD, WIDTH, PARTS // 2)


@triton.jit(do_not_specialize=["rank"])
def fused_tma(
    a, w, c0, c1, c2, c3, c4, c5, c6, c7, bases, signals, M, N, K, rank,
    BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr, BLOCK_K: tl.constexpr, GROUP_M: tl.constexpr,
    PROGRAMS: tl.constexpr, PARTS: tl.constexpr, FLATTEN: tl.constexpr, WORLD: tl.constexpr, LANES: tl.constexpr,
    ENGINE: tl.constexpr, MEET: tl.constexpr, WAIT: tl.constexpr,
):  # fmt: skip
    """fused without slices of K, where the copy engine (TMA) also writes: c0, c1, ... are descriptors of this rank's
    columns in the output of rank, rank + 1, ..., blocks [BLOCK_M, BLOCK_N / PARTS]; those past WORLD are not used.

    ENGINE is False in the interpreter, where a copy is done when it returns.  With MEET the peers are waited for before
    the first product: a flattened loop has no place for it, and these calls are long.
    """
    pid = tl.program_id(0)
    epoch = _begun(signals, bases, pid, rank, PROGRAMS, WORLD, LANES, MEET)
    if MEET:
        await_start(signals, pid, rank, epoch, PROGRAMS, WORLD, LANES, WAIT)
    rows, cols, steps = tl.cdiv(M, BLOCK_M), tl.cdiv(N, BLOCK_N), tl.cdiv(K, BLOCK_K)
    stored = pid - PROGRAMS
    for item in tl.range(pid, rows * cols, PROGRAMS, flatten=FLATTEN):
        row, col = tile_at(item, rows, cols, GROUP_M)
        acc = product(a, w, row, col, 0, steps, M, N, K, BLOCK_M, BLOCK_N, BLOCK_K, True, False, True)
        stored += PROGRAMS  # as in _tiles
        row, col = tile_at(stored, rows, cols, GROUP_M)
        _copy_to_all(c0, c1, c2, c3, c4, c5, c6, c7, row * BLOCK_M, col * BLOCK_N, acc, WORLD, BLOCK_N // PARTS, PARTS)
    if ENGINE:
        pid = _copies_done(pid)
    finish(signals, bases, pid, rank, PROGRAMS, WORLD, LANES, False, WAIT, 1 if MEET else 0)


@triton.jit(do_not_specialize=["rank"])
def scatter(
    c, out, bases, signals, words, rank,
    ROW: tl.constexpr, PROGRAMS: tl.constexpr, BLOCK: tl.constexpr, WORLD: tl.constexpr, LANES: tl.constexpr,
    AMD: tl.constexpr, WAIT: tl.constexpr,
):  # fmt: skip
    """Second half of the bulk-synchronous variant: c, M rows of ROW words, into this rank's columns on every rank.

    A word is 4 bytes, words = M * ROW; ROW is a multiple of 4, so a lane moves 16 bytes at a time.
    """
    program = tl.program_id(0)
    heaps = heaps_from(bases, rank, WORLD, WORLD)
    places = at_heaps(out, heaps[0], heaps, WORLD)
    for block in range(program, tl.cdiv(words, BLOCK), PROGRAMS):
        at = block * BLOCK + tl.arange(0, BLOCK)
        values = loads_done(tl.load(c + at, mask=at < words), AMD)
        to = at // ROW * (WORLD * ROW) + at % ROW + rank * ROW
        to_places(values, places, to, at < words, WORLD, False, "")
    finish(signals, bases, program, rank, PROGRAMS, WORLD, LANES, AMD, WAIT)
