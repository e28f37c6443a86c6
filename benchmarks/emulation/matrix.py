"""Matrix operations (MFMA): where each lane's values lie in A, B, C and D, and their product.

Lane maps, for tiles of M x N (M = N) with K values in sum, from AMD Instinct MI300 and MI350 Instruction Set
Architecture, chapter Matrix Arithmetic Instructions, and AMD's Matrix Instruction Calculator.  Lane l holds

- of A, row l mod M, and of B, column l mod N, each the values k of block l div M: `per` consecutive ones;
- of fp8 and bf8 in F8F6F4, 16 consecutive values of the lower half of K and 16 of the upper half;
- of D, column l mod N; register r is row 4 ((64 / N) (r div 4) + l div N) + r mod 4, of fp64 4 r + l div 16;
- with several blocks (2B, 4B, 16B), of A and B those of block l div M and of D those of every block in turn; of 4 x 4
  tiles those of block l div 4, register r being row r; of the four fp64 ones block l div 4 mod 4 and row l div 16.

Scales of F8F6F4 (E8M0) belong to 32 consecutive values of k: lane l holds those of row l mod M and block l div M.

Where this differs from the hardware: products are exact, summed in fp64 and rounded once to the result's type; the
hardware's order of summation is not published, and it rounds in between.  For K values of one sign the difference is
below K 2^-24 of the result, in practice a few units in the last place; after cancellation it is that of the largest
partial sum.  XF32 keeps 11 bits of each operand's fraction, to nearest (the hardware's rounding is not published: up to
2^-11 of each product).  Denormals are kept in inputs and results.
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

NAME = re.compile(
    r"V_MFMA_(?P<result>F32|I32|F64)_(?P<m>4|16|32)X(?P=m)X(?P<k>\d+)_(?:(?P<blocks>\d+)B_)?(?P<types>[A-Z0-9_]+)$"
)
SCALED = re.compile(r"V_MFMA(?P<scale>_SCALE)?_F32_(?P<m>16|32)X(?P=m)X(?P<k>\d+)_F8F6F4$")


def values_of(words: Any, kind: str, arch: str) -> Any:
    """Values of registers [registers, waves, 64] in the order of their bits: fp64 [waves, 64, values]."""
    raw = np.ascontiguousarray(words.transpose(1, 2, 0))
    if kind == "F16":
        return raw.view(np.float16).astype(np.float64)
    if kind == "BF16":
        return (raw.view(np.uint16).astype(np.uint32) << np.uint32(16)).view(np.float32).astype(np.float64)
    if kind == "I8":
        return raw.view(np.int8).astype(np.float64)
    if kind == "F32":
        return raw.view(np.float32).astype(np.float64)
    if kind == "XF32":
        bits = raw + np.uint32(0xFFF) + (raw >> np.uint32(13) & np.uint32(1))
        return (
            (np.where(np.isfinite(raw.view(np.float32)), bits, raw) & ~np.uint32(0x1FFF))
            .view(np.float32)
            .astype(np.float64)
        )
    if kind == "F64":
        return raw.view(np.float64)
    octets = raw.view(np.uint8)
    if kind in ("FP6", "BF6"):
        octets = sixes(octets)
    if kind == "FP4":
        octets = np.stack([octets & 15, octets >> 4], axis=-1).reshape(*octets.shape[:-1], -1)
    return small_floats(arch)[kind][octets]


def sixes(octets: Any) -> Any:
    """Groups of three bytes [..., 3 n] as numbers of 6 bits [..., 4 n]."""
    groups = octets.reshape(*octets.shape[:-1], -1, 3).astype(np.uint32)
    joined = groups[..., 0] | groups[..., 1] << 8 | groups[..., 2] << 16
    return np.stack([joined >> 6 * index & 63 for index in range(4)], axis=-1).reshape(*octets.shape[:-1], -1)


def _operand(values: Any, size: int, halves: int = 1) -> Any:
    """[waves, 64, per] by lanes to [waves, size, K] by row (or column) and k; a lane's values are in so many parts."""
    waves, _, per = values.shape
    parts = values.reshape(waves, LANES // size, size, halves, per // halves)
    return parts.transpose(0, 2, 3, 1, 4).reshape(waves, size, -1)


@lru_cache
def _rows(size: int, wide: bool = False) -> Any:
    """Row of D of each register (or pair of them) and lane: [registers, 64]."""
    register, lane = np.arange(size * size // LANES)[:, None], np.arange(LANES)[None]
    if wide:
        return 4 * register + lane // 16
    return 4 * (LANES // size * (register // 4) + lane // size) + register % 4


def _result(x: Any, y: Any, c: Any, size: int, result: str) -> Any:
    """D = A B + C by registers, of x and y [waves, size, K]: c and the result are [registers, waves, 64] bits."""
    product = x @ y.transpose(0, 2, 1)
    taken = product[:, _rows(size, result == "F64"), np.arange(LANES)[None] % size].transpose(1, 0, 2)
    return _added(taken, c, result)


def _added(product: Any, c: Any, result: str) -> Any:
    if result == "I32":
        return (product.astype(np.int64) + c.view(np.int32)).astype(np.int32).view(np.uint32)
    if result == "F64":
        before = np.ascontiguousarray(c.reshape(-1, 2, *c.shape[1:]).transpose(0, 2, 3, 1)).view(np.float64)[..., 0]
        words = np.ascontiguousarray(product + before)[..., None].view(np.uint32)
        return np.ascontiguousarray(words.transpose(0, 3, 1, 2)).reshape(c.shape)
    return (product + c.view(np.float32)).astype(np.float32).view(np.uint32)


def _blocks_result(x: Any, y: Any, c: Any, size: int, blocks: int, result: str) -> Any:
    """As `_result`, of several products: x and y are [waves, blocks, size, K]."""
    product = x @ y.transpose(0, 1, 3, 2)
    lane = np.arange(LANES)[None]
    if size == 4:
        row, block = (lane // 16, lane // 4 % 4) if result == "F64" else (np.arange(4)[:, None], lane // 4)
    else:
        count = size * size // LANES
        row, block = np.tile(_rows(size), (blocks, 1)), np.repeat(np.arange(blocks), count)[:, None]
    return _added(product[:, block, row, lane % size].transpose(1, 0, 2), c, result)


WIDTH = {"F16": 16, "BF16": 16, "I8": 8, "FP8": 8, "BF8": 8, "F32": 32, "XF32": 32, "F64": 64}


def plain(name: str, arch: str, broadcast: tuple[int, int] = (0, 0)) -> tuple[int, int, int, Callable[..., Any]]:
    """Of V_MFMA without scales: (registers of A, of B, of C and D, function of their bits).

    broadcast: (cbsz, abid): of every 2^cbsz blocks of A, block abid stands for all.
    """
    found = NAME.match(name)
    if not found:
        raise Unknown(name)
    size, k, blocks = int(found["m"]), int(found["k"]), int(found["blocks"] or 1)
    kinds = found["types"].removesuffix("_1K").split("_")
    left, right, result = kinds[0], kinds[-1], found["result"]
    if left not in WIDTH or right not in WIDTH or (broadcast != (0, 0) and blocks == 1):
        raise Unknown(name)
    registers = max(1, size * k * blocks * WIDTH[left] // LANES // 32)
    results = size * size * blocks // LANES * (2 if result == "F64" else 1)
    chosen = (np.arange(blocks) >> broadcast[0] << broadcast[0]) + broadcast[1]

    def function(a: Any, b: Any, c: Any) -> Any:
        x, y = values_of(a, left, arch), values_of(b, right, arch)
        if blocks == 1:
            return _result(_operand(x, size), _operand(y, size), c, size, result)
        if result == "F64":  # four blocks, whose k are spread over the lanes
            x, y = (one.reshape(len(one), k, blocks, size).transpose(0, 2, 3, 1) for one in (x, y))
        else:
            x, y = (one.reshape(len(one), blocks, size, -1) for one in (x, y))
        return _blocks_result(x[:, chosen], y, c, size, blocks, result)

    return registers, registers, results, function


FORMATS = {0: ("FP8", 8), 1: ("BF8", 8), 2: ("FP6", 6), 3: ("BF6", 6), 4: ("FP4", 4)}
"""Codes of cbsz and blgp: format and registers of an operand."""


def scaled(name: str, arch: str, formats: tuple[int, int]) -> tuple[int, int, int, Callable[..., Any]]:
    """Of V_MFMA(_SCALE)_F32_..._F8F6F4: as `plain`; the function also takes the two scales, E8M0 bytes [waves, 64]."""
    found = SCALED.match(name)
    if not found or any(code not in FORMATS for code in formats):
        raise Unknown(f"{name} with formats {formats}")
    size = int(found["m"])
    (left, left_registers), (right, right_registers) = (FORMATS[code] for code in formats)

    def operand(bits: Any, kind: str, scale: Any) -> Any:
        values = _operand(values_of(bits, kind, arch), size, 2 if kind in ("FP8", "BF8") else 1)
        if scale is None:
            return values
        powers = _powers(scale).reshape(len(values), LANES // size, size).transpose(0, 2, 1)
        return values * np.repeat(powers, 32, axis=2)

    def function(a: Any, b: Any, c: Any, scale_a: Any = None, scale_b: Any = None) -> Any:
        return _result(operand(a, left, scale_a), operand(b, right, scale_b), c, size, "F32")

    return left_registers, right_registers, size * size // LANES, function


def _powers(scale: Any) -> Any:
    exponent = scale.astype(np.int64)
    return np.where(exponent == 255, np.nan, np.ldexp(1.0, exponent - 127))
