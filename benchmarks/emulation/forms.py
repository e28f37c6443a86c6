"""Instructions that differ in nothing but the numbers of their vector registers: their code is traced once.

A kernel has some 40 encodings of each.  Which parameters of the code hold which register is seen by tracing two
instructions with registers of their own.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache
from typing import Any

FIRST, SECOND = (8, 72, 136, 200), (50, 180, 20, 100)
"""Registers of two instructions of a form, by operand: each operand's numbers are another distance apart."""

BY_THEMSELVES = ("V_READ", "V_WRITELANE", "V_SWAP", "V_PERMLANE")
"""Operations whose fields of vector registers hold scalar ones, or that write two operands, which may be the same."""


@dataclass(frozen=True)
class Traced:
    """The text of an instruction's function, what its parameters hold, and which of them are vector registers.
    rereads: as tracing.Effects."""

    text: str
    parameters: tuple[int, ...]
    vectors: tuple[int, ...]
    rereads: bool = False


@dataclass(frozen=True)
class Form:
    """What instructions of one form share.  operands: of each parameter the operand whose register it counts from,
    None of what does not depend on registers."""

    text: str
    parameters: tuple[int, ...]
    operands: tuple[int | None, ...]
    vectors: tuple[int, ...]

    def of(self, registers: Sequence[int]) -> Traced:
        """An instruction with these registers."""
        own = zip(self.parameters, self.operands, strict=True)
        values = tuple(offset if operand is None else registers[operand] + offset for offset, operand in own)
        return Traced(self.text, values, self.vectors)


@cache
def _fields(form: type) -> tuple[tuple[int, int], ...]:
    """(lowest bit, bits that say vector register) of the fields that can hold one."""
    from tinygrad.renderer.amd.dsl import SrcField

    fields = [field for _, field in form._fields if isinstance(field, SrcField)]  # type: ignore[attr-defined]
    return tuple((field.lo, 256 - field._valid_range[0]) for field in fields if field._valid_range[1] == 511)


def places(inst: Any) -> tuple[int, ...]:
    """The lowest bits of the fields that hold numbers of vector registers; none where they could mean others."""
    if inst.op.name.startswith(BY_THEMSELVES) or getattr(inst, "s0", 0) or getattr(inst, "s1", 0):
        return ()
    return tuple(low for low, flag in _fields(type(inst)) if inst._raw >> low & flag == flag)


def without_registers(inst: Any, lows: Sequence[int]) -> tuple[int, tuple[int, ...]]:
    """(its bits with registers 0, their numbers)."""
    raw = inst._raw
    for low in lows:
        raw &= ~(255 << low)
    return raw, tuple(inst._raw >> low & 255 for low in lows)


def with_registers(inst: Any, lows: Sequence[int], registers: Sequence[int]) -> bytes:
    """The instruction with other registers."""
    raw, _ = without_registers(inst, lows)
    for low, number in zip(lows, registers, strict=False):
        raw |= number << low
    return bytes(raw.to_bytes(inst.size(), "little"))


def learned(first: Traced, second: Traced) -> Form | None:
    """The form of two instructions that have the registers FIRST and SECOND; None where they share no code."""
    if first.rereads or (first.text, first.vectors) != (second.text, second.vectors):
        return None
    apart = {a - b: operand for operand, (a, b) in enumerate(zip(FIRST, SECOND, strict=True))}
    offsets, operands = list[int](), list[int | None]()
    for a, b in zip(first.parameters, second.parameters, strict=True):
        if a != b and a - b not in apart:
            return None
        operand = apart[a - b] if a != b else None
        operands.append(operand)
        offsets.append(a if operand is None else a - FIRST[operand])
    return Form(first.text, tuple(offsets), tuple(operands), first.vectors)
