"""What the vector ALU computes, operation by operation: name -> (type of the result, types of the operands, function).

Functions take and give numpy arrays of these types; "mask" is a bit per lane, as an operand or a second result.  Names
are AMD's, without the suffix of the encoding.
Source: AMD Instinct MI300 and MI350 Instruction Set Architecture, chapter Instructions.  Rounded otherwise by the
hardware: V_RCP, V_RSQ, V_SQRT, V_EXP, V_LOG, V_SIN, V_COS are within 1 ulp there and correctly rounded here; those of
fp64 (V_RCP, V_RSQ, V_SQRT) are estimates of 2^-23 or so there, which code refines.  V_EXP_F32 and V_LOG_F32 flush
denormals there (below 2^-126) and keep them here.  The payload of a NaN may differ.  Every other difference between
this and AMD's pseudocode is in tests/benchmarks/emulation/test_pseudocode.py.
"""

from __future__ import annotations

import operator
from collections.abc import Callable
from functools import partial, reduce
from typing import Any

import numpy as np

from .operands import TYPES, Unknown
from .rounding import division_fixup, division_scale, fused, fused64
from .scalar import extracted, low, reversed_bits, u64
from .waves import LANES

Function = Callable[..., Any]


def _mask(bits: int) -> np.uint32:
    return np.uint32((1 << bits) - 1)


def _high(product: Any) -> Any:
    return (product >> product.dtype.type(32)).astype(np.uint32)


def _signed24(value: Any) -> Any:
    return (value << np.uint32(8)).view(np.int32) >> np.int32(8)


def _bfe(value: Any, offset: Any, width: Any) -> Any:
    return extracted(value, offset & 31, width & 31)


def _perm(high: Any, low: Any, select: Any) -> Any:
    """Each byte of the result is picked by a byte of the selector from the eight of both operands, or is a constant."""
    both = u64(high) << np.uint64(32) | u64(low)
    result: Any = np.uint32(0)
    for one in set(select.reshape(-1).tolist()):  # nearly all code has one selector for all lanes
        result = np.where(select == one, _permuted(both, one), result)
    return result


def _permuted(both: Any, select: int) -> Any:
    """The same with one selector, from the eight bytes as one number."""
    octets = np.ascontiguousarray(both).view(np.uint8).reshape(*both.shape, 8)
    result = np.empty((*both.shape, 4), np.uint8)
    for byte in range(4):
        chosen = select >> 8 * byte & 255
        if chosen < 8:
            result[..., byte] = octets[..., chosen]
        elif chosen < 12:  # the sign of one of the four words, eight times
            result[..., byte] = np.where(octets[..., 2 * chosen - 15] > 127, 255, 0)
        else:
            result[..., byte] = 255 * (chosen > 12)
    return result.view(np.uint32)[..., 0]


def to_int(value: Any, dtype: Any) -> Any:
    """Towards zero, saturated; NaN is 0."""
    limits = np.iinfo(dtype)
    wide = np.nan_to_num(np.trunc(value.astype(np.float64)), nan=0.0, posinf=limits.max, neginf=limits.min)
    return np.clip(wide, limits.min, limits.max).astype(dtype)


def bf16_bits(value: Any) -> Any:
    """fp32 to the 16 bits of bf16, to nearest even; NaN stays one."""
    raw = np.ascontiguousarray(value).view(np.uint32)
    rounded = raw + np.uint32(0x7FFF) + (raw >> np.uint32(16) & np.uint32(1))
    return np.where(np.isnan(value), raw | np.uint32(0x400000), rounded) >> np.uint32(16)


def _pack16(low: Any, high: Any) -> Any:
    return low.astype(np.uint32) | high.astype(np.uint32) << np.uint32(16)


def _f16_bits(value: Any) -> Any:
    return np.asarray(value, np.float16).view(np.uint16)


