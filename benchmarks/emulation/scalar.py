"""What the scalar ALU computes: name -> (type of the result, types of the operands, function).

A function gives (result, new SCC); None leaves what is there.  Arrays are [waves].
Source: AMD Instinct MI300 and MI350 Instruction Set Architecture, chapter Scalar ALU Operations.
"""

from __future__ import annotations

import operator
from collections.abc import Callable
from typing import Any

import numpy as np

Function = Callable[..., tuple[Any, Any]]

SALU: dict[str, tuple[str | None, tuple[str, ...], Function]] = {}


def _define(result: str | None, operands: str, **functions: Function) -> None:
    for name, function in functions.items():
        SALU["S_" + name] = (result, tuple(operands.split()), function)


def _plain(function: Callable[..., Any]) -> Function:
    return lambda *operands: (function(*operands), None)


def _logic(function: Callable[..., Any]) -> Function:
    """SCC tells whether the result is not zero."""

    def both(*operands: Any) -> tuple[Any, Any]:
        result = function(*operands)
        return result, result != 0

    return both


def u64(value: Any) -> Any:
    """As 64 bits."""
    return value.astype(np.uint64)


def low(value: Any, width: int) -> Any:
    """Modulo a power of two, as the ALUs take the places of a shift."""
    return value & value.dtype.type(width - 1)


def _exactly(function: Callable[[Any, Any], Any]) -> Function:
    """Of signed numbers; SCC tells whether the result is another one than the exact one."""

    def both(a: Any, b: Any) -> tuple[Any, Any]:
        total = function(a.astype(np.int64), b)
        return total.astype(np.int32), total != total.astype(np.int32)

    return both


def _places(value: Any, by: Any) -> Any:
    """By how many places a value is shifted, as its type."""
    return low(by, 8 * value.dtype.itemsize).astype(value.dtype)


def extracted(value: Any, offset: Any, width: Any) -> Any:
    """So many bits from an offset; sign-extended where the value is signed."""
    moved, width = value >> offset.astype(value.dtype), width.astype(np.int64)
    if value.dtype.kind == "u":
        keep = np.where(width >= 64, np.uint64(2**64 - 1), (np.uint64(1) << u64(np.minimum(width, 63))) - np.uint64(1))
        return (u64(moved) & keep).astype(value.dtype)
    up = 64 - np.clip(width, 1, 64)
    return np.where(width == 0, 0, moved.astype(np.int64) << up >> up).astype(value.dtype)


def _field(value: Any, field: Any) -> Any:
    """What S_BFE takes: the offset is in the low bits of the field, the width from bit 16 on."""
    return extracted(value, low(field, 8 * value.dtype.itemsize), field >> np.uint32(16) & np.uint32(127))


def _ones(count: Any, offset: Any) -> Any:
    """So many ones from an offset."""
    return ((count.dtype.type(1) << _places(count, count)) - count.dtype.type(1)) << _places(count, offset)


def _shifted_add(places: int) -> Function:
    def both(a: Any, b: Any) -> tuple[Any, Any]:
        total = (u64(a) << np.uint64(places)) + u64(b)
        return total.astype(np.uint32), total >> np.uint64(32) != 0

    return both


def _select(smaller: Callable[[Any, Any], Any]) -> Function:
    return lambda a, b: (
        np.where(smaller(a, b), a, b),
        np.broadcast_to(smaller(a, b), np.broadcast_shapes(a.shape, b.shape)),
    )


def _lowest(value: Any) -> Any:
    """Index of the lowest bit that is set; all ones of 0."""
    alone = value & (~value + value.dtype.type(1))
    return np.where(value == 0, -1, np.frexp(alone.astype(np.float64))[1] - 1).astype(np.int32).view(np.uint32)


def _highest_zeros(value: Any) -> Any:
    bits = 8 * value.dtype.itemsize
    return np.array([bits - int(one).bit_length() if one else 0xFFFFFFFF for one in value], np.uint32)


