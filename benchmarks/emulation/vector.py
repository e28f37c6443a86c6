"""What the vector ALU computes, operation by operation: name -> (type of the result, types of the operands, function).

Functions take and give numpy arrays of these types.  Names are AMD's, without the suffix of the encoding.
Source: AMD Instinct MI300 and MI350 Instruction Set Architecture, chapter Instructions.  Rounded otherwise by the
hardware: V_RCP, V_RSQ, V_SQRT, V_EXP, V_LOG, V_SIN, V_COS are within 1 ulp there and correctly rounded here.
"""

from __future__ import annotations

import operator
from collections.abc import Callable
from typing import Any

import numpy as np

from .operands import TYPES, Unknown
from .scalar import extracted, low, reversed_bits, u64

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
    result = np.zeros(np.broadcast_shapes(both.shape, select.shape), np.uint64)
    for byte in range(4):
        chosen = u64(select >> np.uint32(8 * byte) & np.uint32(255))
        value = both >> np.uint64(8) * np.minimum(chosen, np.uint64(7)) & np.uint64(255)
        sign = both >> (np.uint64(16) * np.clip(chosen, 8, 11) - np.uint64(113)) & np.uint64(1)
        value = np.where(chosen >= 8, np.where(chosen >= 13, np.uint64(255), np.uint64(0)), value)
        value = np.where((chosen >= 8) & (chosen <= 11), sign * np.uint64(255), value)
        result |= value << np.uint64(8 * byte)
    return result.astype(np.uint32)


def fused(a: Any, b: Any, c: Any) -> Any:
    """a * b + c of fp32 with one rounding: exact in fp64 up to the sum, whose error is kept in its last bit."""
    product, other = a.astype(np.float64) * b.astype(np.float64), c.astype(np.float64)
    total = product + other
    part = total - product
    lost = (product - (total - part)) + (other - part)
    bits = np.ascontiguousarray(total).view(np.int64)
    odd = np.isfinite(total) & (lost != 0) & (bits & 1 == 0)
    step = np.where((lost > 0) == (total > 0), 1, -1)
    return np.where(odd, bits + step, bits).view(np.float64).astype(np.float32)


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


def _least(a: Any, b: Any) -> Any:
    return np.where(np.isnan(a), b, np.where(np.isnan(b), a, np.where((a == b) & np.signbit(a), a, np.minimum(a, b))))


def _most(a: Any, b: Any) -> Any:
    return np.where(np.isnan(a), b, np.where(np.isnan(b), a, np.where((a == b) & np.signbit(a), b, np.maximum(a, b))))


def _med(a: Any, b: Any, c: Any) -> Any:
    return np.maximum(np.minimum(a, b), np.minimum(np.maximum(a, b), c))


ALU: dict[str, tuple[str, tuple[str, ...], Function]] = {}


def _define(result: str, operands: str, **functions: Function) -> None:
    for name, function in functions.items():
        ALU["V_" + name] = (result, tuple(operands.split()), function)