def _toward_zero16(value: Any) -> Any:
    near = value.astype(np.float16)
    over = np.abs(near.astype(np.float32)) > np.abs(value)
    return np.where(over, near.view(np.uint16) - 1, near.view(np.uint16)).astype(np.uint16)


def _leading(value: Any) -> Any:
    """Zeros above the highest bit that is set; all ones of 0."""
    _, exponent = np.frexp(value.astype(np.float64))
    return np.where(value == 0, -1, 32 - exponent).astype(np.int32).view(np.uint32)


def _trailing(value: Any) -> Any:
    return np.where(value == 0, np.uint32(0xFFFFFFFF), np.uint32(31) - _leading(value & (~value + np.uint32(1))))


def _quiet(value: Any) -> Any:
    """A NaN with its quiet bit set."""
    places = np.finfo(value.dtype).nmant - 1
    bits = np.ascontiguousarray(value).view(f"u{value.itemsize}")
    return (bits | bits.dtype.type(1 << places)).view(value.dtype)


def _signals(value: Any) -> Any:
    """Which are signalling NaNs."""
    places = np.finfo(value.dtype).nmant - 1
    return np.isnan(value) & (np.ascontiguousarray(value).view(f"u{value.itemsize}") >> places & 1 == 0)


def _extreme(a: Any, b: Any, wins: Any, on_tie: Function) -> Any:
    """The smaller or larger; of a NaN and a number the number, but a signalling NaN stays one (the IEEE mode)."""
    value = np.where(wins(a, b), a, b)
    tie = (a == 0) & (b == 0)
    if tie.any():
        value = np.where(tie, on_tie(a, b), value)
    none_a, none_b = np.isnan(a), np.isnan(b)
    if none_a.any() or none_b.any():
        value = np.where(none_a, b, np.where(none_b, a, value))
        value = np.where(_signals(a), _quiet(a), np.where(_signals(b), _quiet(b), value))
    return value


def _least(a: Any, b: Any) -> Any:
    return _extreme(a, b, operator.lt, lambda a, b: np.where(np.signbit(a), a, b))


def _most(a: Any, b: Any) -> Any:
    return _extreme(a, b, operator.gt, lambda a, b: np.where(np.signbit(a), b, a))


def _with_nan(function: Function) -> Function:
    """NaN where an operand is one: the minimum and maximum of IEEE 754-2019."""

    def value(*operands: Any) -> Any:
        none = reduce(operator.or_, map(np.isnan, operands))
        return np.where(none, np.nan, function(*operands))

    return value


def _median(a: Any, b: Any, c: Any) -> Any:
    """Of floats; with a NaN among them, the smallest of the others."""
    value = _most(_least(a, b), _least(_most(a, b), c))
    none = np.isnan(a) | np.isnan(b) | np.isnan(c)
    return np.where(none, _least(_least(a, b), c), value) if none.any() else value


def _med(a: Any, b: Any, c: Any) -> Any:
    return np.maximum(np.minimum(a, b), np.minimum(np.maximum(a, b), c))


ALU: dict[str, tuple[str, tuple[str, ...], Function]] = {}


def _define(result: str, operands: str, **functions: Function) -> None:
    for name, function in functions.items():
        ALU["V_" + name] = (result, tuple(operands.split()), function)


def _alike(kinds: str, operands: int, **functions: Function) -> None:
    """The same operations on several types, in which their names end."""
    for kind in kinds.split():
        _define(kind, " ".join([kind] * operands), **{f"{name}_{kind.upper()}": functions[name] for name in functions})


