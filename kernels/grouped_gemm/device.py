"""Device functions on groups and tiles: where groups lie, halves of a tile, and how several programs share one.

**Sharing.**  The tiles that are left over from complete rounds are cut along the depth, so that no program is idle
meanwhile (the fixed split of Osama et al., "Stream-K", PPoPP 2023, arxiv.org/abs/2301.03598).  They come first: then
programs end their whole tiles at different times, and do not all store at once.  The pieces of a tile belong to
neighbouring programs.  All but the last leave their sums in a room of their own and raise a flag; the last one takes
the flags down and adds the sums up in a fixed order, so that every run gives the same bits.  A program waits only for
lower numbers, which start no later, and those wait for none.  All flags are down when a call is done, so a captured
graph can be replayed.

**Ragged descriptors** (triton.tools.ragged_tma) describe a tensor [rows, columns] whose rows belong to groups: each
access says where its group ends, and the copy engine reads zeros and writes nothing from there on.
"""

from __future__ import annotations

import triton
import triton.language as tl
from triton.tools.ragged_tma import to_ragged_indices

from kernels._shared.tile_product import halves


@triton.jit
def bounds(ends_ptr, ids, GROUPS: tl.constexpr):
    """(first rows, ends) of the groups with these ids, from the running sum of the sizes; 0 beyond the last group."""
    ends = tl.load(ends_ptr + ids, mask=ids < GROUPS, other=0)
    return tl.load(ends_ptr + ids - 1, mask=(ids > 0) & (ids < GROUPS), other=0), ends


@triton.jit
def pieces_of(tiles, SPLIT: tl.constexpr, PROGRAMS: tl.constexpr):
    """Into how many pieces each of the left-over tiles is cut: one if they occupy more than half of the programs."""
    return tl.minimum(SPLIT, PROGRAMS // tl.maximum(tiles, 1))


@triton.jit
def _room(rooms, program, ROWS: tl.constexpr, COLUMNS: tl.constexpr):
    """Addresses of the left half of a program's room, fp32 [ROWS, COLUMNS]; the right half is COLUMNS // 2 on."""
    inside = tl.arange(0, ROWS)[:, None] * COLUMNS + tl.arange(0, COLUMNS // 2)[None, :]
    return rooms + tl.cast(program, tl.int64) * (ROWS * COLUMNS) + inside


@triton.jit
def leave(sums, rooms, flags, program, ROWS: tl.constexpr, COLUMNS: tl.constexpr):
    """Leave a tile's sums in the program's room, and raise its flag."""
    left, right = halves(sums)
    room = _room(rooms, program, ROWS, COLUMNS)
    tl.store(room, left)
    tl.store(room + COLUMNS // 2, right)
    tl.debug_barrier()  # one thread releases what all have stored
    tl.atomic_xchg(flags + program, 1, sem="release", scope="gpu")


@triton.jit
def collect(sums, rooms, flags, program, pieces, ROWS: tl.constexpr, COLUMNS: tl.constexpr):
    """(left, right) halves of the sums of a tile, with what the `pieces - 1` programs before this one have left."""
    left, right = halves(sums)
    for other in range(program + 1 - pieces, program):
        raised = 0
        while raised == 0:
            raised = tl.atomic_cas(flags + other, 1, 0, sem="acquire", scope="gpu")
        tl.debug_barrier()
        room = _room(rooms, other, ROWS, COLUMNS)
        left += tl.load(room, cache_modifier=".cg")
        right += tl.load(room + COLUMNS // 2, cache_modifier=".cg")
    return left, right


@triton.jit
def load_rows(desc, start, end, row, column, ROWS: tl.constexpr, COLUMNS: tl.constexpr):
    """A block of rows from `row` on, of the group [start, end); zeros from `end` on.  desc is ragged."""
    wrap, last, inside = to_ragged_indices(start, end - start, row - start)
    return desc.load([wrap, last, inside, column]).reshape(ROWS, COLUMNS)


@triton.jit
def store_rows(desc, row, end, column, block, ROWS: tl.constexpr, COLUMNS: tl.constexpr):
    """Store a block of rows from `row` on; nothing is written from `end` on.  desc is ragged."""
    wrap, last, inside = to_ragged_indices(row, end - row, 0)
    desc.store([wrap, last, inside, column], block.to(desc.dtype).reshape(1, 1, ROWS, COLUMNS))
