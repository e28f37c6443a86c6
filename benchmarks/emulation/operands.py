"""How instructions read operands and write results: registers, constants, modifiers, sub-words, other lanes.

A reader is compiled once per instruction: a function of the waves that gives an array of the operand's type,
[waves, 64] or what broadcasts to it.  Types have AMD's names: u32, i32, f32, b32, u64, i64, f64, u16, i16, f16.
Source: AMD Instinct MI300 and MI350 Instruction Set Architecture, chapters Vector ALU Operations and Data Parallel
Processing.
"""

from __future__ import annotations

import struct
from collections.abc import Callable
from typing import Any

import numpy as np

from .waves import LANES, Bools, Waves

Reader = Callable[[Waves], Any]

TYPES = {
    "u32": np.uint32,
    "i32": np.int32,
    "f32": np.float32,
    "b32": np.uint32,
    "u64": np.uint64,
    "i64": np.int64,
    "f64": np.float64,
    "b64": np.uint64,
    "u16": np.uint16,
    "i16": np.int16,
    "f16": np.float16,
    "b16": np.uint16,
}

LITERAL, EXECZ, SCC, VECTOR = 255, 252, 253, 256

_FLOATS = dict(zip(range(240, 249), (0.5, -0.5, 1.0, -1.0, 2.0, -2.0, 4.0, -4.0, 0.15915494309189532), strict=True))


class Unknown(ValueError):
    """An operation, operand or modifier that is not there: never executed by a guess."""


def is_wide(kind: str) -> bool:
    """Whether an operand of this type takes two registers."""
    return kind.endswith("64")


def constant(code: int, kind: str, literal: int | None) -> Any:
    """Bits of an inline constant or literal as an operand of this type has them: an array of one."""
    wide = is_wide(kind)
    if 128 <= code <= 192:
        value = code - 128
    elif 193 <= code <= 208:
        value = 192 - code
    elif code in _FLOATS:
        packed = struct.pack({"16": "<e", "64": "<d"}.get(kind[1:], "<f"), _FLOATS[code])
        value = int.from_bytes(packed, "little")
    elif code == LITERAL and literal is not None:
        value = literal << 32 if kind == "f64" else literal - (literal >> 31 << 32) if kind == "i64" else literal
    else:
        raise Unknown(f"operand {code}")
    return np.array([value & (0xFFFFFFFFFFFFFFFF if wide else 0xFFFFFFFF)], np.uint64 if wide else np.uint32)


def scalar(code: int, kind: str, literal: int | None = None) -> Reader:
    """A scalar operand: [waves], or [1] of a constant, as its type."""
    dtype, wide = TYPES[kind], is_wide(kind)
    if code < 128:
        if wide:
            return lambda w: w.s64(code).view(dtype)
        return lambda w: w.s[code].view(dtype)
    if code == SCC:
        return lambda w: w.scc.astype(np.uint32).view(dtype)
    if code == EXECZ:
        return lambda w: (~w.active.any(1)).astype(np.uint32).view(dtype)
    fixed = constant(code, kind, literal).view(dtype)
    return lambda _: fixed


def bits(code: int, kind: str, literal: int | None = None) -> Reader:
    """The raw bits of a vector operand: u32 or u64, [waves, 64] or what broadcasts to it."""
    if code >= VECTOR:
        register = code - VECTOR
        if is_wide(kind):
            return lambda w: w.v64(register)
        return lambda w: w.v[register]
    raw = "b64" if is_wide(kind) else "b32"
    if code >= 128 and code not in (SCC, EXECZ):
        fixed = constant(code, kind, literal)[:, None]
        return lambda _: fixed
    read = scalar(code, raw, literal)
    return lambda w: read(w)[:, None]


def typed(read: Reader, kind: str, *, negative: bool = False, absolute: bool = False, half: int = 0) -> Reader:
    """Raw bits as numbers of a type, with the modifiers of floating point; `half` 1 takes the upper 16 bits."""
    dtype = TYPES[kind]
    if kind.endswith("16"):
        shift = np.uint32(16 * half)
        inner = read

        def narrow(w: Waves) -> Any:
            return (inner(w) >> shift).astype(np.uint16)

        read = narrow
    if not (negative or absolute):
        return read if kind in ("u32", "b32", "u64", "b64") else lambda w: read(w).view(dtype)
    sign = np.array(1 << (8 * np.dtype(dtype).itemsize - 1), f"u{np.dtype(dtype).itemsize}")

    def modified(w: Waves) -> Any:
        value = read(w)
        if absolute:
            value = value & ~sign
        return (value ^ sign if negative else value).view(dtype)

    return modified


