"""The baselines of the all-gather, and what stands in for a GPU kernel on a CPU."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
import torch.distributed as dist

from kernels._shared.collectives import registered, vendor
from kernels._shared.collectives.cases import heap_of, need_group, only_on_cpu
from kernels.all_gather.cases import fits_cpu, shard_elements
from kernels.numerics import DTYPES
from kernels.spec import Case


def rccl(case: Case, inputs: dict[str, torch.Tensor]) -> Callable[[], torch.Tensor]:
    """torch.distributed.all_gather_into_tensor on ordinary tensors: RCCL, NCCL, gloo on a CPU."""
    _needs_group(case)
    return _gather(inputs["shard"], _output(case, torch.empty), None)


def over(case: Case, inputs: dict[str, torch.Tensor], group: Any) -> Callable[[], torch.Tensor]:
    """As rccl, with the communicator of a group."""
    _needs_group(case)
    return _gather(inputs["shard"], _output(case, torch.empty), group)


def rccl_most_channels(case: Case, inputs: dict[str, torch.Tensor]) -> Callable[[], torch.Tensor]:
    """The same with as many channels as help (vendor.MOST_CHANNELS)."""
    _needs_group(case)
    return _gather(inputs["shard"], _output(case, torch.empty), vendor.most_channels())


def rccl_registered(case: Case, inputs: dict[str, torch.Tensor]) -> Callable[[], torch.Tensor]:
    """As rccl_most_channels, on buffers that the library has allocated and registered on all ranks (registered.py)."""
    _needs_group(case)
    shard, group = inputs["shard"], vendor.most_channels()
    return registered.build(shard, case.world * shard.numel(), group, lambda x, out: _gather(x, out, group))


def _gather(shard: torch.Tensor, out: torch.Tensor, group: Any) -> Callable[[], torch.Tensor]:
    def call() -> torch.Tensor:
        dist.all_gather_into_tensor(out, shard, group=group)
        return out

    return call


def copies(case: Case, inputs: dict[str, torch.Tensor]) -> Callable[[], torch.Tensor]:
    """For CPUs: the ranks meet, every rank copies its shard into the output of all ranks, then they meet again."""
    only_on_cpu(case)
    fits_cpu(case)
    heap, shard = heap_of(case), inputs["shard"]
    out, rank = heap.alloc((case.world * shard.numel(),), shard.dtype), case.place.rank
    targets = [heap.peer((rank + i) % case.world, out).view(case.world, -1)[rank] for i in range(case.world)]

    def call() -> torch.Tensor:
        heap.barrier()
        for target in targets:
            target.copy_(shard)
        heap.barrier()
        return out

    return call


def _needs_group(case: Case) -> None:
    fits_cpu(case)
    need_group(case)


def _output(case: Case, allocate: Callable[..., torch.Tensor]) -> torch.Tensor:
    return allocate(case.world * shard_elements(case), dtype=DTYPES[case.dtype], device=case.place.device)