_define(
    "b32",
    "b32",
    MOV_B32=lambda a: a,
    NOT_B32=np.invert,
    BFREV_B32=reversed_bits,
    ACCVGPR_READ=lambda a: a,
    ACCVGPR_WRITE=lambda a: a,
    FFBH_U32=_leading,
    FFBL_B32=_trailing,
    ACCVGPR_MOV_B32=lambda a: a,
)
_define("b64", "b64", MOV_B64=lambda a: a)
_define(
    "u32",
    "u32 u32",
    ADD_U32=np.add,
    SUB_U32=np.subtract,
    SUBREV_U32=lambda a, b: b - a,
    AND_B32=np.bitwise_and,
    OR_B32=np.bitwise_or,
    XOR_B32=np.bitwise_xor,
    XNOR_B32=lambda a, b: ~(a ^ b),
    MIN_U32=np.minimum,
    MAX_U32=np.maximum,
    MUL_LO_U32=np.multiply,
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
_define(
    "i32",
    "i32 i32",
    MIN_I32=np.minimum,
    MAX_I32=np.maximum,
    ADD_I32=np.add,
    SUB_I32=np.subtract,
    MUL_HI_I32=lambda a, b: _high(a.astype(np.int64) * b).view(np.int32),
)
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
    MIN3_U32=lambda a, b, c: np.minimum(np.minimum(a, b), c),
    MAX3_U32=lambda a, b, c: np.maximum(np.maximum(a, b), c),
    MED3_U32=_med,
    MAD_I32_I24=lambda a, b, c: (_signed24(a).astype(np.int64) * _signed24(b)).astype(np.uint32) + c,
)
_define("i32", "i32 u32 u32", BFE_I32=_bfe)
_define(
    "i32",
    "i32 i32 i32",
    MIN3_I32=lambda a, b, c: np.minimum(np.minimum(a, b), c),
    MED3_I32=_med,
    MAX3_I32=lambda a, b, c: np.maximum(np.maximum(a, b), c),
)
_define("u64", "u32 u64", LSHLREV_B64=lambda a, b: b << u64(low(a, 64)), LSHRREV_B64=lambda a, b: b >> u64(low(a, 64)))
_define("i64", "u32 i64", ASHRREV_I64=lambda a, b: b >> low(a, 64).astype(np.int64))
_define("u64", "u64 u32 u64", LSHL_ADD_U64=lambda a, b, c: (a << u64(b & 7)) + c)
_define(
    "f32",
    "f32 f32",
    ADD_F32=np.add,
    SUB_F32=np.subtract,
    SUBREV_F32=lambda a, b: b - a,
    MUL_F32=np.multiply,
    MIN_F32=_least,
    MAX_F32=_most,
    MUL_LEGACY_F32=lambda a, b: np.where((a == 0) | (b == 0), np.float32(0), a * b),
)
_define("f32", "f32 i32", LDEXP_F32=lambda a, b: np.ldexp(a.astype(np.float64), b).astype(np.float32))
_define(
    "f32",
    "f32 f32 f32",
    FMA_F32=fused,
    MIN3_F32=lambda a, b, c: _least(_least(a, b), c),
    MAX3_F32=lambda a, b, c: _most(_most(a, b), c),
    MED3_F32=lambda a, b, c: _most(_least(a, b), _least(_most(a, b), c)),
    MAXIMUM3_F32=lambda a, b, c: np.maximum(np.maximum(a, b), c),
    MINIMUM3_F32=lambda a, b, c: np.minimum(np.minimum(a, b), c),
)


def _wide(function: Function) -> Function:
    return lambda a: function(a.astype(np.float64)).astype(np.float32)