WHOLE = 6
"""Of SDWA's selections, the one that takes all 32 bits."""


def _part(select: int) -> tuple[np.uint32, int]:
    """Where a byte (0 to 3) or word (4, 5) begins, and its bits."""
    return (np.uint32(8 * select), 8) if select < 4 else (np.uint32(16 * (select - 4)), 16)


def _low_bits(width: int) -> np.uint32:
    return np.uint32((1 << width) - 1)


def _sign_extended(value: Any, width: int) -> Any:
    up = np.uint32(32 - width)
    return ((value << up).view(np.int32) >> np.int32(up)).view(np.uint32)


def sub_word(read: Reader, select: int, extend: bool) -> Reader:
    """A byte (0 to 3), a word (4, 5) or all (6) of an operand, as SDWA selects it."""
    if select == WHOLE:
        return read
    shift, width = _part(select)
    mask = _low_bits(width)
    if not extend:
        return lambda w: read(w) >> shift & mask
    return lambda w: _sign_extended(read(w) >> shift, width)


def placed(select: int, unused: int) -> Callable[[Any, Any], Any]:
    """(result, register before) -> what SDWA writes: the result into a sub-word, the rest zero, sign or as it was."""
    if select == WHOLE:
        return lambda result, _: result
    shift, width = _part(select)
    mask = _low_bits(width)
    if unused == 0:
        return lambda result, _: (result & mask) << shift
    if unused == 2:
        return lambda result, before: (before & ~(mask << shift)) | (result & mask) << shift
    return lambda result, _: _sign_extended(result, width) << shift


def moved_lanes(control: int, row_mask: int, bank_mask: int) -> tuple[Any, Bools, Bools]:
    """What DPP does: (lane that each lane reads, whether there is one, whether the lane may be written at all)."""
    lane = np.arange(LANES)
    row, inside = lane // 16, lane % 16
    valid = np.ones(LANES, np.bool_)
    if control < 0x100:
        source = lane // 4 * 4 + (control >> 2 * (lane % 4) & 3)
    elif 0x101 <= control <= 0x10F:
        source, valid = lane + (control & 15), inside + (control & 15) < 16
    elif 0x111 <= control <= 0x11F:
        source, valid = lane - (control & 15), inside >= (control & 15)
    elif 0x121 <= control <= 0x12F:
        source = row * 16 + (inside - (control & 15)) % 16
    elif control == 0x130:
        source, valid = lane + 1, lane < 63
    elif control == 0x134:
        source = (lane + 1) % LANES
    elif control == 0x138:
        source, valid = lane - 1, lane > 0
    elif control == 0x13C:
        source = (lane - 1) % LANES
    elif control == 0x140:
        source = row * 16 + 15 - inside
    elif control == 0x141:
        source = lane // 8 * 8 + 7 - lane % 8
    elif control == 0x142:
        source, valid = row * 16 - 1, row > 0
    elif control == 0x143:
        source, valid = np.full(LANES, 31), lane >= 32
    elif 0x150 <= control <= 0x15F:
        source = row * 16 + (control & 15)
    else:
        raise Unknown(f"DPP control {control:#x}")
    written = (row_mask >> row & 1).astype(bool) & (bank_mask >> inside // 4 & 1).astype(bool)
    return np.where(valid, source, 0), valid, written


def through_lanes(read: Reader, source: Any, valid: Bools, zero: bool) -> tuple[Reader, Callable[[Waves], Bools]]:
    """A reader of other lanes, and which lanes read an active one; with `zero` the others read 0."""

    def readable(w: Waves) -> Bools:
        return valid & w.active[:, source]

    def values(w: Waves) -> Any:
        got = read(w).take(source, axis=1)  # DPP moves a vector register, never a constant
        return np.where(readable(w), got, np.uint32(0)) if zero else got

    return values, readable
