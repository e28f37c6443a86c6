"""Instructions that differ in nothing but the numbers of their registers: their code is traced once.

A kernel has some 100 encodings of each.  Which parameters of the code hold which register is seen by tracing two
instructions with registers of their own.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache
from typing import Any, NamedTuple

VECTORS = ((8, 50), (72, 180), (136, 20), (200, 100))
SCALARS = ((4, 64), (24, 4), (44, 80), (64, 28))
"""Registers of two instructions of a form, by operand: each operand's numbers are another distance apart.  No scalar
operand has more than 16 registers."""

ORDINARY = 102
"""Scalar registers from here on have a meaning of their own, or are constants."""

BY_THEMSELVES = ("V_SWAP", "V_PERMLANE")
"""Operations that write two operands, which may be the same."""


class Place(NamedTuple):
    """A field of an instruction that holds a register's number: its lowest bit, its bits as a mask, by how many places
    the number is shifted there, and whether the register is a vector."""

    low: int
    mask: int
    shift: int
    is_vector: bool


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
def _fields(form: type) -> tuple[tuple[int, int, int, int], ...]:
    """(lowest bit, mask, number of the register of 0, shift) of the fields that can hold one; vector registers are
    numbered from 256."""
    from tinygrad.renderer.amd.dsl import AlignedSGPRField, SrcField

    found = []
    for _, field in form._fields:  # type: ignore[attr-defined]
        if isinstance(field, SrcField):
            found.append((field.lo, field.mask, field._valid_range[0], 0))
        elif isinstance(field, AlignedSGPRField):
            found.append((field.lo, field.mask, 0, field._align.bit_length() - 1))
    return tuple(found)


def places(inst: Any) -> tuple[Place, ...]:
    """The fields that hold numbers of registers; none where they could mean others."""
    if inst.op.name.startswith(BY_THEMSELVES) or getattr(inst, "s0", 0) or getattr(inst, "s1", 0):
        return ()
    found = []
    for low, mask, first, shift in _fields(type(inst)):
        number = first + ((inst._raw >> low & mask) << shift)
        if number >= 256:
            found.append(Place(low, 255, 0, True))
        elif number < ORDINARY:
            found.append(Place(low, 127 >> shift, shift, False))
    return tuple(found)


def without_registers(inst: Any, fields: Sequence[Place]) -> tuple[int, tuple[int, ...]]:
    """(its bits with registers 0, their numbers)."""
    raw, numbers = inst._raw, list[int]()
    for one in fields:
        numbers.append((inst._raw >> one.low & one.mask) << one.shift)
        raw &= ~(one.mask << one.low)
    return raw, tuple(numbers)


def with_registers(inst: Any, fields: Sequence[Place], registers: Sequence[int]) -> bytes:
    """The instruction with other registers."""
    raw, _ = without_registers(inst, fields)
    for one, number in zip(fields, registers, strict=False):
        raw |= number >> one.shift << one.low
    return bytes(raw.to_bytes(inst.size(), "little"))


def examples(fields: Sequence[Place]) -> list[tuple[int, int]]:
    """Of each field the registers of the two instructions by which a form is learned."""
    vectors, scalars = iter(VECTORS), iter(SCALARS)
    return [next(vectors if one.is_vector else scalars) for one in fields]


def learned(first: Traced, second: Traced, registers: Sequence[tuple[int, int]]) -> Form | None:
    """The form of two instructions that have these registers; None where they share no code."""
    if first.rereads or (first.text, first.vectors) != (second.text, second.vectors):
        return None
    apart = {a - b: operand for operand, (a, b) in enumerate(registers)}
    offsets, operands = list[int](), list[int | None]()
    for a, b in zip(first.parameters, second.parameters, strict=True):
        if a != b and a - b not in apart:
            return None
        operand = apart[a - b] if a != b else None
        operands.append(operand)
        offsets.append(a if operand is None else a - registers[operand][0])
    return Form(first.text, tuple(offsets), tuple(operands), first.vectors)
