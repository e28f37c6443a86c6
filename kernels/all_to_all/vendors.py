"""The baseline of the all-to-all, and what stands in for a GPU kernel on a CPU."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
import torch.distributed as dist

from kernels._shared.collectives import registered, vendor
from kernels._shared.collectives.cases import fits_cpu, heap_of, need_group, only_on_cpu
from kernels.spec import Case


def rccl(case: Case, inputs: dict[str, torch.Tensor]) -> Callable[[], torch.Tensor]:
    """torch.distributed.all_to_all_single on ordinary tensors: RCCL, NCCL, gloo on a CPU."""
    fits_cpu(case)
    need_group(case)
    return _exchange(inputs["x"], torch.empty_like(inputs["x"]), None)


def over(case: Case, inputs: dict[str, torch.Tensor], group: Any) -> Callable[[], torch.Tensor]:
    """As rccl, with the communicator of a group."""
    fits_cpu(case)
    need_group(case)
    return _exchange(inputs["x"], torch.empty_like(inputs["x"]), group)


def rccl_most_channels(case: Case, inputs: dict[str, torch.Tensor]) -> Callable[[], torch.Tensor]:
    """The same with as many channels as help (vendor.MOST_CHANNELS)."""
    fits_cpu(case)
    need_group(case)
    return _exchange(inputs["x"], torch.empty_like(inputs["x"]), vendor.most_channels())


def rccl_registered(case: Case, inputs: dict[str, torch.Tensor]) -> Callable[[], torch.Tensor]:
    """As rccl_most_channels, on buffers that the library has allocated and registered on all ranks."""
    fits_cpu(case)
    need_group(case)
    x, group = inputs["x"], vendor.most_channels()
    return registered.build(x, x.numel(), group, lambda given, out: _exchange(given, out, group))


def _exchange(x: torch.Tensor, out: torch.Tensor, group: Any) -> Callable[[], torch.Tensor]:
    def call() -> torch.Tensor:
        dist.all_to_all_single(out, x, group=group)
        return out

    return call


def copies(case: Case, inputs: dict[str, torch.Tensor]) -> Callable[[], torch.Tensor]:
    """For CPUs: the ranks meet, every rank copies its parts into the outputs of their receivers, they meet again."""
    only_on_cpu(case)
    fits_cpu(case)
    heap, rank, parts = heap_of(case), case.place.rank, inputs["x"].view(case.world, -1)
    out = heap.alloc(inputs["x"].shape, inputs["x"].dtype)
    order = [(rank + i) % case.world for i in range(case.world)]
    moves = [(heap.peer(peer, out).view(case.world, -1)[rank], parts[peer]) for peer in order]

    def call() -> torch.Tensor:
        heap.barrier()
        for target, part in moves:
            target.copy_(part)
        heap.barrier()
        return out

    return call
