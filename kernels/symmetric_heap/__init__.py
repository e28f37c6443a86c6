"""One heap of equal size on every rank, mapped by all of them: what a collective kernel reads and writes remotely.

All ranks allocate in the same order and sizes, so an allocation has the same offset in every heap and a pointer is
moved to a peer by the difference of two bases (kernels/_shared/symmetric_device.py: translate).  One interface to
three kinds of memory, called homes:

* `torch`: memory of torch.distributed._symmetric_memory (CUDA and HIP).  NVLink multicast is switched off, always: a
  program that dies while it holds a multicast object can take the GPUs of the host out of service.
* `ipc`: memory of the GPU's runtime, mapped by IPC handles, with a barrier of its own on device-side flags.
* on a CPU, one file per rank in /dev/shm, mapped by every rank and unlinked once all have mapped it.

On GPUs `create` takes the home that RIDGELINE_HEAP names.  `auto`, which is the default, takes the first in which what
each rank writes to each peer arrives: torch's, then that by IPC handles.  `ridgeline bringup` says how fast they write.
"""

from __future__ import annotations

import os
import statistics
import time
from collections.abc import Callable, Mapping, Sequence

import torch

from kernels.symmetric_heap.heap import ALIGNMENT, HeapError, HeapTooSmall, LoneHeap, Memory, SymmetricHeap
from kernels.symmetric_heap.ipc_memory import IpcMemory
from kernels.symmetric_heap.meeting import gathered, need_process_group, together
from kernels.symmetric_heap.shared_files import SharedFiles, meeting_place
from kernels.symmetric_heap.torch_memory import TorchMemory

VARIABLE = "RIDGELINE_HEAP"
"""Environment variable that chooses the home; `--heap` of the verbs sets it."""

AUTO = "auto"

__all__ = [
    "ALIGNMENT",
    "AUTO",
    "CHOICES",
    "VARIABLE",
    "HeapError",
    "HeapTooSmall",
    "LoneHeap",
    "Memory",
    "SymmetricHeap",
    "agreed",
    "create",
    "first_that_works",
    "probe",
]

Homes = Mapping[str, Callable[[int, int, str, int], Memory]]

GPU_HOMES: Homes = {"torch": TorchMemory, "ipc": IpcMemory}
"""Homes on GPUs, the preferred one first: made by (rank, world, device, bytes)."""

CHOICES = (AUTO, *GPU_HOMES)

PROBE_BYTES = 64 << 20
"""What one write moves: 1.3 ms over a link of 50 GB/s, and far more than what a launch costs at 400 GB/s."""

CHECKED_BYTES = 1 << 20
"""What one write moves where it is only looked at whether it arrives."""

WRITES = 5
"""Timed writes to a peer, after one that is not timed; the median counts."""

Rates = tuple[tuple[float, ...], ...]
"""GB/s (1e9 bytes) by [from rank][to rank]; 0 on the diagonal."""


