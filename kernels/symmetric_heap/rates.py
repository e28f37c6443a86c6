"""How fast each rank writes to each peer's heap, and whether what it writes arrives."""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable, Sequence

import torch

from kernels.symmetric_heap.heap import HeapError, SymmetricHeap
from kernels.symmetric_heap.meeting import gathered, together

PROBE_BYTES = 64 << 20
"""What one write moves: 1.3 ms over a link of 50 GB/s, and far more than what a launch costs at 400 GB/s."""

WRITES = 5
"""Timed writes to a peer, after one that is not timed; the median counts."""

Rates = tuple[tuple[float, ...], ...]
"""GB/s (1e9 bytes) by [from rank][to rank]; 0 on the diagonal."""


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


def in_words(rates: Rates) -> str:
    """ "378 GB/s to a peer (371 to 382)"."""
    links = [rate for source, row in enumerate(rates) for target, rate in enumerate(row) if source != target]
    return f"{typical(rates):.3g} GB/s to a peer ({min(links):.3g} to {max(links):.3g})" if links else "one rank"


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
