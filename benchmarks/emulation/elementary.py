"""Powers, logarithms and sines of fp64 by sums, products and quotients alone: within 2 units in the last place.

Made of operations that are rounded the same everywhere, so that the executor and native code agree to the last bit.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np

_EXP = [1 / math.factorial(n) for n in range(14)]
_LOG = [2 / math.log(2) / (2 * n + 1) for n in range(12)]
_SIN = [(-1) ** n / math.factorial(2 * n + 1) for n in range(9)]
_COS = [(-1) ** n / math.factorial(2 * n) for n in range(9)]


def _sum(coefficients: list[float], x: Any) -> Any:
    """The polynomial, by Horner."""
    value = x * 0 + coefficients[-1]
    for one in reversed(coefficients[:-1]):
        value = value * x + one
    return value


def exp2(x: Any) -> Any:
    """2 to the power of x."""
    x = np.clip(x, -1100.0, 1100.0)
    whole = np.rint(x)
    power = np.where(whole == whole, whole, 0.0).astype(np.int32)
    value = _sum(_EXP, (x - whole) * math.log(2))
    for part in (power >> 1, power - (power >> 1)):
        value = value * ((part + 1023).astype(np.int64) << 52).view(np.float64)
    return value


def log2(x: Any) -> Any:
    """The logarithm to base 2; of a negative number NaN."""
    mantissa, exponent = np.frexp(x)
    low = mantissa < math.sqrt(0.5)
    mantissa = np.where(low, mantissa + mantissa, mantissa)
    ratio = (mantissa - 1.0) / (mantissa + 1.0)
    value = (exponent - low.astype(np.int32)).astype(np.float64) + ratio * _sum(_LOG, ratio * ratio)
    value = np.where(x == 0, -np.inf, np.where(x == np.inf, np.inf, value))
    return np.where((x < 0) | (x != x), np.nan, value)


def _turned(x: Any, quarters: int) -> Any:
    """The sine of x + quarters / 4 revolutions."""
    x = x - np.rint(x)
    nearest = np.rint(4 * x)
    angle = (x - nearest / 4) * (2 * math.pi)
    square = angle * angle
    sine, cosine = angle * _sum(_SIN, square), _sum(_COS, square)
    place = np.nan_to_num(nearest).astype(np.int64) + quarters & 3
    value = np.where(place & 1 == 1, cosine, sine)
    return np.where(place >= 2, -value, value)


def sine(x: Any) -> Any:
    """Of x revolutions."""
    return _turned(x, 0)


def cosine(x: Any) -> Any:
    """Of x revolutions."""
    return _turned(x, 1)
