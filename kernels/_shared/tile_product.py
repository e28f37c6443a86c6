"""Tiled products: the inner loop, slices of a tile along K, halves of a tile, the order of tiles that makes good use of
the caches; and what launches of GEMM and of GEMM + all-scatter pass.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import torch
import triton
import triton.language as tl
from triton.tools.tensor_descriptor import TensorDescriptor

from kernels.numerics import DTYPES


@triton.jit
def product(
    a, w, row, col, first, last, M, N, K,
    BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr, BLOCK_K: tl.constexpr, TMA: tl.constexpr, SWAP: tl.constexpr,
    EVEN_K: tl.constexpr,
):  # fmt: skip
    """The fp32 tile (row, col) of A[M, K] @ W[N, K]^T over the K steps [first, last); [BLOCK_N, BLOCK_M] with SWAP.

    a and w are pointers to row-major operands, or tensor descriptors of whole blocks with TMA.  SWAP takes the weights
    as rows of the matrix unit (64 on Hopper): for few rows of A.  EVEN_K: K is a multiple of BLOCK_K, so no masks.
    """
    k = tl.arange(0, BLOCK_K)
    if not TMA:
        x_at = a + ((row * BLOCK_M + tl.arange(0, BLOCK_M)) % M)[:, None] * K + (first * BLOCK_K + k)[None, :]
        y_at = w + ((col * BLOCK_N + tl.arange(0, BLOCK_N)) % N)[:, None] * K + (first * BLOCK_K + k)[None, :]
    if SWAP:
        acc = tl.zeros((BLOCK_N, BLOCK_M), dtype=tl.float32)
    else:
        acc = tl.zeros((BLOCK_M, BLOCK_N), dtype=tl.float32)
    for step in range(first, last):
        if TMA:
            x = a.load([row * BLOCK_M, step * BLOCK_K])
            y = w.load([col * BLOCK_N, step * BLOCK_K])
        else:
            if EVEN_K:
                x, y = tl.load(x_at), tl.load(y_at)
            else:
                inside = (step * BLOCK_K + k < K)[None, :]
                x, y = tl.load(x_at, mask=inside, other=0.0), tl.load(y_at, mask=inside, other=0.0)
            x_at += BLOCK_K
            y_at += BLOCK_K
        if SWAP:
            acc = tl.dot(y, x.T, acc)
        else:
            acc = tl.dot(x, y.T, acc)
    return acc


@triton.jit
def sum_of_slices(sums, ROWS: tl.constexpr, COLUMNS: tl.constexpr, SPLIT_K: tl.constexpr, STRIDE: tl.constexpr):
    """fp32 [ROWS, COLUMNS]: the sum of SPLIT_K blocks in their order, STRIDE apart; sums: addresses of the first."""
    total = tl.zeros((ROWS, COLUMNS), dtype=tl.float32)
    for i in range(SPLIT_K):
        total += tl.load(sums + i * STRIDE, cache_modifier=".cg")
    return total


@triton.jit
def halves(tile):
    """The left and the right half of a tile's columns; each needs half the shared memory on its way out."""
    return tl.split(tl.permute(tl.reshape(tile, (tile.shape[0], 2, tile.shape[1] // 2)), (0, 2, 1)))


@triton.jit
def spread(pid, programs, XCDS: tl.constexpr):
    """Renumber programs so that neighbours share an XCD: the hardware distributes them round robin over the XCDs."""
    if XCDS == 1:
        return pid
    xcd, local = pid % XCDS, pid // XCDS
    return xcd * (programs // XCDS) + tl.minimum(xcd, programs % XCDS) + local


@triton.jit
def tile_at(index, rows, cols, GROUP_M: tl.constexpr):
    """(row, column) of a tile: down a band of GROUP_M rows before the next column, so that L2 serves both operands."""
    band = index // (GROUP_M * cols)
    first = band * GROUP_M
    height = tl.minimum(rows - first, GROUP_M)
    within = index % (GROUP_M * cols)
    return first + within % height, within // height


# ---- from knobs to a launch ------------------------------------------------------------------------------------------


AMD_OPTIONS = ("matrix_instr_nonkdim", "kpack", "waves_per_eu")
"""Knobs that are compiler options on AMD only."""

Blocks = Mapping[str, tuple[int, int]]
"""Blocks of the tensor descriptors, by parameter; a tensor that is not listed is passed as a pointer."""


def compiler_options(arch: str, knobs: Mapping[str, Any]) -> dict[str, Any]:
    """Options of the compiler from the knobs of a launch."""
    names = ("num_warps", "num_stages", *(AMD_OPTIONS if arch.startswith("gfx") else ()))
    return {name: knobs[name] for name in names}


def passed(tensors: Mapping[str, torch.Tensor], blocks: Blocks) -> dict[str, Any]:
    """Tensors as the kernel takes them: as a descriptor where a block is given, as they are otherwise."""
    return {
        name: TensorDescriptor.from_tensor(tensor, list(blocks[name])) if name in blocks else tensor
        for name, tensor in tensors.items()
    }


def declared(dtype: str, shapes: Mapping[str, tuple[int, int]], blocks: Blocks) -> dict[str, Any]:
    """The same arguments for an ahead-of-time compilation: pointers by type, descriptors of tensors without storage."""
    pointers = {name: (f"*{dtype}", shape) for name, shape in shapes.items()}
    meta = {
        name: torch.empty(shape, dtype=DTYPES[dtype], device="meta") for name, shape in shapes.items() if name in blocks
    }
    return {**pointers, **passed(meta, blocks)}
