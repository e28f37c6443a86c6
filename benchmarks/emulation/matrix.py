"""Matrix operations (MFMA): where each lane's values lie in A, B, C and D, and their product.

Lane maps, for a tile of M x N with K values in sum, from AMD Instinct MI300 and MI350 Instruction Set Architecture,
chapter Matrix Arithmetic Instructions: lane l holds, of A, row l mod M, and of B, column l mod N, each the values k of
block l div M: `per` consecutive ones.  Of D, lane l holds column l mod N; register r is row
4 ((64 / N) (r div 4) + l div N) + r mod 4.

Here the products are exact, summed in fp64 and rounded once to fp32; the hardware's order of summation is not published
and rounds in between.  For K values of one sign the difference is below K 2^-24 of the result, in practice a few ulp.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from functools import lru_cache
from typing import Any

import numpy as np

from .operands import Unknown
from .small_floats import small_floats
from .waves import LANES

NAME = re.compile(r"V_MFMA_(?P<result>F32|I32)_(?P<m>16|32)X(?P=m)X(?P<k>\d+)_(?P<types>[A-Z0-9_]+)$")
SCALED = re.compile(r"V_MFMA(?P<scale>_SCALE)?_F32_(?P<m>16|32)X(?P=m)X(?P<k>\d+)_F8F6F4$")


def values_of(words: Any, kind: str, arch: str) -> Any:
    """Values of registers [registers, waves, 64] in the order of their bits: fp64 [waves, 64, values]."""
    raw = np.ascontiguousarray(np.moveaxis(words, 0, -1))
    if kind == "F16":
        return raw.view(np.float16).astype(np.float64)
    if kind == "BF16":
        return (raw.view(np.uint16).astype(np.uint32) << np.uint32(16)).view(np.float32).astype(np.float64)
    if kind == "I8":
        return raw.view(np.int8).astype(np.float64)
    if kind == "F32":
        return raw.view(np.float32).astype(np.float64)
    octets = raw.view(np.uint8)
    if kind == "FP4":
        octets = np.stack([octets & 15, octets >> 4], axis=-1).reshape(*octets.shape[:-1], -1)
    return small_floats(arch)[kind][octets]


def _operand(values: Any, size: int) -> Any:
    """[waves, 64, per] by lanes to [waves, size, K] by row (or column) and k."""
    waves, _, per = values.shape
    return values.reshape(waves, LANES // size, size, per).transpose(0, 2, 1, 3).reshape(waves, size, -1)


@lru_cache
def _rows(size: int) -> Any:
    """Row of D of each register and lane: [registers, 64]."""
    register, lane = np.arange(size * size // LANES)[:, None], np.arange(LANES)[None]
    return 4 * (LANES // size * (register // 4) + lane // size) + register % 4


def _result(a: Any, b: Any, c: Any, size: int, whole: bool) -> Any:
    """D = A B + C by registers: c and the result are [registers, waves, 64] bits."""
    product = _operand(a, size) @ _operand(b, size).transpose(0, 2, 1)
    taken = product[:, _rows(size), np.arange(LANES)[None] % size].transpose(1, 0, 2)
    if whole:
        return (taken.astype(np.int64) + c.view(np.int32)).astype(np.int32).view(np.uint32)
    return (taken + c.view(np.float32)).astype(np.float32).view(np.uint32)


def plain(name: str, arch: str) -> tuple[int, int, int, Callable[[Any, Any, Any], Any]]:
    """Of V_MFMA without scales: (registers of A, of B, of C and D, function of their bits)."""
    found = NAME.match(name)
    if not found or found["types"].endswith("2B") or "XF32" in name:
        raise Unknown(name)
    size, k, kinds = int(found["m"]), int(found["k"]), found["types"].removesuffix("_1K").split("_")
    left, right = kinds[0], kinds[-1]
    width = {"F16": 16, "BF16": 16, "I8": 8, "FP8": 8, "BF8": 8, "F32": 32}
    if left not in width or right not in width:
        raise Unknown(name)
    registers = size * k * width[left] // LANES // 32
    whole = found["result"] == "I32"

    def function(a: Any, b: Any, c: Any) -> Any:
        return _result(values_of(a, left, arch), values_of(b, right, arch), c, size, whole)

    return registers, registers, size * size // LANES, function


FORMATS = {0: ("FP8", 8), 1: ("BF8", 8), 4: ("FP4", 4)}
"""Codes of cbsz and blgp: format and registers of an operand.  FP6 and BF6 (2, 3) are not there."""


def scaled(name: str, arch: str, formats: tuple[int, int]) -> tuple[int, int, int, Callable[..., Any]]:
    """Of V_MFMA(_SCALE)_F32_..._F8F6F4: as `plain`; the function also takes the two scales, E8M0 bytes [waves, 64].

    A lane's scale belongs to the 32 values of k that it holds of its row.
    """
    found = SCALED.match(name)
    if not found or any(code not in FORMATS for code in formats):
        raise Unknown(f"{name} with formats {formats}")
    size = int(found["m"])
    (left, left_registers), (right, right_registers) = (FORMATS[code] for code in formats)
    if left != right:
        raise Unknown(f"{name} of {left} and {right}: where their values of k lie differs")

    def function(a: Any, b: Any, c: Any, scale_a: Any = None, scale_b: Any = None) -> Any:
        x, y = values_of(a, left, arch), values_of(b, right, arch)
        if scale_a is not None:
            x, y = x * _powers(scale_a), y * _powers(scale_b)
        return _result(x, y, c, size, False)

    return left_registers, right_registers, size * size // LANES, function


def _powers(scale: Any) -> Any:
    exponent = scale.astype(np.int64)
    return np.where(exponent == 255, np.nan, np.ldexp(1.0, exponent - 127))[..., None]
