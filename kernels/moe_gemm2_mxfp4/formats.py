"""MXFP4 in torch: quantise, dequantise, and the layout of weights for GPUs without FP4 matrix units.

OCP Microscaling v1.0: e2m1 codes 0 to 7 are 0, 0.5, 1, 1.5, 2, 3, 4, 6, bit 3 is the sign; two codes a byte, the even
index in the low nibble; one e8m0 scale 2^(e - 127) for 32 codes along K, 255 is NaN.
"""

from __future__ import annotations

import torch

BLOCK = 32
"""Codes that share a scale."""

VALUES = (0.0, 0.5, 1.0, 1.5, 2.0, 3.0, 4.0, 6.0, -0.0, -0.5, -1.0, -1.5, -2.0, -3.0, -4.0, -6.0)

_UP_FROM = ((0.25, False), (0.75, True), (1.25, False), (1.75, True), (2.5, False), (3.5, True), (5.0, False))
"""Midpoints between neighbouring codes, and whether a tie goes to the upper one: the one with an even code."""

LARGEST_FIELD_SCALE = 128
"""A weight's factor is 2^126 times its scale in bf16, whose largest power is 2^127: scales reach 2^1, code 128."""


def check_depth(depth: int) -> None:
    """ValueError unless K is a positive multiple of 32."""
    if depth <= 0 or depth % BLOCK:
        raise ValueError(f"K is {depth}; MXFP4 needs a positive multiple of {BLOCK}, the codes that share a scale")


def quantise(values: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    """(packed u8 [..., K / 2], scales u8 [..., K / 32]) of fp32 values [..., K].

    The scale is the smallest power of two that brings the largest value of the block to at most 6 ("round up"), the
    code the nearest, ties to even.
    """
    check_depth(values.shape[-1])
    blocks = values.unflatten(-1, (-1, BLOCK))
    largest = blocks.abs().amax(-1)
    exponent = torch.ceil(torch.log2(largest / 6.0)).clamp(-127, 127)
    exponent = torch.where(largest > 6.0 * torch.exp2(exponent), exponent + 1, exponent)  # log2 may round down
    scales = (torch.where(largest > 0, exponent, torch.zeros_like(exponent)) + 127).to(torch.uint8)
    scaled = blocks / torch.exp2(scales.float() - 127).unsqueeze(-1)
    size, code = scaled.abs(), torch.zeros_like(scaled, dtype=torch.uint8)
    for middle, tie_up in _UP_FROM:
        code += (size >= middle) if tie_up else (size > middle)
    code |= (scaled < 0).to(torch.uint8) << 3
    return pack(code.flatten(-2)), scales


def pack(codes: torch.Tensor) -> torch.Tensor:
    """Two codes a byte, [..., K] to [..., K / 2]."""
    return codes[..., 0::2] | codes[..., 1::2] << 4


def unpack(packed: torch.Tensor) -> torch.Tensor:
    """Codes u8 [..., K] of bytes [..., K / 2]."""
    return torch.stack((packed & 0xF, packed >> 4), dim=-1).flatten(-2)


def byte_values(dtype: torch.dtype, device: torch.device | str) -> torch.Tensor:
    """The two values of each byte, [256, 2]."""
    table = torch.tensor(VALUES, dtype=dtype, device=device)
    codes = torch.arange(256, device=device)
    return torch.stack((table[codes & 0xF], table[codes >> 4]), dim=-1)


def dequantise(packed: torch.Tensor, scales: torch.Tensor, table: torch.Tensor | None = None) -> torch.Tensor:
    """Values [..., K] of packed [..., K / 2] and scales [..., K / 32], by one look-up for each byte.

    table: byte_values of the wanted type, fp32 if None; with one, nothing is copied from the host.
    """
    table = byte_values(torch.float32, packed.device) if table is None else table
    values = table.index_select(0, packed.flatten().to(torch.int32))
    factors = torch.exp2(scales.to(torch.promote_types(torch.float32, table.dtype)) - 127).to(table.dtype)
    blocks = values.view(*packed.shape[:-1], -1, BLOCK) * factors.unsqueeze(-1)
    return blocks.flatten(-2)


def recode(packed: torch.Tensor) -> torch.Tensor:
    """Weights [..., K / 2] as words int32 [..., K / 8] in the layout `recoded`: the same bits, in another order.

    A 16-bit half holds four codes, the even ones of a word in the low half, the odd ones in the high half.  Of codes 0,
    1, 2 the sign lies 7 bits above the other three bits, as sign and low exponent bits do in bf16, and each of them is
    in place after a shift by 0, 3, 6; code 3 takes the bits that are left.
    """
    codes = unpack(packed).to(torch.int32).unflatten(-1, (-1, 8))
    return _half(codes[..., 0::2]) | _half(codes[..., 1::2]) << 16


def _half(codes: torch.Tensor) -> torch.Tensor:
    """16 bits of four codes, the last dimension."""
    sign, rest = codes >> 3, codes & 7
    first = sign[..., 0] << 15 | rest[..., 0] << 6 | sign[..., 1] << 12 | rest[..., 1] << 3
    second = sign[..., 2] << 9 | rest[..., 2]
    last = sign[..., 3] << 14 | (rest[..., 3] >> 1) << 10 | (rest[..., 3] & 1) << 13
    return first | second | last


def recode_all(packed: torch.Tensor) -> torch.Tensor:
    """recode() expert by expert, so that its intermediate values stay small: [E, N, K / 2] to int32 [E, N, K / 8]."""
    out = torch.empty((*packed.shape[:-1], packed.shape[-1] // 4), dtype=torch.int32, device=packed.device)
    for expert in range(packed.shape[0]):
        out[expert] = recode(packed[expert])
    return out


def fields(scales: torch.Tensor) -> tuple[torch.Tensor, float]:
    """(exponent fields u8, factor): 2^126 times the scales as bf16 exponents; results are to be multiplied by factor.

    The factor is 1 unless a scale exceeds 2^1; then all are made smaller by it.  ValueError for a NaN scale.
    """
    largest = int(scales.max())
    if largest == 255:
        raise ValueError("a weight scale is 255, the code of NaN; the largest number is 254")
    down = max(0, largest - LARGEST_FIELD_SCALE)
    return (scales.to(torch.int16) + (126 - down)).clamp(min=0).to(torch.uint8), 2.0 ** down
