"""Which home the heap of GPUs has, and the heap itself."""

from __future__ import annotations

import dataclasses
import os
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from kernels.symmetric_heap.heap import ALIGNMENT, HeapError, Memory, SymmetricHeap
from kernels.symmetric_heap.ipc_memory import IpcMemory
from kernels.symmetric_heap.meeting import gathered, need_process_group
from kernels.symmetric_heap.rates import PROBE_BYTES, Rates, in_words, probe, typical
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


@dataclasses.dataclass(frozen=True)
class HomeReport:
    """What was found out about a home.  why: why there is no heap in it, "" if there is.  rates: GB/s [from][to]."""

    home: str
    why: str = ""
    rates: Rates = ()

    def in_words(self) -> str:
        """For a person."""
        return f"{self.home}: {self.why or in_words(self.rates)}"


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