def reversed_bits(value: Any) -> Any:
    """The bits, the lowest first."""
    octets = np.ascontiguousarray(value).view(np.uint8).reshape(*value.shape, value.itemsize)
    turned = np.packbits(np.unpackbits(octets, axis=-1), axis=-1, bitorder="little")[..., ::-1]
    return turned.copy().view(value.dtype)[..., 0]


def _count(value: Any) -> Any:
    return np.bitwise_count(value).astype(np.uint32)


def _any_of(value: Any, spread: bool) -> Any:
    """Of every four bits whether one is set: in all four (spread), or packed together."""
    bits = 8 * value.dtype.itemsize
    groups = [value >> value.dtype.type(4 * index) & value.dtype.type(15) for index in range(bits // 4)]
    result = np.zeros_like(value)
    for index, group in enumerate(groups):
        place = value.dtype.type(4 * index if spread else index)
        result |= np.where(group != 0, value.dtype.type(15 if spread else 1), value.dtype.type(0)) << place
    return result


def _signed_zeros(value: Any) -> Any:
    """How many bits, with the sign, are like the sign; all ones if every bit is."""
    bits = 8 * value.dtype.itemsize
    same = np.where(value >> value.dtype.type(bits - 1) != 0, ~value, value)
    return np.where(same == 0, np.uint32(0xFFFFFFFF), _highest_zeros(same))


def _replicated(value: Any) -> Any:
    """Each of 32 bits twice."""
    result = np.zeros(value.shape, np.uint64)
    for bit in range(32):
        result |= u64(value >> np.uint32(bit) & np.uint32(1)) * np.uint64(3) << np.uint64(2 * bit)
    return result


LOGIC: dict[str, Callable[[Any, Any], Any]] = {
    "AND": np.bitwise_and,
    "OR": np.bitwise_or,
    "XOR": np.bitwise_xor,
    "ANDN2": lambda a, b: a & ~b,
    "ORN2": lambda a, b: a | ~b,
    "NAND": lambda a, b: ~(a & b),
    "NOR": lambda a, b: ~(a | b),
    "XNOR": lambda a, b: ~(a ^ b),
}
SAVING = LOGIC | {"ANDN1": lambda a, e: ~a & e, "ORN1": lambda a, e: ~a | e}
"""S_..._SAVEEXEC_B64: the operand and EXEC give the new EXEC, the old one is the result; S_..._WREXEC_B64: the new."""

CHANGING: dict[str, tuple[str, str, Callable[[Any, Any, Any], Any]]] = {}
"""What changes its destination: name -> (its type, the operand's, (before, operand, SCC) -> after)."""

for _bits in (32, 64):
    _unsigned, _signed, _of = f"u{_bits}", f"i{_bits}", f"B{_bits}"
    _define(
        _unsigned,
        _unsigned,
        **{
            f"MOV_{_of}": _plain(lambda a: a),
            f"NOT_{_of}": _logic(np.invert),
            f"BREV_{_of}": _plain(reversed_bits),
            f"WQM_{_of}": _logic(lambda a: _any_of(a, True)),
            f"QUADMASK_{_of}": _logic(lambda a: _any_of(a, False)),
        },
    )
    _define(
        "u32",
        _unsigned,
        **{
            f"FF0_I32_{_of}": _plain(lambda a: _lowest(~a)),
            f"FF1_I32_{_of}": _plain(_lowest),
            f"FLBIT_I32_{_of}": _plain(_highest_zeros),
            f"FLBIT_I32{'_I64' if _bits == 64 else ''}": _plain(_signed_zeros),
            f"BCNT0_I32_{_of}": _logic(lambda a: _count(~a)),
            f"BCNT1_I32_{_of}": _logic(_count),
        },
    )
    _define(
        _unsigned, f"{_unsigned} {_unsigned}", **{f"{name}_{_of}": _logic(function) for name, function in LOGIC.items()}
    )
    _define(
        _unsigned,
        f"{_unsigned} u32",
        **{
            f"LSHL_{_of}": _logic(lambda a, b: a << _places(a, b)),
            f"LSHR_{_of}": _logic(lambda a, b: a >> _places(a, b)),
            f"BFE_U{_bits}": _logic(_field),
        },
    )
    _define(
        _signed,
        f"{_signed} u32",
        **{f"ASHR_I{_bits}": _logic(lambda a, b: a >> _places(a, b)), f"BFE_I{_bits}": _logic(_field)},
    )
    _define(
        None,
        f"{_unsigned} u32",
        **{
            f"BITCMP0_{_of}": lambda a, b: (None, a >> _places(a, b) & 1 == 0),
            f"BITCMP1_{_of}": lambda a, b: (None, a >> _places(a, b) & 1 == 1),
        },
    )
    CHANGING[f"S_CMOV_{_of}"] = (_unsigned, _unsigned, lambda before, value, scc: np.where(scc, value, before))
    for _value, _function in ((0, LOGIC["ANDN2"]), (1, LOGIC["OR"])):
        CHANGING[f"S_BITSET{_value}_{_of}"] = (
            _unsigned,
            "u32",
            lambda before, place, _, change=_function: change(before, before.dtype.type(1) << _places(before, place)),
        )

_define(
    "u32",
    "u32",
    SEXT_I32_I8=_plain(lambda a: a.astype(np.int8).astype(np.int32).view(np.uint32)),
    SEXT_I32_I16=_plain(lambda a: a.astype(np.int16).astype(np.int32).view(np.uint32)),
)
_define("i32", "i32", ABS_I32=_logic(np.abs))
_define("u64", "u32", BITREPLICATE_B64_B32=_plain(_replicated))
_define("u64", "u32 u32", BFM_B64=_plain(lambda a, b: _ones(u64(a), u64(b))))
_define(
    "u32",
    "u32 u32",
    ADD_U32=_shifted_add(0),
    SUB_U32=lambda a, b: (a - b, b > a),
    BFM_B32=_plain(_ones),
    MUL_I32=_plain(np.multiply),
    MUL_HI_U32=_plain(lambda a, b: (u64(a) * u64(b) >> np.uint64(32)).astype(np.uint32)),
    MIN_U32=_select(operator.lt),
    MAX_U32=_select(operator.gt),
    PACK_LL_B32_B16=_plain(lambda a, b: a & np.uint32(65535) | b << np.uint32(16)),
    PACK_LH_B32_B16=_plain(lambda a, b: a & np.uint32(65535) | b & np.uint32(0xFFFF0000)),
    PACK_HH_B32_B16=_plain(lambda a, b: a >> np.uint32(16) | b & np.uint32(0xFFFF0000)),
    **{f"LSHL{places}_ADD_U32": _shifted_add(places) for places in (1, 2, 3, 4)},
)
_define(
    "i32",
    "i32 i32",
    ADD_I32=_exactly(operator.add),
    SUB_I32=_exactly(operator.sub),
    MIN_I32=_select(operator.lt),
    MAX_I32=_select(operator.gt),
    MUL_HI_I32=_plain(lambda a, b: (a.astype(np.int64) * b >> 32).astype(np.int32)),
    ABSDIFF_I32=_logic(lambda a, b: np.abs(a - b)),
)

_TESTS = {
    "EQ": operator.eq,
    "LG": operator.ne,
    "GT": operator.gt,
    "GE": operator.ge,
    "LT": operator.lt,
    "LE": operator.le,
}
for _name, _test in _TESTS.items():
    for _kind in ("i32", "u32", "u64"):
        _define(
            None, f"{_kind} {_kind}", **{f"CMP_{_name}_{_kind.upper()}": lambda a, b, test=_test: (None, test(a, b))}
        )