_define(
    "f32",
    "f32",
    TRUNC_F32=np.trunc,
    CEIL_F32=np.ceil,
    RNDNE_F32=np.rint,
    FLOOR_F32=np.floor,
    FRACT_F32=lambda a: np.minimum(a - np.floor(a), np.float32(1) - np.float32(2**-24)),
    EXP_F32=_wide(np.exp2),
    LOG_F32=_wide(np.log2),
    RCP_F32=_wide(np.reciprocal),
    RCP_IFLAG_F32=_wide(np.reciprocal),
    RSQ_F32=_wide(lambda a: 1 / np.sqrt(a)),
    SQRT_F32=_wide(np.sqrt),
    SIN_F32=_wide(lambda a: np.sin(2 * np.pi * a)),
    COS_F32=_wide(lambda a: np.cos(2 * np.pi * a)),
    FREXP_MANT_F32=lambda a: np.where(np.isfinite(a), np.frexp(a)[0], a),
)
_define(
    "i32",
    "f32",
    CVT_I32_F32=lambda a: to_int(a, np.int32),
    FREXP_EXP_I32_F32=lambda a: np.where(np.isfinite(a), np.frexp(a)[1], 0),
)
_define("u32", "f32", CVT_U32_F32=lambda a: to_int(a, np.uint32))
_define("f32", "i32", CVT_F32_I32=lambda a: a.astype(np.float32))
_define(
    "f32",
    "u32",
    CVT_F32_U32=lambda a: a.astype(np.float32),
    CVT_F32_BF16=lambda a: (a << np.uint32(16)).view(np.float32),
    CVT_F32_UBYTE0=lambda a: (a & 255).astype(np.float32),
    CVT_F32_UBYTE1=lambda a: (a >> 8 & 255).astype(np.float32),
    CVT_F32_UBYTE2=lambda a: (a >> 16 & 255).astype(np.float32),
    CVT_F32_UBYTE3=lambda a: (a >> 24).astype(np.float32),
)
_define("f16", "f32", CVT_F16_F32=lambda a: a.astype(np.float16))
_define("f32", "f16", CVT_F32_F16=lambda a: a.astype(np.float32))
_define("f16", "u16", CVT_F16_U16=lambda a: a.astype(np.float16))
_define("f16", "i16", CVT_F16_I16=lambda a: a.astype(np.float16))
_define("f64", "f32", CVT_F64_F32=lambda a: a.astype(np.float64))
_define("f32", "f64", CVT_F32_F64=lambda a: a.astype(np.float32))
_define(
    "u32",
    "f32 f32",
    CVT_PK_BF16_F32=lambda a, b: _pack16(bf16_bits(a), bf16_bits(b)),
    CVT_PK_F16_F32=lambda a, b: _pack16(_f16_bits(a), _f16_bits(b)),
    CVT_PKRTZ_F16_F32=lambda a, b: _pack16(_toward_zero16(a), _toward_zero16(b)),
)
_define("u32", "b16 b16", PACK_B32_F16=_pack16)
_define(
    "f16",
    "f16 f16",
    ADD_F16=np.add,
    SUB_F16=np.subtract,
    SUBREV_F16=lambda a, b: b - a,
    MUL_F16=np.multiply,
    MIN_F16=_least,
    MAX_F16=_most,
)
_define("f16", "f16 f16 f16", FMA_F16=lambda a, b, c: (a.astype(np.float64) * b + c).astype(np.float16))
_define(
    "u16",
    "u16 u16",
    ADD_U16=np.add,
    SUB_U16=np.subtract,
    SUBREV_U16=lambda a, b: b - a,
    MUL_LO_U16=np.multiply,
    MIN_U16=np.minimum,
    MAX_U16=np.maximum,
    LSHLREV_B16=lambda a, b: b << low(a, 16),
    LSHRREV_B16=lambda a, b: b >> low(a, 16),
)
_define("i16", "i16 i16", MIN_I16=np.minimum, MAX_I16=np.maximum, ASHRREV_I16=lambda a, b: b >> low(a, 16))
_define("f64", "f64 f64", ADD_F64=np.add, MUL_F64=np.multiply, MIN_F64=_least, MAX_F64=_most)


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


COMPARISONS: dict[str, Function] = {
    "F": lambda a, b: np.zeros(np.broadcast_shapes(a.shape, b.shape), np.bool_),
    "LT": operator.lt,
    "EQ": operator.eq,
    "LE": operator.le,
    "GT": operator.gt,
    "GE": operator.ge,
    "LG": lambda a, b: (a < b) | (a > b),
    "NE": operator.ne,
    "O": lambda a, b: (a == a) & (b == b),
    "U": lambda a, b: (a != a) | (b != b),
    "NGE": lambda a, b: ~(a >= b),
    "NLG": lambda a, b: ~((a < b) | (a > b)),
    "NGT": lambda a, b: ~(a > b),
    "NLE": lambda a, b: ~(a <= b),
    "NEQ": operator.ne,
    "NLT": lambda a, b: ~(a < b),
    "TRU": lambda a, b: np.ones(np.broadcast_shapes(a.shape, b.shape), np.bool_),
    "T": lambda a, b: np.ones(np.broadcast_shapes(a.shape, b.shape), np.bool_),
}


