"""Kernels that exercise what strange kernels are made of, each for one class of instructions."""

from __future__ import annotations

import triton
import triton.language as tl


@triton.jit
def sort(x, out, N: tl.constexpr):
    i = tl.program_id(0) * N + tl.arange(0, N)
    tl.store(out + i, tl.sort(tl.load(x + i)))


@triton.jit
def scan(x, out, N: tl.constexpr, M: tl.constexpr):
    i = tl.arange(0, N)[:, None] * M + tl.arange(0, M)[None, :]
    value = tl.load(x + i)
    tl.store(out + i, tl.cumsum(value, 1))
    tl.store(out + N * M + i, tl.cumsum(value, 0))


@triton.jit
def histogram(x, out, N: tl.constexpr, BINS: tl.constexpr):
    tl.store(out + tl.arange(0, BINS), tl.histogram(tl.load(x + tl.arange(0, N)), BINS))


@triton.jit
def extremes(x, out, N: tl.constexpr):
    value = tl.load(x + tl.arange(0, N))
    tl.store(out, tl.argmax(value, 0))
    tl.store(out + 1, tl.argmin(value, 0))


@triton.jit
def uniform(out, seed, N: tl.constexpr):
    i = tl.arange(0, N)
    tl.store(out + i, tl.randint(seed, i))


@triton.jit
def functions(x, out, N: tl.constexpr):
    i = tl.arange(0, N)
    value = tl.load(x + i)
    size = tl.abs(value)
    tl.store(out + i, tl.exp(value))
    tl.store(out + N + i, tl.log(size))
    tl.store(out + 2 * N + i, tl.sin(value))
    tl.store(out + 3 * N + i, tl.cos(value))
    tl.store(out + 4 * N + i, tl.sqrt(size))
    tl.store(out + 5 * N + i, value / (value * value + 1.5))
    tl.store(out + 6 * N + i, tl.erf(value))
    tl.store(out + 7 * N + i, tl.rsqrt(size))


@triton.jit
def whole(x, y, out, N: tl.constexpr):
    i = tl.arange(0, N)
    a, b = tl.load(x + i), tl.load(y + i)
    tl.store(out + i, a + b)
    tl.store(out + N + i, a * b)
    tl.store(out + 2 * N + i, a // b)
    tl.store(out + 3 * N + i, a % b)
    tl.store(out + 4 * N + i, a >> 3)
    tl.store(out + 5 * N + i, tl.minimum(a, b))


@triton.jit
def double(x, y, out, N: tl.constexpr):
    i = tl.arange(0, N)
    a, b = tl.load(x + i), tl.load(y + i)
    tl.store(out + i, a / b)
    tl.store(out + N + i, tl.sqrt(tl.abs(a)))
    tl.store(out + 2 * N + i, tl.fma(a, b, a))
    tl.store(out + 3 * N + i, tl.exp(a))
    tl.store(out + 4 * N + i, tl.floor(a))


@triton.jit
def converted(x, small, back, N: tl.constexpr):
    i = tl.arange(0, N)
    value = tl.load(x + i).to(small.dtype.element_ty)
    tl.store(small + i, value)
    tl.store(back + i, value.to(tl.float32))


@triton.jit
def dot(a, b, c, M: tl.constexpr, N: tl.constexpr, K: tl.constexpr):
    m, n, k = tl.arange(0, M), tl.arange(0, N), tl.arange(0, K)
    x, y = tl.load(a + m[:, None] * K + k[None, :]), tl.load(b + k[:, None] * N + n[None, :])
    product = tl.dot(x, y, out_dtype=c.dtype.element_ty, input_precision="ieee")
    tl.store(c + m[:, None] * N + n[None, :], product)


@triton.jit
def scaled_dot(a, sa, b, sb, c, M: tl.constexpr, N: tl.constexpr, K: tl.constexpr, FA: tl.constexpr, FB: tl.constexpr):
    PA: tl.constexpr = 2 if FA == "e2m1" else 1
    PB: tl.constexpr = 2 if FB == "e2m1" else 1
    m, n, blocks = tl.arange(0, M), tl.arange(0, N), tl.arange(0, K // 32)
    x = tl.load(a + m[:, None] * (K // PA) + tl.arange(0, K // PA)[None, :])
    y = tl.load(b + n[None, :] * (K // PB) + tl.arange(0, K // PB)[:, None])
    scale_x = tl.load(sa + m[:, None] * (K // 32) + blocks[None, :])
    scale_y = tl.load(sb + n[:, None] * (K // 32) + blocks[None, :])
    tl.store(c + m[:, None] * N + n[None, :], tl.dot_scaled(x, scale_x, FA, y, scale_y, FB))


@triton.jit
def gathered(x, index, out, N: tl.constexpr):
    i = tl.arange(0, N)
    tl.store(out + i, tl.gather(tl.load(x + i), tl.load(index + i), 0))


@triton.jit
def atomics(x, whole, single, wide, N: tl.constexpr):
    i = tl.arange(0, N)
    value, bin = tl.load(x + i), i % 7
    tl.atomic_add(whole + bin, value)
    tl.atomic_max(whole + 7 + bin, value)
    tl.atomic_min(whole + 14 + bin, value)
    tl.atomic_or(whole + 21 + bin, value)
    tl.atomic_xor(whole + 28 + bin, value)
    tl.atomic_and(whole + 35 + bin, value)
    tl.atomic_cas(whole + 42 + bin, tl.zeros_like(value), value)
    tl.atomic_add(single + bin, value.to(tl.float32))
    tl.atomic_max(single + 7 + bin, value.to(tl.float32))
    tl.atomic_add(wide + bin, value.to(tl.int64))
    tl.atomic_max(wide + 7 + bin, value.to(tl.int64))


@triton.jit
def locked(lock, out, BLOCK: tl.constexpr):
    i = tl.arange(0, BLOCK)
    while tl.atomic_cas(lock, 0, 1) == 1:
        pass
    tl.store(out + i, tl.load(out + i) + i)
    tl.debug_barrier()
    tl.atomic_xchg(lock, 0)
