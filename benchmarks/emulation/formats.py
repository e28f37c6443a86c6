"""Formats of numbers in registers: the values that bits stand for, and the bits of values.

Names are those of AMD's tables in lower case: f32, i16, b64 (bits), bf16, fp8; `pk2_f16` are two of them side by side.
gfx942's fp8 and bf8 are the FNUZ ones, gfx950's the OCP ones.  A number that does not fit a small format becomes NaN
(bf8 of OCP: an infinity; fp4 and fp6: the largest); with FP16_OVFL set in MODE, the largest.
Sources: OCP 8-bit Floating Point Specification 1.0, OCP Microscaling Formats 1.0, and AMD Instinct MI300 and MI350
Instruction Set Architecture, V_CVT_*.
"""

from __future__ import annotations

from functools import lru_cache
from typing import Any

import numpy as np

BITS = {"bf16": 16, "xf32": 32, "fp8": 8, "bf8": 8, "fp6": 6, "bf6": 6, "fp4": 4, "i4": 4, "u4": 4}
"""Of the formats that numpy does not have."""


def split_format(name: str) -> tuple[int, str]:
    """(how many numbers side by side, the format of each); 0 of a single one."""
    packed, _, kind = name.rpartition("_")
    return int(packed.removeprefix("pk") or 0), kind


def width(kind: str) -> int:
    """Bits of one number."""
    return BITS.get(kind) or int(kind[1:])


@lru_cache
def dtype(kind: str) -> Any:
    """numpy's type of a format's values; bits are unsigned, and what numpy does not have is given as fp32."""
    return np.dtype(f"{kind[0].replace('b', 'u')}{width(kind) // 8}" if kind not in BITS else np.float32)


@lru_cache
def unsigned(kind: str) -> Any:
    """numpy's type of the bits of one number."""
    return np.dtype(f"u{width(kind) // 8}")


def side_by_side(low: Any, high: Any) -> Any:
    """Two numbers along a new last dimension."""
    return np.stack(np.broadcast_arrays(low, high), axis=-1)


def element(table: Any, index: Any) -> Any:
    """Constants by their index."""
    return table[index] if isinstance(index, np.ndarray) else index.element_of(table)  # traced: graph.py


def fields(octets: Any, bits: int) -> Any:
    """Bytes [..., n] as unsigned numbers of up to 8 bits, the lowest bits first."""
    if bits == 4:
        return side_by_side(octets & np.uint8(15), octets >> np.uint8(4)).reshape(*octets.shape[:-1], -1)
    ones = np.unpackbits(octets, axis=-1, bitorder="little")
    return np.bitwise_or.reduce(ones.reshape(*octets.shape[:-1], -1, bits) << np.arange(bits, dtype=np.uint8), axis=-1)


def values(raw: Any, kind: str, arch: str) -> Any:
    """Numbers in the order of their bits: unsigned words [..., n] to [..., numbers]."""
    if kind == "bf16":
        return (raw.view(np.uint16).astype(np.uint32) << np.uint32(16)).view(np.float32)
    if kind == "xf32":
        bits = raw + np.uint32(0xFFF) + (raw >> np.uint32(13) & np.uint32(1))
        return (np.where(np.isfinite(raw.view(np.float32)), bits, raw) & ~np.uint32(0x1FFF)).view(np.float32)
    if kind not in BITS:
        return raw.view(dtype(kind))
    octets = raw.view(np.uint8)
    codes = octets if BITS[kind] == 8 else fields(octets, BITS[kind])
    if kind == "u4":
        return codes
    return (codes ^ 8).astype(np.int8) - 8 if kind == "i4" else element(small_floats(arch)[kind], codes)


