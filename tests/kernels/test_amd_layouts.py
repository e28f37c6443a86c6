"""The layouts of AMD's FP4 kernels: every value stands where the kernel's own addressing reads it."""

from __future__ import annotations

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from kernels.moe_gemm2_mxfp4 import amd_layouts as layouts
from kernels.moe_gemm2_mxfp4 import sorting
from tests.kernels.vendor_stubs import scales_at, weights_at


def numbered(*shape):
    """Bytes of which neighbours differ in every direction."""
    count = torch.arange(int(torch.tensor(shape).prod()))
    return ((count * 167 + count // 256 * 29) % 251).to(torch.uint8).view(shape)


@pytest.mark.parametrize("shape", [(1, 16, 128), (3, 48, 256), (2, 32, 512)])
def test_every_weight_is_where_the_kernel_reads_it(shape):
    experts, rows, depth = shape
    packed = numbered(experts, rows, depth // 2)
    tiled = layouts.tiled_weights(packed)
    assert tiled.shape == packed.shape
    assert torch.equal(weights_at(tiled, experts, rows, depth), packed)
    if shape != (1, 16, 128):
        assert not torch.equal(weights_at(packed, experts, rows, depth), packed), "the oracle sees the difference"


@pytest.mark.parametrize("depth", [256, 512])
@pytest.mark.parametrize("rows", [32, 100, 7168])
def test_every_scale_of_a_weight_is_where_the_kernel_reads_it(rows, depth):
    scales = numbered(rows, depth // 32)
    tiled = layouts.tiled_scales(scales, layouts.PADDED_SCALE_ROWS)
    assert tiled.shape == (-(-rows // 256) * 256, depth // 32)
    line = torch.arange(rows)
    assert torch.equal(scales_at(tiled, line // 32, line, depth), scales)


@pytest.mark.parametrize("block", [16, 32, 64, 128])
def test_every_scale_of_a_sorted_row_is_where_the_kernel_reads_it(block):
    rows, depth = 5 * block - 3, 256  # the last block is not whole
    scales = numbered(rows, depth // 32)
    tiled = layouts.sorted_scales(scales, block)
    line = torch.arange(rows)
    tile, inside = (line // 16, line % 16) if block == 16 else (line // 32, line)
    assert torch.equal(scales_at(tiled, tile, inside, depth), scales)
    assert tiled.numel() == 5 * max(block, 32) * depth // 32


def test_a_short_depth_is_filled_up_to_whole_words():
    tiled = layouts.tiled_scales(numbered(32, 4))
    assert tiled.shape == (32, 8)
    line = torch.arange(32)
    assert torch.equal(scales_at(tiled, line // 32, line, 128), numbered(32, 4))


@given(tokens=st.integers(1, 40), topk=st.integers(1, 4), block=st.sampled_from([16, 32]), seed=st.integers(0, 9))
def test_rows_by_slot_and_positions_undo_the_sorting(tokens, topk, block, seed):
    generator = torch.Generator().manual_seed(seed)
    choice = torch.rand((tokens, 5), generator=generator).topk(topk).indices
    order = sorting.sort(choice, torch.rand((tokens, topk), generator=generator), 5, block)
    rows = numbered(order.ids.numel(), 3)
    by_slot = layouts.by_slot(rows, order.ids, tokens, topk)
    at = layouts.positions(order.ids, tokens, topk).view(tokens, topk)
    assert at.dtype == torch.int32
    for row, packed in enumerate(order.ids.tolist()):
        if packed & 0xFFFFFF < tokens:
            assert torch.equal(by_slot[packed & 0xFFFFFF, packed >> 24], rows[row])
            assert int(at[packed & 0xFFFFFF, packed >> 24]) == row
    whole = layouts.whole_blocks(rows, block)
    assert whole.shape[0] % block == 0
    assert torch.equal(whole[: rows.shape[0]], rows)


def test_what_the_layout_cannot_hold_is_named():
    with pytest.raises(ValueError, match=r"weights are \[24, 128\]; the layout needs N % 16 == 0 and K % 128 == 0"):
        layouts.tiled_weights(numbered(1, 24, 64))
    with pytest.raises(ValueError, match=r"weights are \[16, 192\]"):
        layouts.tiled_weights(numbered(1, 16, 96))
