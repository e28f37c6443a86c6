"""MXFP4 in torch: quantise, dequantise, and the layout of weights for GPUs without FP4 matrix units.

OCP Microscaling v1.0: e2m1 codes 0 to 7 are 0, 0.5, 1, 1.5, 2, 3, 4, 6, bit 3 is the sign; two codes per byte, the even
index in the low nibble; one e8m0 scale 2^(e - 127) for 32 codes along K, 255 is NaN.
"""

from __future__ import annotations

import functools
from collections.abc import Iterator

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
    code = torch.bucketize(scaled.abs(), _largest_sizes(scaled.device), out_int32=True).to(torch.uint8)
    code |= (scaled < 0).to(torch.uint8) << 3
    return pack(code.flatten(-2)), scales


@functools.cache
def _largest_sizes(device: torch.device) -> torch.Tensor:
    """The largest size that codes 0 to 6 are for, fp32 [7].  Kept, as a copy from the host waits for the device."""
    middles = torch.tensor([middle for middle, _ in _UP_FROM])
    below = middles.nextafter(torch.zeros(()))
    return torch.where(torch.tensor([tie_up for _, tie_up in _UP_FROM]), below, middles).to(device)


def pack(codes: torch.Tensor) -> torch.Tensor:
    """Two codes per byte, [..., K] to [..., K / 2]."""
    return codes[..., 0::2] | codes[..., 1::2] << 4


def unpack(packed: torch.Tensor) -> torch.Tensor:
    """Codes u8 [..., K] of bytes [..., K / 2]."""
    return torch.stack((packed & 0xF, packed >> 4), dim=-1).flatten(-2)


def byte_values(dtype: torch.dtype, device: torch.device | str) -> torch.Tensor:
    """The two values of each byte, [256, 2]."""
    table = torch.tensor(VALUES, dtype=dtype, device=device)
    codes = torch.arange(256, device=device)
    return torch.stack((table[codes & 0xF], table[codes >> 4]), dim=-1)


@functools.cache
def _fp32_values(device: torch.device) -> torch.Tensor:
    """Kept, as a copy from the host waits for the device."""
    return byte_values(torch.float32, device)


def dequantise(packed: torch.Tensor, scales: torch.Tensor, table: torch.Tensor | None = None) -> torch.Tensor:
    """Values [..., K] of packed [..., K / 2] and scales [..., K / 32], by one look-up per byte.

    table: byte_values of the wanted type, fp32 if None.
    """
    table = _fp32_values(packed.device) if table is None else table
    values = table.index_select(0, packed.flatten().to(torch.int32))
    factors = torch.exp2(scales.to(torch.promote_types(torch.float32, table.dtype)) - 127).to(table.dtype)
    blocks = values.view(*packed.shape[:-1], -1, BLOCK) * factors.unsqueeze(-1)
    return blocks.flatten(-2)


PAIR_ROTATIONS = ((0, 4, 10), (2, 6, 12), (8, 14))
"""By how many bits the first word of a couple, the second one, and the bits that both have left are rotated to the left
to bring one pair of codes after the other into place (`recode`)."""

FIRST_LEFT = 0x06030603
"""The bits of a first word that belong to the pairs stored in both words."""


def recode(packed: torch.Tensor) -> torch.Tensor:
    """Weights [..., K / 2] as words int32 [..., W] in the layout `recoded`: the same bits, in another order.

    Bits `ee m` of a code lie in bits 8, 7, 6 of a bf16 and its sign in bit 15, so a word with two codes in place has
    the mask 0x81C081C0.  These bits, rotated by 0, 2, ... 14, tile two words without a gap: of a couple of words each
    holds three of its own four pairs, and the fourth pairs share what is left of both.  So a kernel needs two
    instructions for a pair, and one for a couple.  Couples are words j and j + 4 of eight; W = K / 8 rounded up to a
    multiple of 8, by zero codes.
    """
    padded = torch.nn.functional.pad(packed, (0, -packed.shape[-1] % 32))
    halves = (padded.view(torch.int16).to(torch.int32) & 0xFFFF).unflatten(-1, (-1, 2, 4, 2))
    front, back = halves.unbind(-1)  # [..., group of 8 words, side, word]: pairs 0 and 1, pairs 2 and 3
    words = [
        _looked_up(fronts, front[..., side, :])
        | _looked_up(backs, back[..., side, :])
        | _looked_up(others, back[..., 1 - side, :] >> 8)
        for side, (fronts, backs, others) in enumerate(_word_tables(str(packed.device)))
    ]
    return torch.stack(words, dim=-2).flatten(-3)


def _looked_up(table: torch.Tensor, index: torch.Tensor) -> torch.Tensor:
    return table.index_select(0, index.flatten()).view(index.shape)


@functools.cache
def _word_tables(device: str) -> list[tuple[torch.Tensor, torch.Tensor, torch.Tensor]]:
    """Of either word of a couple what its bits are, int32: by its pairs 0 and 1 and by its pairs 2 and 3, [65536] each,
    and by pair 3 of the other word, [256].
    """
    byte, half = torch.arange(256), torch.arange(1 << 16)
    low, high = half & 255, half >> 8
    *own, shared = PAIR_ROTATIONS
    tables = []
    for side, (first, second, third) in enumerate(own):
        left = ~FIRST_LEFT if side else FIRST_LEFT
        front = _placed(low, first) | _placed(high, second)
        back = _placed(low, third) | _placed(high, shared[side]) & left
        other = _placed(byte, shared[1 - side]) & left
        tables.append((front.to(device), back.to(device), other.to(device)))
    return tables


