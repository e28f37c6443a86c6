"""Multiply-add with one rounding, and the steps of a division: what numpy has no operation for."""

from __future__ import annotations

import math
from fractions import Fraction
from typing import Any

import numpy as np


def fused(a: Any, b: Any, c: Any) -> Any:
    """a * b + c of fp32 with one rounding: exact in fp64 up to the sum, whose error is kept in its last bit."""
    product, other = a.astype(np.float64) * b.astype(np.float64), c.astype(np.float64)
    total = product + other
    part = total - product
    lost = (product - (total - part)) + (other - part)
    bits = np.ascontiguousarray(total).view(np.int64)
    odd = np.isfinite(total) & (lost != 0) & (bits & 1 == 0)
    step = np.where((lost > 0) == (total > 0), 1, -1)
    return np.where(odd, bits + step, bits).view(np.float64).astype(np.float32)


def _exponent(value: Any) -> Any:
    """The field of the exponent."""
    layout = np.finfo(value.dtype)
    bits = np.ascontiguousarray(value).view(f"u{value.itemsize}").astype(np.uint64)
    return (bits >> np.uint64(layout.nmant) & np.uint64((1 << layout.nexp) - 1)).astype(np.int32)


def division_scale(given: Any, denominator: Any, numerator: Any) -> tuple[Any, Any]:
    """V_DIV_SCALE: the operand, scaled so that the steps stay normal, and which lanes FMAS scales back."""
    dtype = given.dtype
    places, far, tiny = (64, 96, 23) if dtype == np.float32 else (128, 768, 53)
    least, wide = np.finfo(dtype).tiny, np.finfo(np.float64).tiny
    up, down = (np.ldexp(given.astype(np.float64), power).astype(dtype) for power in (places, -places))
    ratio = np.abs((numerator.astype(np.float64) / denominator.astype(np.float64)).astype(dtype))
    reciprocal = np.abs(1 / denominator.astype(np.float64))
    small, inverse = (ratio < least) & (ratio > 0), (reciprocal < wide) & (reciprocal > 0)
    of_denominator, of_numerator = given == denominator, given == numerator
    cases = [
        ((numerator == 0) | (denominator == 0), dtype.type(np.nan), False),
        (_exponent(numerator) - _exponent(denominator) >= far, np.where(of_denominator, up, given), True),
        ((np.abs(denominator) < least), up, False),
        (inverse & small, np.where(of_denominator, up, given), True),
        (inverse, down, False),
        (small, np.where(of_numerator, up, given), True),
        (_exponent(numerator) <= tiny, up, False),
    ]
    tests = [test for test, _, _ in cases]
    return np.select(tests, [value for _, value, _ in cases], given), np.select(
        tests, [flag for _, _, flag in cases], False
    )


def division_fixup(quotient: Any, denominator: Any, numerator: Any) -> Any:
    """V_DIV_FIXUP: the quotient with its special cases."""
    dtype = quotient.dtype
    d, n = np.abs(denominator), np.abs(numerator)
    sign = np.where(np.signbit(denominator) ^ np.signbit(numerator), dtype.type(-1), dtype.type(1))
    infinite, zero = dtype.type(np.inf), dtype.type(0)
    far = {"float16": -(2**31), "float32": -150, "float64": -1075}[dtype.name]
    magnitude = np.select(
        [(d == 0) | (n == infinite), (d == infinite) | (n == 0), _exponent(numerator) - _exponent(denominator) < far],
        [infinite, zero, zero],
        np.abs(quotient),
    )
    wrong = ((d == 0) & (n == 0)) | ((d == infinite) & (n == infinite))
    value = np.where(wrong, dtype.type(np.nan), np.copysign(magnitude, sign))
    return np.where(np.isnan(numerator), numerator, np.where(np.isnan(denominator), denominator, value)).astype(dtype)


def _exact_fused(a: float, b: float, c: float) -> float:
    """a * b + c of finite numbers with one rounding, by rational numbers."""
    total = Fraction(a) * Fraction(b) + Fraction(c)
    if total == 0:
        return a * b + c
    try:
        return float(total)
    except OverflowError:
        return math.inf if total > 0 else -math.inf


def fused64(a: Any, b: Any, c: Any) -> Any:
    """a * b + c of fp64 with one rounding: with the errors of product and sum kept, the last addition rounded to odd.

    Source: Boldo and Melquiond, Emulation of a FMA and Correctly Rounded Sums, 2008.  Operands so large or small that
    those errors are not representable are computed one by one with rational numbers.
    """
    a, b, c = np.broadcast_arrays(a, b, c)
    split = 134217729.0

    def halves(x: Any) -> tuple[Any, Any]:
        high = x * split - (x * split - x)
        return high, x - high

    def added(x: Any, y: Any) -> tuple[Any, Any]:
        total = x + y
        part = total - x
        return total, (x - (total - part)) + (y - part)

    product = a * b
    (ah, al), (bh, bl) = halves(a), halves(b)
    error = ((ah * bh - product) + ah * bl + al * bh) + al * bl
    low, lowest = added(c, error)
    high, middle = added(product, low)
    rest, lost = added(middle, lowest)
    bits = np.ascontiguousarray(rest).view(np.int64)
    odd = (lost != 0) & (bits & 1 == 0)
    toward = np.where((lost > 0) == (rest > 0), 1, -1)
    result = high + np.where(odd, bits + toward, bits).view(np.float64)
    plain = np.where(np.isinf(c) & np.isfinite(a) & np.isfinite(b), c, a * b + c)  # a product is never too large
    sizes = [np.frexp(one)[1] for one in (a, b, c)]
    unsafe = (np.abs(sizes[0] + sizes[1]) > 900) | np.any([np.abs(size) > 900 for size in sizes], axis=0)
    finite = np.isfinite(a) & np.isfinite(b) & np.isfinite(c)
    result = np.where(finite & (a * b != 0) & (result != 0), result, plain)
    for place in zip(*np.nonzero(unsafe & finite & (a != 0) & (b != 0)), strict=True):
        result[place] = _exact_fused(float(a[place]), float(b[place]), float(c[place]))
    return result
