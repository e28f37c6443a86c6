"""What strange kernels are made of, executed for both targets: sorting, scans, 64 bits, small floats, atomics ..."""

from __future__ import annotations

import functools
import operator

import pytest
import torch
import triton
import triton.language as tl

from benchmarks.emulation import machine
from benchmarks.emulation.triton_driver import emulated
from tests.kit import mostly_nightly

# Kernels that exercise what strange kernels are made of, each for one class of instructions.


@triton.jit
def sort_kernel(x, out, N: tl.constexpr):
    i = tl.program_id(0) * N + tl.arange(0, N)
    tl.store(out + i, tl.sort(tl.load(x + i)))


@triton.jit
def scan_kernel(x, out, N: tl.constexpr, M: tl.constexpr):
    i = tl.arange(0, N)[:, None] * M + tl.arange(0, M)[None, :]
    value = tl.load(x + i)
    tl.store(out + i, tl.cumsum(value, 1))
    tl.store(out + N * M + i, tl.cumsum(value, 0))


@triton.jit
def histogram_kernel(x, out, N: tl.constexpr, BINS: tl.constexpr):
    tl.store(out + tl.arange(0, BINS), tl.histogram(tl.load(x + tl.arange(0, N)), BINS))


@triton.jit
def extremes_kernel(x, out, N: tl.constexpr):
    value = tl.load(x + tl.arange(0, N))
    tl.store(out, tl.argmax(value, 0))
    tl.store(out + 1, tl.argmin(value, 0))


@triton.jit
def dot_kernel(a, b, c, M: tl.constexpr, N: tl.constexpr, K: tl.constexpr):
    m, n, k = tl.arange(0, M), tl.arange(0, N), tl.arange(0, K)
    x, y = tl.load(a + m[:, None] * K + k[None, :]), tl.load(b + k[:, None] * N + n[None, :])
    product = tl.dot(x, y, out_dtype=c.dtype.element_ty, input_precision="ieee")
    tl.store(c + m[:, None] * N + n[None, :], product)