def _placed(pairs: torch.Tensor, by: int) -> torch.Tensor:
    """Bytes of two codes as int32 words of a pair in place, rotated by so many bits to the right."""
    codes = pairs.unsqueeze(-1) >> torch.tensor((0, 4)) & 0xF
    placed = codes >> 3 << 15 | (codes & 7) << 6
    words = placed[..., 0] | placed[..., 1] << 16
    return _int32((words >> by | words << (32 - by)) & 0xFFFFFFFF)


def _int32(words: torch.Tensor) -> torch.Tensor:
    """32-bit words, held in int64."""
    return torch.where(words >= 1 << 31, words - (1 << 32), words).to(torch.int32)


EXPERTS_AT_ONCE = 32
"""Experts whose weights are quantised or laid out in one go: few launches, and small intermediate values.  The layout
`streamed` of 385 x 7168 x 512 takes 28 ms with 16, 15 with 32 and 14 with 64 (H200, 2026-11)."""


def experts_at_once(experts: int) -> Iterator[slice]:
    """The experts in groups."""
    for first in range(0, experts, EXPERTS_AT_ONCE):
        yield slice(first, min(first + EXPERTS_AT_ONCE, experts))


def recode_all(packed: torch.Tensor) -> torch.Tensor:
    """recode() of every expert: [E, N, K / 2] to int32 [E, N, W]."""
    return torch.cat([recode(packed[group]) for group in experts_at_once(packed.shape[0])])


def fields(scales: torch.Tensor) -> tuple[torch.Tensor, float]:
    """(exponent fields u8 [..., W / 4], factor): 2^126 times the scales as bf16 exponents, one for four words.

    Results are to be multiplied by the factor; it is 1 unless a scale exceeds 2^1, then all are made smaller by it.
    ValueError for a NaN scale.
    """
    largest = int(scales.max())
    if largest == 255:
        raise ValueError("a weight scale is 255, the code of NaN; the largest number is 254")
    down = max(0, largest - LARGEST_FIELD_SCALE)
    found = (scales.to(torch.int16) + (126 - down)).clamp(min=0).to(torch.uint8)
    return torch.nn.functional.pad(found, (0, found.shape[-1] % 2)), 2.0**down


STREAMED_DEPTHS = (256, 512)
"""Depths of the layout `streamed`: the activations of 8 rows fill 32 or 64 registers of each lane."""

HIGHEST_FIELD = 240
"""The exponent field of the largest weight scale in the layout `streamed`: no sum of products with it overflows."""


def streamed_depth(depth: int) -> int:
    """K rounded up to a depth of the layout `streamed`; ValueError if it is too large."""
    for known in STREAMED_DEPTHS:
        if depth <= known:
            return known
    raise ValueError(f"K is {depth}; the layout 'streamed' holds at most {STREAMED_DEPTHS[-1]}; use 'recoded'")


def stream(packed: torch.Tensor, scales: torch.Tensor, top: int, columns: int = 16) -> torch.Tensor:
    """Weights [E, N, K / 2], scales [E, N, K / 32] as int32 [E, tiles, 68 B] in layout `streamed`; B: K / 32, padded.

    N is filled up to a multiple of `columns`.  A tile has 16 columns.  Lane 4 g + t of a warp has columns 2 g and
    2 g + 1 and the codes 8 t to 8 t + 7 of each block of 32: a word of each column, re-coded as a couple.  First come
    B / 2 groups of 32 lanes x 4 words, for two blocks; then the scales' fields, for B = 16 [column's parity, g, 4
    words], for B = 8 [g, parity, 2 words].  A word has four fields, the first in bits 30 to 23, and the last wraps
    around.  A field is the scale less `top`, the largest, plus HIGHEST_FIELD, at least 0.
    """
    experts, rows, depth = packed.shape[0], packed.shape[1], packed.shape[-1] * 2
    blocks = streamed_depth(depth) // BLOCK
    tiles = -(-rows // columns) * columns // 16
    pad = (0, 32 * blocks // 2 - packed.shape[-1], 0, tiles * 16 - rows)
    codes = torch.nn.functional.pad(packed, pad)
    fields = (scales.to(torch.int32) + (HIGHEST_FIELD - top)).clamp(min=0)
    fields = torch.nn.functional.pad(fields, (0, blocks - scales.shape[-1], 0, tiles * 16 - rows))
    # [E, tile, g, parity, block, t, 4 bytes] -> groups of 8 words: both parities of the four t of a block
    couples = codes.view(experts, tiles, 8, 2, blocks, 4, 4).transpose(3, 4).reshape(experts, tiles, 8, blocks, 32)
    words = recode(couples).view(experts, tiles, 8, blocks // 2, 2, 2, 4)  # [..., g, pair of blocks, block, parity, t]
    words = words.permute(0, 1, 3, 2, 6, 4, 5).reshape(experts, tiles, -1)
    parts = fields.view(experts, tiles, 8, 2, blocks // 4, 4).to(torch.int64)
    whole = parts[..., 0] << 24 | parts[..., 1] << 16 | parts[..., 2] << 8 | parts[..., 3]
    whole = _int32((whole >> 1 | whole << 31) & 0xFFFFFFFF)
    whole = (whole.transpose(2, 3) if blocks == 16 else whole).reshape(experts, tiles, -1)
    return torch.cat((words, whole), dim=-1)


def stream_all(packed: torch.Tensor, scales: torch.Tensor, columns: int = 16) -> tuple[torch.Tensor, int]:
    """stream() of every expert, int32 [E, tiles, 68 B], and by how many powers of two its scales are too large."""
    top = int(scales.max())
    if top == 255:
        raise ValueError("a weight scale is 255, the code of NaN; the largest number is 254")
    groups = experts_at_once(packed.shape[0])
    laid = [stream(packed[group], scales[group], top, columns) for group in groups]
    return torch.cat(laid), HIGHEST_FIELD - top
