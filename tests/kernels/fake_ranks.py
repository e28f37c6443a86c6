"""All ranks of a world in one process, one after the other: what the interpreter's tests run on."""

from __future__ import annotations

import torch

from kernels.symmetric_heap import ALIGNMENT, SymmetricHeap


class FakeRanks:
    """All ranks of a world in one process: `heaps[r]` is what rank r would hold.  Barriers return at once."""

    home = "fake"

    def __init__(self, world: int, bytes_: int, device: str = "cpu") -> None:
        self.device = device
        size = -(-bytes_ // ALIGNMENT) * ALIGNMENT
        self._heaps = [torch.zeros(size, dtype=torch.uint8, device=device) for _ in range(world)]
        self.bases = [heap.data_ptr() for heap in self._heaps]
        self.heaps = [SymmetricHeap(rank, self) for rank in range(world)]

    def view(self, rank: int) -> torch.Tensor:
        return self._heaps[rank]

    def reserve(self, start: int, size: int) -> None:
        """Nothing to do: the memory is there from the start."""

    def barrier(self) -> None:
        """Nothing to wait for: the ranks run one after the other."""

    def close(self) -> None:
        self._heaps = []
