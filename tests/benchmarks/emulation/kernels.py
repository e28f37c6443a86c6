"""Kernels for the tests of the emulator, and how they are compiled for a target without a GPU."""

from __future__ import annotations

import functools

import triton
import triton.language as tl
from triton.backends.compiler import GPUTarget
from triton.compiler import ASTSource


@triton.jit
def added(x, y, out, n, BLOCK: tl.constexpr):
    i = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    inside = i < n
    tl.store(out + i, tl.load(x + i, mask=inside) + tl.load(y + i, mask=inside), mask=inside)


@triton.jit
def softmax(x, out, n, BLOCK: tl.constexpr):
    row, i = tl.program_id(0), tl.arange(0, BLOCK)
    value = tl.load(x + row * n + i, mask=i < n, other=-float("inf"))
    power = tl.exp(value - tl.max(value, 0))
    tl.store(out + row * n + i, power / tl.sum(power, 0), mask=i < n)


@triton.jit
def counted(values, bins, n, BLOCK: tl.constexpr):
    i = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    tl.atomic_add(bins + tl.load(values + i, mask=i < n), 1, mask=i < n)


@triton.jit
def product(a, b, c, n, k, BM: tl.constexpr, BN: tl.constexpr, BK: tl.constexpr):
    rows, columns, inner = (
        tl.program_id(0) * BM + tl.arange(0, BM),
        tl.program_id(1) * BN + tl.arange(0, BN),
        tl.arange(0, BK),
    )
    total = tl.zeros((BM, BN), tl.float32)
    for step in range(0, k, BK):
        left = tl.load(a + rows[:, None] * k + step + inner[None, :])
        right = tl.load(b + columns[None, :] * k + step + inner[:, None])
        total += tl.dot(left, right)
    tl.store(c + rows[:, None] * n + columns[None, :], total.to(c.dtype.element_ty))


@triton.jit
def stepped(a, b, c, n, k, BM: tl.constexpr, BN: tl.constexpr, BK: tl.constexpr, MORE: tl.constexpr):
    """A product with MORE steps over K than it needs; they load nothing and add zeros, so the result stays right."""
    rows, columns = tl.program_id(0) * BM + tl.arange(0, BM), tl.program_id(1) * BN + tl.arange(0, BN)
    total = tl.zeros((BM, BN), tl.float32)
    for step in range(0, k + MORE * BK, BK):
        inner = step + tl.arange(0, BK)
        left = tl.load(a + rows[:, None] * k + inner[None, :], mask=inner[None, :] < k, other=0)
        right = tl.load(b + columns[None, :] * k + inner[:, None], mask=inner[:, None] < k, other=0)
        total += tl.dot(left, right)
    tl.store(c + rows[:, None] * n + columns[None, :], total.to(c.dtype.element_ty))


@triton.jit(noinline=True)
def squared(tile):
    i = tl.arange(0, 16)[:, None] * 16 + tl.arange(0, 16)[None, :]
    z = tl.load(tile + i)
    tl.store(tile + i, tl.dot(z, z))


@triton.jit
def calling(tile):
    squared(tile)


@triton.jit
def meeting(flag, n):
    tl.atomic_add(flag, 1)
    while tl.atomic_add(flag, 0) < n:
        pass


@triton.jit
def printing(x):
    tl.device_print("x", tl.load(x))


@triton.jit
def numbered(out):
    tl.store(out, tl.program_id(0))


@triton.jit
def endless(flag, out):
    while tl.atomic_add(flag, 0) == 0:
        pass
    tl.store(out, 1)


@functools.cache
def compiled(function, arch, types, constants=(), warps=4, **more):
    """A kernel compiled for gfx942 or gfx950, its arguments aligned as a launch's would be."""
    aligned = {
        (i,): [["tt.divisibility", 16], ["tt.pointer_range", 32]] if kind[0] == "*" else [["tt.divisibility", 16]]
        for i, kind in enumerate(types)
    }
    kinds = dict(zip(function.arg_names, (*types, *["constexpr"] * len(constants)), strict=True))
    fixed = {(len(types) + i,): value for i, value in enumerate(constants)}
    options = {"num_warps": warps, "matrix_instr_nonkdim": 16, **more}
    return triton.compile(
        ASTSource(function, kinds, fixed, aligned), target=GPUTarget("hip", arch, 64), options=options
    )


def code(function=added, arch="gfx942", types=("*fp32", "*fp32", "*fp32", "i32"), constants=(512,), **options):
    """The code object of a kernel that is compiled."""
    return compiled(function, arch, types, constants, **options).asm["hsaco"]
