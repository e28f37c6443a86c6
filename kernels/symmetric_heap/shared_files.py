"""The home on a CPU: one file per rank in memory, mapped by every rank."""

from __future__ import annotations

import contextlib
import errno
import os
import platform
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist

from kernels.symmetric_heap.heap import HeapError

BARRIER_TIMEOUT_S = 120.0
"""How long a CPU rank waits for its peers before it says which are missing."""

_HEADER = 4096
"""Bytes in front of a CPU heap: a page that holds the rank's barrier counter (int64)."""


class SharedFiles:
    """One mapped file per rank; a counter in each file's first page makes the barrier.

    The files are sparse: a heap may be far larger than /dev/shm, whose memory is taken as it is allocated from.
    """

    home, device = "files", "cpu"

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


def meeting_place(rank: int, world: int, directory: str | os.PathLike[str] | None) -> Path:
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