_define(
    "b32", "b32", MOV_B32=lambda a: a, NOT_B32=np.invert, BFREV_B32=reversed_bits, FFBH_U32=_leading, FFBL_B32=_trailing
)
_define("b64", "b64", MOV_B64=lambda a: a)
_define(
    "u32",
    "u32 u32",
    AND_B32=np.bitwise_and,
    OR_B32=np.bitwise_or,
    XOR_B32=np.bitwise_xor,
    XNOR_B32=lambda a, b: ~(a ^ b),
    MUL_HI_U32=lambda a, b: _high(u64(a) * u64(b)),
    LSHLREV_B32=lambda a, b: b << low(a, 32),
    LSHRREV_B32=lambda a, b: b >> low(a, 32),
    MUL_U32_U24=lambda a, b: (a & _mask(24)) * (b & _mask(24)),
    MUL_HI_U32_U24=lambda a, b: _high(u64(a & _mask(24)) * u64(b & _mask(24))),
    BFM_B32=lambda a, b: ((np.uint32(1) << low(a, 32)) - np.uint32(1)) << low(b, 32),
    BCNT_U32_B32=lambda a, b: np.bitwise_count(a).astype(np.uint32) + b,
    CVT_PK_U16_U32=lambda a, b: _pack16(np.minimum(a, np.uint32(65535)), np.minimum(b, np.uint32(65535))),
    MUL_I32_I24=lambda a, b: (_signed24(a).astype(np.int64) * _signed24(b)).astype(np.uint32),
)
_define("i32", "i32 i32", MUL_HI_I32=lambda a, b: _high(a.astype(np.int64) * b).view(np.int32))
_define("i32", "u32 i32", ASHRREV_I32=lambda a, b: b >> low(a, 32).view(np.int32))
_define(
    "u32",
    "u32 u32 u32",
    LSHL_ADD_U32=lambda a, b, c: (a << low(b, 32)) + c,
    ADD_LSHL_U32=lambda a, b, c: (a + b) << low(c, 32),
    ADD3_U32=lambda a, b, c: a + b + c,
    LSHL_OR_B32=lambda a, b, c: a << low(b, 32) | c,
    XAD_U32=lambda a, b, c: (a ^ b) + c,
    AND_OR_B32=lambda a, b, c: a & b | c,
    OR3_B32=lambda a, b, c: a | b | c,
    BFE_U32=_bfe,
    PERM_B32=_perm,
    BFI_B32=lambda a, b, c: a & b | ~a & c,
    MAD_U32_U24=lambda a, b, c: (a & _mask(24)) * (b & _mask(24)) + c,
    ALIGNBIT_B32=lambda a, b, c: ((u64(a) << np.uint64(32) | u64(b)) >> u64(low(c, 32))).astype(np.uint32),
    ALIGNBYTE_B32=lambda a, b, c: ((u64(a) << np.uint64(32) | u64(b)) >> u64((c & 3) * 8)).astype(np.uint32),
    MAD_I32_I24=lambda a, b, c: (_signed24(a).astype(np.int64) * _signed24(b)).astype(np.uint32) + c,
)
_define("i32", "i32 u32 u32", BFE_I32=_bfe)
_define("u64", "u32 u64", LSHLREV_B64=lambda a, b: b << u64(low(a, 64)), LSHRREV_B64=lambda a, b: b >> u64(low(a, 64)))
_define("i64", "u32 i64", ASHRREV_I64=lambda a, b: b >> low(a, 64).astype(np.int64))
_define("u64", "u64 u32 u64", LSHL_ADD_U64=lambda a, b, c: (a << u64(b & 7)) + c)
_define("f32", "f32 f32", MUL_LEGACY_F32=lambda a, b: np.where((a == 0) | (b == 0), np.float32(0), a * b))
_define("f32", "f32 i32", LDEXP_F32=lambda a, b: np.ldexp(a.astype(np.float64), b).astype(np.float32))
_define("f32", "f32 f32 f32", FMA_F32=fused)


