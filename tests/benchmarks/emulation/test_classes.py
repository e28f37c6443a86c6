"""What strange kernels are made of, executed for both targets: sorting, scans, 64 bits, small floats, atomics ..."""

from __future__ import annotations

import functools
import operator

import pytest
import torch

from benchmarks.emulation import machine
from benchmarks.emulation.triton_driver import emulated
from tests.benchmarks.emulation import classes
from tests.kit import mostly_nightly

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
    classes.sort[(2,)](x, out, 128)
    assert torch.equal(out, x.sort(1)[0])


@pytest.mark.parametrize("dtype", [torch.float32, torch.int32, torch.int64])
def test_scans(random, dtype):
    x = (torch.randn(32, 64, generator=random) * 4).to(dtype)
    out = torch.zeros(2, 32, 64, dtype=dtype)
    classes.scan[(1,)](x, out, 32, 64)
    assert near(out, torch.stack([x.double().cumsum(1), x.double().cumsum(0)]), 1e-5 if dtype == torch.float32 else 0)


def test_histogram_and_extremes(random):
    x = torch.randint(0, 64, (512,), generator=random, dtype=torch.int32)
    bins, places = torch.zeros(64, dtype=torch.int32), torch.zeros(2, dtype=torch.int32)
    classes.histogram[(1,)](x, bins, 512, 64)
    assert bins.tolist() == torch.bincount(x, minlength=64).tolist()
    numbers = torch.randn(512, generator=random)
    classes.extremes[(1,)](numbers, places, 512)
    assert places.tolist() == [int(numbers.argmax()), int(numbers.argmin())]


def philox(seed, counter):
    """The first word of Philox 4 x 32 with 10 rounds."""
    low = 0xFFFFFFFF
    key, state = [seed & low, seed >> 32], [counter, 0, 0, 0]
    for _ in range(10):
        a, b = state[0] * 0xD2511F53, state[2] * 0xCD9E8D57
        state = [b >> 32 ^ state[1] ^ key[0], b & low, a >> 32 ^ state[3] ^ key[1], a & low]
        key = [key[0] + 0x9E3779B9 & low, key[1] + 0xBB67AE85 & low]
    return state[0]


def test_random_numbers():
    out = torch.zeros(128, dtype=torch.int32)
    classes.uniform[(1,)](out, 1234, 128)
    assert [one & 0xFFFFFFFF for one in out.tolist()] == [philox(1234, i) for i in range(128)]


def test_functions(random):
    x = torch.randn(256, generator=random) * 5
    out = torch.zeros(8, 256)
    classes.functions[(1,)](x, out, 256)
    d, size = x.double(), x.double().abs()
    expected = [d.exp(), size.log(), d.sin(), d.cos(), size.sqrt(), d / (d * d + 1.5), torch.erf(d), size.rsqrt()]
    for found, wanted in zip(out, expected, strict=True):
        assert near(found, wanted, 2e-6)


@pytest.mark.parametrize("dtype", [torch.int8, torch.uint8, torch.int16, torch.int32, torch.int64])
def test_whole_numbers(random, dtype):
    top = min(torch.iinfo(dtype).max, 2**62)
    x = torch.randint(0 if dtype == torch.uint8 else -top, top, (128,), generator=random, dtype=torch.int64).to(dtype)
    y = torch.randint(1, min(top, 2**40), (128,), generator=random, dtype=torch.int64).to(dtype)
    out = torch.zeros(6, 128, dtype=dtype)
    classes.whole[(1,)](x, y, out, 128)
    a, b = x.long(), y.long()
    quotient = torch.div(a, b, rounding_mode="trunc")
    expected = [a + b, a * b, quotient, a - quotient * b, a >> 3, torch.minimum(a, b)]
    assert torch.equal(out, torch.stack(expected).to(dtype))


def test_double_precision(random):
    x, y = torch.randn(2, 128, generator=random, dtype=torch.float64)
    out = torch.zeros(5, 128, dtype=torch.float64)
    classes.double[(1,)](x, y, out, 128)
    assert near(out, torch.stack([x / y, x.abs().sqrt(), x * y + x, x.exp(), x.floor()]), 1e-14)


@pytest.mark.parametrize("name", F8)
def test_conversion_to_and_from_fp8(random, name):
    x = torch.randn(256, generator=random) * 20
    small, back = torch.zeros(256, dtype=F8[name]), torch.zeros(256)
    classes.converted[(1,)](x, small, back, 256)
    assert torch.equal(small.view(torch.uint8), x.to(F8[name]).view(torch.uint8))
    assert torch.equal(back, small.float())


@pytest.mark.parametrize(
    "dtype", [torch.float16, torch.bfloat16, torch.float32, torch.float64, torch.int8, *F8.values()]
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
    classes.dot[(1,)](a, b, c, 64, 64, 64)
    assert near(c, a.double() @ b.double(), 0 if whole else 1e-13 if dtype == torch.float64 else 2e-5)


@pytest.mark.parametrize(
    ("arch", "shape"),
    mostly_nightly([("gfx942", 16), ("gfx950", 16), ("gfx950", 32)], ("gfx950", 16)),
    indirect=["arch"],
)  # gfx942 multiplies in bf16, whose shapes test_matrix.py has
@pytest.mark.parametrize(
    "kinds", [("e4m3", "e4m3"), ("e5m2", "e4m3"), ("e2m1", "e2m1"), ("e4m3", "e2m1"), ("e2m1", "e5m2")]
)
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
    classes.scaled_dot[(1,)](a, scale_a, b, scale_b, c, size, size, k, *kinds, matrix_instr_nonkdim=shape)
    expected = x @ y.T
    top = expected.abs().max()
    # gfx942 has no such instruction: Triton multiplies in bf16 there
    assert (c - expected).abs().max() / top < (1e-5 if arch == "gfx950" else 1e-2)


def test_gather(random):
    x, index = torch.randn(256, generator=random), torch.randint(0, 256, (256,), generator=random, dtype=torch.int32)
    out = torch.zeros(256)
    classes.gathered[(1,)](x, index, out, 256)
    assert torch.equal(out, x[index.long()])


def test_atomics(random):
    x = torch.randint(1, 1000, (256,), generator=random, dtype=torch.int32)
    whole, single, wide = torch.zeros(49, dtype=torch.int32), torch.zeros(14), torch.zeros(14, dtype=torch.int64)
    whole[14:21], whole[35:42] = 9999, -1
    classes.atomics[(1,)](x, whole, single, wide, 256)
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
    classes.locked[(5,)](lock, out, 128, num_warps=2)
    assert torch.equal(out, 5 * torch.arange(128, dtype=torch.int32))
    assert lock.item() == 0
