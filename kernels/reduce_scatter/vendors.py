"""The baseline of the reduce-scatter, and what stands in for a GPU kernel on a CPU."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
import torch.distributed as dist

from kernels._shared.collectives import registered, vendor
from kernels._shared.collectives.cases import fits_cpu, heap_of, need_group, only_on_cpu
from kernels.spec import Case


def rccl(case: Case, inputs: dict[str, torch.Tensor]) -> Callable[[], torch.Tensor]:
    """torch.distributed.reduce_scatter_tensor on ordinary tensors: RCCL, NCCL, gloo on a CPU."""
    fits_cpu(case)
    need_group(case)
    return _scatter(inputs["x"], _output(case, inputs), None)


def over(case: Case, inputs: dict[str, torch.Tensor], group: Any) -> Callable[[], torch.Tensor]:
    """As rccl, with the communicator of a group."""
    fits_cpu(case)
    need_group(case)
    return _scatter(inputs["x"], _output(case, inputs), group)


def rccl_most_channels(case: Case, inputs: dict[str, torch.Tensor]) -> Callable[[], torch.Tensor]:
    """The same with as many channels as help (vendor.MOST_CHANNELS)."""
    fits_cpu(case)
    need_group(case)
    return _scatter(inputs["x"], _output(case, inputs), vendor.most_channels())


def rccl_registered(case: Case, inputs: dict[str, torch.Tensor]) -> Callable[[], torch.Tensor]:
    """As rccl_most_channels, on buffers that the library has allocated and registered on all ranks."""
    fits_cpu(case)
    need_group(case)
    x, group = inputs["x"], vendor.most_channels()
    return registered.build(x, x.numel() // case.world, group, lambda given, out: _scatter(given, out, group))


def _scatter(x: torch.Tensor, out: torch.Tensor, group: Any) -> Callable[[], torch.Tensor]:
    def call() -> torch.Tensor:
        dist.reduce_scatter_tensor(out, x, group=group)
        return out

    return call


def copies(case: Case, inputs: dict[str, torch.Tensor]) -> Callable[[], torch.Tensor]:
    """For CPUs: every rank adds up its part of all ranks' vectors where they lie, in fp32 and rank order."""
    only_on_cpu(case)
    fits_cpu(case)
    heap, x, out = heap_of(case), inputs["x"], _output(case, inputs)
    mine = heap.alloc(x.shape, x.dtype).copy_(x)
    parts = [heap.peer(rank, mine).view(case.world, -1)[case.place.rank] for rank in range(case.world)]
    total = torch.empty(out.shape)

    def call() -> torch.Tensor:
        heap.barrier()
        total.copy_(parts[0])
        for part in parts[1:]:
            total.add_(part)
        heap.barrier()
        return out.copy_(total)

    return call


def _output(case: Case, inputs: dict[str, torch.Tensor]) -> torch.Tensor:
    x = inputs["x"]
    return torch.empty(x.numel() // case.world, dtype=x.dtype, device=x.device)
