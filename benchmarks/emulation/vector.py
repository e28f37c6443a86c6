"""What the vector ALU computes, operation by operation: a function for each name.

Functions take and give numpy arrays of the operands' formats, which are in tinygrad's tables; a result is converted to
its own format where it is written.  A second result is a bit per lane.  Names are AMD's, without what all have in
common, and without the types in which they end where the same function serves them all.
Source: AMD Instinct MI300 and MI350 Instruction Set Architecture, chapter Instructions.  Rounded otherwise by the
hardware: V_RCP, V_RSQ, V_SQRT, V_EXP, V_LOG, V_SIN, V_COS are within 1 ulp there and correctly rounded here; those of
fp64 (V_RCP, V_RSQ, V_SQRT) are estimates of 2^-23 or so there, which code refines.  V_EXP_F32 and V_LOG_F32 flush
denormals there (below 2^-126) and keep them here.  The payload of a NaN may differ.  Every other difference between
this and AMD's pseudocode is in tests/benchmarks/emulation/test_pseudocode.py.
"""

from __future__ import annotations

import operator
import re
from collections.abc import Callable, Mapping
from functools import reduce
from typing import Any

import numpy as np

from .elementary import cosine, exp2, log2, sine
from .formats import side_by_side
from .operands import Unknown
from .rounding import division_fixup, division_scale, fused
from .waves import LANES

Function = Callable[..., Any]


def found(table: Mapping[str, Any], name: str) -> Any:
    """The entry of an operation, by its whole name or without types at its end.  Unknown if there is none."""
    stem = name[2:]
    while stem not in table:
        shorter = re.sub(r"_(BF|FP|[UIBF])\d+$", "", stem)
        if shorter == stem:
            raise Unknown(name)
        stem = shorter
    return table[stem]


# Integers and bits.


def u64(value: Any) -> Any:
    """As 64 bits."""
    return value.astype(np.uint64)


def _u24(value: Any) -> Any:
    return value & np.uint32(0xFFFFFF)


def _i24(value: Any) -> Any:
    return value << np.int32(8) >> np.int32(8)


def places(by: Any, value: Any) -> Any:
    """By how many places a value is shifted, as its type: modulo its bits."""
    return (by & by.dtype.type(8 * value.itemsize - 1)).astype(value.dtype, copy=False)


def shifted_left(by: Any, value: Any) -> Any:
    """Towards higher bits."""
    return value << places(by, value)


def shifted_right(by: Any, value: Any) -> Any:
    """Towards lower bits; a signed one keeps its sign."""
    return value >> places(by, value)


def high_product(a: Any, b: Any) -> Any:
    """The upper half of a product of 32 bits each."""
    wide = np.dtype(f"{a.dtype.kind}8")
    return (a.astype(wide) * b.astype(wide) >> wide.type(32)).astype(a.dtype)


def extracted(value: Any, offset: Any, width: Any) -> Any:
    """So many bits from an offset; sign-extended where the value is signed."""
    moved, width = value >> offset.astype(value.dtype), width.astype(np.int64)
    if value.dtype.kind == "u":
        keep = np.where(width >= 64, np.uint64(2**64 - 1), (np.uint64(1) << u64(np.minimum(width, 63))) - np.uint64(1))
        return (u64(moved) & keep).astype(value.dtype)
    up = 64 - np.clip(width, 1, 64)
    return np.where(width == 0, 0, moved.astype(np.int64) << up >> up).astype(value.dtype)


def ones(count: Any, offset: Any) -> Any:
    """So many ones from an offset."""
    one = count.dtype.type(1)
    return shifted_left(offset, shifted_left(count, one) - one)


def bits_in(value: Any) -> Any:
    """Each bit of a number, the lowest first: [...] to [..., bits]."""
    octets = value.copy()[..., None].view(np.uint8)
    return np.unpackbits(octets, axis=-1, bitorder="little")


def from_bits(bits: Any, dtype: Any) -> Any:
    """The other way."""
    return np.packbits(bits, axis=-1, bitorder="little").view(dtype)[..., 0]


def reversed_bits(value: Any) -> Any:
    """The bits, the lowest first."""
    return from_bits(bits_in(value)[..., ::-1], value.dtype)


def leading(value: Any) -> Any:
    """How many zeros lead; of a signed number, how many leading bits equal its sign.  All ones if every bit does."""
    bits = 8 * value.itemsize
    if value.dtype.kind == "i":
        value = (value ^ value >> value.dtype.type(bits - 1)).view(f"u{value.itemsize}")
    top = value & ~(value >> value.dtype.type(1))  # without a bit that could round it up
    return np.where(value == 0, -1, bits - np.frexp(top.astype(np.float64))[1])


