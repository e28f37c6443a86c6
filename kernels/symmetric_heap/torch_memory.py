"""The home `torch`: symmetric memory of torch.distributed, mapped by rendezvous over the default process group.

On ROCm torch makes it of hipMemCreate, an exported file descriptor and hipMemMap (pytorch/pytorch,
torch/csrc/distributed/c10d/symm_mem/CUDASymmetricMemory.cu, 029e473), since pull request 150580 of 2025-04.  Until
pull request 188673 of 2026-07-02 it mapped each block twice, which gave memory errors; ROCm/pytorch took that into its
release 2.13 on 2026-07-29 (pull request 3517).
"""

from __future__ import annotations

import os
from typing import Any

import torch
import torch.distributed as dist

from kernels.symmetric_heap.heap import HeapError
from kernels.symmetric_heap.meeting import gathered, named, need_process_group, together

MODULE = "torch.distributed._symmetric_memory"

NEXT_STEP = (
    "use a later torch (on ROCm one with pytorch's pull request 188673, 2026-07), or the other home: RIDGELINE_HEAP=ipc"
)


class TorchMemory:
    """Symmetric memory of this process group's GPUs."""

    home = "torch"

    def __init__(self, rank: int, world: int, device: str, size: int) -> None:
        need_process_group()
        os.environ["TORCH_SYMM_MEM_DISABLE_MULTICAST"] = "1"  # read by the allocator; see the package's docstring
        self.device, self._rank = device, rank
        self._tensor = together(lambda: _empty(size, device))
        self._handle = together(lambda: _rendezvous(self._tensor))
        if self._handle.world_size != world or self._handle.rank != rank:
            raise HeapError(
                f"rank {rank} of {world} was asked for, the process group says rank "
                f"{self._handle.rank} of {self._handle.world_size}"
            )
        self.bases = self._addresses()

    def _addresses(self) -> list[int]:
        """Each rank's heap in this process.  A heap may start inside its allocation, elsewhere on each rank."""
        pointers = list(self._handle.buffer_ptrs)
        offset = self._tensor.data_ptr() - pointers[self._rank]
        if offset != getattr(self._handle, "offset", offset) or offset < 0:
            raise HeapError(
                f"symmetric memory of rank {self._rank} is at {self._tensor.data_ptr():#x}, but its handle "
                f"says {pointers[self._rank]:#x} + {self._handle.offset}: pointers cannot be translated"
            )
        return [pointer + other for pointer, other in zip(pointers, gathered(offset), strict=True)]

    def view(self, rank: int) -> torch.Tensor:
        if rank == self._rank:
            return self._tensor
        start = self.bases[rank] - self._handle.buffer_ptrs[rank]
        return self._handle.get_buffer(rank, (self._tensor.numel(),), torch.uint8, start)

    def reserve(self, start: int, size: int) -> None:
        """Nothing to do: device memory is there from the start."""

    def barrier(self) -> None:
        self._handle.barrier(channel=0)

    def close(self) -> None:
        torch.cuda.synchronize(self.device)
        del self._handle, self._tensor


def _empty(size: int, device: str) -> torch.Tensor:
    with named(f"{MODULE}.empty({size})", NEXT_STEP):
        import torch.distributed._symmetric_memory as symmetric_memory

        return symmetric_memory.empty(size, dtype=torch.uint8, device=torch.device(device))


def _rendezvous(tensor: torch.Tensor) -> Any:
    with named(f"{MODULE}.rendezvous", NEXT_STEP):
        import torch.distributed._symmetric_memory as symmetric_memory

        return symmetric_memory.rendezvous(tensor, dist.group.WORLD)
