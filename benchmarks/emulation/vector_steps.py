"""How instructions of the vector ALU are compiled: to functions of the waves."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any

import numpy as np

from . import vector
from .formats import dtype, split_format
from .operands import LITERAL, VECTOR, Unknown, bits, format_of, mask_writer, operand, scalar, typed, writer
from .waves import LANES, VCC, Waves, lanes_of

Step = Callable[[Waves], None]

MASKED = re.compile(r"V_(CNDMASK|ADDC_CO|SUBB_CO|SUBBREV_CO|DIV_FMAS)_")
"""What reads a mask: VCC, where it has no operand for it."""

ACCUMULATING = re.compile(r"V_(FMA|DOT\d)C_")
"""What has its destination as a third operand."""


def vector_step(inst: Any, name: str, arch: str) -> Step:
    """VOP1, VOP2, VOP3, VOP3P and VOPC with all their variants; Unknown for what is not there."""
    if name.startswith(("V_READFIRSTLANE", "V_READLANE", "V_WRITELANE")):
        return _one_lane(inst, name)
    if name.startswith(("V_PERMLANE", "V_SWAP")):
        return _exchange(inst, name)
    form, target = type(inst).__name__, format_of(inst, "vdst")
    function = _function(inst, name, arch, target)
    readers = [
        operand(inst, index, arch, _mixed_format(inst, index) if "MAD_MIX" in name else "")
        for index in range(3)
        if {f"src{index}", f"vsrc{index}"} & inst.operands.keys()
    ]
    if name in ("V_FMAMK_F32", "V_FMAAK_F32"):
        literal = typed(bits(LITERAL, "f32", inst.literal), "f32")
        readers.insert(1 if "MK" in name else 2, literal)
    if MASKED.match(name) and format_of(inst, "src2") != "m64":
        readers.append(lambda w: lanes_of(w.s64(VCC)))
    if ACCUMULATING.match(name):
        readers.append(typed(bits(inst.vdst.offset, target), target))
    if name.startswith("V_CMP"):
        mark = mask_writer(inst)
        return lambda w: mark(w, function(*[read(w) for read in readers]))
    write = writer(inst, arch)
    if form != "VOP3SD" and "_CO_" not in name:
        return lambda w: write(w, function(*[read(w) for read in readers]))
    if "DPP" in form:
        raise Unknown(f"{name} of other lanes")
    mark = mask_writer(inst)

    def step(w: Waves) -> None:
        value, flags = function(*[read(w) for read in readers])
        write(w, value)
        mark(w, flags)

    return step


def _function(inst: Any, name: str, arch: str, target: str) -> vector.Function:
    """What an instruction computes, with the modifiers that are not of one operand."""
    if name.startswith("V_BITOP3"):  # whose table is in the fields of modifiers
        return vector.any_logic(inst.omod << 6 | inst.abs << 3 | inst.neg)
    halves = (getattr(inst, field, 0) for field in ("opsel", "neg", "neg_hi"))
    if name.startswith("V_DOT") and hasattr(inst, "opsel_hi") and (any(halves) or inst.opsel_hi != 3):
        raise Unknown(f"{name} with selected halves or signs")
    if "SDWA" in type(inst).__name__ and any(format_of(inst, field).endswith("64") for field in inst.operands):
        raise Unknown(f"{name} of parts of registers")
    if "SCALEF32" in name and arch == "gfx942":
        raise Unknown(name)
    plain = re.sub(r"^V_PK_(?!MOV|FMAC)", "V_", name.replace("_CMPX_", "_CMP_"))
    function = vector.found(vector.FUNCTIONS, plain)
    if getattr(inst, "omod", 0):
        raise Unknown("an output modifier")
    if getattr(inst, "clmp", 0) and target not in ("f16", "f32", "f64", "") and "_CMP" not in name:
        return vector.saturated(plain, dtype(split_format(target)[1]))
    return function


def _mixed_format(inst: Any, index: int) -> str:
    """Each operand of V_FMA_MIX (V_MAD_MIX in AMD's tables) is fp32, or a half of a register as fp16."""
    return "f16" if (inst.opsel_hi | inst.opsel_hi2 << 2) >> index & 1 else "f32"


def _one_lane(inst: Any, name: str) -> Step:
    """Between a lane of a vector register and a scalar one."""
    source, into = bits(inst.src0.offset, "b32"), inst.vdst.offset % VECTOR
    number = None if "FIRST" in name else scalar(inst.src1.offset, "u32")

    def step(w: Waves) -> None:
        wave, lane = np.arange(len(w)), number(w) & np.uint32(LANES - 1) if number else w.active.argmax(1)
        if "WRITE" in name:
            w.v[into][wave, lane] = source(w)[:, 0]
        else:
            w.s[into] = np.broadcast_to(source(w), (len(w), LANES))[wave, lane]

    return step


def _exchange(inst: Any, name: str) -> Step:
    """Two registers change places, or odd rows (or halves) of the first with even ones of the second."""
    rows = {"V_SWAP_B32": 0, "V_PERMLANE16_SWAP_B32": 16, "V_PERMLANE32_SWAP_B32": 32}.get(name)
    if rows is None:
        raise Unknown(name)
    register, other = inst.vdst.offset - VECTOR, inst.src0.offset - VECTOR
    lane = np.arange(LANES)
    odd, partner = lane & max(1, rows) != 0, lane ^ rows

    def step(w: Waves) -> None:
        mine, theirs = w.v[register].copy(), w.v[other].copy()
        w.set_v(register, np.where(odd, theirs.take(partner, axis=1), mine) if rows else theirs)
        w.set_v(other, np.where(odd, theirs, mine.take(partner, axis=1)) if rows else mine)

    return step
