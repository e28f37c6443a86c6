"""A comparison must see every kind of wrong output."""

import math

import pytest
import torch

from kernels import numerics
from kernels.numerics import compare, normal, poison, seed_for
from kernels.spec import Tolerance

LOOSE, EXACT = Tolerance(norm=1e-2, peak=0.1), Tolerance()


def values(shape=(64, 96), seed=1):
    return normal(shape, "fp32", seed)


def test_equal_is_ok_and_rounding_is_measured():
    x = values()
    assert compare(x, x.clone(), EXACT) == numerics.Comparison(True, 0.0, 0.0, "")
    rounded = compare(x.half(), x, LOOSE)
    assert rounded.ok
    assert 1e-5 < rounded.norm < 1e-3


def test_norm_and_peak_follow_their_definition():
    x, y = values(seed=1), values(seed=2)
    found = compare(y, x, LOOSE)
    assert found.norm == pytest.approx(float((y - x).norm() / x.norm()), rel=1e-5)
    assert found.peak == pytest.approx(float((y - x).abs().max() / x.pow(2).mean().sqrt()), rel=1e-5)


def test_one_wrong_element_in_millions_is_seen_by_the_peak():
    x = normal((2048, 2048), "fp32", 3)
    y = x.clone()
    y[1234, 567] += 1.0
    found = compare(y, x, LOOSE)
    assert not found.ok
    assert found.norm < LOOSE.norm
    assert "[1234, 567]" in found.why


def test_a_swapped_tile_is_seen():
    x = values()
    y = x.clone()
    y[:16, :16], y[16:32, :16] = x[16:32, :16].clone(), x[:16, :16].clone()
    assert not compare(y, x, LOOSE).ok
    assert "[0, 0]" in compare(y, x, EXACT).why


@pytest.mark.parametrize("bad", [math.nan, math.inf, -math.inf])
@pytest.mark.parametrize("side", ["the output", "the reference"])
def test_not_finite_never_passes_and_is_named(bad, side):
    x = values()
    y = x.clone()
    (y if side == "the output" else x)[3, 5] = bad
    found = compare(y, x, Tolerance(norm=math.inf, peak=math.inf))
    assert not found.ok
    assert found.why.startswith(side)
    assert "[3, 5]" in found.why
    assert repr(bad) in found.why


def test_shape_dtype_and_tuple_length():
    x = values()
    assert "(64, 96)" in compare(x.T, x, LOOSE).why
    assert "float16" in compare(x.half(), x, EXACT).why
    assert "2 tensor(s), expected 1" in compare((x, x), x, LOOSE).why
    assert "tuples" in compare((x,), x, LOOSE).why


def test_tuples_name_the_part():
    x, y = values(), values(seed=9)
    assert compare((x, y), (x, y), EXACT).ok
    found = compare((x, y), (x, x), LOOSE)
    assert not found.ok
    assert found.why.startswith("output 1:")


def test_exact_is_bitwise():
    assert not compare(torch.tensor([0.0]), torch.tensor([-0.0]), EXACT).ok
    x = torch.arange(5)
    y = x.clone()
    y[4] = 7
    assert "7 at [4], expected 4" in compare(y, x, EXACT).why


def test_a_reference_of_zeros_makes_any_difference_infinite():
    zeros = torch.zeros(8)
    assert compare(zeros, zeros.clone(), LOOSE).ok
    assert not compare(zeros + 1e-30, zeros, LOOSE).ok


def test_chunks_see_the_last_element(monkeypatch):
    monkeypatch.setattr(numerics, "CHUNK", 100)
    x = values((7, 43))
    y = x.clone()
    y[6, 42] += 5
    assert "[6, 42]" in compare(y, x, EXACT).why
    assert "[6, 42]" in compare(y, x, LOOSE).why
    whole = compare(y, x, LOOSE)
    monkeypatch.undo()
    assert compare(y, x, LOOSE).norm == pytest.approx(whole.norm)
    y[6, 42] = math.nan
    assert "[6, 42]" in compare(y, x, LOOSE).why


@pytest.mark.parametrize(
    "dtype", [torch.float16, torch.float8_e4m3fn, torch.float8_e5m2, torch.int8, torch.int64, torch.bool]
)
def test_poison_is_never_right(dtype):
    out = torch.zeros(32).to(dtype)
    reference = out.clone()
    assert poison(out) is out
    assert not compare(out, reference, EXACT).ok
    if dtype.is_floating_point:
        assert bool(out.float().isnan().all())


def test_poison_takes_tuples_and_views():
    storage = torch.zeros(4, 4)
    poison((storage[:, :2], torch.zeros(3)))
    assert storage.isnan().sum() == 8


def test_normal_repeats_and_differs_between_operands():
    a = normal((8, 8), "fp16", seed_for(0, "gemm", "A"))
    assert a.dtype is torch.float16
    assert torch.equal(a, normal((8, 8), torch.float16, seed_for(0, "gemm", "A")))
    assert not torch.equal(a, normal((8, 8), "fp16", seed_for(0, "gemm", "B")))
    assert float(normal((4096,), "fp32", 1, scale=3.0).std()) == pytest.approx(3.0, rel=0.1)


def test_what_is_right_comes_to_the_host_in_one_transfer(monkeypatch):
    """Each of these waits for the device, as they would on one."""
    transfers = []
    for name in ("cpu", "item", "tolist", "__bool__", "__int__", "__float__"):
        original = getattr(torch.Tensor, name)
        counted = lambda self, original=original: transfers.append(self.shape) or original(self)  # noqa: E731
        monkeypatch.setattr(torch.Tensor, name, counted)
    pairs = [(values(seed=seed), values(seed=seed)) for seed in range(3)]
    pairs.append(((values(), values(seed=9)), (values(), values(seed=9))))
    for tolerance in (LOOSE, EXACT):
        transfers.clear()
        assert [found.ok for found in numerics.compare_all(pairs, tolerance)] == [True] * 4
        assert len(transfers) == 1


def test_each_output_is_held_against_its_own_reference():
    x, y = values(), values(seed=9)
    found = numerics.compare_all([(x, x), (y, x), (x, y), (y, y)], LOOSE)
    assert [one.ok for one in found] == [True, False, False, True]
    assert numerics.compare_all([], LOOSE) == []
