"""Which home the heap of GPUs has, the heap itself, and how fast each rank writes to each peer's, if it arrives."""

from __future__ import annotations

import dataclasses
import os
import statistics
import time
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import torch

from kernels.symmetric_heap.heap import ALIGNMENT, HeapError, Memory, SymmetricHeap
from kernels.symmetric_heap.ipc_memory import IpcMemory
from kernels.symmetric_heap.meeting import gathered, need_process_group, together
from kernels.symmetric_heap.shared_files import SharedFiles, meeting_place
from kernels.symmetric_heap.torch_memory import TorchMemory

VARIABLE = "RIDGELINE_HEAP"
"""Environment variable that chooses the home; `--heap` of the verbs sets it."""

AUTO = "auto"

Homes = Mapping[str, Callable[[int, int, str, int], Memory]]

GPU_HOMES: Homes = {"torch": TorchMemory, "ipc": IpcMemory}
"""Homes on GPUs, the preferred one first: made by (rank, world, device, bytes)."""

CHOICES = (AUTO, *GPU_HOMES)

ADVANTAGE = 1.05
"""A later home must be faster by this factor to be taken: a choice that follows noise would change what is measured."""

PROBE_BYTES = 64 << 20
"""What one write moves: 1.3 ms over a link of 50 GB/s, and far more than what a launch costs at 400 GB/s."""

WRITES = 5
"""Timed writes to a peer, after one that is not timed; the median counts."""

Rates = tuple[tuple[float, ...], ...]
"""GB/s (1e9 bytes) by [from rank][to rank]; 0 on the diagonal."""


@dataclasses.dataclass(frozen=True)
class HomeReport:
    """What was found out about a home.  why: why there is no heap in it, "" if there is.  rates: GB/s [from][to]."""

    home: str
    why: str = ""
    rates: Rates = ()


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
    asked, reports = agreed(home), []
    if asked == AUTO:
        reports = homes(rank, world, device)
        asked = chosen(reports)
    return SymmetricHeap(rank, GPU_HOMES[asked](rank, world, device, size), facts(reports))


def homes(rank: int, world: int, device: str, known: Homes = GPU_HOMES) -> list[HomeReport]:
    """Every home tried and measured, with the same findings on all ranks; a collective call of some ms per peer."""
    return [_report(name, make, rank, world, device) for name, make in known.items()]


def chosen(reports: Sequence[HomeReport]) -> str:
    """The first home that works, or a later one that is faster by ADVANTAGE; HeapError with every reason if none."""
    working = [report for report in reports if not report.why]
    if not working:
        raise HeapError("; ".join(f"{report.home}: {report.why}" for report in reports))
    best = working[0]
    for report in working[1:]:
        if typical(report.rates) > ADVANTAGE * typical(best.rates):
            best = report
    return best.home


def facts(reports: Sequence[HomeReport]) -> dict[str, Any]:
    """Findings as JSON values: by home, why not, or GB/s from each rank to each rank."""
    if not reports:
        return {}
    return {
        "homes": {
            one.home: {"why": one.why, "gbs": [[round(rate, 1) for rate in row] for row in one.rates]}
            for one in reports
        }
    }


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


def _report(name: str, make: Callable[[int, int, str, int], Memory], rank: int, world: int, device: str) -> HomeReport:
    """Make a small heap, measure it, and give it back."""
    try:
        heap = SymmetricHeap(rank, make(rank, world, device, PROBE_BYTES))
    except HeapError as error:
        return HomeReport(name, str(error))
    try:
        return HomeReport(name, rates=probe(heap))
    except HeapError as error:
        return HomeReport(name, str(error))
    finally:
        heap.close()


# ---- rates -----------------------------------------------------------------------------------------------------------


def probe(heap: SymmetricHeap, size: int = PROBE_BYTES) -> Rates:
    """Rates of writes to each peer, the same table on all ranks; HeapError if what was written did not arrive.

    A collective call, which allocates `size` bytes of the heap.  In step i every rank writes to the rank i after it,
    so that each heap has one writer at a time and every link carries one stream in each direction.  A write is a
    kernel that stores, as those of our collectives do, not a copy engine.
    """
    box = heap.alloc((size // 4,), torch.int32)
    row = [0.0] * heap.world
    for shift in range(1, heap.world):
        writer, reader = (heap.rank - shift) % heap.world, (heap.rank + shift) % heap.world
        row[reader] = _rate(heap, heap.peer(reader, box), _mark(heap.rank, shift))
        heap.barrier()
        _arrived(heap, box, writer, _mark(writer, shift))
    return tuple(map(tuple, gathered(row))) if heap.world > 1 else ((0.0,),)


def typical(rates: Rates) -> float:
    """GB/s by which homes are compared: the harmonic mean over all pairs, that is, by the time all writes take."""
    links = [rate for source, row in enumerate(rates) for target, rate in enumerate(row) if source != target]
    return statistics.harmonic_mean(links) if links else 0.0


def _mark(rank: int, shift: int) -> int:
    """What a rank writes in a step; no other step or rank writes the same."""
    return 1 + rank * 1000 + shift


def _rate(heap: SymmetricHeap, box: torch.Tensor, mark: int) -> float:
    """GB/s of filling a peer's box."""
    box.fill_(0)
    heap.barrier()
    timed = _on_gpu if heap.device != "cpu" else _on_cpu
    seconds = timed([lambda: box.fill_(mark)] * (1 + WRITES))[1:]
    return box.numel() * box.element_size() / statistics.median(seconds) / 1e9


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