_define(
    "f32",
    "u32",
    CVT_F32_BF16=lambda a: (a << np.uint32(16)).view(np.float32),
    **{f"CVT_F32_UBYTE{n}": lambda a, n=n: (a >> np.uint32(8 * n) & 255).astype(np.float32) for n in range(4)},
)
_define(
    "u32",
    "f32 f32",
    CVT_PK_BF16_F32=lambda a, b: _pack16(bf16_bits(a), bf16_bits(b)),
    CVT_PK_F16_F32=lambda a, b: _pack16(_f16_bits(a), _f16_bits(b)),
    CVT_PKRTZ_F16_F32=lambda a, b: _pack16(_toward_zero16(a), _toward_zero16(b)),
)
_define("u32", "b16 b16", PACK_B32_F16=_pack16)
_define("f16", "f16 f16 f16", FMA_F16=lambda a, b, c: (a.astype(np.float64) * b + c).astype(np.float16))
_define("u16", "u16 u16", LSHLREV_B16=lambda a, b: b << low(a, 16), LSHRREV_B16=lambda a, b: b >> low(a, 16))
_define("i16", "i16 i16", ASHRREV_I16=lambda a, b: b >> low(a, 16))


def saturated(name: str, kind: str) -> Function:
    """An integer sum or difference whose result stays at the limit of its type: the clamp modifier."""
    signs = {"ADD": (1, 1), "SUB": (1, -1), "SUBREV": (-1, 1)}.get(name.removeprefix("V_").rsplit("_", 1)[0])
    if signs is None:
        raise Unknown(f"{name} with a clamped result")
    limits = np.iinfo(TYPES[kind])

    def function(a: Any, b: Any) -> Any:
        total = signs[0] * a.astype(np.int64) + signs[1] * b.astype(np.int64)
        return np.clip(total, limits.min, limits.max).astype(TYPES[kind])

    return function


def float_class(value: Any, wanted: Any) -> Any:
    """V_CMP_CLASS: is the number of a kind whose bit is set?  Kinds are from a signalling NaN (0) to +inf (9)."""
    negative = np.signbit(value)
    normal = np.abs(value) >= np.finfo(value.dtype).tiny
    positive = np.select([np.isinf(value), normal, value != 0], [9, 8, 7], 6)
    number = np.where(negative, 11 - positive, positive)
    kind = np.where(np.isnan(value), np.where(_signals(value), 0, 1), number)
    return (wanted >> kind.astype(np.uint32) & np.uint32(1)).astype(np.bool_)


_ORDERED: dict[str, Function] = {
    "LT": operator.lt,
    "EQ": operator.eq,
    "LE": operator.le,
    "GT": operator.gt,
    "GE": operator.ge,
    "LG": lambda a, b: (a < b) | (a > b),
    "O": lambda a, b: (a == a) & (b == b),
    "F": lambda a, b: np.zeros(np.broadcast_shapes(a.shape, b.shape), np.bool_),
}


def _not(test: Function) -> Function:
    return lambda a, b: ~test(a, b)


_NOT = {f"N{name}": _not(test) for name, test in _ORDERED.items()}
COMPARISONS = (
    _ORDERED | _NOT | {"CLASS": float_class, "NE": operator.ne, "U": _NOT["NO"], "T": _NOT["NF"], "TRU": _NOT["NF"]}
)


# fp64, fp16, and what kernels use less often.


def _root_of(value: Any) -> Any:
    return 1 / np.sqrt(value)


def _fraction(value: Any) -> Any:
    """Below 1, also where the difference rounds to 1."""
    return np.minimum(value - np.floor(value), np.nextafter(value.dtype.type(1), value.dtype.type(0)))


def _mantissa(value: Any) -> Any:
    return np.where(np.isfinite(value), np.frexp(value)[0], value)


def _power(value: Any) -> Any:
    return np.where(np.isfinite(value), np.frexp(value)[1], 0)


def _number(value: Any, dtype: Any) -> Any:
    return value.astype(dtype)


def _through64(function: Function, dtype: Any) -> Function:
    return lambda a: function(a.astype(np.float64)).astype(dtype)


def _sum(a: Any, b: Any, carry: Any = 0) -> tuple[Any, Any]:
    """With what is carried out of it."""
    total = a.astype(np.int64) + b + carry
    return total.astype(np.uint32), total > 0xFFFFFFFF