def create(
    rank: int,
    world: int,
    device: str,
    bytes_: int,
    directory: str | os.PathLike[str] | None = None,
    home: str | None = None,
) -> SymmetricHeap:
    """The heap of this rank; a collective call.

    device: "cuda:0" (needs the default process group, with a backend for that device) or "cpu".
    directory: for the CPU home, an empty directory shared by the ranks and used by this heap only; without one, rank 0
    makes one in /dev/shm and sends its name to the others through the default process group.
    home: of CHOICES, for GPUs; RIDGELINE_HEAP if None.  HeapError names every call that failed, and what to do.
    """
    size = -(-bytes_ // ALIGNMENT) * ALIGNMENT
    if device == "cpu":
        return SymmetricHeap(rank, SharedFiles(rank, world, size, meeting_place(rank, world, directory)))
    need_process_group()
    asked = agreed(home)
    if asked == AUTO:
        return first_that_works(rank, world, device, size)
    return SymmetricHeap(rank, GPU_HOMES[asked](rank, world, device, size))


def first_that_works(rank: int, world: int, device: str, size: int, homes: Homes = GPU_HOMES) -> SymmetricHeap:
    """The heap in the first home in which what each rank writes to each peer arrives, the same home on all ranks.

    Its facts have why those before it are not taken; HeapError with every reason if none works.  A collective call.
    """
    reasons: dict[str, str] = {}
    for name, make in homes.items():
        try:
            why_not = {"homes": {home: {"why": why} for home, why in reasons.items()}} if reasons else {}
            heap = SymmetricHeap(rank, make(rank, world, device, size), why_not)
        except HeapError as error:
            reasons[name] = str(error)
            continue
        try:
            probe(heap, min(CHECKED_BYTES, size), writes=0)
            heap.reset()
            return heap
        except HeapError as error:
            reasons[name] = str(error)
            heap.close()
    raise HeapError("; ".join(f"{name}: {why}" for name, why in reasons.items()))


def agreed(home: str | None) -> str:
    """The home that all ranks ask for; HeapError if it is none of CHOICES, or not the same everywhere."""
    asked = home or os.environ.get(VARIABLE) or AUTO
    everywhere = gathered(asked)
    for one in everywhere:
        if one not in CHOICES:
            raise HeapError(f"{VARIABLE}={one!r} is not one of {', '.join(CHOICES)}")
    if len(set(everywhere)) > 1:
        raise HeapError(f"the ranks ask for different homes ({', '.join(everywhere)}); set {VARIABLE} alike on all")
    return asked


# ---- rates -----------------------------------------------------------------------------------------------------------


def probe(heap: SymmetricHeap, size: int = PROBE_BYTES, writes: int = WRITES) -> Rates:
    """Rates of writes to each peer, the same table on all ranks; HeapError if what was written did not arrive.

    A collective call, which allocates `size` bytes of the heap and writes them `writes` times more than once.  In step
    i every rank writes to the rank i after it, so that each heap has one writer at a time and every link carries one
    stream in each direction.  A write is a kernel that stores, as those of our collectives do, not a copy engine.
    """
    box = heap.alloc((size // 4,), torch.int32)
    row = [0.0] * heap.world
    for shift in range(1, heap.world):
        writer, reader = (heap.rank - shift) % heap.world, (heap.rank + shift) % heap.world
        row[reader] = _rate(heap, heap.peer(reader, box), _mark(heap.rank, shift), writes)
        heap.barrier()
        _arrived(heap, box, writer, _mark(writer, shift))
    return tuple(map(tuple, gathered(row))) if heap.world > 1 else ((0.0,),)


def _mark(rank: int, shift: int) -> int:
    """What a rank writes in a step; no other step or rank writes the same."""
    return 1 + rank * 1000 + shift


def _rate(heap: SymmetricHeap, box: torch.Tensor, mark: int, writes: int) -> float:
    """GB/s of filling a peer's box, the first time not counted where there are more."""
    box.fill_(0)
    heap.barrier()
    timed = _on_gpu if heap.device != "cpu" else _on_cpu
    first, *others = timed([lambda: box.fill_(mark)] * (1 + writes))
    return box.numel() * box.element_size() / statistics.median(others or [first]) / 1e9


def _on_gpu(calls: Sequence[Callable[[], object]]) -> list[float]:
    """Seconds of each call by events on the current stream."""
    events = [torch.cuda.Event(enable_timing=True) for _ in range(len(calls) + 1)]
    events[0].record()
    for call, event in zip(calls, events[1:], strict=True):
        call()
        event.record()
    torch.cuda.synchronize()
    return [max(a.elapsed_time(b) * 1e-3, 1e-9) for a, b in zip(events, events[1:], strict=False)]


def _on_cpu(calls: Sequence[Callable[[], object]]) -> list[float]:
    seconds = []
    for call in calls:
        begin = time.perf_counter()
        call()
        seconds.append(max(time.perf_counter() - begin, 1e-9))
    return seconds


def _arrived(heap: SymmetricHeap, box: torch.Tensor, writer: int, mark: int) -> None:
    """HeapError on all ranks unless each holds what its writer wrote."""

    def check() -> None:
        lost = int((box != mark).sum())
        if lost:
            raise HeapError(
                f"{lost} of {box.numel()} words that rank {writer} wrote to rank {heap.rank} did not arrive, after a "
                f"barrier (home {heap.facts['home']}): the memory or the barrier of this home cannot be trusted here; "
                "take the other home, and send us the report of `ridgeline bringup`"
            )

    together(check)
