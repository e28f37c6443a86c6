"""A barrier of all ranks by flags in their heaps: one small kernel, enqueued on the stream, which a graph can hold.

A kernel that was enqueued before it has ended, and what it stored is in memory; the barrier's release and acquire have
system scope, so a kernel that is enqueued after it sees that on every rank.
"""

from __future__ import annotations

import torch
import triton
import triton.language as tl

from kernels._shared.symmetric_device import finish


@triton.jit
def meet(signals, bases, rank, WORLD: tl.constexpr, LANES: tl.constexpr, AMD: tl.constexpr):
    """One program; signals: int32[WORLD] on the heap, zero at first, see symmetric_device.finish."""
    finish(signals, bases, 0, rank, 1, WORLD, LANES, AMD)


def barrier(signals: torch.Tensor, bases: torch.Tensor, rank: int, world: int) -> None:
    """Enqueue the barrier on the current stream.  bases: int64[world], the heaps in this process."""
    lanes = 1 << (world - 1).bit_length()
    meet[(1,)](signals, bases, rank, WORLD=world, LANES=lanes, AMD=torch.version.hip is not None, num_warps=1)