def _remainder(a: Any, b: Any, borrow: Any = 0) -> tuple[Any, Any]:
    total = a.astype(np.int64) - b - borrow
    return total.astype(np.uint32), total < 0


def _multiplied(a: Any, b: Any, c: Any) -> tuple[Any, Any]:
    """Product of 32 bits each and a sum of 64, with what is carried out: of signed ones, bit 64 of the exact sum."""
    product = a.astype(c.dtype) * b.astype(c.dtype)
    total = product + c
    if c.dtype.kind == "u":
        return total, total < product
    over = ((product >= 0) == (c >= 0)) & ((total >= 0) != (product >= 0))
    return total, (total < 0) ^ over


def _scaled_back(function: Function, factor: Any, a: Any, b: Any, c: Any, mask: Any) -> Any:
    """The last step of a division."""
    value = function(a, b, c)
    return np.where(mask, factor * value, value)


def _counted_below(first: int) -> Function:
    """Ones of a mask of the lanes from `first` on that stand for lanes below the own one, and a second operand."""
    below = np.array([_mask(min(max(lane - first, 0), 32)) for lane in range(LANES)])
    return lambda mask, start: np.bitwise_count(mask & below).astype(np.uint32) + start


def _three(function: Function) -> Function:
    return lambda a, b, c: function(function(a, b), c)


def _dot(count: int, dtype: Any, signed: bool) -> Function:
    """Sum of products of the parts of two registers, of 32 / count bits each, and a third operand, modulo 2^32."""
    width = 32 // count

    def part(value: Any, index: int) -> Any:
        bits = (value >> np.uint32(width * index) & _mask(width)).astype(np.int64)
        return bits - (bits >> (width - 1) << width) if signed else bits

    def function(a: Any, b: Any, c: Any) -> Any:
        total = c.astype(np.int64)
        for index in range(count):
            total = total + part(a, index) * part(b, index)
        return total.astype(dtype)

    return function


def _dot_floats(wide: Function) -> Function:
    """As the pseudocode adds: the low product, then the high one, each sum rounded to fp32."""

    def function(a: Any, b: Any, c: Any) -> Any:
        total = c
        for upper in (0, 1):
            total = total + wide(a >> np.uint32(16 * upper)) * wide(b >> np.uint32(16 * upper))
        return total

    return function


def _dot_bf16(a: Any, b: Any, c: Any) -> Any:
    """As its pseudocode adds: both products, then the third operand."""
    low, high = ((_bf16(a >> np.uint32(16 * upper)) * _bf16(b >> np.uint32(16 * upper))) for upper in (0, 1))
    return low + high + c


def _f16(value: Any) -> Any:
    return value.astype(np.uint16).view(np.float16).astype(np.float32)


def _bf16(value: Any) -> Any:
    return (value << np.uint32(16)).view(np.float32)


def _difference(a: Any, b: Any) -> Any:
    return np.where(a > b, a - b, b - a)


def _sad(width: int, shift: int = 0) -> Function:
    """Sum of absolute differences of the parts of two registers, shifted, and a third operand."""

    def function(a: Any, b: Any, c: Any) -> Any:
        total = np.zeros(np.broadcast_shapes(a.shape, b.shape), np.uint32)
        for place in range(0, 32, width):
            total = total + _difference(a >> np.uint32(place) & _mask(width), b >> np.uint32(place) & _mask(width))
        return (total << np.uint32(shift)) + c

    return function


def _first_difference(value: Any) -> Any:
    """How many bits below the sign are like it, and the sign; all ones if every bit is."""
    return _leading(np.where(value >> np.uint32(31) != 0, ~value, value))


def _saturated(dtype: Any) -> Function:
    limits = np.iinfo(dtype)
    return lambda a: np.clip(a, limits.min, limits.max).astype(dtype)


