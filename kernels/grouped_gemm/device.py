"""Two persistent Triton kernels: a grouped product over rows (forward, dgrad), and one over weights (wgrad).

Programs walk the tiles of all groups in a static order.  Which group a tile belongs to is found on the device from the
running sum of the group sizes, so the sizes never have to reach the host.  Operands come through tensor descriptors
(TMA on sm_90) or through plain pointers.
"""

from __future__ import annotations

import triton
import triton.language as tl


@triton.jit
def _first_tile(PROGRAMS: tl.constexpr, XCDS: tl.constexpr):
    """The program's number such that neighbours run on the same XCD: the hardware deals workgroups out in turn."""
    pid = tl.program_id(0)
    if XCDS == 1:
        return pid
    per_xcd = (PROGRAMS + XCDS - 1) // XCDS
    tall = PROGRAMS - (per_xcd - 1) * XCDS
    xcd = pid % XCDS
    before = xcd * per_xcd if xcd <= tall else tall * per_xcd + (xcd - tall) * (per_xcd - 1)
    return before + pid // XCDS


@triton.jit
def _swizzle(local, tiles_m, tiles_n, GROUP_M: tl.constexpr):
    """Tile coordinates in bands of GROUP_M rows, so that concurrent tiles share operands in L2."""
    band = local // (GROUP_M * tiles_n)
    height = tl.minimum(tiles_m - band * GROUP_M, GROUP_M)
    inside = local - band * GROUP_M * tiles_n
    return band * GROUP_M + inside % height, inside // height


