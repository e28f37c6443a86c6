"""Triton kernels of the GEMM: C[M, N] = A[M, K] @ W[N, K]^T, all row-major and contiguous, fp32 accumulation."""

from __future__ import annotations

import triton
import triton.language as tl

from kernels._shared.ordering import stores_done
from kernels._shared.tile_product import halves, product, spread, sum_of_slices, tile_at


@triton.jit
def _put_parts(c, m, n, part, WIDTH: tl.constexpr, PARTS: tl.constexpr):
    """Store an accumulator in 1, 2 or 4 column parts of WIDTH: less shared memory is needed to store through TMA."""
    if PARTS == 1:
        c.store([m, n], part.to(c.dtype))
    else:
        left, right = halves(part)
        _put_parts(c, m, n, left, WIDTH, PARTS // 2)
        _put_parts(c, m, n + WIDTH * (PARTS // 2), right, WIDTH, PARTS // 2)


@triton.jit
def persistent_tma(
    a, w, c, M, N, K,
    PROGRAMS: tl.constexpr, BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr, BLOCK_K: tl.constexpr,
    GROUP_M: tl.constexpr, PARTS: tl.constexpr, FLATTEN: tl.constexpr,
):  # fmt: skip
    """PROGRAMS programs walk over all tiles; a, w, c are tensor descriptors, so the copy engine moves the tiles.

    Blocks of the descriptors: a [BLOCK_M, BLOCK_K], w [BLOCK_N, BLOCK_K], c [BLOCK_M, BLOCK_N / PARTS]; reads outside
    are zero and writes outside are dropped, so no dimension has to be a multiple of its block.  PARTS = 0: c is a
    pointer, and the tile leaves through registers.
    FLATTEN makes one loop of tiles and K steps: the loads of the next tile start during the last steps of this one.
    """
    rows, cols, steps = tl.cdiv(M, BLOCK_M), tl.cdiv(N, BLOCK_N), tl.cdiv(K, BLOCK_K)
    stored = tl.program_id(0) - PROGRAMS
    for tile in tl.range(tl.program_id(0), rows * cols, PROGRAMS, flatten=FLATTEN):
        row, col = tile_at(tile, rows, cols, GROUP_M)
        acc = product(a, w, row, col, 0, steps, M, N, K, BLOCK_M, BLOCK_N, BLOCK_K, True, False, True)
        stored += PROGRAMS  # counted apart from `tile`, so that the epilogue does not hold the prefetching back
        row, col = tile_at(stored, rows, cols, GROUP_M)
        if PARTS == 0:
            m, n = row * BLOCK_M + tl.arange(0, BLOCK_M), col * BLOCK_N + tl.arange(0, BLOCK_N)
            at = c + m[:, None] * N + n[None, :]
            tl.store(at, acc.to(c.dtype.element_ty), mask=(m < M)[:, None] & (n < N)[None, :])
        else:
            _put_parts(c, row * BLOCK_M, col * BLOCK_N, acc, BLOCK_N // PARTS, PARTS)


@triton.jit
def split(
    a, w, c, workspace, arrivals, M, N, K,
    BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr, BLOCK_K: tl.constexpr, GROUP_M: tl.constexpr, SPLIT_K: tl.constexpr,
    XCDS: tl.constexpr, TMA: tl.constexpr, SWAP: tl.constexpr, EVEN_K: tl.constexpr, AMD: tl.constexpr,
):  # fmt: skip
    """One program per tile and K slice.  c is a pointer; a and w are pointers, or descriptors when TMA.

    With SPLIT_K > 1 every slice writes its fp32 partial sums to workspace[tile, slice, BLOCK_M * BLOCK_N]; the slice
    that arrives last at arrivals[tile] adds them in the order of the slices, so the result does not depend on which
    was last, and sets the counter back to 0: nothing has to be cleared between calls or graph replays.
    SWAP computes the transposed tile, with the weights as rows of the matrix unit (64 rows on Hopper): for few rows
    of A.  EVEN_K says that K is a multiple of BLOCK_K, so that pointer loads need no mask.
    """
    rows, cols = tl.cdiv(M, BLOCK_M), tl.cdiv(N, BLOCK_N)
    tiles = rows * cols
    pid = spread(tl.program_id(0), tiles * SPLIT_K, XCDS)
    tile, part = pid % tiles, pid // tiles
    row, col = tile_at(tile, rows, cols, GROUP_M)
    per_slice = tl.cdiv(tl.cdiv(K, BLOCK_K), SPLIT_K)
    first, last = part * per_slice, tl.minimum((part + 1) * per_slice, tl.cdiv(K, BLOCK_K))
    m, n = row * BLOCK_M + tl.arange(0, BLOCK_M), col * BLOCK_N + tl.arange(0, BLOCK_N)
    acc = product(a, w, row, col, first, last, M, N, K, BLOCK_M, BLOCK_N, BLOCK_K, TMA, SWAP, EVEN_K)
    if SWAP:
        acc = acc.T
    inside = (m < M)[:, None] & (n < N)[None, :]
    at = c + m[:, None] * N + n[None, :]
    if SPLIT_K == 1:
        tl.store(at, acc.to(c.dtype.element_ty), mask=inside)
    else:
        cell = tl.arange(0, BLOCK_M)[:, None] * BLOCK_N + tl.arange(0, BLOCK_N)[None, :]
        sums = workspace + tile * (SPLIT_K * BLOCK_M * BLOCK_N) + cell
        tl.store(sums + part * (BLOCK_M * BLOCK_N), acc, cache_modifier=".cg")
        stores_done(AMD)
        arrived = tl.atomic_add(arrivals + tile, 1, sem="acq_rel", scope="gpu")
        if arrived == SPLIT_K - 1:
            total = sum_of_slices(sums, BLOCK_M, BLOCK_N, SPLIT_K, BLOCK_M * BLOCK_N)
            tl.store(at, total.to(c.dtype.element_ty), mask=inside)
            tl.store(arrivals + tile, 0)


@triton.jit
def vector(a, w, c, N, K, BLOCK_N: tl.constexpr, BLOCK_K: tl.constexpr, EVEN_K: tl.constexpr):
    """M = 1: each program reads BLOCK_N rows of weights once, straight into registers; no matrix unit, no sharing."""
    n = tl.program_id(0) * BLOCK_N + tl.arange(0, BLOCK_N)
    k = tl.arange(0, BLOCK_K)
    at = w + (n % N)[:, None] * K + k[None, :]
    acc = tl.zeros((BLOCK_N, BLOCK_K), dtype=tl.float32)
    for step in range(0, K, BLOCK_K):
        if EVEN_K:
            x, y = tl.load(a + step + k), tl.load(at + step, eviction_policy="evict_first")
        else:
            inside = step + k < K
            x, y = tl.load(a + step + k, mask=inside, other=0.0), tl.load(at + step, mask=inside[None, :], other=0.0)
        acc += x.to(tl.float32)[None, :] * y.to(tl.float32)
    tl.store(c + n, tl.sum(acc, axis=1).to(c.dtype.element_ty), mask=n < N)
