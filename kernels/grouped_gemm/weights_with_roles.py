"""wgrad on Hopper, with roles (kernels/_shared/warp_roles.py): out[g, n, k] = sum over rows m of g of dy[m, n] a[m, k].

As in device.py, with the same tiles, largest group first.  Here each program takes the next tile when it is free,
from a counter that all share: with groups of 4096 and 2048 rows, dealing in turn leaves a program 320 steps of work
where 268 are the mean.  The loading warp takes a tile ahead of time and tells the multiplying groups by shared memory.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import torch
from triton.experimental import gluon
from triton.experimental.gluon import language as gl
from triton.experimental.gluon.language.nvidia.hopper import fence_async_shared, mbarrier, tma

from kernels._shared.tile_product import tile_at
from kernels._shared.warp_roles import (
    BILLION,
    REGISTERS,
    ROWS,
    columns_of,
    descriptor,
    following,
    give_back,
    load_tile,
    multiplied,
    nothing,
    ragged,
    ring,
    room_for,
    settled,
    stage,
    store_tile,
)
from kernels._shared.warp_roles import GROUPS as HALVES

BLOCK_M = gl.constexpr(128)

TOLD = gl.constexpr(2)
"""Tiles that the loading warp may be ahead."""


@gluon.jit
def _keys(ends, GROUPS: gl.constexpr, GROUPS_POW2: gl.constexpr, WARPS: gl.constexpr):
    """Of each group a number that orders groups by size, the smaller id first among equals; -1 beyond the last."""
    ids = gl.arange(0, GROUPS_POW2, layout=gl.BlockedLayout([GROUPS_POW2 // 32], [32], [WARPS], [0]))
    end = gl.load(ends + ids, mask=ids < GROUPS, other=0)
    start = gl.load(ends + ids - 1, mask=(ids > 0) & (ids < GROUPS), other=0)
    return gl.where(ids < GROUPS, gl.cast(end - start, gl.int64) * GROUPS_POW2 + (GROUPS_POW2 - 1 - ids), -1)


@gluon.jit
def _smaller(keys, key, ends):
    """(key, group, first row, end) of the largest group below a key."""
    key = gl.max(gl.where(keys < key, keys, -1), 0)
    group = keys.shape[0] - 1 - gl.cast(key % keys.shape[0], gl.int32)
    return key, group, gl.load(ends + group - 1, mask=group > 0, other=0), gl.load(ends + group)


@gluon.jit
def _tell(tile, tile_s, told, asked, box, phase):
    """The loading warp: say which tile is next."""
    mbarrier.wait(asked.index(box), phase)
    tile_s.index(box).store(gl.full((1,), tile, gl.int32, gl.BlockedLayout([1], [32], [1], [0])))
    mbarrier.arrive(told.index(box))


@gluon.jit
def _ask(tile_s, told, asked, box, phase):
    """A multiplying group: the next tile."""
    mbarrier.wait(told.index(box), phase)
    tile = gl.sum(tile_s.index(box).load(gl.BlockedLayout([1], [32], [4], [0])), 0)
    mbarrier.arrive(asked.index(box))
    return tile


@gluon.jit
def _load(
    dy_desc, a_desc, side_desc, dy_in, a_in, side_in, ready, empty, tile_s, told, asked, ends, queue, n_size, k_size,
    GROUPS: gl.constexpr, GROUPS_POW2: gl.constexpr, BLOCK_N: gl.constexpr, SIDE: gl.constexpr, BLOCK_K: gl.constexpr,
    GROUP_M: gl.constexpr, PROGRAMS: gl.constexpr, STAGES: gl.constexpr,
):  # fmt: skip
    """The loading warp."""
    WIDE: gl.constexpr = BLOCK_N + SIDE
    tiles_n, tiles_k = gl.cdiv(n_size, BLOCK_M), gl.cdiv(k_size, WIDE)
    per_group = tiles_n * tiles_k
    keys = _keys(ends, GROUPS, GROUPS_POW2, 1)
    key, place, group, start, end = 0x7FFFFFFFFFFFFFFF, -1, 0, 0, 0
    slot, phase, box, box_phase = 0, 1, 0, 1
    tile = gl.program_id(0)
    while tile < per_group * GROUPS:
        next_tile = PROGRAMS + gl.atomic_add(queue, 1, sem="relaxed")
        _tell(tile, tile_s, told, asked, box, box_phase)
        box, box_phase = following(box, box_phase, TOLD)
        while place < tile // per_group:
            place += 1
            key, group, start, end = _smaller(keys, key, ends)
        tile_n, tile_k = tile_at(tile % per_group, tiles_n, tiles_k, GROUP_M)
        n, k = tile_n * BLOCK_M, tile_k * WIDE
        for step in range(gl.cdiv(end - start, BLOCK_K)):
            inside = BILLION - (end - start) + step * BLOCK_K  # zeros from the end of the group on
            mbarrier.wait(empty.index(slot), phase)
            bar = ready.index(slot)
            mbarrier.expect(bar, (BLOCK_M + WIDE) * BLOCK_K * 2)
            for half in gl.static_range(2):
                load_tile(dy_desc, [BILLION, end, inside, n + half * ROWS], bar, dy_in.index(slot * 2 + half))
            load_tile(a_desc, [BILLION, end, inside, k], bar, a_in.index(slot))
            if SIDE > 0:
                load_tile(side_desc, [BILLION, end, inside, k + BLOCK_N], bar, side_in.index(slot))
            slot, phase = following(slot, phase, STAGES)
        tile = next_tile
    _tell(tile, tile_s, told, asked, box, box_phase)
    if gl.atomic_add(queue + 1, 1, sem="acq_rel") == PROGRAMS - 1:  # the last one to be done sets both back
        gl.store(queue, 0)
        gl.store(queue + 1, 0)


@gluon.jit
def _multiply(
    out_desc, out_side_desc, dy_in, a_in, side_in, out, out_side, ready, empty, tile_s, told, asked, ends, n_size,
    k_size, HALF: gl.constexpr,
    GROUPS: gl.constexpr, GROUPS_POW2: gl.constexpr, BLOCK_N: gl.constexpr, SIDE: gl.constexpr, BLOCK_K: gl.constexpr,
    GROUP_M: gl.constexpr, STAGES: gl.constexpr,
):  # fmt: skip
    """A multiplying group: the upper (HALF 0) or the lower rows of each tile."""
    WIDE: gl.constexpr = BLOCK_N + SIDE
    tiles_n, tiles_k = gl.cdiv(n_size, BLOCK_M), gl.cdiv(k_size, WIDE)
    per_group = tiles_n * tiles_k
    keys = _keys(ends, GROUPS, GROUPS_POW2, 4)
    key, place, group, start, end = 0x7FFFFFFFFFFFFFFF, -1, 0, 0, 0
    slot, phase, box, box_phase = 0, 0, 0, 0
    tile = _ask(tile_s, told, asked, box, box_phase)
    while tile < per_group * GROUPS:
        while place < tile // per_group:
            place += 1
            key, group, start, end = _smaller(keys, key, ends)
        tile_n, tile_k = tile_at(tile % per_group, tiles_n, tiles_k, GROUP_M)
        n, k = tile_n * BLOCK_M + HALF * ROWS, tile_k * WIDE
        acc, side = nothing(BLOCK_N), nothing(SIDE if SIDE > 0 else 64)
        steps = gl.cdiv(end - start, BLOCK_K)
        for step in range(steps):
            mbarrier.wait(ready.index(slot), phase)
            acc, side = multiplied(
                dy_in.index(slot * 2 + HALF).reshape((BLOCK_K, ROWS)).permute((1, 0)), _block(a_in, slot),
                _block(side_in, slot), acc, side, SIDE,
            )  # fmt: skip
            give_back(empty, slot, step > 0, STAGES)
            slot, phase = following(slot, phase, STAGES)
        acc, side = settled(acc, side, SIDE)
        give_back(empty, slot, steps > 0, STAGES)
        stage(acc, side, out, out_side, SIDE)
        store_tile(out_desc, [group, n, k], out.index(0))
        if SIDE > 0:
            store_tile(out_side_desc, [group, n, k + BLOCK_N], out_side.index(0))
        box, box_phase = following(box, box_phase, TOLD)
        tile = _ask(tile_s, told, asked, box, box_phase)
    tma.store_wait(0)


@gluon.jit
def _block(tiles, slot):
    """The tile in a slot without its dimensions of one."""
    tile = tiles.index(slot)
    return tile.reshape((tile.shape[2], tile.shape[3]))


@gluon.jit
def weights_with_roles(
    dy_desc, a_desc, side_desc, out_desc, out_side_desc, ends, queue, n_size, k_size,
    GROUPS: gl.constexpr, GROUPS_POW2: gl.constexpr, BLOCK_N: gl.constexpr, SIDE: gl.constexpr, BLOCK_K: gl.constexpr,
    GROUP_M: gl.constexpr, PROGRAMS: gl.constexpr, STAGES: gl.constexpr,
):  # fmt: skip
    """num_warps = 4, which counts the first multiplying group.

    Blocks of the descriptors: dy [BLOCK_K, 64] and a [BLOCK_K, BLOCK_N], both ragged; out [1, 64, BLOCK_N]; `side` the
    same with SIDE columns.  queue int32 [2], zero at first: tiles taken after the first PROGRAMS ones, programs done.
    """
    ready, empty = ring(STAGES)
    told = gl.allocate_shared_memory(gl.int64, [TOLD, 1], mbarrier.MBarrierLayout())
    asked = gl.allocate_shared_memory(gl.int64, [TOLD, 1], mbarrier.MBarrierLayout())
    tile_s = gl.allocate_shared_memory(gl.int32, [TOLD, 1], gl.SwizzledSharedLayout(1, 1, 1, [0]))
    for box in gl.static_range(TOLD):
        mbarrier.init(told.index(box), count=1)
        mbarrier.init(asked.index(box), count=HALVES)
    fence_async_shared()
    dy_in, a_in = room_for(dy_desc, 2 * STAGES), room_for(a_desc, STAGES)
    upper, lower = room_for(out_desc, 1), room_for(out_desc, 1)
    side_in, upper_side, lower_side = a_in, upper, lower
    if SIDE > 0:
        side_in = room_for(side_desc, STAGES)
        upper_side, lower_side = room_for(out_side_desc, 1), room_for(out_side_desc, 1)
    gl.warp_specialize(
        [
            (_multiply, (
                out_desc, out_side_desc, dy_in, a_in, side_in, upper, upper_side, ready, empty, tile_s, told, asked,
                ends, n_size, k_size, gl.constexpr(0), GROUPS, GROUPS_POW2, BLOCK_N, SIDE, BLOCK_K, GROUP_M, STAGES,
            )),
            (_multiply, (
                out_desc, out_side_desc, dy_in, a_in, side_in, lower, lower_side, ready, empty, tile_s, told, asked,
                ends, n_size, k_size, gl.constexpr(1), GROUPS, GROUPS_POW2, BLOCK_N, SIDE, BLOCK_K, GROUP_M, STAGES,
            )),
            (_load, (
                dy_desc, a_desc, side_desc, dy_in, a_in, side_in, ready, empty, tile_s, told, asked, ends, queue,
                n_size, k_size, GROUPS, GROUPS_POW2, BLOCK_N, SIDE, BLOCK_K, GROUP_M, PROGRAMS, STAGES,
            )),
        ],
        [4, 1],
        [REGISTERS[0], REGISTERS[1]],
    )  # fmt: skip


def arguments(
    dy: torch.Tensor, a: torch.Tensor, out: torch.Tensor, ends: torch.Tensor, block_n: int, block_k: int
) -> dict[str, Any]:
    """Descriptors and sizes of a launch; tensors as above, also without storage."""
    main, side = columns_of(block_n)
    return {
        "dy_desc": ragged(dy, block_k, ROWS.value),
        "a_desc": ragged(a, block_k, main),
        "side_desc": ragged(a, block_k, side or main),
        "out_desc": descriptor(out, 1, ROWS.value, main),
        "out_side_desc": descriptor(out, 1, ROWS.value, side or main),
        "ends": ends,
        "n_size": dy.shape[1],
        "k_size": a.shape[1],
    }


def constants(groups: int, groups_pow2: int, knobs: Mapping[str, Any], programs: int) -> dict[str, Any]:
    """The constants of a launch: block_n, block_k, group_m and num_stages are read of the knobs."""
    main, side = columns_of(knobs["block_n"])
    return {
        "GROUPS": groups,
        "GROUPS_POW2": groups_pow2,
        "BLOCK_N": main,
        "SIDE": side,
        "BLOCK_K": knobs["block_k"],
        "GROUP_M": knobs["group_m"],
        "PROGRAMS": programs,
        "STAGES": knobs["num_stages"],
    }
