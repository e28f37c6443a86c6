"""One heap of equal size on every rank, mapped by all of them: what a collective kernel reads and writes remotely.

All ranks allocate in the same order and sizes, so an allocation has the same offset in every heap and a pointer is
moved to a peer by the difference of two bases (kernels/_shared/symmetric_device.py: translate).  One interface to
two kinds of memory:

* GPU: memory of torch.distributed._symmetric_memory (CUDA and HIP).  NVLink multicast is switched off, always: a
  program that dies while it holds a multicast object can take the GPUs of the host out of service.
* CPU: one file per rank in /dev/shm, mapped by every rank and unlinked once all have mapped it.
"""

from __future__ import annotations

import contextlib
import errno
import math
import os
import platform
import tempfile
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, Protocol

import torch
import torch.distributed as dist

ALIGNMENT = 1024
"""Bytes; every allocation starts on a multiple, counted from the heap's base."""

BARRIER_TIMEOUT_S = 120.0
"""How long a CPU rank waits for its peers before it says which are missing."""

_HEADER = 4096
"""Bytes in front of a CPU heap: a page that holds the rank's barrier counter (int64)."""


class HeapError(RuntimeError):
    """The heap cannot be made or is too small; the text names the numbers and the next step."""


class Memory(Protocol):
    """Where the heaps live: `bases[r]` is the address of rank r's heap in this process."""

    device: str
    bases: Sequence[int]

    def view(self, rank: int) -> torch.Tensor:
        """The heap of a rank as uint8[bytes]."""

    def reserve(self, start: int, size: int) -> None:
        """Make sure that these bytes of this rank's heap can be written; HeapError if there is no room."""

    def barrier(self) -> None:
        """Wait until every rank is here; on a GPU enqueued on the current stream."""

    def close(self) -> None:
        """Give the memory back."""


