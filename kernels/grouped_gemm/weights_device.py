"""Triton kernels of a grouped product over weights (wgrad): out[g, n, k] = sum over rows m of g of dy[m, n] * a[m, k].

Zeros for a group without rows.  Both kernels take dy [rows, n_size], a [rows, k_size], out [GROUPS, n_size, k_size],
last dimensions contiguous, and ends int32 [GROUPS], the inclusive running sum of the group sizes.  A tile is BLOCK_M
values of n by BLOCK_N of k, summed over BLOCK_K rows at a time.  The tiles of the largest group come first, so that
the last ones are short; they are dealt to the programs round robin.

The rows after the last of a group belong to the next one and must not count: ragged descriptors end where the group
ends and read zeros beyond; pointers mask, and only in the step that needs it.
"""

from __future__ import annotations

import triton
import triton.language as tl

from kernels._shared.tile_product import halves, spread, tile_at
from kernels.grouped_gemm.device import bounds, load_rows


@triton.jit
def _pointer_tile(
    dy_ptr, a_ptr, out_ptr, group, start, end, n0, k0, n_size, k_size, stride_dy, stride_a, stride_out_group,
    stride_out,
    BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr, BLOCK_K: tl.constexpr,
):  # fmt: skip
    """One whole tile through pointers."""
    ns = n0 + tl.arange(0, BLOCK_M)
    ks = k0 + tl.arange(0, BLOCK_N)
    ms = tl.arange(0, BLOCK_K)
    last = start + (end - start) // BLOCK_K * BLOCK_K
    dy_at = dy_ptr + start.to(tl.int64) * stride_dy + (ms[None, :] * stride_dy + ns[:, None])
    a_at = a_ptr + start.to(tl.int64) * stride_a + (ms[:, None] * stride_a + ks[None, :])
    n_in = (ns < n_size)[:, None]
    k_in = (ks < k_size)[None, :]
    acc = tl.zeros((BLOCK_M, BLOCK_N), tl.float32)
    for _ in tl.range(start, last, BLOCK_K):
        acc = tl.dot(tl.load(dy_at, mask=n_in, other=0.0), tl.load(a_at, mask=k_in, other=0.0), acc)
        dy_at += BLOCK_K * stride_dy
        a_at += BLOCK_K * stride_a
    if last < end:
        m_in = ms < end - last
        dy = tl.load(dy_at, mask=n_in & m_in[None, :], other=0.0)
        a = tl.load(a_at, mask=k_in & m_in[:, None], other=0.0)
        acc = tl.dot(dy, a, acc)
    at = out_ptr + tl.cast(group, tl.int64) * stride_out_group + (ns[:, None] * stride_out + ks[None, :])
    tl.store(at, acc.to(out_ptr.dtype.element_ty), mask=n_in & k_in)


@triton.jit
def _lens(ends_ptr, ids, GROUPS: tl.constexpr):
    """Group sizes; -1 beyond the last group."""
    starts, ends = bounds(ends_ptr, ids, GROUPS)
    return tl.where(ids < GROUPS, ends - starts, -1)


@triton.jit
def _places(ends_ptr, GROUPS: tl.constexpr, GROUPS_POW2: tl.constexpr):
    """The place of each group in the order of descending size."""
    ids = tl.arange(0, GROUPS_POW2)
    own, other = _lens(ends_ptr, ids, GROUPS)[None, :], _lens(ends_ptr, ids[:, None], GROUPS)
    before = (other > own) | ((other == own) & (ids[:, None] < ids[None, :]))
    return tl.sum(before.to(tl.int32), 0)


@triton.jit
def weights_kernel(
    dy_ptr, a_ptr, out_ptr, ends_ptr, queue, n_size, k_size, stride_dy, stride_a, stride_out_group, stride_out,
    GROUPS: tl.constexpr, GROUPS_POW2: tl.constexpr, BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr,
    BLOCK_K: tl.constexpr, GROUP_M: tl.constexpr, PROGRAMS: tl.constexpr, XCDS: tl.constexpr, QUEUE: tl.constexpr,
):  # fmt: skip
    """Through pointers, for every GPU and every stride.  With QUEUE each tile goes to whichever program is free.

    queue int32 [2], zero at first: tiles taken after the first PROGRAMS ones, and programs that are done; the last one
    to be done sets both back, so that a captured graph can be replayed.
    """
    tiles_n = tl.cdiv(n_size, BLOCK_M)
    tiles_k = tl.cdiv(k_size, BLOCK_N)
    per_group = tiles_n * tiles_k
    ids = tl.arange(0, GROUPS_POW2)
    places = _places(ends_ptr, GROUPS, GROUPS_POW2)
    tile = spread(tl.program_id(0), PROGRAMS, XCDS)
    for place in range(GROUPS):
        group = tl.sum(tl.where(places == place, ids, 0), 0)
        end = tl.load(ends_ptr + group)
        start = tl.load(ends_ptr + group - 1, mask=group > 0, other=0)
        last = (place + 1) * per_group
        while tile < last:
            if QUEUE:
                following = PROGRAMS + tl.atomic_add(queue, 1, sem="relaxed")
            else:
                following = tile + PROGRAMS
            tile_n, tile_k = tile_at(tile - place * per_group, tiles_n, tiles_k, GROUP_M)
            _pointer_tile(
                dy_ptr, a_ptr, out_ptr, group, start, end, tile_n * BLOCK_M, tile_k * BLOCK_N, n_size, k_size,
                stride_dy, stride_a, stride_out_group, stride_out, BLOCK_M, BLOCK_N, BLOCK_K,
            )  # fmt: skip
            tile = following
    if QUEUE and tl.atomic_add(queue + 1, 1, sem="acq_rel") == PROGRAMS - 1:
        tl.store(queue, 0)
        tl.store(queue + 1, 0)


