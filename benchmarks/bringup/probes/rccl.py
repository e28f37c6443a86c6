"""The vendor's collectives: RCCL or NCCL (gloo without a GPU) can meet, move the right data, and how fast."""

from __future__ import annotations

import time
from typing import Any

import torch
import torch.distributed as dist

from benchmarks.bringup.context import StepContext
from benchmarks.bringup.probes import ranks
from benchmarks.bringup.rows import Row, failed, passed

MIB, CPU_MIB = 128, 2
"""Per rank: large enough for the full rate of the links; small enough for gloo."""

CALLS = 10
"""Calls that the rate is taken from."""


def all_gather(context: StepContext) -> list[dict[str, Any]]:
    """Row of rank 0; the others take part."""
    begin = time.monotonic()
    with ranks.group(context):
        dist.all_reduce(torch.zeros(1, device=context.device))  # connects
        ranks.synchronize(context)
        row = _gathered(context, time.monotonic() - begin)
    return [row.as_json()] if context.rank == 0 else []


def _gathered(context: StepContext, connecting_s: float) -> Row:
    count = (MIB if context.gpu else CPU_MIB) << 18
    own = torch.full((count,), float(context.rank + 1), device=context.device)
    out = torch.zeros(count * context.world, device=context.device)
    dist.all_gather_into_tensor(out, own)
    ranks.synchronize(context)
    dist.barrier()
    begin = time.perf_counter()
    for _ in range(CALLS):
        dist.all_gather_into_tensor(out, own)
    ranks.synchronize(context)
    seconds = max(ranks.gathered((time.perf_counter() - begin) / CALLS))
    right = all(bool((part == rank + 1).all()) for rank, part in enumerate(out.view(context.world, count)))
    return judge(context, all(ranks.gathered(right)), count * 4 * context.world / seconds / 1e9, connecting_s)


def judge(context: StepContext, right: bool, algbw: float, connecting_s: float) -> Row:
    """algbw: GB/s of the whole output; busbw as nccl-tests has it, times (world - 1) / world."""
    library = f"{'RCCL' if context.amd else 'NCCL'} {context.environment.get('nccl')}" if context.gpu else "gloo"
    said = f"{library}, {context.world} ranks: all-gather of {MIB if context.gpu else CPU_MIB} MiB per rank"
    busbw = algbw * (context.world - 1) / context.world
    numbers = {"algbw": (algbw, "GB/s"), "busbw": (busbw, "GB/s"), "connect": (connecting_s, "s")}
    if not right:
        return failed("all_gather", f"{said} is wrong", "set NCCL_DEBUG=INFO and run this step again", **numbers)
    return passed("all_gather", f"{said} is right, busbw {busbw:.3g} GB/s", **numbers)
