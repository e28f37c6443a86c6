"""Triton kernels of a grouped product over rows (forward, dgrad): out[m, n] = sum over k of a[m, k] * b[g(m), n, k].

Programs walk the tiles of all groups in a fixed order.  Which group a tile belongs to is found on the device from the
running sum of the group sizes, so the sizes never have to reach the host.  Both kernels take

a [rows, depth], out [rows, columns], b [GROUPS, columns, depth] if B_BY_COLUMN else [GROUPS, depth, columns], the last
dimension of each contiguous, and ends int32 [GROUPS], the inclusive running sum of the group sizes; ends[-1] == rows.
"""

from __future__ import annotations

import triton
import triton.language as tl

from kernels._shared.tile_product import halves, spread, tile_at
from kernels.grouped_gemm.device import bounds, collect, leave, pieces_of, store_rows


@triton.jit
def _table(ends_ptr, tiles_n, GROUPS: tl.constexpr, GROUPS_POW2: tl.constexpr, BLOCK_M: tl.constexpr):
    """(first rows, ends of rows, ends of tiles) of all groups, and how many tiles there are."""
    ids = tl.arange(0, GROUPS_POW2)
    starts, ends = bounds(ends_ptr, ids, GROUPS)
    tiles = tl.where(ids < GROUPS, tl.cdiv(ends - starts, BLOCK_M) * tiles_n, 0)
    return starts, ends, tl.cumsum(tiles, 0), tl.sum(tiles, 0)


@triton.jit
def _locate(
    tile, starts, ends, tile_ends, tiles_n,
    GROUPS_POW2: tl.constexpr, BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr, GROUP_M: tl.constexpr,
):  # fmt: skip
    """(group, first row, first column, end of the group's rows) of a tile."""
    group = tl.sum((tile_ends <= tile).to(tl.int32), 0)
    chosen = tl.arange(0, GROUPS_POW2) == group
    start = tl.sum(tl.where(chosen, starts, 0), 0)
    end = tl.sum(tl.where(chosen, ends, 0), 0)
    tiles_m = tl.cdiv(end - start, BLOCK_M)
    first = tl.sum(tl.where(chosen, tile_ends, 0), 0) - tiles_m * tiles_n
    tile_m, tile_n = tile_at(tile - first, tiles_m, tiles_n, GROUP_M)
    return group, start + tile_m * BLOCK_M, tile_n * BLOCK_N, end


@triton.jit
def rows_kernel(
    a_ptr, b_ptr, out_ptr, ends_ptr, columns, depth, stride_a, stride_b_group, stride_b, stride_out,
    GROUPS: tl.constexpr, GROUPS_POW2: tl.constexpr, B_BY_COLUMN: tl.constexpr, BLOCK_M: tl.constexpr,
    BLOCK_N: tl.constexpr, BLOCK_K: tl.constexpr, GROUP_M: tl.constexpr, PROGRAMS: tl.constexpr, XCDS: tl.constexpr,
    EVEN_N: tl.constexpr, EVEN_K: tl.constexpr,
):  # fmt: skip
    """Through pointers, for every GPU and every stride.  EVEN_N, EVEN_K: no tail of that dimension."""
    tiles_n = tl.cdiv(columns, BLOCK_N)
    starts, ends, tile_ends, total = _table(ends_ptr, tiles_n, GROUPS, GROUPS_POW2, BLOCK_M)
    for tile in tl.range(spread(tl.program_id(0), PROGRAMS, XCDS), total, PROGRAMS):
        group, m0, n0, end = _locate(tile, starts, ends, tile_ends, tiles_n, GROUPS_POW2, BLOCK_M, BLOCK_N, GROUP_M)
        ks = tl.arange(0, BLOCK_K)
        ms = tl.minimum(tl.arange(0, BLOCK_M), end - m0 - 1)
        ns = n0 + tl.arange(0, BLOCK_N)
        n_in = ns < columns
        a_at = a_ptr + m0.to(tl.int64) * stride_a + (ms[:, None] * stride_a + ks[None, :])
        b_base = b_ptr + group.to(tl.int64) * stride_b_group
        if B_BY_COLUMN:
            b_at = b_base + tl.minimum(ns, columns - 1)[None, :] * stride_b + ks[:, None]
            b_step = BLOCK_K
        else:
            b_at = b_base + ks[:, None] * stride_b + ns[None, :]
            b_step = BLOCK_K * stride_b
        acc = tl.zeros((BLOCK_M, BLOCK_N), tl.float32)
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
            b_at += b_step
        rows_in = tl.arange(0, BLOCK_M)
        at = out_ptr + m0.to(tl.int64) * stride_out + (rows_in[:, None] * stride_out + ns[None, :])
        tl.store(at, acc.to(out_ptr.dtype.element_ty), mask=(rows_in < end - m0)[:, None] & n_in[None, :])
        tl.debug_barrier()  # Triton 3.8 begins the next tile's copies to the LDS without one (gfx950)