def _pack_shifted(dtype: Any) -> Function:
    def function(a: Any, b: Any, c: Any) -> Any:
        low, high = (_saturated(dtype)(one >> low_places(c)).view(np.uint8).astype(np.uint32) for one in (a, b))
        return low | high << np.uint32(8)

    def low_places(value: Any) -> Any:
        return low(value, 32).view(np.int32)

    return function


THROUGH_64 = {
    "EXP": np.exp2,
    "LOG": np.log2,
    "RCP": np.reciprocal,
    "RSQ": _root_of,
    "SQRT": np.sqrt,
    "SIN": lambda a: np.sin(2 * np.pi * (a - np.rint(a))),
    "COS": lambda a: np.cos(2 * np.pi * (a - np.rint(a))),
}
for _kind in ("f16", "f32"):
    _alike(_kind, 1, **{name: _through64(function, TYPES[_kind]) for name, function in THROUGH_64.items()})
ALU["V_RCP_IFLAG_F32"] = ALU["V_RCP_F32"]
_alike("f64", 1, RCP=np.reciprocal, RSQ=_root_of, SQRT=np.sqrt)

CONVERTED = {"f64": "f32 i32 u32", "f32": "f64 f16 i32 u32", "f16": "f32 i16 u16"}
"""Type -> types of numbers that are converted to it; integers are also converted from it."""

for _kind, _sources in CONVERTED.items():
    for _source in _sources.split():
        _define(_kind, _source, **{f"CVT_{_kind}_{_source}".upper(): partial(_number, dtype=TYPES[_kind])})
        if _source[0] in "iu":
            _define(_source, _kind, **{f"CVT_{_source}_{_kind}".upper(): partial(to_int, dtype=TYPES[_source])})
_define("i32", "f32", FREXP_EXP_I32_F32=_power)
_define("i32", "f64", FREXP_EXP_I32_F64=_power)
_define("i16", "f16", FREXP_EXP_I16_F16=_power)
_define("f64", "f64 i32", LDEXP_F64=np.ldexp)
_define("f64", "f64 f64 f64", FMA_F64=fused64)
_define("b32", "b32 b32 mask", CNDMASK_B32=lambda a, b, mask: np.where(mask, b, a))
for _kind, _fused, _back in (("f32", fused, np.float32(2.0**32)), ("f64", fused64, np.float64(2.0**64))):
    _three_of = f"{_kind} {_kind} {_kind}"
    _define(f"{_kind} mask", _three_of, **{f"DIV_SCALE_{_kind.upper()}": division_scale})
    _define(_kind, f"{_three_of} mask", **{f"DIV_FMAS_{_kind.upper()}": partial(_scaled_back, _fused, _back)})
