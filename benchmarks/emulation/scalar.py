"""What the scalar ALU computes, operation by operation, and what becomes of SCC.

Functions take and give numpy arrays [waves] of the operands' formats, which are in tinygrad's tables.  Names are AMD's,
without S_, and without the types in which they end where the same function serves them all.
Source: AMD Instinct MI300 and MI350 Instruction Set Architecture, chapter Scalar ALU Operations.
"""

from __future__ import annotations

import operator
from typing import Any

import numpy as np

from .vector import (
    COMPARISONS,
    Function,
    bits_in,
    extracted,
    from_bits,
    high_product,
    leading,
    lowest,
    ones,
    places,
    reversed_bits,
    shifted_left,
    shifted_right,
    u64,
)


def _field(value: Any, field: Any) -> Any:
    """What S_BFE takes: the offset is in the low bits of the field, the width from bit 16 on."""
    return extracted(value, places(field, value), field >> np.uint32(16) & np.uint32(127))


def _any_of(value: Any, spread: bool) -> Any:
    """Of every four bits whether one is set: in all four (spread), or packed together."""
    ones = bits_in(value)
    fours = ones.reshape(len(value), -1, 4).any(-1)
    if spread:
        return from_bits(np.repeat(fours, 4, axis=-1), value.dtype)
    return from_bits(np.concatenate([fours, np.zeros_like(ones)], axis=-1)[:, : ones.shape[-1]], value.dtype)


def _replicated(value: Any) -> Any:
    """Each of 32 bits twice."""
    return from_bits(np.repeat(bits_in(value), 2, axis=-1), np.uint64)


def _wide(value: Any) -> Any:
    """As 64 bits, in which sums are exact."""
    return value.astype(np.int64)


def _bit(value: Any, place: Any) -> Any:
    return shifted_right(place, value) & value.dtype.type(1)


def _one_at(place: Any, value: Any) -> Any:
    return shifted_left(place, np.ones_like(value))


LOGIC: dict[str, Function] = {
    "AND": operator.and_,
    "OR": operator.or_,
    "XOR": operator.xor,
    "ANDN2": lambda a, b: a & ~b,
    "ORN2": lambda a, b: a | ~b,
    "NAND": lambda a, b: ~(a & b),
    "NOR": lambda a, b: ~(a | b),
    "XNOR": lambda a, b: ~(a ^ b),
}
SAVING = LOGIC | {"ANDN1": lambda a, e: ~a & e, "ORN1": lambda a, e: ~a | e}
"""S_..._SAVEEXEC_B64: the operand and EXEC give the new EXEC, the old one is the result; S_..._WREXEC_B64: the new."""

NONZERO: dict[str, Function] = LOGIC | {
    "NOT": operator.invert,
    "WQM": lambda a: _any_of(a, True),
    "QUADMASK": lambda a: _any_of(a, False),
    "BCNT0": lambda a: np.bitwise_count(~a),
    "BCNT1": np.bitwise_count,
    "LSHL": lambda a, b: shifted_left(b, a),
    "LSHR": lambda a, b: shifted_right(b, a),
    "ASHR": lambda a, b: shifted_right(b, a),
    "BFE": _field,
    "ABS": np.abs,
    "ABSDIFF": lambda a, b: np.abs(a - b),
}
"""SCC tells whether the result is not zero."""

EXACT: dict[str, Function] = {
    "ADD": lambda a, b: _wide(a) + b,
    "SUB": lambda a, b: _wide(a) - b,
    "ADDC": lambda a, b, carry: _wide(a) + b + carry,
    "SUBB": lambda a, b, borrow: _wide(a) - b - borrow,
    **{f"LSHL{n}_ADD": lambda a, b, n=n: (_wide(a) << n) + b for n in (1, 2, 3, 4)},
}
"""SCC tells whether the result, in the bits of an operand, is another number."""

CHOICES: dict[str, Function] = {"MIN": np.minimum, "MAX": np.maximum}
"""SCC tells whether it is the first operand and not the second one."""

TESTS: dict[str, Function] = {
    **{f"CMP_{name}": COMPARISONS[name] for name in ("EQ", "LG", "GT", "GE", "LT", "LE")},
    "BITCMP0": lambda a, b: _bit(a, b) == 0,
    "BITCMP1": lambda a, b: _bit(a, b) == 1,
}
"""Their result is SCC."""

SILENT: dict[str, Function] = {
    "MOV": lambda a: a,
    "CMOV": lambda a, before, scc: np.where(scc, a, before),
    "CSELECT": lambda a, b, scc: np.where(scc, a, b),
    "BREV": reversed_bits,
    "FF0": lambda a: lowest(~a),
    "FF1": lowest,
    "FLBIT": leading,
    "SEXT": lambda a: a,
    "BITREPLICATE": _replicated,
    "BITSET0": lambda place, before: before & ~_one_at(place, before),
    "BITSET1": lambda place, before: before | _one_at(place, before),
    "BFM": ones,
    "BFM_B64": lambda a, b: ones(u64(a), u64(b)),
    "MUL": operator.mul,
    "MUL_HI": high_product,
    "PACK_LL": lambda a, b: _packed(a, b),
    "PACK_LH": lambda a, b: _packed(a, b >> np.uint32(16)),
    "PACK_HH": lambda a, b: _packed(a >> np.uint32(16), b >> np.uint32(16)),
}
"""They leave SCC as it is."""


def _packed(low: Any, high: Any) -> Any:
    return low & np.uint32(0xFFFF) | high.astype(np.uint32) << np.uint32(16)


SALU: dict[str, tuple[Function, Function | None]] = {
    name: (function, tells)
    for functions, tells in (
        (NONZERO, lambda value, given: value != 0),
        (EXACT, lambda value, given: value != value.astype(given[0].dtype)),
        (CHOICES, lambda value, given: value != given[1]),
        (TESTS, lambda value, given: value),
        (SILENT, None),
    )
    for name, function in functions.items()
}
"""Name -> (operands to result, (result, operands) to SCC)."""
