"""How instructions of the scalar ALU are compiled: to functions of the waves that read, compute and write."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any

import numpy as np

from . import operands, scalar
from .code_object import OVERFLOW_BIT
from .memory import Step, signed
from .operands import Unknown
from .waves import EXEC, MODE, Waves

SAVES = re.compile(r"S_(?P<what>\w+)_(?P<how>SAVE|WR)EXEC_B64$")

MODE_REGISTER = 1
"""Number of MODE among the hardware registers of S_SETREG."""


def _write_scalar(register: int, kind: str) -> Callable[[Waves, Any], None]:
    if operands.is_wide(kind):
        return lambda w, value: w.set_s64(register, value.view(np.uint64))

    def write(w: Waves, value: Any) -> None:
        w.s[register] = value.view(np.uint32)
        if register in (EXEC, EXEC + 1):
            w.mask_changed()

    return write


def scalar_step(inst: Any, name: str, form: str) -> Step:
    """SOP1, SOP2, SOPC and SOPK; Unknown for what is not there."""
    literal = getattr(inst, "literal", None)
    if form == "SOPK":
        return _constant_step(inst, name)
    first = inst.ssrc0.offset
    if found := SAVES.match(name):
        function, saved = scalar.SAVING[found["what"]], found["how"] == "SAVE"
        read, into = operands.scalar(first, "u64", literal), inst.sdst.offset

        def mask(w: Waves) -> None:
            before = w.s64(EXEC)
            after = function(read(w), before)
            w.set_s64(into, before if saved else after)
            w.set_s64(EXEC, after)
            w.scc = after != 0

        return mask
    if name in scalar.CHANGING:
        kind, other, function = scalar.CHANGING[name]
        read, old = operands.scalar(first, other, literal), operands.scalar(inst.sdst.offset, kind)
        put = _write_scalar(inst.sdst.offset, kind)
        return lambda w: put(w, function(old(w), read(w), w.scc))
    if name in ("S_CSELECT_B32", "S_CSELECT_B64"):
        kind = "u64" if name.endswith("64") else "u32"
        a, b = operands.scalar(first, kind, literal), operands.scalar(inst.ssrc1.offset, kind, literal)
        put = _write_scalar(inst.sdst.offset, kind)
        return lambda w: put(w, np.where(w.scc, a(w), b(w)))
    if name in ("S_ADDC_U32", "S_SUBB_U32"):
        a, b = operands.scalar(first, "u32", literal), operands.scalar(inst.ssrc1.offset, "u32", literal)
        put, sign = _write_scalar(inst.sdst.offset, "u32"), 1 if "ADD" in name else -1

        def carry(w: Waves) -> None:
            total = a(w).astype(np.int64) + sign * (b(w).astype(np.int64) + w.scc)
            put(w, total.astype(np.uint32))
            w.scc = np.broadcast_to((total < 0) | (total >> 32 != 0), len(w)).copy()

        return carry
    if name not in scalar.SALU:
        raise Unknown(name)
    result, kinds, function = scalar.SALU[name]
    codes = [first] if len(kinds) == 1 else [first, inst.ssrc1.offset]
    readers = [operands.scalar(code, kind, literal) for code, kind in zip(codes, kinds, strict=True)]
    write = _write_scalar(inst.sdst.offset, result) if result else None

    def step(w: Waves) -> None:
        value, flag = function(*[read(w) for read in readers])
        if flag is not None:
            w.scc[:] = flag
        if write:
            write(w, np.ascontiguousarray(value))

    return step


def _constant_step(inst: Any, name: str) -> Step:
    """SOPK: an immediate of 16 bits."""
    value, register = signed(inst.simm16, 16), inst.sdst.offset
    if name == "S_MOVK_I32":
        return lambda w: w.s.__setitem__(register, np.uint32(value & 0xFFFFFFFF))
    if name in ("S_SETREG_IMM32_B32", "S_SETREG_B32", "S_GETREG_B32"):
        return _mode_step(inst, name, register)
    if name == "S_CMOVK_I32":
        return lambda w: np.copyto(w.s[register], np.uint32(value & 0xFFFFFFFF), where=w.scc)
    if name in ("S_ADDK_I32", "S_MULK_I32"):
        operation = scalar.SALU["S_ADD_I32" if "ADD" in name else "S_MUL_I32"][2]
        given = np.array([value], np.int32)

        def step(w: Waves) -> None:
            result, flag = operation(w.s[register].view(np.int32), given)
            w.s[register] = result.view(np.uint32)
            if flag is not None:
                w.scc = flag

        return step
    if name.startswith("S_CMPK_"):
        kind = name.rsplit("_", 1)[1]
        test = scalar.SALU[f"S_CMP_{name.removeprefix('S_CMPK_')}"][2]
        fixed = np.array([value if kind == "I32" else inst.simm16]).astype(operands.TYPES[kind.lower()])
        read = operands.scalar(register, kind.lower())

        def compare(w: Waves) -> None:
            w.scc = np.array(np.broadcast_to(test(read(w), fixed)[1], len(w)))

        return compare
    raise Unknown(name)


def _mode_step(inst: Any, name: str, register: int) -> Step:
    """Reads and writes of MODE: written may be FP16_OVFL, and whatever is as it was."""
    number, first, width = inst.simm16 & 63, inst.simm16 >> 6 & 31, (inst.simm16 >> 11 & 31) + 1
    if number != MODE_REGISTER:
        raise Unknown(f"{name} of hardware register {number}")
    mask = np.uint32((1 << width) - 1)
    if name == "S_GETREG_B32":
        return lambda w: w.s.__setitem__(register, w.s[MODE] >> np.uint32(first) & mask)
    fixed = np.uint32(getattr(inst, "literal", 0))

    def step(w: Waves) -> None:
        given = (fixed if "IMM32" in name else w.s[register]) & mask
        after = w.s[MODE] & ~(mask << np.uint32(first)) | given << np.uint32(first)
        if ((after ^ w.s[MODE]) & ~np.uint32(1 << OVERFLOW_BIT)).any():
            raise Unknown(
                f"MODE {int(after[0]):#x} instead of {int(w.s[MODE, 0]):#x} (rounding, denormals, exceptions)"
            )
        w.s[MODE] = after

    return step