def lowest(value: Any) -> Any:
    """Index of the lowest bit that is set; all ones of 0."""
    alone = value & (~value + value.dtype.type(1))
    return np.where(value == 0, -1, np.frexp(alone.astype(np.float64))[1] - 1)


def _aligned(high: Any, low: Any, bits: Any) -> Any:
    return (u64(high) << np.uint64(32) | u64(low)) >> u64(bits)


def _permuted(high: Any, low: Any, select: Any) -> Any:
    """Each byte of the result is one of the eight of both operands, the sign of a word of them, 0 or all ones."""
    octets = side_by_side(low, high).view(np.uint8)
    zero = np.zeros_like(octets[..., :1])
    choice = np.concatenate([octets, np.where(octets[..., 1::2] > 127, np.uint8(255), zero), zero, ~zero], axis=-1)
    return np.take_along_axis(choice, np.minimum(select, np.uint8(13)), axis=-1)


def _sum(a: Any, b: Any, carry: Any = 0) -> tuple[Any, Any]:
    """With what is carried out of it."""
    total = a.astype(np.int64) + b + carry
    return total, total > 0xFFFFFFFF


def _remainder(a: Any, b: Any, borrow: Any = 0) -> tuple[Any, Any]:
    total = a.astype(np.int64) - b - borrow
    return total, total < 0


def _multiplied(a: Any, b: Any, c: Any) -> tuple[Any, Any]:
    """Product of 32 bits each and a sum of 64, with what is carried out: of signed ones, bit 64 of the exact sum."""
    product = a.astype(c.dtype) * b.astype(c.dtype)
    total = product + c
    if c.dtype.kind == "u":
        return total, total < product
    over = ((product >= 0) == (c >= 0)) & ((total >= 0) != (product >= 0))
    return total, (total < 0) ^ over


def _counted_below(first: int) -> Function:
    """Ones of a mask of the lanes from `first` on that stand for lanes below the own one, and a second operand."""
    below = np.array([(1 << min(max(lane - first, 0), 32)) - 1 for lane in range(LANES)], np.uint32)
    return lambda mask, start: np.bitwise_count(mask & below).astype(np.uint32) + start


def _difference(a: Any, b: Any) -> Any:
    return np.where(a > b, a - b, b - a)


def _differences(a: Any, b: Any, c: Any, shift: int = 0) -> Any:
    """Sum of absolute differences of the parts of two registers, shifted, and a third operand."""
    return (_difference(a, b).sum(-1, dtype=np.uint32) << np.uint32(shift)) + c


def saturated(name: str, kind: Any) -> Function:
    """An integer sum or difference whose result stays at the limit of its type: the clamp modifier."""
    signs = {"ADD": (1, 1), "SUB": (1, -1), "SUBREV": (-1, 1)}.get(name.removeprefix("V_").rsplit("_", 1)[0])
    if signs is None:
        raise Unknown(f"{name} with a clamped result")
    limits = np.iinfo(kind)
    return lambda a, b: np.clip(signs[0] * a.astype(np.int64) + signs[1] * b.astype(np.int64), limits.min, limits.max)


def any_logic(table: int) -> Function:
    """V_BITOP3: any function of three bits, as a table of its 8 values."""

    def function(a: Any, b: Any, c: Any) -> Any:
        result = a & ~a
        for index in range(8):
            if table >> index & 1:
                result = result | (a if index & 4 else ~a) & (b if index & 2 else ~b) & (c if index & 1 else ~c)
        return result

    return function


# Floating point.


def _quiet(value: Any) -> Any:
    """A NaN with its quiet bit set."""
    bits = value.view(f"u{value.itemsize}")
    return (bits | bits.dtype.type(1 << np.finfo(value.dtype).nmant - 1)).view(value.dtype)


def _signals(value: Any) -> Any:
    """Which are signalling NaNs: beyond infinity, and below the quiet ones."""
    unsigned = np.dtype(f"u{value.itemsize}").type
    infinite = np.array(np.inf, value.dtype).view(unsigned)[()]
    size = value.view(unsigned) & unsigned(np.iinfo(unsigned).max >> 1)
    return size - (infinite + unsigned(1)) < unsigned((1 << np.finfo(value.dtype).nmant - 1) - 1)


