"""The home `ipc`: memory of the GPU's runtime that every rank maps by an IPC handle, with a barrier of its own."""

from __future__ import annotations

import contextlib
from collections.abc import Callable
from typing import TypeVar

import torch

from kernels.symmetric_heap import gpu_runtime
from kernels.symmetric_heap.heap import HeapError
from kernels.symmetric_heap.meeting import gathered, named, need_process_group, together

HEADER = 4096
"""Bytes in front of a heap: the barrier's flags, int32[world]."""

GRANULE = 2 << 20
"""Bytes; sizes are rounded up to it, so that no other allocation shares a 2 MiB page that is handed to other
processes."""

Made = TypeVar("Made")


class IpcMemory:
    """Heaps that the ranks have opened from each other.

    runtime: that of the GPU unless given; a test has one of files, for device "cpu", where the barrier is interpreted.
    """

    home = "ipc"

    def __init__(
        self, rank: int, world: int, device: str, size: int, runtime: gpu_runtime.GpuRuntime | None = None
    ) -> None:
        need_process_group()
        self.device, self._rank, self._size = device, rank, size
        self._starts: list[int] = [0] * world
        self._runtime = runtime or together(gpu_runtime.loaded)
        handles = gathered(self._step(self._allocate))
        self._step(lambda: self._open(handles))
        self.bases = [start + HEADER for start in self._starts]
        self._step(self._make_barrier)
        self.barrier()  # compiles its kernel now: in a captured graph it could not

    def _step(self, step: Callable[[], Made]) -> Made:
        """A step of all ranks; what was made before is given back if it fails."""
        try:
            with self._current():
                return together(step)
        except HeapError:
            self._release()
            raise

    def _current(self) -> contextlib.AbstractContextManager[object]:
        """This rank's device is the current one: the runtime allocates and maps there."""
        return contextlib.nullcontext() if self.device == "cpu" else torch.cuda.device(torch.device(self.device))

    def _synchronize(self) -> None:
        if self.device != "cpu":
            torch.cuda.synchronize(self.device)

    def _allocate(self) -> bytes:
        size = -(-(HEADER + self._size) // GRANULE) * GRANULE
        self._starts[self._rank] = self._runtime.allocate(size, gpu_runtime.kind())
        return self._runtime.handle(self._starts[self._rank])

    def _open(self, handles: list[bytes]) -> None:
        for peer, handle in enumerate(handles):
            if peer != self._rank:
                self._starts[peer] = self._runtime.open(handle)

    def _make_barrier(self) -> None:
        """The flags, zero on this rank before any rank goes on to its first barrier, and the kernel that uses them."""
        with named(
            "importing the barrier's kernel", "install triton 3.6 or later, or the other home: RIDGELINE_HEAP=torch"
        ):
            from kernels.symmetric_heap.flags import barrier
        self._launch = barrier
        with named("zeroing the barrier's flags", "see the driver's log"):
            self._flags = self._bytes(self._starts[self._rank], HEADER).zero_().view(torch.int32)
            self._bases = torch.tensor(self.bases, dtype=torch.int64, device=self.device)
            self._synchronize()

    def _bytes(self, address: int, size: int) -> torch.Tensor:
        """Memory at an address as uint8[size], by this device: who asks the runtime is told of the owner's."""
        storage = torch._C._construct_storage_from_data_pointer(address, torch.device(self.device), size)
        return torch.empty(0, dtype=torch.uint8, device=self.device).set_(storage, 0, (size,), (1,))

    def view(self, rank: int) -> torch.Tensor:
        return self._bytes(self.bases[rank], self._size)

    def reserve(self, start: int, size: int) -> None:
        """Nothing to do: device memory is there from the start."""

    def barrier(self) -> None:
        self._launch(self._flags, self._bases, self._rank, len(self.bases))

    def close(self) -> None:
        """Unmap the peers' heaps; this rank's own is freed when all have done so."""
        self._synchronize()
        with self._current():
            self._close_peers()
            gathered(None)
            self._release()

    def _close_peers(self) -> None:
        for peer, start in enumerate(self._starts):
            if start and peer != self._rank:
                self._starts[peer] = 0
                self._runtime.close(start)

    def _release(self) -> None:
        """Give back what this rank holds."""
        self._close_peers()
        start, self._starts[self._rank] = self._starts[self._rank], 0
        if start:
            self._runtime.free(start)
