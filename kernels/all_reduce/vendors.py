"""The baselines of the all-reduce, and what stands in for a GPU kernel on a CPU."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
import torch.distributed as dist

from kernels._shared.collectives import registered, vendor
from kernels._shared.collectives.cases import fits_cpu, heap_of, need_group, only_on_cpu
from kernels.spec import Case


def rccl(case: Case, inputs: dict[str, torch.Tensor]) -> Callable[[], torch.Tensor]:
    """A copy, then torch.distributed.all_reduce in place, which is all it offers: RCCL, NCCL, gloo on a CPU.

    The copy, S read and S written in HBM, is what keeping the input costs with this interface; `rccl_direct` has none.
    """
    fits_cpu(case)
    need_group(case)
    x, out = inputs["x"], torch.empty_like(inputs["x"])

    def call() -> torch.Tensor:
        out.copy_(x)
        dist.all_reduce(out)
        return out

    return call


def rccl_direct(case: Case, inputs: dict[str, torch.Tensor]) -> Callable[[], torch.Tensor]:
    """ncclAllReduce from one buffer to another, as nccl-tests times it, with torch's communicator."""
    need_group(case)
    return vendor.all_reduce(inputs["x"], torch.empty_like(inputs["x"]))


def over(case: Case, inputs: dict[str, torch.Tensor], group: Any) -> Callable[[], torch.Tensor]:
    """As rccl_direct, with the communicator of a group."""
    need_group(case)
    return vendor.all_reduce(inputs["x"], torch.empty_like(inputs["x"]), group)


def rccl_most_channels(case: Case, inputs: dict[str, torch.Tensor]) -> Callable[[], torch.Tensor]:
    """As rccl_direct, with as many channels as help (vendor.MOST_CHANNELS)."""
    need_group(case)
    return vendor.all_reduce(inputs["x"], torch.empty_like(inputs["x"]), vendor.most_channels())


def rccl_registered(case: Case, inputs: dict[str, torch.Tensor]) -> Callable[[], torch.Tensor]:
    """As rccl_most_channels, on buffers that the library has allocated and registered on all ranks."""
    need_group(case)
    x, group = inputs["x"], vendor.most_channels()
    return registered.build(x, x.numel(), group, lambda given, out: vendor.all_reduce(given, out, group))


def copies(case: Case, inputs: dict[str, torch.Tensor]) -> Callable[[], torch.Tensor]:
    """For CPUs: every rank adds up the vectors of all ranks where they lie, in fp32, in the order of the ranks."""
    only_on_cpu(case)
    fits_cpu(case)
    heap, x = heap_of(case), inputs["x"]
    mine = heap.alloc(x.shape, x.dtype).copy_(x)
    every, out, total = [heap.peer(r, mine) for r in range(case.world)], torch.empty_like(x), torch.empty(x.shape)

    def call() -> torch.Tensor:
        heap.barrier()
        total.copy_(every[0])
        for vector in every[1:]:
            total.add_(vector)
        heap.barrier()
        return out.copy_(total)

    return call