_define("u32 mask", "u32 u32", ADD_CO_U32=_sum, SUB_CO_U32=_remainder, SUBREV_CO_U32=lambda a, b: _remainder(b, a))
_define("u32 mask", "u32 u32 mask", ADDC_CO_U32=_sum, SUBB_CO_U32=_remainder)
_define("u32 mask", "u32 u32 mask", SUBBREV_CO_U32=lambda a, b, borrow: _remainder(b, a, borrow))
_define("u64 mask", "u32 u32 u64", MAD_U64_U32=_multiplied)
_define("i64 mask", "i32 i32 i64", MAD_I64_I32=_multiplied)
_define("f16", "f16 i16", LDEXP_F16=lambda a, b: np.ldexp(a.astype(np.float64), b).astype(np.float16))
_alike("u16 u32 f16 f32", 2, SUBREV=lambda a, b: b - a)
_alike("u16 i16 u32 i32 f16 f32", 2, ADD=np.add, SUB=np.subtract)
_alike("u16 i16 u32 i32", 2, MIN=np.minimum, MAX=np.maximum)
_alike("u16 i16 u32 i32", 3, MIN3=_three(np.minimum), MAX3=_three(np.maximum), MED3=_med)
_alike("u16 u32", 2, MUL_LO=np.multiply)
_alike("u16 i16", 3, MAD=lambda a, b, c: a * b + c)
_alike("f64", 2, ADD=np.add)
_alike("f16 f32 f64", 2, MUL=np.multiply, MIN=_least, MAX=_most)
_alike("f16 f32 f64", 3, DIV_FIXUP=division_fixup)
_alike("f16 f32", 3, MIN3=_three(_least), MAX3=_three(_most), MED3=_median)
_alike("f16 f32", 3, MINIMUM3=_with_nan(_three(_least)), MAXIMUM3=_with_nan(_three(_most)))
_alike(
    "f16 f32 f64", 1, TRUNC=np.trunc, CEIL=np.ceil, RNDNE=np.rint, FLOOR=np.floor, FRACT=_fraction, FREXP_MANT=_mantissa
)
_define("u32", "u16 u16 u32", MAD_U32_U16=lambda a, b, c: a.astype(np.uint32) * b.astype(np.uint32) + c)
_define("i32", "i16 i16 i32", MAD_I32_I16=lambda a, b, c: a.astype(np.int32) * b.astype(np.int32) + c)
_define("i32", "f32", CVT_RPI_I32_F32=lambda a: to_int(np.floor(a + np.float32(0.5)), np.int32))
_define("i32", "f32", CVT_FLR_I32_F32=lambda a: to_int(np.floor(a), np.int32))
_define("u32", "u32 u32", MBCNT_LO_U32_B32=_counted_below(0), MBCNT_HI_U32_B32=_counted_below(32))
_define("u32", "u32", FFBH_I32=_first_difference, PRNG_B32=lambda a: a << np.uint32(1) ^ (a >> np.uint32(31)) * 197)
_define(
    "u32",
    "i32 i32",
    CVT_PK_I16_I32=lambda a, b: _pack16(*(_saturated(np.int16)(one).view(np.uint16) for one in (a, b))),
)
_define("u32", "u32 u32", MUL_HI_I32_I24=lambda a, b: _high(_signed24(a).astype(np.int64) * _signed24(b)))
_define(
    "u32",
    "u32 u32 u32",
    SAD_U8=_sad(8),
    SAD_HI_U8=_sad(8, 16),
    SAD_U16=_sad(16),
    SAD_U32=lambda a, b, c: _difference(a, b) + c,
    DOT2_U32_U16=_dot(2, np.uint32, False),
    DOT4_U32_U8=_dot(4, np.uint32, False),
    DOT8_U32_U4=_dot(8, np.uint32, False),
)
_define(
    "i32",
    "u32 u32 i32",
    DOT2_I32_I16=_dot(2, np.int32, True),
    DOT4_I32_I8=_dot(4, np.int32, True),
    DOT8_I32_I4=_dot(8, np.int32, True),
)
_define("f32", "u32 u32 f32", DOT2_F32_F16=_dot_floats(_f16), DOT2_F32_BF16=_dot_bf16)
_define("f32", "u32 u32 f32", DOT2C_F32_BF16=_dot_floats(_bf16))
_define("u32", "i32 i32 u32", ASHR_PK_I8_I32=_pack_shifted(np.int8), ASHR_PK_U8_I32=_pack_shifted(np.uint8))

ACCUMULATING = {
    "V_FMAC_F32": "V_FMA_F32",
    "V_FMAC_F16": "V_FMA_F16",
    "V_FMAC_F64": "V_FMA_F64",
    "V_DOT2C_F32_F16": "V_DOT2_F32_F16",
    "V_DOT2C_F32_BF16": "V_DOT2C_F32_BF16",
    "V_DOT2C_I32_I16": "V_DOT2_I32_I16",
    "V_DOT4C_I32_I8": "V_DOT4_I32_I8",
    "V_DOT8C_I32_I4": "V_DOT8_I32_I4",
}
"""The result is the third operand of this operation."""
