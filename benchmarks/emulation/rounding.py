"""Multiply-add with one rounding, and the steps of a division: what numpy has no operation for."""

from __future__ import annotations

import ctypes
from functools import lru_cache
from typing import Any

import numpy as np


@lru_cache
def _fma() -> Any:
    """C's fma of fp64, for arrays."""
    function = ctypes.CDLL(None).fma
    function.restype, function.argtypes = ctypes.c_double, [ctypes.c_double] * 3
    return np.vectorize(function, otypes=[np.float64])


def fused(a: Any, b: Any, c: Any) -> Any:
    """a * b + c with one rounding: of fp32 exact in fp64 up to the sum, whose error is kept in its last bit."""
    if c.dtype == np.float16:  # exact in fp64
        return (a.astype(np.float64) * b + c).astype(np.float16)
    if traced := [one for one in (a, b, c) if not isinstance(one, np.ndarray)]:  # of a wave (graph.py)
        return traced[0].fused(a, b, c)
    if c.dtype == np.float64:
        return _fma()(a, b, c)
    product, other = a.astype(np.float64) * b.astype(np.float64), c.astype(np.float64)
    total = product + other
    part = total - product
    lost = (product - (total - part)) + (other - part)
    bits = total.view(np.int64)
    odd = np.isfinite(total) & (lost != 0) & (bits & 1 == 0)
    step = np.where((lost > 0) == (total > 0), 1, -1)
    return np.where(odd, bits + step, bits).view(np.float64).astype(c.dtype)


def _exponent(value: Any) -> Any:
    """The field of the exponent."""
    layout = np.finfo(value.dtype)
    bits = value.view(f"i{value.itemsize}").astype(np.int64 if value.itemsize == 8 else np.int32)
    return bits >> layout.nmant & (1 << layout.nexp) - 1


def _below(size: Any, limit: Any) -> Any:
    """Whether a number without a sign is above 0 and below a limit: by its bits, in one comparison."""
    one = np.dtype(f"u{size.itemsize}").type(1)
    return size.view(one.dtype) - one < np.asarray(limit).view(one.dtype)[()] - one


def division_scale(given: Any, denominator: Any, numerator: Any) -> tuple[Any, Any]:
    """V_DIV_SCALE: the operand, scaled so that the steps stay normal, and which lanes FMAS scales back."""
    dtype = given.dtype
    places, far, tiny = (64, 96, 23) if dtype == np.float32 else (128, 768, 53)
    least = np.finfo(dtype).tiny
    up, down = (given * dtype.type(2.0**power) for power in (places, -places))
    ratio = np.abs(numerator / denominator)
    small = _below(ratio, least)
    denominator_up = np.where(given == denominator, up, given)
    inverse: list[Any] = []
    if dtype == np.float64:  # of no fp32 is 1 / x too small for fp64
        reciprocal = np.abs(1 / denominator)
        tested = _below(reciprocal, least)
        inverse = [(tested & small, denominator_up, True), (tested, down, False)]
    tests, scaled, flags = zip(
        (numerator == 0, dtype.type(np.nan), False),
        (denominator == 0, dtype.type(np.nan), False),
        (_exponent(numerator) - _exponent(denominator) >= far, denominator_up, True),
        (np.abs(denominator) < least, up, False),
        *inverse,
        (small, np.where(given == numerator, up, given), True),
        (_exponent(numerator) <= tiny, up, False),
        strict=True,
    )
    return np.select(tests, scaled, given), np.select(tests, list(map(np.uint32, flags)), np.uint32(0)) != 0


def division_fixup(quotient: Any, denominator: Any, numerator: Any) -> Any:
    """V_DIV_FIXUP: the quotient with its special cases."""
    d, n = np.abs(denominator), np.abs(numerator)
    far = {2: -(2**31), 4: -150, 8: -1075}[quotient.itemsize]
    sign = np.where(np.signbit(denominator) ^ np.signbit(numerator), quotient.dtype.type(-1), quotient.dtype.type(1))
    value = np.select(
        [
            ((d == 0) & (n == 0)) | (np.isinf(d) & np.isinf(n)),
            (d == 0) | np.isinf(n),
            np.isinf(d) | (n == 0) | (_exponent(numerator) - _exponent(denominator) < far),
        ],
        [np.nan, sign * np.inf, sign * 0],
        np.copysign(quotient, sign),
    )
    return np.where(np.isnan(numerator), numerator, np.where(np.isnan(denominator), denominator, value))
