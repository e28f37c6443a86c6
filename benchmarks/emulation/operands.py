"""How instructions read operands and write results: registers, constants, modifiers, sub-words, other lanes.

A reader is compiled once per instruction: a function of the waves that gives an array of the operand's type,
[waves, 64] or what broadcasts to it, and of numbers side by side (pk2_f16) with one more dimension for them.  What is
an operand, and of which format, is in tinygrad's tables.
Source: AMD Instinct MI300 and MI350 Instruction Set Architecture, chapters Vector ALU Operations and Data Parallel
Processing.
"""

from __future__ import annotations

import struct
from collections.abc import Callable
from typing import Any

import numpy as np

from .code_object import OVERFLOW_BIT
from .formats import bits_of, converted, dtype, side_by_side, split_format, unsigned, values, width
from .waves import ACCUMULATORS, EXEC, LANES, MODE, VCC, Bools, Waves, lanes_of, mask_of

Reader = Callable[[Waves], Any]
Writer = Callable[[Waves, Any], None]

LITERAL, EXECZ, SCC, VECTOR = 255, 252, 253, 256

_FLOATS = dict(zip(range(240, 249), (0.5, -0.5, 1.0, -1.0, 2.0, -2.0, 4.0, -4.0, 0.15915494309189532), strict=True))


class Unknown(ValueError):
    """An operation, operand or modifier that is not there: never executed by a guess."""


def refuse(where: Any, error: Callable[[], Exception]) -> None:
    """Raise an error if this holds of any wave or lane."""
    if not isinstance(where, (np.ndarray, np.bool_)):  # of a wave that is traced (graph.py)
        where.refuse()
    elif where.any():
        raise error()


def signed(value: int, bits: int) -> int:
    """A field of an instruction as a signed number."""
    return value - (value >> (bits - 1) << bits)


def format_of(inst: Any, field: str) -> str:
    """The format of an operand; "" if the instruction has no such field."""
    found = inst.operands.get(field)
    return found[0].name.removeprefix("FMT_NUM_").lower().replace("24", "32") if found else ""


def constant(code: int, kind: str, literal: int | None) -> Any:
    """Bits of an inline constant or literal as an operand of this type has them: an array of one."""
    bits = 64 if kind.endswith("64") else 32
    if 128 <= code <= 192:
        value = code - 128
    elif 193 <= code <= 208:
        value = 192 - code
    elif code in _FLOATS:
        value = int.from_bytes(struct.pack({"16": "<e", "64": "<d"}.get(kind[1:], "<f"), _FLOATS[code]), "little")
    elif code == LITERAL and literal is not None:
        value = literal << 32 if kind == "f64" else signed(literal, 32) if kind == "i64" else literal
    else:
        raise Unknown(f"operand {code}")
    return np.array([value & (1 << bits) - 1], f"u{bits // 8}")


def scalar(code: int, kind: str, literal: int | None = None) -> Reader:
    """A scalar operand: [waves], or [1] of a constant, as its type."""
    own = dtype(kind)
    if own.itemsize < 4:
        word = scalar(code, "b32", literal)
        return lambda w: word(w).astype(unsigned(kind)).view(own)
    if code < 128:
        return (lambda w: w.s64(code).view(own)) if own.itemsize == 8 else (lambda w: w.s[code].view(own))
    if code == SCC:
        return lambda w: w.scc.astype(np.uint32).view(own)
    if code == EXECZ:
        return lambda w: (~w.active.any(1)).astype(np.uint32).view(own)
    fixed = constant(code, kind, literal).view(own)
    return lambda _: fixed


def scalar_writer(register: int, kind: str) -> Writer:
    """What writes integers [waves] into a scalar register or two, modulo their range."""
    if kind.endswith("64"):
        return lambda w, value: w.set_s64(register, value.astype(np.uint64))

    def write(w: Waves, value: Any) -> None:
        w.s[register] = value
        if register in (EXEC, EXEC + 1):
            w.mask_changed()

    return write