def bits_of(value: Any, kind: str, arch: str, limited: Any = False) -> Any:
    """Numbers as unsigned integers, rounded to nearest even; where `limited`, no more than a small format's largest."""
    if kind not in BITS:
        return converted(value, dtype(kind)).view(unsigned(kind))
    if kind != "bf16":
        return _small(value.astype(np.float64), kind, arch, limited)
    raw = value.astype(np.float32).view(np.uint32)
    rounded = raw + np.uint32(0x7FFF) + (raw >> np.uint32(16) & np.uint32(1))
    return np.where(np.isnan(value), raw | np.uint32(0x400000), rounded) >> np.uint32(16)


def converted(value: Any, into: Any) -> Any:
    """As another type of numpy; floats to integers towards zero, saturated, NaN as 0; integers modulo their range."""
    if value.dtype.kind != "f" or into.kind == "f":
        return value.astype(into, copy=False)
    limits = np.iinfo(into)
    wide = np.nan_to_num(np.trunc(value.astype(np.float64)), nan=0.0, posinf=limits.max, neginf=limits.min)
    return np.clip(wide, limits.min, limits.max).astype(into)


# Floats of 4 to 8 bits.


def _magnitudes(exponent_bits: int, fraction_bits: int, bias: int) -> Any:
    """The magnitudes of a format by code, its special ones as numbers like the others, and one beyond the largest."""
    code = np.arange((1 << exponent_bits + fraction_bits) + 1)
    exponent, fraction = code >> fraction_bits, code & (1 << fraction_bits) - 1
    whole = np.where(exponent == 0, fraction, fraction + (1 << fraction_bits))
    return whole * 2.0 ** (np.maximum(exponent, 1) - bias - fraction_bits)


@lru_cache
def _format(name: str, arch: str) -> tuple[Any, int, int, int]:
    """(magnitudes by code, the largest number's code, the code for more, for NaN) of a format, without signs."""
    fnuz = arch == "gfx942"
    fields, *codes = {
        "fp4": ((2, 1, 1), 7, 7, 7),
        "fp6": ((2, 3, 1), 31, 31, 31),
        "bf6": ((3, 2, 3), 31, 31, 31),
        "fp8": ((4, 3, 8), 127, 128, 128) if fnuz else ((4, 3, 7), 126, 127, 127),
        "bf8": ((5, 2, 16), 127, 128, 128) if fnuz else ((5, 2, 15), 123, 124, 127),
    }[name]
    return _magnitudes(*fields), *codes


@lru_cache
def small_floats(arch: str) -> dict[str, Any]:
    """Tables of all values of each format by code, fp64."""
    tables = {}
    for name in ("fp8", "bf8", "fp6", "bf6", "fp4"):
        magnitudes, largest, beyond, _ = _format(name, arch)
        positive = magnitudes[: 1 << BITS[name] - 1].copy()
        positive[largest + 1 :] = np.nan
        if beyond == 124:
            positive[beyond] = np.inf
        tables[name] = np.concatenate([positive, np.where(np.isnan(positive), np.nan, -positive)])
        if beyond == 128:
            tables[name][beyond] = np.nan
    return tables


def _small(value: Any, name: str, arch: str, limited: Any) -> Any:
    """fp64 numbers as codes of a format."""
    magnitudes, largest, beyond, none = _format(name, arch)
    size = np.abs(value)
    middles = (magnitudes[:-1] + magnitudes[1:]) / 2
    code = np.searchsorted(middles, size, side="left")
    tie = size == element(middles, np.minimum(code, len(middles) - 1))
    code = np.where(tie, code + (code & 1), code)
    code = np.where(limited, np.minimum(code, largest), code)
    code = np.where(np.isnan(value), none, np.where(code > largest, beyond, code))
    # FNUZ formats have one NaN and one zero, neither with a sign; the NaN of OCP's bf8 is given without one
    unsigned = (code == 0) | (code == none) if beyond == 128 else np.isnan(value) & (name == "bf8")
    return np.where(unsigned, code, code | np.signbit(value).astype(np.int64) << BITS[name] - 1).astype(np.uint32)
