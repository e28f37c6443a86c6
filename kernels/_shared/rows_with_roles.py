"""out[m, n] = sum over k of a[m, k] * b[group of m, n, k] on Hopper, with roles (kernels/_shared/warp_roles.py).

Forward and dgrad of the grouped GEMM, and the GEMM, which is one group.  a [rows, depth], b [GROUPS, columns, depth]
if B_BY_COLUMN else [GROUPS, depth, columns], out [rows, columns], ends int32 [GROUPS]: the inclusive running sum of the
group sizes.

Programs walk the tiles of all groups in a fixed order.  The tiles that are left over from whole rounds are cut along
the depth and come first, as kernels/grouped_gemm/device.py says.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import torch
from triton.experimental import gluon
from triton.experimental.gluon import language as gl
from triton.experimental.gluon.language.nvidia.hopper import mbarrier, tma

from kernels._shared.tile_product import tile_at
from kernels._shared.warp_roles import (
    BILLION,
    REGISTERS,
    ROWS,
    barrier,
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

BLOCK_M = gl.constexpr(128)


@gluon.jit
def _total(ends, tiles_n, GROUPS: gl.constexpr):
    """How many tiles all groups have."""
    total, start = 0, 0
    for group in range(GROUPS):
        end = gl.load(ends + group)
        total += gl.cdiv(end - start, BLOCK_M) * tiles_n
        start = end
    return total


@gluon.jit
def _work(ends, tiles_n, GROUPS: gl.constexpr, PROGRAMS: gl.constexpr, SPLIT: gl.constexpr):
    """(first unit of this program, tiles that stay whole, pieces of each other one).

    Units are whole tiles by their number, PROGRAMS apart, and before them, below 0, the program's piece if it has one.
    """
    total = _total(ends, tiles_n, GROUPS)
    left_over = total % PROGRAMS
    pieces = gl.minimum(SPLIT, PROGRAMS // gl.maximum(left_over, 1))
    whole = gl.where(pieces > 1, total - left_over, total)
    program = gl.program_id(0)
    return gl.where(program < (total - whole) * pieces, program - PROGRAMS, program), whole, pieces


@gluon.jit
def _unit(unit, whole, pieces, steps):
    """(tile, first step, end of steps) of a unit; a piece is numbered as its program."""
    tile, step, end = unit, 0, steps
    if unit < 0:
        tile = whole + gl.program_id(0) // pieces
        piece = gl.program_id(0) % pieces
        step = piece * steps // pieces
        end = (piece + 1) * steps // pieces
    return tile, step, end


@gluon.jit
def _seek(tile, group, first, last, start, end, ends, tiles_n):
    """Go on to the group of a tile, or begin anew if it lies before: its tiles [first, last), rows [start, end)."""
    if tile < first:
        group, last, end = -1, 0, 0
    while tile >= last:
        group += 1
        start, first = end, last
        end = gl.load(ends + group)
        last += gl.cdiv(end - start, BLOCK_M) * tiles_n
    return group, first, last, start, end


@gluon.jit
def _load(
    a_desc, b_desc, side_desc, a_in, b_in, side_in, ready, empty, ends, columns, depth,
    GROUPS: gl.constexpr, B_BY_COLUMN: gl.constexpr, BLOCK_N: gl.constexpr, SIDE: gl.constexpr, BLOCK_K: gl.constexpr,
    GROUP_M: gl.constexpr, PROGRAMS: gl.constexpr, SPLIT: gl.constexpr, STAGES: gl.constexpr,
):  # fmt: skip
    """The loading warp."""
    WIDE: gl.constexpr = BLOCK_N + SIDE
    tiles_n, steps = gl.cdiv(columns, WIDE), gl.cdiv(depth, BLOCK_K)
    first_unit, whole, pieces = _work(ends, tiles_n, GROUPS, PROGRAMS, SPLIT)
    slot, phase = 0, 1
    group, first, last, start, end = -1, 0, 0, 0, 0
    for unit in range(first_unit, whole, PROGRAMS):
        tile, from_step, to_step = _unit(unit, whole, pieces, steps)
        group, first, last, start, end = _seek(tile, group, first, last, start, end, ends, tiles_n)
        tile_m, tile_n = tile_at(tile - first, gl.cdiv(end - start, BLOCK_M), tiles_n, GROUP_M)
        row, column = start + tile_m * BLOCK_M, tile_n * WIDE
        for step in range(from_step, to_step):
            k = step * BLOCK_K
            mbarrier.wait(empty.index(slot), phase)
            bar = ready.index(slot)
            mbarrier.expect(bar, (BLOCK_M + WIDE) * BLOCK_K * 2)
            for half in gl.static_range(2):
                inside = BILLION - (end - row) + half * ROWS  # zeros from the end of the group on
                load_tile(a_desc, [BILLION, end, inside, k], bar, a_in.index(slot * 2 + half))
            if B_BY_COLUMN:
                load_tile(b_desc, [group, column, k], bar, b_in.index(slot))
                if SIDE > 0:
                    load_tile(side_desc, [group, column + BLOCK_N, k], bar, side_in.index(slot))
            else:
                load_tile(b_desc, [group, k, column], bar, b_in.index(slot))
                if SIDE > 0:
                    load_tile(side_desc, [group, k, column + BLOCK_N], bar, side_in.index(slot))
            slot, phase = following(slot, phase, STAGES)


@gluon.jit
def _multiply(
    out_desc, out_side_desc, a_in, b_in, side_in, out, out_side, ready, empty, ends, rooms, flags, columns, depth,
    HALF: gl.constexpr,
    GROUPS: gl.constexpr, B_BY_COLUMN: gl.constexpr, BLOCK_N: gl.constexpr, SIDE: gl.constexpr, BLOCK_K: gl.constexpr,
    GROUP_M: gl.constexpr, PROGRAMS: gl.constexpr, SPLIT: gl.constexpr, STAGES: gl.constexpr,
):  # fmt: skip
    """A multiplying group: the upper (HALF 0) or the lower rows of each tile."""
    WIDE: gl.constexpr = BLOCK_N + SIDE
    tiles_n, steps = gl.cdiv(columns, WIDE), gl.cdiv(depth, BLOCK_K)
    first_unit, whole, pieces = _work(ends, tiles_n, GROUPS, PROGRAMS, SPLIT)
    slot, phase = 0, 0
    group, first, last, start, end = -1, 0, 0, 0, 0
    for unit in range(first_unit, whole, PROGRAMS):
        tile, from_step, to_step = _unit(unit, whole, pieces, steps)
        group, first, last, start, end = _seek(tile, group, first, last, start, end, ends, tiles_n)
        tile_m, tile_n = tile_at(tile - first, gl.cdiv(end - start, BLOCK_M), tiles_n, GROUP_M)
        row, column = start + tile_m * BLOCK_M + HALF * ROWS, tile_n * WIDE
        acc, side = nothing(BLOCK_N), nothing(SIDE if SIDE > 0 else 64)
        for step in range(from_step, to_step):
            mbarrier.wait(ready.index(slot), phase)
            acc, side = multiplied(
                _left_operand(a_in, slot * 2 + HALF), _right_operand(b_in, slot, B_BY_COLUMN),
                _right_operand(side_in, slot, B_BY_COLUMN), acc, side, SIDE,
            )  # fmt: skip
            give_back(empty, slot, step > from_step, STAGES)
            slot, phase = following(slot, phase, STAGES)
        acc, side = settled(acc, side, SIDE)
        give_back(empty, slot, True, STAGES)
        last_piece = True
        if SPLIT > 1:  # noqa: SIM102 (a condition of the compiler's, and one of the device's)
            if unit < 0:
                number = gl.program_id(0)
                last_piece = number % pieces == pieces - 1
                if last_piece:
                    for other in range(number + 1 - pieces, number):
                        acc, side = _collected(acc, side, rooms, flags, other * 2 + HALF, BLOCK_N, SIDE)
                else:
                    _leave(acc, side, rooms, flags, number * 2 + HALF, BLOCK_N, SIDE)
        if last_piece:
            stage(acc, side, out, out_side, SIDE)
            inside = BILLION - (end - row)  # the copy engine writes nothing from the end of the group on
            store_tile(out_desc, [BILLION, end, inside, column], out.index(0))
            if SIDE > 0:
                store_tile(out_side_desc, [BILLION, end, inside, column + BLOCK_N], out_side.index(0))
    tma.store_wait(0)


@gluon.jit
def _left_operand(tiles, slot):
    """The rows of a half in a slot, [64, BLOCK_K]."""
    tile = tiles.index(slot)
    return tile.reshape((tile.shape[2], tile.shape[3]))


@gluon.jit
def _right_operand(tiles, slot, B_BY_COLUMN: gl.constexpr):
    """The right operand in a slot, [BLOCK_K, columns]."""
    tile = tiles.index(slot)
    tile = tile.reshape((tile.shape[1], tile.shape[2]))
    return tile.permute((1, 0)) if B_BY_COLUMN else tile


@gluon.jit
def _room(rooms, number, first, WIDE: gl.constexpr, like):
    """Addresses for sums like these in a room, fp32 [64, WIDE], from a column on."""
    rows = gl.arange(0, ROWS, layout=gl.SliceLayout(1, like.type.layout))
    columns = gl.arange(0, like.shape[1], layout=gl.SliceLayout(0, like.type.layout))
    return rooms + gl.cast(number, gl.int64) * (ROWS * WIDE) + rows[:, None] * WIDE + (first + columns)[None, :]


@gluon.jit
def _leave(acc, side, rooms, flags, number, BLOCK_N: gl.constexpr, SIDE: gl.constexpr):
    """Leave sums in a room of their own, and raise its flag."""
    gl.store(_room(rooms, number, 0, BLOCK_N + SIDE, acc), acc)
    if SIDE > 0:
        gl.store(_room(rooms, number, BLOCK_N, BLOCK_N + SIDE, side), side)
    barrier()  # one thread releases what all have stored
    gl.atomic_xchg(flags + number, 1, sem="release", scope="gpu")


@gluon.jit
def _collected(acc, side, rooms, flags, number, BLOCK_N: gl.constexpr, SIDE: gl.constexpr):
    """The sums with those of a room, whose flag is taken down."""
    raised = 0
    while raised == 0:
        raised = gl.atomic_cas(flags + number, 1, 0, sem="acquire", scope="gpu")
    barrier()
    acc += gl.load(_room(rooms, number, 0, BLOCK_N + SIDE, acc), cache_modifier=".cg")
    if SIDE > 0:
        side += gl.load(_room(rooms, number, BLOCK_N, BLOCK_N + SIDE, side), cache_modifier=".cg")
    return acc, side


@gluon.jit
def rows_with_roles(
    a_desc, b_desc, side_desc, out_desc, out_side_desc, ends, rooms, flags, columns, depth,
    GROUPS: gl.constexpr, B_BY_COLUMN: gl.constexpr, BLOCK_N: gl.constexpr, SIDE: gl.constexpr, BLOCK_K: gl.constexpr,
    GROUP_M: gl.constexpr, PROGRAMS: gl.constexpr, SPLIT: gl.constexpr, STAGES: gl.constexpr,
):  # fmt: skip
    """num_warps = 4, which counts the first multiplying group.

    Blocks of the descriptors: a, ragged, [64, BLOCK_K]; out, ragged, [64, BLOCK_N]; b [1, BLOCK_N, BLOCK_K] or
    [1, BLOCK_K, BLOCK_N] as B_BY_COLUMN says; `side` the same with SIDE columns.  SPLIT: most pieces of a left-over
    tile, with rooms fp32 [PROGRAMS, 128, BLOCK_N + SIDE] and flags int32 [PROGRAMS, 2], zero at first.
    """
    ready, empty = ring(STAGES)
    a_in, b_in = room_for(a_desc, 2 * STAGES), room_for(b_desc, STAGES)
    upper, lower = room_for(out_desc, 1), room_for(out_desc, 1)
    side_in, upper_side, lower_side = b_in, upper, lower
    if SIDE > 0:
        side_in = room_for(side_desc, STAGES)
        upper_side, lower_side = room_for(out_side_desc, 1), room_for(out_side_desc, 1)
    gl.warp_specialize(
        [
            (_multiply, (
                out_desc, out_side_desc, a_in, b_in, side_in, upper, upper_side, ready, empty, ends, rooms, flags,
                columns, depth, gl.constexpr(0), GROUPS, B_BY_COLUMN, BLOCK_N, SIDE, BLOCK_K, GROUP_M, PROGRAMS, SPLIT,
                STAGES,
            )),
            (_multiply, (
                out_desc, out_side_desc, a_in, b_in, side_in, lower, lower_side, ready, empty, ends, rooms, flags,
                columns, depth, gl.constexpr(1), GROUPS, B_BY_COLUMN, BLOCK_N, SIDE, BLOCK_K, GROUP_M, PROGRAMS, SPLIT,
                STAGES,
            )),
            (_load, (
                a_desc, b_desc, side_desc, a_in, b_in, side_in, ready, empty, ends, columns, depth, GROUPS, B_BY_COLUMN,
                BLOCK_N, SIDE, BLOCK_K, GROUP_M, PROGRAMS, SPLIT, STAGES,
            )),
        ],
        [4, 1],
        [REGISTERS[0], REGISTERS[1]],
    )  # fmt: skip


def arguments(
    a: torch.Tensor, b: torch.Tensor, out: torch.Tensor, ends: torch.Tensor, by_column: bool, block_n: int, block_k: int
) -> dict[str, Any]:
    """Descriptors and sizes of a launch; tensors as above, also without storage."""
    main, side = columns_of(block_n)

    def right(columns: int) -> Any:
        return descriptor(b, 1, *((columns, block_k) if by_column else (block_k, columns)))

    return {
        "a_desc": ragged(a, ROWS.value, block_k),
        "b_desc": right(main),
        "side_desc": right(side or main),
        "out_desc": ragged(out, ROWS.value, main),
        "out_side_desc": ragged(out, ROWS.value, side or main),
        "ends": ends,
        "columns": out.shape[1],
        "depth": a.shape[1],
    }


def constants(groups: int, by_column: bool, knobs: Mapping[str, Any], programs: int) -> dict[str, Any]:
    """The constants of a launch: block_n, block_k, group_m, split and num_stages are read of the knobs."""
    main, side = columns_of(knobs["block_n"])
    return {
        "GROUPS": groups,
        "B_BY_COLUMN": by_column,
        "BLOCK_N": main,
        "SIDE": side,
        "BLOCK_K": knobs["block_k"],
        "GROUP_M": knobs["group_m"],
        "PROGRAMS": programs,
        "SPLIT": knobs["split"],
        "STAGES": knobs["num_stages"],
    }


def scratch(knobs: Mapping[str, Any], programs: int) -> dict[str, tuple[torch.dtype, tuple[int, ...]]]:
    """(dtype, shape) of the rooms and flags of a launch."""
    most = programs if knobs["split"] > 1 else 1
    return {"rooms": (torch.float32, (most, BLOCK_M.value, knobs["block_n"])), "flags": (torch.int32, (most, 2))}