def bits(code: int, kind: str, literal: int | None = None) -> Reader:
    """The raw bits of a vector operand: u32 or u64, [waves, 64] or what broadcasts to it."""
    wide = kind.endswith("64")
    if code >= VECTOR:
        register = code - VECTOR
        if wide:
            return lambda w: w.v64(register)
        return lambda w: w.v[register]
    if code >= 128 and code not in (SCC, EXECZ):
        fixed = constant(code, kind, literal)[:, None]
        return lambda _: fixed
    read = scalar(code, "b64" if wide else "b32")
    return lambda w: read(w)[:, None]


# Operands of vector instructions, with their modifiers.


def operand(inst: Any, index: int, arch: str, kind: str = "") -> Reader:
    """The first (0), second or third operand, in the format of the tables or in another one."""
    form, name = type(inst).__name__, inst.op.name
    field = f"src{index}" if f"src{index}" in inst.operands else f"vsrc{index}"
    count, each = split_format(kind or format_of(inst, field))
    code = getattr(inst, "vsrc0" if index == 0 and hasattr(inst, "vsrc0") else field).offset
    if each == "m64":
        return lambda w: lanes_of(w.s64(code))
    if getattr(inst, f"s{index}", 0):  # a scalar register in SDWA
        code -= VECTOR
    if name.startswith("V_ACCVGPR_") and "WRITE" not in name:
        code += ACCUMULATORS
    if name.startswith("V_PK_"):
        return _pair(inst, index, code, each)
    read = bits(code, "b32" if count else each, getattr(inst, "literal", None))
    negative = absolute = 0
    if index == 0 and hasattr(inst, "dpp"):
        read = _from_lanes(inst, read)
    if hasattr(inst, f"src{index}_sel"):
        read = _sub_word(read, getattr(inst, f"src{index}_sel"), getattr(inst, f"src{index}_sext"))
    if hasattr(inst, f"src{index}_neg"):
        negative, absolute = getattr(inst, f"src{index}_neg"), getattr(inst, f"src{index}_abs")
    elif form.startswith("VOP3"):
        read = _part(read, getattr(inst, "opsel", 0), index, max(1, count) * width(each))
        if "BITOP3" not in name:  # whose table of bits stands in these fields
            magnitudes = inst.neg_hi if "MAD_MIX" in name else getattr(inst, "abs", 0)
            negative, absolute = inst.neg >> index & 1, magnitudes >> index & 1
    if not count:
        return typed(read, each, arch, negative, absolute)
    if negative or absolute:
        raise Unknown(f"{name} with signs")
    return lambda w: values(read(w).copy()[..., None], each, arch)[..., :count]


def typed(read: Reader, kind: str, arch: str = "", negative: int = 0, absolute: int = 0) -> Reader:
    """Raw bits as numbers of a format, with the modifiers of floating point."""
    raw_type, own = unsigned(kind), dtype(kind)
    if not (negative or absolute) and raw_type.itemsize >= 4:
        return lambda w: read(w).view(own)
    sign = raw_type.type(1 << width(kind) - 1)

    def modified(w: Waves) -> Any:
        raw = read(w).astype(raw_type)
        if absolute:
            raw &= ~sign
        if negative:
            raw ^= sign
        return values(raw, kind, arch)

    return modified


def _part(read: Reader, opsel: int, index: int, size: int) -> Reader:
    """The half (of operands of 16 bits) or the byte (of a first one of 8 bits) of a register that VOP3 selects."""
    shift = np.uint32({16: 16 * (opsel >> index & 1), 8: 8 * (opsel & 3) * (index == 0)}.get(size, 0))
    return (lambda w: read(w) >> shift) if shift else read