class SymmetricHeap:
    """A rank's handle on the heaps of all ranks, with a bump allocator.  `bases` is int64[world] on the device."""

    def __init__(self, rank: int, memory: Memory) -> None:
        self.rank, self.world, self.device = rank, len(memory.bases), memory.device
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
            raise HeapError(
                f"symmetric heap of rank {self.rank} is too small: {padded} bytes asked for {sizes} {dtype}, "
                f"{self.left} of {self.bytes} left; create it with at least {self._used + padded} bytes, "
                "or reset() it between cases"
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

    def __exit__(self, *_: object) -> None:
        self.close()


def create(
    rank: int, world: int, device: str, bytes_: int, directory: str | os.PathLike[str] | None = None
) -> SymmetricHeap:
    """The heap of this rank; a collective call.

    device: "cuda:0" (needs the default process group, with a backend for that device) or "cpu".
    directory: for the CPU home, an empty directory shared by the ranks and used by this heap only; without one, rank 0
    makes one in /dev/shm and sends its name to the others through the default process group.
    """
    size = -(-bytes_ // ALIGNMENT) * ALIGNMENT
    if device == "cpu":
        return SymmetricHeap(rank, SharedFiles(rank, world, size, _meeting_place(rank, world, directory)))
    return SymmetricHeap(rank, DeviceMemory(rank, world, device, size))


class DeviceMemory:
    """Symmetric memory of GPUs, mapped by rendezvous over the default process group."""

    def __init__(self, rank: int, world: int, device: str, size: int) -> None:
        if not dist.is_initialized():
            raise HeapError(
                "a symmetric heap on GPUs needs the default process group: call "
                "torch.distributed.init_process_group before, with a backend for the GPU"
            )
        os.environ["TORCH_SYMM_MEM_DISABLE_MULTICAST"] = "1"  # read by the allocator; see the module's docstring
        import torch.distributed._symmetric_memory as symmetric_memory

        self.device, self._rank = device, rank
        self._tensor = symmetric_memory.empty(size, dtype=torch.uint8, device=torch.device(device))
        self._handle = symmetric_memory.rendezvous(self._tensor, dist.group.WORLD)
        if self._handle.world_size != world or self._handle.rank != rank:
            raise HeapError(
                f"rank {rank} of {world} was asked for, the process group says rank "
                f"{self._handle.rank} of {self._handle.world_size}"
            )
        self.bases = self._addresses(world)

    def _addresses(self, world: int) -> list[int]:
        """Each rank's heap in this process.  A heap may start inside its allocation, elsewhere on each rank."""
        pointers = list(self._handle.buffer_ptrs)
        offset = self._tensor.data_ptr() - pointers[self._rank]
        if offset != getattr(self._handle, "offset", offset) or offset < 0:
            raise HeapError(
                f"symmetric memory of rank {self._rank} is at {self._tensor.data_ptr():#x}, but its handle "
                f"says {pointers[self._rank]:#x} + {self._handle.offset}: pointers cannot be translated"
            )
        offsets = torch.empty(world, dtype=torch.int64, device=self.device)
        dist.all_gather_into_tensor(offsets, torch.tensor([offset], dtype=torch.int64, device=self.device))
        return [pointer + other for pointer, other in zip(pointers, offsets.tolist(), strict=True)]

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


class SharedFiles:
    """One mapped file per rank; a counter in each file's first page makes the barrier.

    The files are sparse: a heap may be far larger than /dev/shm, whose memory is taken as it is allocated from.
    """

    device = "cpu"

    def __init__(self, rank: int, world: int, size: int, directory: Path) -> None:
        self._rank, self._epoch = rank, 0
        self._file = _sparse(directory / f"heap-{rank}", _HEADER + size)
        maps = [_mapped(directory / f"heap-{peer}", _HEADER + size) for peer in range(world)]
        self._counters = [m[:8].view(torch.int64) for m in maps]
        self._heaps = [m[_HEADER:] for m in maps]
        self.bases = [heap.data_ptr() for heap in self._heaps]
        self._meet()
        (directory / f"heap-{rank}").unlink()
        self._meet()
        if rank == 0:
            with contextlib.suppress(OSError):  # a directory with other files in it is not ours
                directory.rmdir()

    def view(self, rank: int) -> torch.Tensor:
        return self._heaps[rank]

    def reserve(self, start: int, size: int) -> None:
        """Take the blocks now: in a full /dev/shm a later store would kill the process (SIGBUS)."""
        if size:
            _take(self._file, _HEADER + start, size)

    def barrier(self) -> None:
        if platform.machine() in ("x86_64", "AMD64") or not dist.is_initialized():
            self._meet()
        else:
            dist.barrier()  # other processors may reorder the plain stores and loads of _meet

    def _meet(self) -> None:
        """Post my epoch, then wait until every counter has reached it: no rank can leave before all have come."""
        self._epoch += 1
        self._counters[self._rank][0] = self._epoch
        _wait(
            lambda: [r for r, c in enumerate(self._counters) if int(c[0]) < self._epoch],
            f"rank {self._rank} waits at a barrier for rank(s)",
        )

    def close(self) -> None:
        self._heaps, self._counters = [], []
        os.close(self._file)


def _meeting_place(rank: int, world: int, directory: str | os.PathLike[str] | None) -> Path:
    """The directory that the ranks agree on."""
    if directory is not None:
        return Path(directory)
    parent = "/dev/shm" if os.path.isdir("/dev/shm") else None
    if world == 1:
        return Path(tempfile.mkdtemp(prefix="ridgeline-", dir=parent))
    if not dist.is_initialized():
        raise HeapError(f"a CPU heap of {world} ranks needs the default process group, or a directory shared by them")
    chosen = [tempfile.mkdtemp(prefix="ridgeline-", dir=parent) if rank == 0 else None]
    dist.broadcast_object_list(chosen, src=0)
    return Path(str(chosen[0]))


def _sparse(path: Path, size: int) -> int:
    """Make a file of that size that holds its header only; returns its descriptor."""
    part = path.with_suffix(".part")
    file = os.open(part, os.O_RDWR | os.O_CREAT | os.O_EXCL, 0o600)
    try:
        os.truncate(file, size)
        _take(file, 0, _HEADER)
    except (OSError, HeapError):
        os.close(file)
        part.unlink()
        raise
    part.rename(path)
    return file


def _take(file: int, start: int, size: int) -> None:
    """Allocate blocks of a file; HeapError with the numbers if its file system is full."""
    room = os.fstatvfs(file)
    free = room.f_bavail * room.f_frsize
    try:
        if size > free:  # asked first, because some file systems fill up before they refuse
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        os.posix_fallocate(file, start, size)
    except OSError as error:
        raise HeapError(
            f"no room for {size} bytes of a symmetric heap, its file system has {free} free: "
            f"{error.strerror}; take smaller cases, enlarge /dev/shm (docker: --shm-size), or give "
            "another directory"
        ) from error


def _mapped(path: Path, size: int) -> torch.Tensor:
    """A peer's file as uint8[size], once it is there."""
    _wait(lambda: [] if path.exists() else [path], "symmetric heap: no file of a peer at")
    found = path.stat().st_size
    if found != size:
        raise HeapError(f"{path} has {found} bytes, {size} expected: all ranks must ask for the same size")
    return torch.from_file(str(path), shared=True, size=size, dtype=torch.uint8)


def _wait(missing: Callable[[], list[Any]], what: str) -> None:
    """Poll, with short pauses, until nothing is missing; HeapError after BARRIER_TIMEOUT_S."""
    end, pause = time.monotonic() + BARRIER_TIMEOUT_S, 0.0
    while absent := missing():
        if time.monotonic() > end:
            raise HeapError(
                f"{what} {', '.join(map(str, absent))} since {BARRIER_TIMEOUT_S:.0f} s; "
                "did a rank fail, or skip a collective call?"
            )
        time.sleep(pause)
        pause = min(pause + 1e-6, 2e-4)
