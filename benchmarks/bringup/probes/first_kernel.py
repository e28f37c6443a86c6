"""The first Triton kernel of a machine: adds two vectors."""

from __future__ import annotations

import torch
import triton
import triton.language as tl


@triton.jit
def _add(a, b, out, count, BLOCK: tl.constexpr):
    at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    tl.store(out + at, tl.load(a + at, mask=at < count) + tl.load(b + at, mask=at < count), mask=at < count)


def fault(device: str, count: int = 100_003) -> str:
    """What is wrong with its result on a device, "" if it is right.  Raises what Triton raises."""
    if device != "cpu":
        torch.cuda.set_device(torch.device(device))
    a, b = (torch.arange(count, device=device, dtype=torch.float32) * factor for factor in (1, 3))
    out = torch.zeros_like(a)
    _add[(triton.cdiv(count, 1024),)](a, b, out, count, BLOCK=1024)
    return "" if torch.equal(out, a + b) else "the sum of two vectors is wrong"