def _pair(inst: Any, index: int, code: int, kind: str) -> Reader:
    """Both numbers of a packed operand, from halves or from two registers, each selected and negated by itself.

    A constant is fp16 in its lower half for operations on fp16; for those on integers it is 32 bits, of fp32 or an
    integer, so that the upper half of 0.5 is 0x3F00 (LLVM's getInlineEncodingV216). For pairs of 32 bits it is both
    of them (COMGR's readPackedFloatSource).
    """
    high = inst.opsel if inst.op.name == "V_PK_MOV_B32" else inst.opsel_hi | inst.opsel_hi2 << 2
    fixed = 128 <= code < VECTOR
    parts = []
    for select, signs in ((inst.opsel >> index & 1, inst.neg), (high >> index & 1, inst.neg_hi)):
        if width(kind) == 32:
            read = bits(code if fixed else code + select, "b32")
        else:
            of_half = fixed and kind not in ("u16", "i16", "b16")
            read = _part(bits(code, "b16" if of_half else "b32"), select, 0, 16)
        parts.append(typed(read, kind, negative=signs >> index & 1))
    low, upper = parts
    return lambda w: side_by_side(low(w), upper(w))


WHOLE, KEPT = 6, 2
"""Of SDWA's selections, the one that takes all 32 bits; of what becomes of the other bits, that they stay."""


def _sub_place(select: int) -> tuple[np.uint32, np.uint32]:
    """Where a byte (0 to 3) or word (4, 5) begins, and places above its bits in a register."""
    return np.uint32(8 * select if select < 4 else 16 * select - 64), np.uint32(24 if select < 4 else 16)


def _sub_word(read: Reader, select: int, extend: int) -> Reader:
    """A byte, a word or all of an operand, as SDWA selects it."""
    if select == WHOLE:
        return read
    shift, up = _sub_place(select)
    word = np.int32 if extend else np.uint32
    return lambda w: ((read(w) >> shift << up).view(word) >> word(up)).view(np.uint32)


def placed(select: int, unused: int) -> Callable[[Any, Any], Any]:
    """(result, register before) -> the result in a byte or word, the rest zero (0), its sign (1) or as it was."""
    shift, up = _sub_place(select)
    mask = np.uint32(0xFFFFFFFF) >> up
    if unused == KEPT:
        return lambda result, before: (before & ~(mask << shift)) | (result & mask) << shift
    if unused == 0:
        return lambda result, _: (result & mask) << shift
    return lambda result, _: ((result << up).view(np.int32) >> np.int32(up)).view(np.uint32) << shift


