"""Which compute die (XCD) of an AMD GPU runs which program of a launch."""

from __future__ import annotations

from typing import Any

import torch
import triton
import triton.language as tl


@triton.jit
def own_xcd():
    """The number of the XCD that this program runs on: bits 3:0 of HW_REG_XCC_ID.

    gfx942 and gfx950 only (LLVM, AMDGPUOperandSyntax: hwreg; CDNA3 ISA document, hardware register 20; read 2026-11).
    """
    return tl.inline_asm_elementwise(
        "s_getreg_b32 $0, hwreg(HW_REG_XCC_ID, 0, 4)", "=s,v", [tl.program_id(0)], dtype=tl.int32, is_pure=False, pack=1
    )


@triton.jit
def note_xcds(out):
    """out int32[programs]: the XCD of each program."""
    tl.store(out + tl.program_id(0), own_xcd())


def dispatch(device: str, programs: int) -> dict[str, Any]:
    """Where an untimed launch of that many programs ran, as JSON values: see `described`."""
    out = torch.full((programs,), -1, dtype=torch.int32, device=device)
    note_xcds[(programs,)](out, num_warps=1)
    return described(out.tolist())


def described(xcds: list[int]) -> dict[str, Any]:
    """programs: how many ran on each XCD, in the order in which the programs reach them.

    round_robin: whether program i ran where program i modulo the number of XCDs did, as the hardware deals them out
    when it is idle (ROCm blogs on MI300X and its partitions; Modular, chiplet_transform_chunked; read 2026-11).
    """
    order = list(dict.fromkeys(xcds))
    return {
        "programs": [xcds.count(xcd) for xcd in order],
        "round_robin": all(xcd == order[i % len(order)] for i, xcd in enumerate(xcds)),
    }