def _extreme(wins: Function) -> Function:
    """The smaller or larger; of a NaN and a number the number, but a signalling NaN stays one (the IEEE mode)."""
    integers, zeros = (np.minimum, operator.or_) if wins is operator.lt else (np.maximum, operator.and_)

    def function(a: Any, b: Any) -> Any:
        if a.dtype.kind != "f":
            return integers(a, b)
        unsigned = f"u{a.itemsize}"
        equal = zeros(a.view(unsigned), b.view(unsigned)).view(a.dtype)  # the sign of one of two zeros
        value = np.where(a == b, equal, np.where(wins(a, b), a, b))
        none_a, none_b = np.isnan(a), np.isnan(b)
        if none_a.any() or none_b.any():
            value = np.where(none_a, b, np.where(none_b, a, value))
            value = np.where(_signals(a), _quiet(a), np.where(_signals(b), _quiet(b), value))
        return value

    return function


least, most = _extreme(operator.lt), _extreme(operator.gt)


def _three(function: Function) -> Function:
    return lambda a, b, c: function(function(a, b), c)


def _with_nan(function: Function) -> Function:
    """NaN where an operand is one: the minimum and maximum of IEEE 754-2019."""
    return lambda *operands: np.where(reduce(operator.or_, map(np.isnan, operands)), np.nan, function(*operands))


def _ordered(value: Any) -> Any:
    """Bits of floats as integers that are ordered as they are, -0 below +0; the same again gives the bits."""
    bits = value.view(f"i{value.itemsize}")
    return bits ^ (bits >> bits.dtype.type(8 * bits.itemsize - 1) & np.iinfo(bits.dtype).max)


def _between(a: Any, b: Any, c: Any) -> Any:
    return np.maximum(np.minimum(a, b), np.minimum(np.maximum(a, b), c))


def _median(a: Any, b: Any, c: Any) -> Any:
    """The one between the others; with a NaN among them, the smallest of the others."""
    if a.dtype.kind != "f":
        return _between(a, b, c)
    value = _ordered(_between(*map(_ordered, (a, b, c)))).view(a.dtype)
    none = np.isnan(a) | np.isnan(b) | np.isnan(c)
    return np.where(none, least(least(a, b), c), value) if none.any() else value


def float_class(value: Any, wanted: Any) -> Any:
    """V_CMP_CLASS: is the number of a kind whose bit is set?  Kinds are from a signalling NaN (0) to +inf (9)."""
    normal = np.abs(value) >= np.finfo(value.dtype).tiny
    positive = np.select([np.isinf(value), normal, value != 0], [9, 8, 7], 6)
    number = np.where(np.signbit(value), 11 - positive, positive)
    kind = np.where(np.isnan(value), np.where(_signals(value), 0, 1), number)
    return (wanted.view(f"u{wanted.itemsize}") >> kind & 1).astype(np.bool_)


def _fraction(value: Any) -> Any:
    """Below 1, also where the difference rounds to 1."""
    return np.minimum(value - np.floor(value), np.nextafter(value.dtype.type(1), value.dtype.type(0)))


def _scaled_back(a: Any, b: Any, c: Any, mask: Any) -> Any:
    """The last step of a division."""
    value = fused(a, b, c)
    return np.where(mask, value.dtype.type(2.0 ** (32 if value.itemsize == 4 else 64)) * value, value)


def _mixed(a: Any, b: Any, c: Any) -> Any:
    """Of fp32 and fp16 in any mixture; one rounding to fp32."""
    return fused(*(one.astype(np.float32) for one in (a, b, c)))


def _toward_zero(value: Any) -> Any:
    """fp32 to fp16."""
    near = value.astype(np.float16)
    over = np.abs(near.astype(np.float32)) > np.abs(value)
    return (near.view(np.uint16) - over).astype(np.uint16).view(np.float16)


def _through64(function: Function) -> Function:
    return lambda a: function(a.astype(np.float64))


def _clipped_pair(kind: Any) -> Function:
    limits = np.iinfo(kind)
    return lambda a, b: np.clip(side_by_side(a, b), limits.min, limits.max)


def _shifted_pair(kind: Any) -> Function:
    pair = _clipped_pair(kind)
    return lambda a, b, c: pair(shifted_right(c, a), shifted_right(c, b))


def _dot(a: Any, b: Any, c: Any) -> Any:
    """Sum of products of the parts of two registers and a third operand, modulo 2^32."""
    return (a.astype(np.int64) * b).sum(-1) + c


