"""How the FP4 kernels of AMD's libraries want weights, scales and rows: pure functions of tensors.

Where they were read: ROCm/aiter e4048607 (2026-08-22), aiter/ops/shuffle.py (shuffle_weight, shuffle_scale),
aiter/ops/flydsl/mxfp4_v2_tune_utils.py (_mxfp4_a_scale_sorted_shuffled) and, for what a kernel reads where,
aiter/ops/flydsl/kernels/mxmoe_gemm_v2.py (bq_view, scale_view, make_ascale_view).
"""

from __future__ import annotations

import torch

ROWS = 16
"""Rows of a matrix instruction (v_mfma_scale_f32_16x16x128_f8f6f4); a lane reads 16 bytes of one of them."""

SCALE_ROWS, SCALE_COLUMNS = 32, 8
"""Rows and columns (of 32 codes each) of a tile of scales: two rows and two columns share a 32-bit word."""

PADDED_SCALE_ROWS = 256
"""shuffle_scale fills the rows of a whole tensor up to a multiple of this."""

TOKEN_MASK, SLOT_BITS = 0xFFFFFF, 24
"""A sorted row is slot << 24 | token (sorting.py; aiter csrc/include/moe_sorting_opus.h has the same)."""


def tiled_weights(packed: torch.Tensor) -> torch.Tensor:
    """u8 [..., N, K / 2] in tiles of 16 rows: the 16 bytes of a lane, row after row, then the next 16 bytes of K.

    Same shape.  ValueError unless N is a multiple of 16 and K of 128.
    """
    rows, depth = packed.shape[-2:]
    if rows % ROWS or depth % 64:
        raise ValueError(f"weights are [{rows}, {2 * depth}]; the layout needs N % {ROWS} == 0 and K % 128 == 0")
    tiles = packed.reshape(-1, rows // ROWS, ROWS, depth // 16, 16)
    return tiles.permute(0, 1, 3, 2, 4).reshape(packed.shape)


def tiled_scales(scales: torch.Tensor, multiple: int = SCALE_ROWS) -> torch.Tensor:
    """u8 [rows, K / 32] in tiles of 32 rows and 8 columns, both filled up with zeros; rows to the multiple."""
    rows, columns = scales.shape
    whole = torch.nn.functional.pad(scales, (0, -columns % SCALE_COLUMNS, 0, -rows % multiple))
    tiles = whole.view(whole.shape[0] // SCALE_ROWS, 2, ROWS, whole.shape[1] // SCALE_COLUMNS, 2, 4)
    return tiles.permute(0, 3, 5, 2, 4, 1).reshape(whole.shape)


def sorted_scales(scales: torch.Tensor, block: int) -> torch.Tensor:
    """Scales of sorted rows, u8 [rows, K / 32]: a block of 16 rows has a tile of its own, its second half empty."""
    if block >= SCALE_ROWS:
        return tiled_scales(scales, block)
    whole = torch.nn.functional.pad(scales, (0, 0, 0, -scales.shape[0] % block))
    blocks = whole.view(-1, block, scales.shape[1])
    return tiled_scales(torch.nn.functional.pad(blocks, (0, 0, 0, SCALE_ROWS - block)).flatten(0, 1))


def whole_blocks(rows: torch.Tensor, block: int) -> torch.Tensor:
    """Rows filled up with zeros to whole blocks: a kernel's buffer descriptor covers whole blocks."""
    return torch.nn.functional.pad(rows, (0, 0, 0, -rows.shape[0] % block))


def by_slot(rows: torch.Tensor, ids: torch.Tensor, tokens: int, topk: int) -> torch.Tensor:
    """Sorted rows [rows, ...] as [tokens, topk, ...]."""
    out = torch.zeros((tokens * topk, *rows.shape[1:]), dtype=rows.dtype, device=rows.device)
    real, at = _places(ids, tokens, topk)
    out[at] = rows[real]
    return out.view(tokens, topk, *rows.shape[1:])


def positions(ids: torch.Tensor, tokens: int, topk: int) -> torch.Tensor:
    """int32 [tokens * topk]: the sorted row of every token and slot."""
    out = torch.zeros(tokens * topk, dtype=torch.int32, device=ids.device)
    real, at = _places(ids, tokens, topk)
    out[at] = real.nonzero().flatten().to(torch.int32)
    return out


def _places(ids: torch.Tensor, tokens: int, topk: int) -> tuple[torch.Tensor, torch.Tensor]:
    """Which sorted rows belong to a token, and the place of each of them by token and slot."""
    token, slot = ids.long() & TOKEN_MASK, ids.long() >> SLOT_BITS
    real = token < tokens
    return real, (token * topk + slot)[real]
