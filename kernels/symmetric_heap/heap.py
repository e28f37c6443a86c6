"""A rank's handle on the heaps of all ranks: allocation, peers, barrier; what a home must offer; a rank alone."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any, Protocol

import torch

from kernels.spec import Unsupported

ALIGNMENT = 1024
"""Bytes; every allocation starts on a multiple, counted from the heap's base."""


class HeapError(RuntimeError):
    """The heap cannot be made or is too small; the text names the numbers and the next step."""


class HeapTooSmall(HeapError, Unsupported):
    """An allocation does not fit: a backend cannot do this case in a heap of this size."""


class Memory(Protocol):
    """Where the heaps live: `bases[r]` is the address of rank r's heap in this process; home: its name."""

    home: str
    device: str
    bases: Sequence[int]

    def view(self, rank: int) -> torch.Tensor:
        """The heap of a rank as uint8[bytes]."""

    def reserve(self, start: int, size: int) -> None:
        """Take memory for bytes [start, start + size) of this rank's heap; HeapError if there is not enough."""

    def barrier(self) -> None:
        """Wait until every rank is here; on a GPU enqueued on the current stream.

        A rank's barriers follow each other: on two streams, let one wait for the other.
        """

    def close(self) -> None:
        """Give the memory back."""


class SymmetricHeap:
    """A rank's handle on the heaps of all ranks, with a bump allocator.  `bases` is int64[world] on the device.

    facts: as JSON values, the home of the memory and what was found out about every home on the way to it.
    """

    def __init__(self, rank: int, memory: Memory, facts: Mapping[str, Any] | None = None) -> None:
        self.rank, self.world, self.device = rank, len(memory.bases), memory.device
        self.facts = {"home": memory.home, **(facts or {})}
        self.bases = torch.tensor(list(memory.bases), dtype=torch.int64, device=memory.device)
        self._memory = memory
        self._own = memory.view(rank)
        self.bytes, self._used = self._own.numel(), 0

    @property
    def left(self) -> int:
        """Bytes not yet allocated."""
        return self.bytes - self._used

    def alloc(self, shape: Sequence[int] | int, dtype: torch.dtype) -> torch.Tensor:
        """An uninitialised tensor on this rank's heap; every rank must make the same call in the same order."""
        sizes = (shape,) if isinstance(shape, int) else tuple(shape)
        needed = math.prod(sizes) * dtype.itemsize
        padded = -(-needed // ALIGNMENT) * ALIGNMENT
        if padded > self.left:
            raise HeapTooSmall(
                f"symmetric heap of rank {self.rank} is too small: {padded} bytes asked for {sizes} {dtype}, "
                f"{self.left} of {self.bytes} left; create it with at least {self._used + padded} bytes, "
                "reset() it between cases, or measure fewer backends at a time (--backend)"
            )
        start = self._used
        self._memory.reserve(start, needed)
        self._used = start + padded
        return self._own[start : start + needed].view(dtype).view(sizes)

    def signals(self, *shape: int) -> torch.Tensor:
        """Zeroed int32 flags on the heap, zero on every rank before any rank goes on; see symmetric_device.finish."""
        flags = self.alloc(shape, torch.int32).zero_()
        self.barrier()
        return flags

    def peer(self, rank: int, tensor: torch.Tensor) -> torch.Tensor:
        """The same allocation in the heap of another rank."""
        start = tensor.data_ptr() - self._own.data_ptr()
        size = tensor.numel() * tensor.element_size()
        if start < 0 or start + size > self.bytes or not tensor.is_contiguous():
            raise HeapError(
                f"a contiguous tensor on the heap of rank {self.rank} is needed to find it at rank {rank}; "
                "allocate it with heap.alloc()"
            )
        return self._memory.view(rank)[start : start + size].view(tensor.dtype).view(tensor.shape)

    def barrier(self) -> None:
        """Wait for all ranks: on a GPU enqueued on the current stream (capturable), on a CPU until all have come."""
        self._memory.barrier()

    def reset(self) -> None:
        """Free everything for the next case, once every rank is done with it; all ranks call it."""
        self.barrier()
        if self.device != "cpu":
            torch.cuda.synchronize(self.device)
        self._used = 0

    def close(self) -> None:
        """Give the memory back; tensors of the heap must not be used any more."""
        del self._own
        self._memory.close()

    def __enter__(self) -> SymmetricHeap:
        return self

    def __exit__(self, kind: object, *_: object) -> None:
        if kind is None:  # after a failure the peers may not come to give it back together; it goes with the process
            self.close()


class LoneHeap:
    """What SymmetricHeap offers, for a world of one: an allocation is a tensor, and goes with whoever holds it.

    A pointer is moved to a peer by the difference of two bases (symmetric_device.translate); the one base is 0.
    """

    rank, world = 0, 1

    def __init__(self, device: str | torch.device) -> None:
        self.device = str(device)
        self.facts = {"home": "alone"}
        self.bases = torch.zeros(1, dtype=torch.int64, device=device)

    def alloc(self, shape: Sequence[int] | int, dtype: torch.dtype) -> torch.Tensor:
        """An uninitialised tensor."""
        return torch.empty(shape, dtype=dtype, device=self.device)

    def signals(self, *shape: int) -> torch.Tensor:
        """Zeroed int32 flags."""
        return torch.zeros(shape, dtype=torch.int32, device=self.device)

    def peer(self, rank: int, tensor: torch.Tensor) -> torch.Tensor:
        """The tensor itself; HeapError for another rank than 0."""
        if rank != 0:
            raise HeapError(f"rank {rank} of a heap of one rank; there is rank 0 only")
        return tensor

    def barrier(self) -> None:
        """Nobody to wait for."""

    def reset(self) -> None:
        """Nothing to do: tensors go with whoever holds them."""

    def close(self) -> None:
        """Nothing to give back."""