def _moved_lanes(control: int) -> tuple[Any, Any]:
    """What DPP does: (lane that each lane reads, whether there is one)."""
    lane, by = np.arange(LANES), control & 15
    row, inside = lane // 16 * 16, lane % 16
    moves = {
        0x130: (lane + 1, lane < 63),
        0x134: ((lane + 1) % LANES, True),
        0x138: (lane - 1, lane > 0),
        0x13C: ((lane - 1) % LANES, True),
        0x140: (row + 15 - inside, True),
        0x141: (lane // 8 * 8 + 7 - lane % 8, True),
        0x142: ((row - 1) % LANES, row > 0),
        0x143: (lane * 0 + 31, lane >= 32),
        0x150 | by: (row + by, True),
    }
    if by:
        moves[0x100 | by] = lane + by, inside + by < 16
        moves[0x110 | by] = lane - by, inside >= by
        moves[0x120 | by] = row + (inside - by) % 16, True
    if control < 0x100:
        moves[control] = lane // 4 * 4 + (control >> 2 * (lane % 4) & 3), True
    if control not in moves:
        raise Unknown(f"DPP control {control:#x}")
    source, valid = moves[control]
    alike = control in (0x142, 0x143)  # of every row, whose lanes all read one of another: also where there is none
    return source if alike else np.where(valid, source, lane), valid & (lane >= 0)


def _from_lanes(inst: Any, read: Reader) -> Reader:
    """A reader of other lanes; with `bc` what is in no active lane is 0."""
    source, valid = _moved_lanes(inst.dpp)
    if not inst.bc:
        return lambda w: read(w).take(source, axis=1)  # DPP moves a vector register, never a constant
    return lambda w: np.where(valid & w.active[:, source], read(w).take(source, axis=1), np.uint32(0))


def _written(inst: Any) -> Callable[[Waves], Bools] | None:
    """Which lanes an instruction writes; None: the active ones."""
    if not hasattr(inst, "dpp"):
        return None
    source, valid = _moved_lanes(inst.dpp)
    lane = np.arange(LANES)
    chosen = (inst.row_mask >> lane // 16 & inst.bank_mask >> lane % 16 // 4 & 1).astype(np.bool_)
    if inst.bc:
        return lambda w: w.active & chosen
    return lambda w: w.active & chosen & valid & w.active[:, source]


# Results of vector instructions.


def writer(inst: Any, arch: str) -> Writer:
    """What writes values of the destination's format, clamped and into the part of the register that is asked for."""
    name = inst.op.name
    count, kind = split_format(format_of(inst, "vdst"))
    register = inst.vdst.offset - VECTOR
    if name.startswith("V_ACCVGPR_") and "READ" not in name:
        register += ACCUMULATORS
    place, written = _place(inst, count, kind), _written(inst)
    clamp = getattr(inst, "clmp", 0) and kind in ("f16", "f32", "f64")
    size = width(kind)
    overflows = kind == "f16" or size <= 8

    def write(w: Waves, value: Any) -> None:
        if clamp:
            value = np.clip(np.nan_to_num(converted(value, dtype(kind)), nan=0.0), 0, 1)
        limited: Any = False
        if overflows:
            limited = (w.s[MODE] >> np.uint32(OVERFLOW_BIT) & np.uint32(1)).astype(np.bool_)[:, None, None]
            limited = limited if count else limited[..., 0]
        raw = bits_of(value, kind, arch, limited)
        if kind == "f16":
            refuse(limited & (raw & 0x7FFF == 0x7C00), lambda: Unknown("an infinite fp16 result with FP16_OVFL set"))
        lanes = written(w) if written else None
        for index, word in enumerate(_words(raw, count, size)):
            w.set_v(register + index, place(word, w.v[register + index]) if place else word, lanes)

    return write


def _place(inst: Any, count: int, kind: str) -> Callable[[Any, Any], Any] | None:
    """How a result of less than 32 bits is put into its register; None: as it is, the other bits are 0."""
    if hasattr(inst, "dst_sel"):
        return None if inst.dst_sel == WHOLE else placed(inst.dst_sel, inst.dst_unused)
    name, form, size = inst.op.name, type(inst).__name__, max(1, count) * width(kind)
    if "MAD_MIXLO" in name or "MAD_MIXHI" in name:
        return placed(5 if "HI" in name else 4, KEPT)
    opsel = inst.opsel if form == "VOP3" else 0
    if size == 8:
        return placed(opsel >> 2 & 3, KEPT)
    upper = opsel >> 3 & 1
    if size == 16 and (upper or count or "SCALEF32" in name):
        return placed(4 + upper, KEPT)
    return None


def _words(raw: Any, count: int, bits: int) -> list[Any]:
    """The registers of a result: of one number or of those along the last dimension, each of so many bits."""
    if count and bits < 32:
        return [np.bitwise_or.reduce(raw.astype(np.uint32) << np.arange(0, bits * count, bits, np.uint32), axis=-1)]
    if count:
        return [raw[..., index] for index in range(count)]
    if bits == 64:
        return [raw.astype(np.uint32), (raw >> np.uint64(32)).astype(np.uint32)]
    return [raw.astype(np.uint32, copy=False)]


def mask_writer(inst: Any) -> Writer:
    """What writes a bit per active lane: of a comparison, or as a second result."""
    name, form, into = inst.op.name, type(inst).__name__, VCC
    if name.startswith("V_CMP") and form.startswith("VOP3"):
        into = inst.vdst.offset % VECTOR
    elif hasattr(inst, "sdst") and getattr(inst, "sd", 1):
        into = inst.sdst.offset

    def write(w: Waves, flags: Any) -> None:
        mask = mask_of(flags & w.active)
        w.set_s64(into, mask)
        if name.startswith("V_CMPX"):
            w.set_s64(EXEC, mask)

    return write
