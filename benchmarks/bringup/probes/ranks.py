"""What the steps with several ranks share: the process group, the heap, and one answer for all."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from typing import Any

import torch
import torch.distributed as dist

from benchmarks.bringup.context import StepContext
from benchmarks.worker import probe
from benchmarks.worker.failures import first_line
from kernels import symmetric_heap


@contextlib.contextmanager
def group(context: StepContext) -> Iterator[None]:
    """The default process group of all ranks: RCCL or NCCL, gloo without a GPU.

    After an error it is left as it is: taking it down would wait for the others, and nobody would hear of the error.
    """
    if context.gpu:
        torch.cuda.set_device(torch.device(context.device))
    probe.make_process_group(context.rank, context.world, context.device, context.store)
    yield
    dist.destroy_process_group()


def heap_of(context: StepContext, size: int, home: str | None = None) -> tuple[Any, str]:
    """(symmetric heap, ""), or (None, why) on every rank as soon as one cannot make it.  home: None for `auto`."""
    heap, why = None, ""
    try:
        place = (context.rank, context.world, context.device)
        heap = symmetric_heap.create(*place, size, directory=context.heap_directory, home=home)
    except Exception as error:
        why = f"rank {context.rank}: {type(error).__name__}: {first_line(error)}"
    reasons = [reason for reason in gathered(why) if reason]
    return (None, reasons[0]) if reasons else (heap, "")


def gathered(value: Any) -> list[Any]:
    """The values of all ranks, in rank order, on every rank."""
    found: list[Any] = [None] * dist.get_world_size()
    dist.all_gather_object(found, value)
    return found


def synchronize(context: StepContext) -> None:
    """Wait for this rank's device."""
    if context.gpu:
        torch.cuda.synchronize(context.device)


def fewest(context: StepContext) -> int:
    """Lanes of a kernel that has one lane per rank: a power of two."""
    return max(2, 1 << (context.world - 1).bit_length())
