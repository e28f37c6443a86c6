"""Triton kernels of a grouped product over weights (wgrad): out[g, n, k] = sum over rows m of g of dy[m, n] * a[m, k].

Zeros for a group without rows.  Both kernels take dy [rows, n_size], a [rows, k_size], out [GROUPS, n_size, k_size],
last dimensions contiguous, and ends int32 [GROUPS], the inclusive running sum of the group sizes.  A tile is BLOCK_M
values of n by BLOCK_N of k, summed over BLOCK_K rows at a time.

The rows after the last of a group belong to the next one and must not count: descriptors are made for each group and
end with it, so that they read zeros beyond; pointers mask, and only in the step that needs it.
"""

from __future__ import annotations

import triton
import triton.language as tl

from kernels.grouped_gemm.tiles import halves
from kernels.tile_order import spread, tile_at


@triton.jit
def _store(acc, out_desc, group, n0, k0, KIND: tl.constexpr, BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr,
           SUBTILE: tl.constexpr):
    """One tile through the descriptor, in one part or two."""
    if SUBTILE == 2:
        left, right = halves(acc, BLOCK_M, BLOCK_N)
        out_desc.store([group, n0, k0], left.to(KIND).reshape(1, BLOCK_M, BLOCK_N // 2))
        out_desc.store([group, n0, k0 + BLOCK_N // 2], right.to(KIND).reshape(1, BLOCK_M, BLOCK_N // 2))
    else:
        out_desc.store([group, n0, k0], acc.to(KIND).reshape(1, BLOCK_M, BLOCK_N))


@triton.jit
def _pointer_tile(dy_ptr, a_ptr, out_ptr, group, start, end, n0, k0, n_size, k_size, stride_dy, stride_a,
                  stride_out_group, stride_out, BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr, BLOCK_K: tl.constexpr):
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
    ends = tl.load(ends_ptr + ids, mask=ids < GROUPS, other=0)
    starts = tl.load(ends_ptr + ids - 1, mask=(ids > 0) & (ids < GROUPS), other=0)
    return tl.where(ids < GROUPS, ends - starts, -1)


@triton.jit
def _places(ends_ptr, GROUPS: tl.constexpr, GROUPS_POW2: tl.constexpr):
    """The place of each group in the order of descending size."""
    ids = tl.arange(0, GROUPS_POW2)
    own, other = _lens(ends_ptr, ids, GROUPS)[None, :], _lens(ends_ptr, ids[:, None], GROUPS)
    before = (other > own) | ((other == own) & (ids[:, None] < ids[None, :]))
    return tl.sum(before.to(tl.int32), 0)


@triton.jit
def weights_kernel(dy_ptr, a_ptr, out_ptr, ends_ptr, queue, rows, n_size, k_size, stride_dy, stride_a,
                   stride_out_group, stride_out, GROUPS: tl.constexpr, GROUPS_POW2: tl.constexpr,
                   BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr, BLOCK_K: tl.constexpr, GROUP_M: tl.constexpr,
                   PROGRAMS: tl.constexpr, XCDS: tl.constexpr, TMA: tl.constexpr, SUBTILE: tl.constexpr,
                   QUEUE: tl.constexpr):
    """The tiles of the largest group first; with QUEUE each goes to whichever program is free, else they are dealt.

    queue int32 [2], zero at first: tiles taken after the first PROGRAMS ones, and programs that are done; the last one
    to be done sets both back, so that a captured graph can be replayed.
    """
    tiles_n = tl.cdiv(n_size, BLOCK_M)
    tiles_k = tl.cdiv(k_size, BLOCK_N)
    per_group = tiles_n * tiles_k
    ids = tl.arange(0, GROUPS_POW2)
    places = _places(ends_ptr, GROUPS, GROUPS_POW2)
    if TMA:
        out_desc = tl.make_tensor_descriptor(out_ptr, [GROUPS, n_size, k_size], [stride_out_group, stride_out, 1],
                                             [1, BLOCK_M, BLOCK_N // SUBTILE])
    tile = spread(tl.program_id(0), PROGRAMS, XCDS)
    for place in range(GROUPS):
        group = tl.sum(tl.where(places == place, ids, 0), 0)
        end = tl.load(ends_ptr + group)
        start = tl.load(ends_ptr + group - 1, mask=group > 0, other=0)
        last = (place + 1) * per_group
        if tile < last:
            if TMA:
                bound = tl.maximum(end, 1)
                dy_desc = tl.make_tensor_descriptor(dy_ptr, [bound, n_size], [stride_dy, 1], [BLOCK_K, BLOCK_M])
                a_desc = tl.make_tensor_descriptor(a_ptr, [bound, k_size], [stride_a, 1], [BLOCK_K, BLOCK_N])
            while tile < last:
                if QUEUE:
                    following = PROGRAMS + tl.atomic_add(queue, 1, sem="relaxed")
                else:
                    following = tile + PROGRAMS
                tile_n, tile_k = tile_at(tile - place * per_group, tiles_n, tiles_k, GROUP_M)
                n0 = tile_n * BLOCK_M
                k0 = tile_k * BLOCK_N
                if TMA:
                    acc = tl.zeros((BLOCK_M, BLOCK_N), tl.float32)
                    for m0 in tl.range(start, end, BLOCK_K):
                        acc = tl.dot(dy_desc.load([m0, n0]).T, a_desc.load([m0, k0]), acc)
                    _store(acc, out_desc, group, n0, k0, out_ptr.dtype.element_ty, BLOCK_M, BLOCK_N, SUBTILE)
                else:
                    _pointer_tile(dy_ptr, a_ptr, out_ptr, group, start, end, n0, k0, n_size, k_size, stride_dy,
                                  stride_a, stride_out_group, stride_out, BLOCK_M, BLOCK_N, BLOCK_K)
                tile = following
    if QUEUE and tl.atomic_add(queue + 1, 1, sem="acq_rel") == PROGRAMS - 1:
        tl.store(queue, 0)
        tl.store(queue + 1, 0)


@triton.jit
def weights_flat_kernel(dy_ptr, a_ptr, out_ptr, ends_ptr, rows, n_size, k_size, stride_dy, stride_a,
                        stride_out_group, stride_out, GROUPS: tl.constexpr, BLOCK_M: tl.constexpr,
                        BLOCK_N: tl.constexpr, BLOCK_K: tl.constexpr, GROUP_M: tl.constexpr, PROGRAMS: tl.constexpr,
                        SUBTILE: tl.constexpr):
    """Through descriptors, tiles dealt in turn, all tiles of a group in one loop: no gap between one and the next."""
    tiles_n = tl.cdiv(n_size, BLOCK_M)
    tiles_k = tl.cdiv(k_size, BLOCK_N)
    per_group = tiles_n * tiles_k
    KIND: tl.constexpr = out_ptr.dtype.element_ty
    out_desc = tl.make_tensor_descriptor(out_ptr, [GROUPS, n_size, k_size], [stride_out_group, stride_out, 1],
                                         [1, BLOCK_M, BLOCK_N // SUBTILE])
    for group in range(GROUPS):
        end = tl.load(ends_ptr + group)
        start = tl.load(ends_ptr + group - 1, mask=group > 0, other=0)
        bound = tl.maximum(end, 1)
        dy_desc = tl.make_tensor_descriptor(dy_ptr, [bound, n_size], [stride_dy, 1], [BLOCK_K, BLOCK_M])
        a_desc = tl.make_tensor_descriptor(a_ptr, [bound, k_size], [stride_a, 1], [BLOCK_K, BLOCK_N])
        # my tiles of all groups together are program, program + PROGRAMS, ...: this is the first one in this group
        mine = (tl.program_id(0) + PROGRAMS - group * per_group % PROGRAMS) % PROGRAMS
        blocks = tl.cdiv(end - start, BLOCK_K)
        tile = mine - PROGRAMS
        step = blocks - 1
        n0, k0 = mine, mine
        acc = tl.zeros((BLOCK_M, BLOCK_N), tl.float32)
        for _ in tl.range(0, tl.cdiv(tl.maximum(per_group - mine, 0), PROGRAMS) * blocks):
            step = tl.where(step == blocks - 1, 0, step + 1)
            if step == 0:
                tile += PROGRAMS
                tile_n, tile_k = tile_at(tile, tiles_n, tiles_k, GROUP_M)
                n0 = tile_n * BLOCK_M
                k0 = tile_k * BLOCK_N
            dy = dy_desc.load([start + step * BLOCK_K, n0])
            acc = tl.dot(dy.T, a_desc.load([start + step * BLOCK_K, k0]), acc)
            if step == blocks - 1:
                _store(acc, out_desc, group, n0, k0, KIND, BLOCK_M, BLOCK_N, SUBTILE)
                acc = tl.zeros((BLOCK_M, BLOCK_N), tl.float32)
        for tile in tl.range(mine, tl.where(end > start, 0, per_group), PROGRAMS):
            tile_n, tile_k = tile_at(tile, tiles_n, tiles_k, GROUP_M)
            zeros = tl.zeros((BLOCK_M, BLOCK_N), tl.float32)
            _store(zeros, out_desc, group, tile_n * BLOCK_M, tile_k * BLOCK_N, KIND, BLOCK_M, BLOCK_N, SUBTILE)
