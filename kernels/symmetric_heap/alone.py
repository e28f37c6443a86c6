"""The heap of one rank that works alone: plain memory of its device, with the interface of a symmetric heap."""

from __future__ import annotations

from collections.abc import Sequence

import torch

from kernels.symmetric_heap.heap import HeapError


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