@triton.jit
def _step(
    acc, a_desc, b_desc, group, m0, n0, k0, B_BY_COLUMN: tl.constexpr, BLOCK_N: tl.constexpr, BLOCK_K: tl.constexpr
):
    """One step along the depth, through descriptors."""
    a = a_desc.load([m0, k0])
    if B_BY_COLUMN:
        b = b_desc.load([group, n0, k0]).reshape(BLOCK_N, BLOCK_K).T
    else:
        b = b_desc.load([group, k0, n0]).reshape(BLOCK_K, BLOCK_N)
    return tl.dot(a, b, acc)


@triton.jit
def rows_tma_kernel(
    a_desc, b_desc, out_desc, ends_ptr, rooms, flags, columns, depth,
    GROUPS: tl.constexpr, GROUPS_POW2: tl.constexpr, B_BY_COLUMN: tl.constexpr, BLOCK_M: tl.constexpr,
    BLOCK_N: tl.constexpr, BLOCK_K: tl.constexpr, GROUP_M: tl.constexpr, PROGRAMS: tl.constexpr, SPLIT: tl.constexpr,
):  # fmt: skip
    """Through tensor descriptors (TMA): what is left over from complete rounds of tiles, cut along the depth, then
    the rounds in one flattened loop.

    Blocks of the descriptors: a [BLOCK_M, BLOCK_K]; b [1, BLOCK_N, BLOCK_K] or [1, BLOCK_K, BLOCK_N] as B_BY_COLUMN
    says; out, ragged, [BLOCK_M, BLOCK_N / 2]: halves need less shared memory.  SPLIT: most pieces of a left-over tile,
    see tiles.py, with rooms fp32 [PROGRAMS, BLOCK_M, BLOCK_N] and flags int32 [PROGRAMS], zero at first.
    """
    HALF: tl.constexpr = BLOCK_N // 2
    program = tl.program_id(0)
    tiles_n = tl.cdiv(columns, BLOCK_N)
    starts, ends, tile_ends, total = _table(ends_ptr, tiles_n, GROUPS, GROUPS_POW2, BLOCK_M)
    pieces = pieces_of(total % PROGRAMS, SPLIT, PROGRAMS)
    alone = tl.where(pieces > 1, total - total % PROGRAMS, total)

    if program < (total - alone) * pieces:
        group, m0, n0, end = _locate(
            alone + program // pieces, starts, ends, tile_ends, tiles_n, GROUPS_POW2, BLOCK_M, BLOCK_N, GROUP_M
        )
        piece = program % pieces
        steps = tl.cdiv(depth, BLOCK_K)
        acc = tl.zeros((BLOCK_M, BLOCK_N), tl.float32)
        for step in tl.range(piece * steps // pieces, (piece + 1) * steps // pieces):
            acc = _step(acc, a_desc, b_desc, group, m0, n0, step * BLOCK_K, B_BY_COLUMN, BLOCK_N, BLOCK_K)
        if piece < pieces - 1:
            leave(acc, rooms, flags, program, BLOCK_M, BLOCK_N)
        else:
            left, right = collect(acc, rooms, flags, program, pieces, BLOCK_M, BLOCK_N)
            store_rows(out_desc, m0, end, n0, left, BLOCK_M, HALF)
            store_rows(out_desc, m0, end, n0 + HALF, right, BLOCK_M, HALF)

    for tile in tl.range(program, alone, PROGRAMS, flatten=True):
        group, m0, n0, end = _locate(tile, starts, ends, tile_ends, tiles_n, GROUPS_POW2, BLOCK_M, BLOCK_N, GROUP_M)
        acc = tl.zeros((BLOCK_M, BLOCK_N), tl.float32)
        for k0 in tl.range(0, depth, BLOCK_K):
            acc = _step(acc, a_desc, b_desc, group, m0, n0, k0, B_BY_COLUMN, BLOCK_N, BLOCK_K)
        left, right = halves(acc)
        store_rows(out_desc, m0, end, n0, left, BLOCK_M, HALF)
        store_rows(out_desc, m0, end, n0 + HALF, right, BLOCK_M, HALF)
