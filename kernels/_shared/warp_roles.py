"""Products on Hopper with roles, in Gluon: one warp only loads tiles, two warp groups multiply 64 rows of a tile each.

A ring of STAGES slots of shared memory lies between them.  The loading warp waits until a slot is `empty`, and has the
copy engine (TMA) raise `ready` when its tiles are there; a multiplying group gives a slot back once the step after it
is issued and its own is done.  The groups do not wait for each other, so one stores its rows while the other still
multiplies.

A tile of sums has BLOCK_N + SIDE columns: a tensor has a power of two, so 192 columns are a product of 128 and one of
64.  SIDE = 0 is a tile without a second product, whose tensors and descriptors are then there and not used.
"""

from __future__ import annotations

from typing import Any

from triton.experimental import gluon
from triton.experimental.gluon import language as gl
from triton.experimental.gluon.language.nvidia.hopper import (
    fence_async_shared,
    mbarrier,
    tma,
    warpgroup_mma,
    warpgroup_mma_wait,
)
from triton.experimental.gluon.nvidia.hopper import TensorDescriptor

barrier = getattr(gl, "barrier", None) or gl.thread_barrier  # Triton 3.6 has the second name only
load_tile = getattr(tma, "async_load", None) or tma.async_copy_global_to_shared
store_tile = getattr(tma, "async_store", None) or tma.async_copy_shared_to_global

ROWS = gl.constexpr(64)
"""Rows that a warp group multiplies: those of one instruction."""

GROUPS = gl.constexpr(2)
"""Multiplying warp groups of a program."""

BILLION = gl.constexpr(1 << 30)
"""Rows that a ragged descriptor claims to have."""

REGISTERS = gl.constexpr([232, 40])
"""Per thread of the second multiplying group and of the loading warp; the first has 232 as well, of 3 x 168 in all."""


# ---- Descriptors -----------------------------------------------------------------------------------------------------


def descriptor(tensor: Any, *block: int) -> Any:
    """A tensor for the copy engine, in blocks that lie in shared memory as the matrix unit reads them."""
    return TensorDescriptor(tensor, list(tensor.shape), list(tensor.stride()), list(block), _swizzled(block))


def ragged(tensor: Any, *block: int) -> Any:
    """[rows, columns] whose rows belong to groups: each access says where its group ends (triton.tools.ragged_tma)."""
    stride, most, block = tensor.stride(0), 0x7FFF0000, (1, 1, *block)
    shape, strides = [most, most, BILLION.value, tensor.shape[1]], [2**34 - stride, stride, stride, 1]
    return TensorDescriptor(tensor, shape, strides, list(block), _swizzled(block))


def _swizzled(block: tuple[int, ...]) -> Any:
    return gl.NVMMASharedLayout(swizzle_byte_width=128, element_bitwidth=16, rank=len(block))


def columns_of(block_n: int) -> tuple[int, int]:
    """(BLOCK_N, SIDE) of a tile with so many columns."""
    main = 1 << block_n.bit_length() - 1
    return main, block_n - main


# ---- The ring --------------------------------------------------------------------------------------------------------


@gluon.jit
def ring(STAGES: gl.constexpr):
    """(ready, empty): the barriers of so many slots."""
    ready = gl.allocate_shared_memory(gl.int64, [STAGES, 1], mbarrier.MBarrierLayout())
    empty = gl.allocate_shared_memory(gl.int64, [STAGES, 1], mbarrier.MBarrierLayout())
    for slot in gl.static_range(STAGES):
        mbarrier.init(ready.index(slot), count=1)
        mbarrier.init(empty.index(slot), count=GROUPS)
    fence_async_shared()
    return ready, empty


@gluon.jit
def room_for(desc, COUNT: gl.constexpr):
    """Shared memory for so many blocks of a descriptor."""
    return gl.allocate_shared_memory(desc.dtype, [COUNT] + desc.block_type.shape, desc.layout)


@gluon.jit
def following(slot, phase, STAGES: gl.constexpr):
    """The next slot, and the phase in which its barriers are."""
    last = slot == STAGES - 1
    return gl.where(last, 0, slot + 1), gl.where(last, 1 - phase, phase)


@gluon.jit
def give_back(empty, slot, there, STAGES: gl.constexpr):
    """The slot before this one is read, if there was one.

    Its number is computed, not kept: Triton's frontend (seen with 3.6) does not carry a variable through a loop that is
    set, before and in it, to another one that it carries.
    """
    mbarrier.arrive(empty.index(gl.where(slot == 0, STAGES, slot) - 1), pred=there)


# ---- Sums ------------------------------------------------------------------------------------------------------------


@gluon.jit
def nothing(COLUMNS: gl.constexpr):
    """Zeros, fp32 [64, COLUMNS]."""
    return gl.zeros((ROWS, COLUMNS), gl.float32, gl.NVMMADistributedLayout([3, 0], [4, 1], [16, COLUMNS, 16]))


@gluon.jit
def multiplied(x, y, y_side, acc, side, SIDE: gl.constexpr):
    """(acc, side) with one more step issued and the step before it done."""
    acc = warpgroup_mma(x, y, acc, is_async=True)
    if SIDE > 0:
        side = warpgroup_mma(x, y_side, side, is_async=True)
        acc, side = warpgroup_mma_wait(2, deps=(acc, side))
    else:
        acc = warpgroup_mma_wait(1, deps=(acc,))
    return acc, side


@gluon.jit
def settled(acc, side, SIDE: gl.constexpr):
    """(acc, side) with every step done."""
    if SIDE > 0:
        acc, side = warpgroup_mma_wait(0, deps=(acc, side))
    else:
        acc = warpgroup_mma_wait(0, deps=(acc,))
    return acc, side


@gluon.jit
def stage(acc, side, out, out_side, SIDE: gl.constexpr):
    """Write the sums to shared memory, once the copy engine has read what was there."""
    tma.store_wait(0)
    out.index(0).reshape(acc.shape).store(acc.to(out.dtype))
    if SIDE > 0:
        out_side.index(0).reshape(side.shape).store(side.to(out.dtype))
    fence_async_shared()