def _exponent(value: Any) -> Any:
    return (np.ascontiguousarray(value).view(np.uint32) >> np.uint32(23) & np.uint32(255)).astype(np.int32)


def division_scale(given: Any, denominator: Any, numerator: Any) -> tuple[Any, Any]:
    """V_DIV_SCALE_F32: the operand, scaled so that the steps stay normal, and which lanes FMAS scales back."""
    d, n = denominator.astype(np.float64), numerator.astype(np.float64)
    up, down = (np.ldexp(given.astype(np.float64), power).astype(np.float32) for power in (64, -64))
    least = float(np.finfo(np.float32).tiny)
    small = np.abs(n / d) < least
    inverse = np.abs(1 / d) < float(np.finfo(np.float64).tiny)
    of_denominator, of_numerator = given == denominator, given == numerator
    far = _exponent(numerator) - _exponent(denominator) >= 96
    cases = [
        ((n == 0) | (d == 0), np.float32(np.nan), False),
        (far, np.where(of_denominator, up, given), True),
        ((np.abs(d) < least), up, False),
        (inverse & small, np.where(of_denominator, up, given), True),
        (inverse, down, False),
        (small, np.where(of_numerator, up, given), True),
        (_exponent(numerator) <= 23, up, False),
    ]
    tests = [test for test, _, _ in cases]
    return np.select(tests, [value for _, value, _ in cases], given), np.select(
        tests, [flag for _, _, flag in cases], False
    )


def division_fixup(quotient: Any, denominator: Any, numerator: Any) -> Any:
    """V_DIV_FIXUP_F32: the quotient with its special cases."""
    d, n = np.abs(denominator), np.abs(numerator)
    sign = np.where(np.signbit(denominator) ^ np.signbit(numerator), np.float32(-1), np.float32(1))
    infinite = np.float32(np.inf)
    magnitude = np.select(
        [(d == 0) | (n == infinite), (d == infinite) | (n == 0), _exponent(numerator) - _exponent(denominator) < -150],
        [infinite, np.float32(0), np.float32(0)],
        np.abs(quotient),
    )
    wrong = ((d == 0) & (n == 0)) | ((d == infinite) & (n == infinite))
    value = np.where(wrong, np.float32(np.nan), np.copysign(magnitude, sign))
    return np.where(np.isnan(numerator), numerator, np.where(np.isnan(denominator), denominator, value)).astype(
        np.float32
    )


_define("f32", "f32 f32 f32", DIV_FIXUP_F32=division_fixup)

ACCUMULATING = {"V_FMAC_F32": ("f32", fused), "V_FMAC_F16": ("f16", ALU["V_FMA_F16"][2])}
"""The result is the third operand."""

PACKED: dict[str, tuple[str, Function]] = {
    "V_PK_ADD_F16": ("f16", np.add),
    "V_PK_MUL_F16": ("f16", np.multiply),
    "V_PK_FMA_F16": ("f16", ALU["V_FMA_F16"][2]),
    "V_PK_MIN_F16": ("f16", _least),
    "V_PK_MAX_F16": ("f16", _most),
    "V_PK_ADD_U16": ("u16", np.add),
    "V_PK_SUB_U16": ("u16", np.subtract),
    "V_PK_ADD_I16": ("i16", np.add),
    "V_PK_SUB_I16": ("i16", np.subtract),
    "V_PK_MUL_LO_U16": ("u16", np.multiply),
    "V_PK_LSHLREV_B16": ("u16", lambda a, b: b << low(a, 16)),
    "V_PK_LSHRREV_B16": ("u16", lambda a, b: b >> low(a, 16)),
    "V_PK_MIN_U16": ("u16", np.minimum),
    "V_PK_MAX_U16": ("u16", np.maximum),
    "V_PK_ADD_F32": ("f32", np.add),
    "V_PK_MUL_F32": ("f32", np.multiply),
    "V_PK_FMA_F32": ("f32", fused),
    "V_PK_MOV_B32": ("b32", lambda a, b: a),
}