def _dot_in_turn(a: Any, b: Any, c: Any) -> Any:
    """As the pseudocode adds: the low product, then the high one, each sum rounded to fp32."""
    products = a.astype(np.float32) * b.astype(np.float32)
    return c + products[..., 0] + products[..., 1]


def _scale(power: Any) -> Any:
    """A power of two: the exponent of a number."""
    return np.ldexp(1.0, (power.view(np.uint32) >> np.uint32(23) & np.uint32(255)).astype(np.int64) - 127)


def _to_scaled(*operands: Any) -> Any:
    """One or two numbers, or a pair, divided by a scale."""
    *numbers, power = operands
    value = side_by_side(*numbers) if len(numbers) == 2 else numbers[0]
    return value.astype(np.float64) / _scale(power)[..., None]


COMPARISONS: dict[str, Function] = {
    "LT": operator.lt,
    "EQ": operator.eq,
    "LE": operator.le,
    "GT": operator.gt,
    "GE": operator.ge,
    "LG": lambda a, b: (a < b) | (a > b),
    "O": lambda a, b: (a == a) & (b == b),
    "F": lambda a, b: np.False_,
}


def _not(test: Function) -> Function:
    return lambda a, b: ~test(a, b)


FUNCTIONS: dict[str, Function] = {
    **{f"CMP_{name}": test for name, test in COMPARISONS.items()},
    **{f"CMP_N{name}": _not(test) for name, test in COMPARISONS.items()},
    "CMP_NE": operator.ne,
    "CMP_U": _not(COMPARISONS["O"]),
    "CMP_T": _not(COMPARISONS["F"]),
    "CMP_TRU": _not(COMPARISONS["F"]),
    "CMP_CLASS": float_class,
    "MOV": lambda a: a,
    **dict.fromkeys(("ACCVGPR_READ", "ACCVGPR_WRITE", "ACCVGPR_MOV"), lambda a: a),
    "PK_MOV": lambda a, b: side_by_side(a[..., 0], b[..., 1]),
    "CNDMASK": lambda a, b, mask: np.where(mask, b, a),
    # Bits.
    "NOT": np.invert,
    "AND": np.bitwise_and,
    "OR": np.bitwise_or,
    "XOR": np.bitwise_xor,
    "XNOR": lambda a, b: ~(a ^ b),
    "AND_OR": lambda a, b, c: a & b | c,
    "OR3": lambda a, b, c: a | b | c,
    "BFI": lambda a, b, c: a & b | ~a & c,
    "BFREV": reversed_bits,
    "FFBH": leading,
    "FFBL": lowest,
    "BFM": ones,
    "BFE": lambda value, offset, width: extracted(value, offset & 31, width & 31),
    "BCNT": lambda a, b: np.bitwise_count(a).astype(np.uint32) + b,
    "MBCNT_LO": _counted_below(0),
    "MBCNT_HI": _counted_below(32),
    "LSHLREV": shifted_left,
    "LSHRREV": shifted_right,
    "ASHRREV": shifted_right,
    "LSHL_ADD_U32": lambda a, b, c: shifted_left(b, a) + c,
    "LSHL_ADD_U64": lambda a, b, c: (a << u64(b & 7)) + c,
    "ADD_LSHL": lambda a, b, c: shifted_left(c, a + b),
    "LSHL_OR": lambda a, b, c: shifted_left(b, a) | c,
    "XAD": lambda a, b, c: (a ^ b) + c,
    "ALIGNBIT": lambda a, b, c: _aligned(a, b, c & 31),
    "ALIGNBYTE": lambda a, b, c: _aligned(a, b, (c & 3) * 8),
    "PERM": _permuted,
    "PRNG": lambda a: a << np.uint32(1) ^ (a >> np.uint32(31)) * np.uint32(197),
    # Sums and products, of integers or floats.
    "ADD": operator.add,
    "SUB": operator.sub,
    "SUBREV": lambda a, b: b - a,
    "ADD3": lambda a, b, c: a + b + c,
    "ADD_CO": _sum,
    "SUB_CO": _remainder,
    "SUBREV_CO": lambda a, b: _remainder(b, a),
    "ADDC_CO": _sum,
    "SUBB_CO": _remainder,
    "SUBBREV_CO": lambda a, b, borrow: _remainder(b, a, borrow),
    "MUL": operator.mul,
    "MUL_LO": operator.mul,
    "MUL_HI": high_product,
    "MUL_U32_U24": lambda a, b: _u24(a) * _u24(b),
    "MUL_I32_I24": lambda a, b: _i24(a) * _i24(b),
    "MUL_HI_U32_U24": lambda a, b: high_product(_u24(a), _u24(b)),
    "MUL_HI_I32_I24": lambda a, b: high_product(_i24(a), _i24(b)),
    "MUL_LEGACY": lambda a, b: np.where((a == 0) | (b == 0), np.float32(0), a * b),
    "MAD_U16": lambda a, b, c: a * b + c,
    "MAD_I16": lambda a, b, c: a * b + c,
    "MAD_U32_U16": lambda a, b, c: a.astype(np.uint32) * b + c,
    "MAD_I32_I16": lambda a, b, c: a.astype(np.int32) * b + c,
    "MAD_U32_U24": lambda a, b, c: _u24(a) * _u24(b) + c,
    "MAD_I32_I24": lambda a, b, c: _i24(a) * _i24(b) + c,
    "MAD_U64_U32": _multiplied,
    "MAD_I64_I32": _multiplied,
    "SAD": _differences,
    "SAD_U32": lambda a, b, c: _difference(a, b) + c,
    "SAD_HI": lambda a, b, c: _differences(a, b, c, 16),
    **{f"DOT{count}{adds}": _dot for count in (2, 4, 8) for adds in ("", "C")},
    **dict.fromkeys(("DOT2_F32_F16", "DOT2C_F32_F16", "DOT2C_F32_BF16"), _dot_in_turn),
    "DOT2_F32_BF16": lambda a, b, c: a[..., 0] * b[..., 0] + a[..., 1] * b[..., 1] + c,
    # The smallest and the largest.
    "MIN": least,
    "MAX": most,
    "MIN3": _three(least),
    "MAX3": _three(most),
    "MED3": _median,
    "MINIMUM3": _with_nan(_three(least)),
    "MAXIMUM3": _with_nan(_three(most)),
    # Floats alone.
    **dict.fromkeys(("FMA", "FMAC", "FMAMK", "FMAAK"), fused),
    **dict.fromkeys(("MAD_MIX", "MAD_MIXLO", "MAD_MIXHI"), _mixed),
    "DIV_SCALE": division_scale,
    "DIV_FMAS": _scaled_back,
    "DIV_FIXUP": division_fixup,
    "TRUNC": np.trunc,
    "CEIL": np.ceil,
    "RNDNE": np.rint,
    "FLOOR": np.floor,
    "FRACT": _fraction,
    "FREXP_MANT": lambda a: np.where(np.isfinite(a), np.frexp(a)[0], a),
    "FREXP_EXP": lambda a: np.where(np.isfinite(a), np.frexp(a)[1], 0),
    "LDEXP": lambda a, b: np.ldexp(a.astype(np.float64), b.view(f"i{b.itemsize}")),
    "EXP": _through64(exp2),
    "LOG": _through64(log2),
    "RCP": _through64(np.reciprocal),
    "RCP_IFLAG": _through64(np.reciprocal),
    "RSQ": _through64(lambda a: 1 / np.sqrt(a)),
    "SQRT": _through64(np.sqrt),
    "SIN": _through64(sine),
    "COS": _through64(cosine),
    # Conversions: what writes the result converts.
    "CVT": lambda a: a,
    **{f"CVT_F32_UBYTE{n}": lambda a, n=n: a >> np.uint32(8 * n) & np.uint32(255) for n in range(4)},
    "CVT_RPI": lambda a: np.floor(a + np.float32(0.5)),
    "CVT_FLR": np.floor,
    "CVT_PKRTZ": lambda a, b: side_by_side(_toward_zero(a), _toward_zero(b)),
    **{f"CVT_PK_{kind}_F32": side_by_side for kind in ("F16", "BF16", "FP8", "BF8")},
    "CVT_PK_F32": lambda a: a,
    "CVT_PK_U16_U32": _clipped_pair(np.uint16),
    "CVT_PK_I16_I32": _clipped_pair(np.int16),
    "PACK": lambda low, high: side_by_side(low, high).view(np.uint32)[..., 0],
    "ASHR_PK_I8_I32": _shifted_pair(np.int8),
    "ASHR_PK_U8_I32": _shifted_pair(np.uint8),
    "CVT_SCALEF32": lambda a, power: a * _scale(power),
    **{f"CVT_SCALEF32_PK_{kind}": lambda a, power: a * _scale(power)[..., None] for kind in ("F32", "F16", "BF16")},
    **{f"CVT_SCALEF32_PK_{kind}": _to_scaled for kind in ("FP8", "BF8", "FP4")},
}