@triton.jit
def _group_at(place, places, starts, ends, ids):
    """(group, its first row, its end) at a place of the order."""
    chosen = places == place
    return (
        tl.sum(tl.where(chosen, ids, 0), 0),
        tl.sum(tl.where(chosen, starts, 0), 0),
        tl.sum(tl.where(chosen, ends, 0), 0),
    )


@triton.jit
def _dealt(tiles, program, PROGRAMS: tl.constexpr):
    """How many of the first tiles are this program's, if they are dealt in turn."""
    return (tiles + PROGRAMS - 1 - program) // PROGRAMS


@triton.jit
def weights_tma_kernel(
    dy_desc, a_desc, out_desc, ends_ptr, n_size, k_size,
    GROUPS: tl.constexpr, GROUPS_POW2: tl.constexpr, BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr,
    BLOCK_K: tl.constexpr, GROUP_M: tl.constexpr, PROGRAMS: tl.constexpr,
):  # fmt: skip
    """Through descriptors (TMA), in one loop over the steps of all tiles of a program, whatever groups they belong to.

    So the loads of the next tile are on their way while the last steps of this one are multiplied: 3 to 13 % faster
    than a loop for each tile (H200, 10 cases, 2026-11).  Triton flattens two loops only if the inner one is equally
    long each time; here its length is the size of the group.

    Blocks of the descriptors: dy [BLOCK_K, BLOCK_M] and a [BLOCK_K, BLOCK_N], both ragged: they end where the group
    ends; out [1, BLOCK_M, BLOCK_N / 2]: halves need less shared memory.
    """
    HALF: tl.constexpr = BLOCK_N // 2
    program = tl.program_id(0)
    tiles_n = tl.cdiv(n_size, BLOCK_M)
    tiles_k = tl.cdiv(k_size, BLOCK_N)
    per_group = tiles_n * tiles_k
    ids = tl.arange(0, GROUPS_POW2)
    starts, ends = bounds(ends_ptr, ids, GROUPS)
    places = _places(ends_ptr, GROUPS, GROUPS_POW2)
    steps = tl.where(ids < GROUPS, tl.maximum(tl.cdiv(ends - starts, BLOCK_K), 1), 0)  # zeros are written in one
    mine = _dealt((places + 1) * per_group, program, PROGRAMS) - _dealt(places * per_group, program, PROGRAMS)

    tile = program - PROGRAMS
    group, start, end, n0, k0 = program, program, program, program, program  # of the tile; set in its first step
    step, last_step = program * 0, program * 0
    acc = tl.zeros((BLOCK_M, BLOCK_N), tl.float32)
    for _ in tl.range(0, tl.sum(mine * steps, 0)):
        step = tl.where(step == last_step, 0, step + 1)
        if step == 0:
            tile += PROGRAMS
            group, start, end = _group_at(tile // per_group, places, starts, ends, ids)
            last_step = tl.maximum(tl.cdiv(end - start, BLOCK_K), 1) - 1
            tile_n, tile_k = tile_at(tile % per_group, tiles_n, tiles_k, GROUP_M)
            n0, k0 = tile_n * BLOCK_M, tile_k * BLOCK_N
        row = start + step * BLOCK_K
        dy = load_rows(dy_desc, start, end, row, n0, BLOCK_K, BLOCK_M)
        acc = tl.dot(dy.T, load_rows(a_desc, start, end, row, k0, BLOCK_K, BLOCK_N), acc)
        if step == last_step:
            left, right = halves(acc)
            out_desc.store([group, n0, k0], left.to(out_desc.dtype).reshape(1, BLOCK_M, HALF))
            out_desc.store([group, n0, k0 + HALF], right.to(out_desc.dtype).reshape(1, BLOCK_M, HALF))
            acc = tl.zeros((BLOCK_M, BLOCK_N), tl.float32)
