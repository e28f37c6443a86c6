"""Formats of 4 to 8 bits: their values, conversions from and to them, and the instructions that convert.

gfx942's fp8 and bf8 are the FNUZ ones, gfx950's the OCP ones.  A number that does not fit becomes NaN (bf8 of OCP: an
infinity; fp4 and fp6: the largest); with FP16_OVFL set in MODE, the largest.  With random rounding: Unknown.
Sources: OCP 8-bit Floating Point Specification 1.0, OCP Microscaling Formats 1.0, and AMD Instinct MI300 and MI350
Instruction Set Architecture, V_CVT_*.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from functools import lru_cache
from typing import Any

import numpy as np

from . import operands
from .code_object import OVERFLOW_BIT
from .operands import VECTOR, Unknown
from .vector import bf16_bits
from .waves import LANES, MODE, Waves

BITS = {"FP8": 8, "BF8": 8, "FP6": 6, "BF6": 6, "FP4": 4}
CONVERT = re.compile(
    r"V_CVT_(?P<scaled>SCALEF32_)?(?P<two>PK_)?(?P<to>FP8|BF8|FP4|F32|F16|BF16)_(?P<source>FP8|BF8|FP4|F32|F16|BF16)$"
)


def _values(exponent_bits: int, fraction_bits: int, bias: int) -> Any:
    """The magnitudes of a format by code, its special ones as numbers like the others, and one beyond the largest."""
    code = np.arange((1 << exponent_bits + fraction_bits) + 1)
    exponent, fraction = code >> fraction_bits, code & (1 << fraction_bits) - 1
    whole = np.where(exponent == 0, fraction, fraction + (1 << fraction_bits))
    return whole * 2.0 ** (np.maximum(exponent, 1) - bias - fraction_bits)


@lru_cache
def _format(name: str, arch: str) -> tuple[Any, int, int, int]:
    """(magnitudes by code, the largest number's code, the code for more, for NaN) of a format, without signs."""
    if name == "FP4":
        return _values(2, 1, 1), 7, 7, 7
    if name in ("FP6", "BF6"):
        return _values(*((2, 3, 1) if name == "FP6" else (3, 2, 3))), 31, 31, 31
    if arch == "gfx942":
        return _values(*((4, 3, 8) if name == "FP8" else (5, 2, 16))), 127, 128, 128
    return (_values(4, 3, 7), 126, 127, 127) if name == "FP8" else (_values(5, 2, 15), 123, 124, 127)


@lru_cache
def small_floats(arch: str) -> dict[str, Any]:
    """Tables of all values of each format by code, fp64."""
    tables = {}
    for name, bits in BITS.items():
        magnitudes, largest, beyond, _ = _format(name, arch)
        positive = magnitudes[: 1 << bits - 1].copy()
        positive[largest + 1 :] = np.nan
        if name == "BF8" and beyond == 124:
            positive[beyond] = np.inf
        tables[name] = np.concatenate([positive, np.where(np.isnan(positive), np.nan, -positive)])
        if beyond == 128:
            tables[name][128] = np.nan
    return tables


def encoded(value: Any, name: str, arch: str, limited: Any = False) -> Any:
    """fp64 numbers as codes of a format (uint32), to nearest even; where `limited`, never more than the largest."""
    magnitudes, largest, beyond, none = _format(name, arch)
    size = np.abs(value)
    middles = (magnitudes[:-1] + magnitudes[1:]) / 2
    code = np.searchsorted(middles, size, side="left")
    tie = (code < len(middles)) & (size == middles[np.minimum(code, len(middles) - 1)])
    code = np.where(tie, code + (code & 1), code)
    code = np.where(limited, np.minimum(code, largest), code)
    sign = np.signbit(value).astype(np.int64) << (BITS[name] - 1)
    if beyond == 128:  # one NaN and one zero, neither with a sign
        return np.where((code > largest) | np.isnan(value), none, np.where(code == 0, 0, code | sign)).astype(np.uint32)
    found = np.where(np.isnan(value), none, np.where(code > largest, beyond, code))
    unsigned = np.isnan(value) & (name == "BF8")
    return np.where(unsigned, found, found | sign).astype(np.uint32)


def convert(inst: Any, name: str, arch: str, sources: Any, writer: Any) -> Callable[[Waves], None]:
    """V_CVT of one or two numbers from or to a small format; Unknown for those with random rounding or 32 numbers.

    With a scale, whose exponent is that of a power of two: numbers from a small format are multiplied by it, numbers
    to one divided.  sources, writer: the machine's readers of operands and writer of results.
    """
    found = CONVERT.match(name)
    if not found or (found["source"] in BITS) == (found["to"] in BITS) or (found["scaled"] and arch == "gfx942"):
        raise Unknown(name)
    opsel, count = getattr(inst, "opsel", 0), 2 if found["two"] else 1
    register = inst.vdst.offset - VECTOR
    if found["source"] in BITS:
        return _from_small(inst, found, arch, count, opsel, sources, register)
    return _to_small(inst, found, arch, opsel, sources, writer, register)


def _scale(inst: Any, found: re.Match[str], index: int) -> Callable[[Waves], Any]:
    if not found["scaled"]:
        return lambda w: np.float64(1)
    read = operands.bits(getattr(inst, f"src{index}").offset, "b32")
    return lambda w: np.ldexp(1.0, (read(w) >> np.uint32(23) & np.uint32(255)).astype(np.int64) - 127)


def _from_small(
    inst: Any, found: re.Match[str], arch: str, count: int, opsel: int, sources: Any, register: int
) -> Callable[[Waves], None]:
    kind, target = found["source"], found["to"]
    table, bits = small_floats(arch)[kind], BITS[kind]
    (read,), where, _ = sources(inst, ("u32",))
    first = 0
    if found["scaled"]:
        first = 16 * (opsel & 1) if count * bits == 16 else 8 * (opsel & 3)
    scale = _scale(inst, found, 1)
    upper = opsel >> 3 & 1

    def step(w: Waves) -> None:
        raw, power = read(w), scale(w)
        mask = np.uint32((1 << bits) - 1)
        values = [table[raw >> np.uint32(first + bits * index) & mask] * power for index in range(count)]
        lanes = where(w) if where else None
        if target == "F32":
            for index, value in enumerate(values):
                w.set_v(register + index, value.astype(np.float32).view(np.uint32), lanes)
            return
        halves = [_half(value, target) for value in values]
        if count == 2:
            w.set_v(register, halves[0] | halves[1] << np.uint32(16), lanes)
        else:
            place = operands.placed(4 + upper, 2)
            w.set_v(register, place(halves[0], w.v[register]), lanes)

    return step


def _half(value: Any, target: str) -> Any:
    if target == "F16":
        return value.astype(np.float16).view(np.uint16).astype(np.uint32)
    return bf16_bits(value.astype(np.float32))


def _to_small(
    inst: Any, found: re.Match[str], arch: str, opsel: int, sources: Any, writer: Any, register: int
) -> Callable[[Waves], None]:
    kind, source = found["to"], found["source"]
    bits = BITS[kind]
    if source == "F32":
        readers, where, _ = sources(inst, ("f32", "f32"))
        scale = _scale(inst, found, 2)
    else:
        if inst.neg or inst.abs:
            raise Unknown(f"{inst.op.name} with signs")
        read, where = operands.bits(inst.src0.offset, "b32"), None
        readers = [_halves(read, source, upper) for upper in (0, 1)]
        scale = _scale(inst, found, 1)
    place = operands.placed(opsel >> 2 & 3 if bits == 4 else 4 + (opsel >> 3 & 1), 2)
    write = writer(inst, "b32", register, where, place)

    def step(w: Waves) -> None:
        power = scale(w)
        limited = (w.s[MODE] >> np.uint32(OVERFLOW_BIT) & np.uint32(1)).astype(np.bool_)[:, None]
        low, high = (encoded(read(w).astype(np.float64) / power, kind, arch, limited) for read in readers)
        write(w, np.broadcast_to(low | high << np.uint32(bits), (len(w), LANES)))

    return step


def _halves(read: Any, source: str, upper: int) -> Callable[[Waves], Any]:
    if source == "BF16":
        shift = np.uint32(0 if upper else 16)
        return lambda w: (read(w) << shift & np.uint32(0xFFFF0000)).view(np.float32)
    return lambda w: (read(w) >> np.uint32(16 * upper)).astype(np.uint16).view(np.float16)
