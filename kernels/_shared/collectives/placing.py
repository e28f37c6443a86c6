"""What a collective needs of the place where it runs, checked before anything is launched."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import torch

from kernels._shared.collectives.cases import DTYPES, total_bytes
from kernels._shared.triton_needed import launcher
from kernels.spec import Case, Unsupported
from kernels.symmetric_heap import HeapError, LoneHeap, SymmetricHeap


def heap_of(case: Case) -> Any:
    """The symmetric heap of the case's ranks; Unsupported without one, with the number of GPUs of this machine.

    One rank alone needs none: it gets plain memory of its device.
    """
    heap = case.place.heap
    if heap is None and case.world == 1:
        return LoneHeap(case.place.device)
    if heap is None or heap.world != case.world:
        gpus = torch.cuda.device_count() if torch.cuda.is_available() else 0
        raise Unsupported(
            f"{case.world} ranks with a symmetric heap are needed (kernels.symmetric_heap.create); "
            f"there is {'none' if heap is None else f'one of {heap.world}'}, and this machine has "
            f"{gpus} GPU{'' if gpus == 1 else 's'}"
        )
    return heap


def on_heap(heap: SymmetricHeap, given: torch.Tensor) -> torch.Tensor:
    """`given` if it lies on the symmetric heap, where peers can read it; else a copy there, made once, now."""
    try:
        heap.peer(heap.rank, given)
    except HeapError:
        return heap.alloc(given.shape, given.dtype).copy_(given)
    return given


def accept(case: Case, dtypes: Sequence[str]) -> None:
    """Unsupported unless the dtype is one of these."""
    if case.dtype not in dtypes:
        raise Unsupported(f"dtype {case.dtype} is not supported, only {', '.join(dtypes)}")


def need_group(case: Case) -> None:
    """Unsupported unless there is a process group for the library's collectives."""
    if not torch.distributed.is_initialized():
        raise Unsupported(
            "the process group is not initialised; torch.distributed.init_process_group is needed "
            f"with {case.world} ranks"
        )


def only_on_cpu(case: Case) -> None:
    """Unsupported on a GPU: plain copies by the host are for machines without one."""
    if case.place.device != "cpu":
        raise Unsupported("plain copies and a barrier are timed on a CPU only; on a GPU use triton or the baseline")


def collective_launcher(case: Case, load: Callable[[], Any]) -> Any:
    """The module that launches a collective operator, imported by `load`, after all refusals that need no GPU."""
    accept(case, DTYPES)
    total_bytes(case)
    return launcher(case, load)