@triton.jit
def scaled_dot_kernel(
    a, sa, b, sb, c, M: tl.constexpr, N: tl.constexpr, K: tl.constexpr, FA: tl.constexpr, FB: tl.constexpr
):
    PA: tl.constexpr = 2 if FA == "e2m1" else 1
    PB: tl.constexpr = 2 if FB == "e2m1" else 1
    m, n, blocks = tl.arange(0, M), tl.arange(0, N), tl.arange(0, K // 32)
    x = tl.load(a + m[:, None] * (K // PA) + tl.arange(0, K // PA)[None, :])
    y = tl.load(b + n[None, :] * (K // PB) + tl.arange(0, K // PB)[:, None])
    scale_x = tl.load(sa + m[:, None] * (K // 32) + blocks[None, :])
    scale_y = tl.load(sb + n[:, None] * (K // 32) + blocks[None, :])
    tl.store(c + m[:, None] * N + n[None, :], tl.dot_scaled(x, scale_x, FA, y, scale_y, FB))


@triton.jit
def atomics_kernel(x, whole, single, wide, N: tl.constexpr):
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
def locked_kernel(lock, out, BLOCK: tl.constexpr):
    i = tl.arange(0, BLOCK)
    while tl.atomic_cas(lock, 0, 1) == 1:
        pass
    tl.store(out + i, tl.load(out + i) + i)
    tl.debug_barrier()
    tl.atomic_xchg(lock, 0)


F8 = {
    "fnuz e4m3": torch.float8_e4m3fnuz,
    "fnuz e5m2": torch.float8_e5m2fnuz,
    "ocp e4m3": torch.float8_e4m3fn,
    "ocp e5m2": torch.float8_e5m2,
}
FP4 = torch.tensor([0, 0.5, 1, 1.5, 2, 3, 4, 6, -0.0, -0.5, -1, -1.5, -2, -3, -4, -6], dtype=torch.float64)


@pytest.fixture(params=mostly_nightly(["gfx942", "gfx950"], "gfx950"), autouse=True)
def arch(request):
    with emulated(request.param):
        yield request.param


@pytest.fixture
def random():
    return torch.Generator().manual_seed(0)


def near(found, expected, relative):
    """Whether all differ by less than this, of the value or of 1."""
    found, expected = found.double(), expected.double()
    return bool(((found - expected).abs() <= relative * expected.abs().clamp(min=1)).all())


@pytest.mark.parametrize(
    ("arch", "dtype"),
    mostly_nightly(
        [
            *(("gfx942", dtype) for dtype in (torch.float32, torch.float16, torch.int32, torch.int64)),
            *(("gfx950", dtype) for dtype in (torch.float32, torch.int64)),
        ],
        ("gfx942", torch.float16),
        ("gfx950", torch.int64),
    ),
    indirect=["arch"],
)
def test_sorting(random, dtype):
    x = (torch.randn(2, 128, generator=random) * 100).to(dtype)
    out = torch.zeros_like(x)
    sort_kernel[(2,)](x, out, 128)
    assert torch.equal(out, x.sort(1)[0])


@pytest.mark.parametrize("dtype", mostly_nightly([torch.float32, torch.int32, torch.int64], torch.int64))
def test_scans(random, dtype):
    x = (torch.randn(32, 64, generator=random) * 4).to(dtype)
    out = torch.zeros(2, 32, 64, dtype=dtype)
    scan_kernel[(1,)](x, out, 32, 64)
    assert near(out, torch.stack([x.double().cumsum(1), x.double().cumsum(0)]), 1e-5 if dtype == torch.float32 else 0)


def test_histogram_and_extremes(random):
    x = torch.randint(0, 64, (512,), generator=random, dtype=torch.int32)
    bins, places = torch.zeros(64, dtype=torch.int32), torch.zeros(2, dtype=torch.int32)
    histogram_kernel[(1,)](x, bins, 512, 64)
    assert bins.tolist() == torch.bincount(x, minlength=64).tolist()
    numbers = torch.randn(512, generator=random)
    extremes_kernel[(1,)](numbers, places, 512)
    assert places.tolist() == [int(numbers.argmax()), int(numbers.argmin())]


@pytest.mark.parametrize(
    "dtype",
    mostly_nightly(
        [torch.float16, torch.bfloat16, torch.float32, torch.float64, torch.int8, *F8.values()],
        *(torch.bfloat16, torch.int8, torch.float8_e4m3fn),
    ),
)
def test_products(random, dtype):
    whole = dtype == torch.int8
    a, b = (
        torch.randint(-100, 100, (64, 64), generator=random).to(dtype)
        if whole
        else torch.randn(64, 64, generator=random).to(dtype)
        for _ in range(2)
    )
    c = torch.zeros(64, 64, dtype=torch.int32 if whole else torch.float64 if dtype == torch.float64 else torch.float32)
    dot_kernel[(1,)](a, b, c, 64, 64, 64)
    assert near(c, a.double() @ b.double(), 0 if whole else 1e-13 if dtype == torch.float64 else 2e-5)


@pytest.mark.parametrize(
    ("arch", "shape"),
    mostly_nightly([("gfx942", 16), ("gfx950", 16), ("gfx950", 32)], ("gfx950", 16)),
    indirect=["arch"],
)  # gfx942 multiplies in bf16, whose shapes test_matrix.py has
@pytest.mark.parametrize("kinds", [("e5m2", "e4m3"), ("e2m1", "e2m1"), ("e4m3", "e2m1")])
def test_scaled_products(arch, random, kinds, shape):
    size, k = 32, 256

    def operand(kind):
        scale = torch.randint(120, 134, (size, k // 32), generator=random, dtype=torch.uint8)
        power = (2.0 ** (scale.double() - 127)).repeat_interleave(32, 1)
        if kind == "e2m1":
            codes = torch.randint(0, 256, (size, k // 2), generator=random, dtype=torch.uint8)
            value = torch.stack([FP4[(codes & 15).long()], FP4[(codes >> 4).long()]], -1).reshape(size, k)
            return codes, scale, value * power
        codes = torch.randn(size, k, generator=random).to(F8[f"ocp {kind}"])
        return codes, scale, codes.double() * power

    (a, scale_a, x), (b, scale_b, y) = operand(kinds[0]), operand(kinds[1])
    c = torch.zeros(size, size)
    scaled_dot_kernel[(1,)](a, scale_a, b, scale_b, c, size, size, k, *kinds, matrix_instr_nonkdim=shape)
    expected = x @ y.T
    top = expected.abs().max()
    # gfx942 has no such instruction: Triton multiplies in bf16 there
    assert (c - expected).abs().max() / top < (1e-5 if arch == "gfx950" else 1e-2)


def test_atomics(random):
    x = torch.randint(1, 1000, (256,), generator=random, dtype=torch.int32)
    whole, single, wide = torch.zeros(49, dtype=torch.int32), torch.zeros(14), torch.zeros(14, dtype=torch.int64)
    whole[14:21], whole[35:42] = 9999, -1
    atomics_kernel[(1,)](x, whole, single, wide, 256)
    for bin in range(7):
        values = x[bin::7].tolist()
        expected = [
            sum(values),
            max(values),
            min(values),
            *(functools.reduce(how, values) for how in (operator.or_, operator.xor, operator.and_)),
        ]
        assert whole[bin:42:7].tolist() == expected
        assert int(whole[42 + bin]) in values
        assert single[bin::7].tolist() == wide[bin::7].tolist() == [sum(values), max(values)]


def test_waves_that_wait_for_a_lock_let_its_holder_go_on(monkeypatch):
    """They stand at lower addresses, and a barrier in every round of their loop: each turn of theirs is short."""
    monkeypatch.setattr(machine, "PATIENCE", 500)
    lock, out = torch.zeros(1, dtype=torch.int32), torch.zeros(128, dtype=torch.int32)
    locked_kernel[(5,)](lock, out, 128, num_warps=2)
    assert torch.equal(out, 5 * torch.arange(128, dtype=torch.int32))
    assert lock.item() == 0
