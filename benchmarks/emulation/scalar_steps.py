"""How instructions of the scalar ALU are compiled: to functions of the waves that read, compute and write."""

from __future__ import annotations

import re
from typing import Any

import numpy as np

from .code_object import OVERFLOW_BIT
from .formats import dtype
from .operands import Reader, Unknown, format_of, refuse, scalar, scalar_writer, signed
from .scalar import SALU, SAVING
from .vector import Function, found
from .vector_steps import Step
from .waves import EXEC, MODE, Waves

SAVES = re.compile(r"S_(?P<what>\w+)_(?P<how>SAVE|WR)EXEC_B64$")
READS_SCC = re.compile(r"S_(ADDC|SUBB|CSELECT|CMOV)")
CHANGES, COMPUTES = re.compile(r"S_(CMOV|BITSET)"), re.compile(r"S_(ADD|MUL|CMP)K_")
"""What was in the destination is an operand too: the last before SCC, or the first."""

MODE_REGISTER = 1
"""Number of MODE among the hardware registers of S_SETREG."""

DENORMALS = 0b11 << 4
"""Of fp32, in MODE: kept in a division where a kernel flushes them elsewhere (launch.FLUSHED)."""

PLACES = (4, 20)
"""HW_ID and XCC_ID: where on the device a wave runs.  Every one runs in the first place."""


def scalar_step(inst: Any, name: str) -> Step:
    """SOP1, SOP2, SOPC and SOPK; Unknown for what is not there."""
    if saves := SAVES.match(name):
        return _saving_step(inst, SAVING[saves["what"]], saves["how"] == "SAVE")
    if name in ("S_SETREG_IMM32_B32", "S_SETREG_B32", "S_GETREG_B32"):
        return _mode_step(inst, name)
    plain = name.replace("K_", "_") if hasattr(inst, "simm16") else name
    function, tells = found(SALU, plain)
    readers = _readers(inst, name)
    write = None
    if "CMP" not in name:  # whose result is SCC
        write = scalar_writer(inst.sdst.offset, format_of(inst, "sdst"))

    def step(w: Waves) -> None:
        given = [read(w) for read in readers]
        value = function(*given)
        if tells:
            w.scc[:] = tells(value, given)
        if write:
            write(w, value)

    return step


def _readers(inst: Any, name: str) -> list[Reader]:
    """Operands: sources; of SOPK the destination and an immediate of 16 bits; what was in the destination; SCC."""
    literal = getattr(inst, "literal", None)
    fields = [field for field in ("ssrc0", "ssrc1") if field in inst.operands]
    readers = [scalar(getattr(inst, field).offset, format_of(inst, field), literal) for field in fields]
    if hasattr(inst, "simm16"):
        value = signed(inst.simm16, 16) if format_of(inst, "simm16") == "i16" else inst.simm16
        fixed = np.array([value]).astype(dtype(format_of(inst, "sdst")))
        readers.append(lambda w: fixed)
    if CHANGES.match(name):
        readers.append(scalar(inst.sdst.offset, format_of(inst, "sdst")))
    if COMPUTES.match(name):
        readers.insert(0, scalar(inst.sdst.offset, format_of(inst, "sdst")))
    if READS_SCC.match(name):
        readers.append(lambda w: w.scc)
    return readers


def _saving_step(inst: Any, function: Function, saved: bool) -> Step:
    read, into = scalar(inst.ssrc0.offset, "u64", getattr(inst, "literal", None)), inst.sdst.offset

    def step(w: Waves) -> None:
        before = w.s64(EXEC)
        after = function(read(w), before)
        w.set_s64(into, before if saved else after)
        w.set_s64(EXEC, after)
        w.scc = after != 0

    return step


def _mode_step(inst: Any, name: str) -> Step:
    """Reads and writes of MODE: written may be FP16_OVFL, DENORMALS, and whatever is as it was."""
    register = inst.sdst.offset
    number, first, width = inst.simm16 & 63, inst.simm16 >> 6 & 31, (inst.simm16 >> 11 & 31) + 1
    if number in PLACES and name == "S_GETREG_B32":
        return lambda w: w.s.__setitem__(register, np.zeros(len(w), np.uint32))
    if number != MODE_REGISTER:
        raise Unknown(f"{name} of hardware register {number}")
    mask = np.uint32((1 << width) - 1)
    if name == "S_GETREG_B32":
        return lambda w: w.s.__setitem__(register, w.s[MODE] >> np.uint32(first) & mask)
    fixed = np.array([getattr(inst, "literal", 0)], np.uint32)

    def step(w: Waves) -> None:
        given = (fixed if "IMM32" in name else w.s[register]) & mask
        after = w.s[MODE] & ~(mask << np.uint32(first)) | given << np.uint32(first)
        refuse(
            ((after ^ w.s[MODE]) & ~np.uint32(1 << OVERFLOW_BIT | DENORMALS)) != 0,
            lambda: Unknown(
                f"MODE {int(after[0]):#x} instead of {int(w.s[MODE, 0]):#x} (rounding, denormals, exceptions)"
            ),
        )
        if ((after ^ w.s[MODE]) & np.uint32(DENORMALS)).any():
            from torch import set_flush_denormal

            set_flush_denormal(not int(after[0]) & DENORMALS)
        w.s[MODE] = after

    return step
