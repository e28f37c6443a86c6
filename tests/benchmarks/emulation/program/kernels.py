"""Its kernels: right ones, and ones with a fault each."""

import torch
import triton
import triton.language as tl


@triton.jit
def add_kernel(x, y, out, n, BLOCK: tl.constexpr):
    i = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    inside = i < n
    tl.store(out + i, tl.load(x + i, mask=inside) + tl.load(y + i, mask=inside), mask=inside)


@triton.jit
def add_without_a_mask(x, y, out, n, BLOCK: tl.constexpr):
    i = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    tl.store(out + i, tl.load(x + i, mask=i < n) + tl.load(y + i, mask=i < n))


@triton.autotune(
    [triton.Config({"BLOCK": 64}), triton.Config({"BLOCK": 128}), triton.Config({"BLOCK": 256})], key=["n"]
)
@triton.jit
def double_kernel(x, out, n, BLOCK: tl.constexpr):
    """Wrong for blocks of 256."""
    i = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    factor = 3 if BLOCK == 256 else 2
    tl.store(out + i, factor * tl.load(x + i, mask=i < n), mask=i < n)


@triton.jit
def pointed_kernel(table, out):
    """What the first address of a table points to, as grouped products find their matrices."""
    tl.store(out, tl.load(tl.load(table).to(tl.pointer_type(tl.float32))))


@triton.jit(noinline=True)
def doubled(x):
    return 2 * x


@triton.jit
def halves_kernel(total, before, out):
    """Adds 2 to a number of 2 bytes; calls a function; its numbers are asserted to be less than 50."""
    tl.device_assert(tl.load(out) < 50)
    tl.store(before, tl.atomic_add(total, 2.0))
    tl.store(out, doubled(tl.load(out)))


def add(x, y, kernel=add_kernel):
    out = torch.empty_like(x)
    kernel[(triton.cdiv(x.numel(), 256),)](x, y, out, x.numel(), BLOCK=256)
    return out


def double(x):
    out = torch.empty_like(x)
    double_kernel[lambda meta: (triton.cdiv(x.numel(), meta["BLOCK"]),)](x, out, x.numel())
    return out