@triton.jit
def rows_kernel(a_ptr, b_ptr, out_ptr, ends_ptr, rows, columns, depth, stride_a, stride_b_group, stride_b, stride_out,
                GROUPS: tl.constexpr, GROUPS_POW2: tl.constexpr, B_BY_COLUMN: tl.constexpr,
                BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr, BLOCK_K: tl.constexpr, GROUP_M: tl.constexpr,
                EVEN_N: tl.constexpr, EVEN_K: tl.constexpr, PROGRAMS: tl.constexpr, XCDS: tl.constexpr,
                TMA: tl.constexpr, FLATTEN: tl.constexpr, SUBTILE: tl.constexpr):
    """out[m, n] = sum over k of a[m, k] * b[g(m), n, k]  (B_BY_COLUMN; else b[g(m), k, n]).

    a [rows, depth], out [rows, columns], b [GROUPS, columns, depth] or [GROUPS, depth, columns]; the last dimension of
    each is contiguous.  ends int32 [GROUPS]: inclusive running sum of the group sizes; ends[-1] == rows.
    """
    if TMA:
        a_desc = tl.make_tensor_descriptor(a_ptr, [rows, depth], [stride_a, 1], [BLOCK_M, BLOCK_K])
        if B_BY_COLUMN:
            b_desc = tl.make_tensor_descriptor(b_ptr, [GROUPS, columns, depth], [stride_b_group, stride_b, 1],
                                               [1, BLOCK_N, BLOCK_K])
        else:
            b_desc = tl.make_tensor_descriptor(b_ptr, [GROUPS, depth, columns], [stride_b_group, stride_b, 1],
                                               [1, BLOCK_K, BLOCK_N])
        out_desc = tl.make_tensor_descriptor(out_ptr, [rows, columns], [stride_out, 1], [BLOCK_M, BLOCK_N // SUBTILE])

    tiles_n = tl.cdiv(columns, BLOCK_N)
    ids = tl.arange(0, GROUPS_POW2)
    group_ends = tl.load(ends_ptr + ids, mask=ids < GROUPS, other=0)
    group_starts = tl.load(ends_ptr + ids - 1, mask=(ids > 0) & (ids < GROUPS), other=0)
    tiles = tl.where(ids < GROUPS, tl.cdiv(group_ends - group_starts, BLOCK_M) * tiles_n, 0)
    tile_ends = tl.cumsum(tiles, 0)
    total = tl.sum(tiles, 0)

    for tile in tl.range(_first_tile(PROGRAMS, XCDS), total, PROGRAMS, flatten=FLATTEN):
        group = tl.sum((tile_ends <= tile).to(tl.int32), 0)
        chosen = ids == group
        start = tl.sum(tl.where(chosen, group_starts, 0), 0)
        end = tl.sum(tl.where(chosen, group_ends, 0), 0)
        first = tl.sum(tl.where(chosen, tile_ends - tiles, 0), 0)
        tile_m, tile_n = _swizzle(tile - first, tl.cdiv(end - start, BLOCK_M), tiles_n, GROUP_M)
        m0 = start + tile_m * BLOCK_M
        n0 = tile_n * BLOCK_N

        acc = tl.zeros((BLOCK_M, BLOCK_N), tl.float32)
        if TMA:
            for k0 in tl.range(0, depth, BLOCK_K):
                a = a_desc.load([m0, k0])
                if B_BY_COLUMN:
                    b = b_desc.load([group, n0, k0]).reshape(BLOCK_N, BLOCK_K).T
                else:
                    b = b_desc.load([group, k0, n0]).reshape(BLOCK_K, BLOCK_N)
                acc = tl.dot(a, b, acc)
        else:
            ks = tl.arange(0, BLOCK_K)
            ms = tl.minimum(tl.arange(0, BLOCK_M), end - m0 - 1)
            ns = n0 + tl.arange(0, BLOCK_N)
            n_in = ns < columns
            a_at = a_ptr + m0.to(tl.int64) * stride_a + (ms[:, None] * stride_a + ks[None, :])
            b_base = b_ptr + group.to(tl.int64) * stride_b_group
            if B_BY_COLUMN:
                b_at = b_base + tl.minimum(ns, columns - 1)[None, :] * stride_b + ks[:, None]
                step = BLOCK_K
            else:
                b_at = b_base + ks[:, None] * stride_b + ns[None, :]
                step = BLOCK_K * stride_b
            for k0 in tl.range(0, depth, BLOCK_K):
                k_in = ks < depth - k0
                if EVEN_K:
                    a = tl.load(a_at)
                else:
                    a = tl.load(a_at, mask=k_in[None, :], other=0.0)
                if EVEN_K and (B_BY_COLUMN or EVEN_N):
                    b = tl.load(b_at)
                elif EVEN_K:
                    b = tl.load(b_at, mask=n_in[None, :], other=0.0)
                else:
                    b = tl.load(b_at, mask=k_in[:, None] & n_in[None, :], other=0.0)
                acc = tl.dot(a, b, acc)
                a_at += BLOCK_K
                b_at += step

        if TMA and m0 + BLOCK_M <= end:
            if SUBTILE == 2:
                left, right = acc.reshape(BLOCK_M, 2, BLOCK_N // 2).permute(0, 2, 1).split()
                out_desc.store([m0, n0], left.to(out_ptr.dtype.element_ty))
                out_desc.store([m0, n0 + BLOCK_N // 2], right.to(out_ptr.dtype.element_ty))
            else:
                out_desc.store([m0, n0], acc.to(out_ptr.dtype.element_ty))
        else:
            ms = tl.arange(0, BLOCK_M)
            ns = n0 + tl.arange(0, BLOCK_N)
            at = out_ptr + m0.to(tl.int64) * stride_out + (ms[:, None] * stride_out + ns[None, :])
            tl.store(at, acc.to(out_ptr.dtype.element_ty), mask=(ms < end - m0)[:, None] & (ns < columns)[None, :])


@triton.jit
def _store_weights(acc, out_desc, group, n0, k0, KIND: tl.constexpr, BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr,
                   SUBTILE: tl.constexpr):
    """One tile through the descriptor, in one piece or two: two need half the shared memory."""
    if SUBTILE == 2:
        left, right = acc.reshape(BLOCK_M, 2, BLOCK_N // 2).permute(0, 2, 1).split()
        out_desc.store([group, n0, k0], left.to(KIND).reshape(1, BLOCK_M, BLOCK_N // 2))
        out_desc.store([group, n0, k0 + BLOCK_N // 2], right.to(KIND).reshape(1, BLOCK_M, BLOCK_N // 2))
    else:
        out_desc.store([group, n0, k0], acc.to(KIND).reshape(1, BLOCK_M, BLOCK_N))


@triton.jit
def weights_kernel(dy_ptr, a_ptr, out_ptr, ends_ptr, rows, n_size, k_size, stride_dy, stride_a,
                   stride_out_group, stride_out, GROUPS: tl.constexpr, BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr,
                   BLOCK_K: tl.constexpr, GROUP_M: tl.constexpr, PROGRAMS: tl.constexpr, XCDS: tl.constexpr,
                   TMA: tl.constexpr, FLATTEN: tl.constexpr, SUBTILE: tl.constexpr):
    """out[g, n, k] = sum over the rows m of group g of dy[m, n] * a[m, k]; zeros for a group without rows.

    dy [rows, n_size], a [rows, k_size], out [GROUPS, n_size, k_size], last dimensions contiguous; ends as above.
    A tile is BLOCK_M values of n by BLOCK_N of k, summed over BLOCK_K rows at a time.  The rows after the last of a
    group belong to the next one and must not count: descriptors are made for each group and end with it, so that they
    read zeros beyond; pointers mask, and only in the step that needs it.
    """
    tiles_n = tl.cdiv(n_size, BLOCK_M)
    tiles_k = tl.cdiv(k_size, BLOCK_N)
    per_group = tiles_n * tiles_k
    first = _first_tile(PROGRAMS, XCDS)
    if TMA:
        out_desc = tl.make_tensor_descriptor(out_ptr, [GROUPS, n_size, k_size], [stride_out_group, stride_out, 1],
                                             [1, BLOCK_M, BLOCK_N // SUBTILE])
    for group in range(GROUPS):
        end = tl.load(ends_ptr + group)
        start = tl.load(ends_ptr + group - 1, mask=group > 0, other=0)
        if TMA:
            bound = tl.maximum(end, 1)
            dy_desc = tl.make_tensor_descriptor(dy_ptr, [bound, n_size], [stride_dy, 1], [BLOCK_K, BLOCK_M])
            a_desc = tl.make_tensor_descriptor(a_ptr, [bound, k_size], [stride_a, 1], [BLOCK_K, BLOCK_N])
        # my tiles of all groups together are first, first + PROGRAMS, ...: these are the ones in this group
        mine = (first + PROGRAMS - group * per_group % PROGRAMS) % PROGRAMS
        if TMA and FLATTEN:
            blocks = tl.cdiv(end - start, BLOCK_K)
            count = tl.cdiv(tl.maximum(per_group - mine, 0), PROGRAMS)
            tile = mine - PROGRAMS
            step = blocks - 1
            n0 = mine
            k0 = mine
            acc = tl.zeros((BLOCK_M, BLOCK_N), tl.float32)
            for _ in tl.range(0, count * blocks):
                step = tl.where(step == blocks - 1, 0, step + 1)
                if step == 0:
                    tile += PROGRAMS
                    tile_n, tile_k = _swizzle(tile, tiles_n, tiles_k, GROUP_M)
                    n0 = tile_n * BLOCK_M
                    k0 = tile_k * BLOCK_N
                dy = dy_desc.load([start + step * BLOCK_K, n0])
                a = a_desc.load([start + step * BLOCK_K, k0])
                acc = tl.dot(dy.T, a, acc)
                if step == blocks - 1:
                    _store_weights(acc, out_desc, group, n0, k0, out_ptr.dtype.element_ty, BLOCK_M, BLOCK_N, SUBTILE)
                    acc = tl.zeros((BLOCK_M, BLOCK_N), tl.float32)
        for tile in tl.range(mine, tl.where(TMA and FLATTEN and end > start, 0, per_group), PROGRAMS):
            tile_n, tile_k = _swizzle(tile, tiles_n, tiles_k, GROUP_M)
            n0 = tile_n * BLOCK_M
            k0 = tile_k * BLOCK_N
            acc = tl.zeros((BLOCK_M, BLOCK_N), tl.float32)
            if TMA:
                if not FLATTEN:
                    for m0 in tl.range(start, end, BLOCK_K):
                        acc = tl.dot(dy_desc.load([m0, n0]).T, a_desc.load([m0, k0]), acc)
                _store_weights(acc, out_desc, group, n0, k0, out_ptr.dtype.element_ty, BLOCK_M, BLOCK_N, SUBTILE)
            else:
                ns = n0 + tl.arange(0, BLOCK_M)
                ks = k0 + tl.arange(0, BLOCK_N)
                ms = tl.arange(0, BLOCK_K)
                last = start + (end - start) // BLOCK_K * BLOCK_K
                dy_at = dy_ptr + start.to(tl.int64) * stride_dy + (ms[None, :] * stride_dy + ns[:, None])
                a_at = a_ptr + start.to(tl.int64) * stride_a + (ms[:, None] * stride_a + ks[None, :])
                n_in = (ns < n_size)[:, None]
                k_in = (ks < k_size)[None, :]
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
