"""From knobs to a launch, for the kernels that multiply tile by tile: GEMM, and GEMM + all-scatter."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import torch
from triton.tools.tensor_descriptor import TensorDescriptor

from kernels.numerics import DTYPES

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
