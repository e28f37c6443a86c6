"""Steps that every rank takes and any rank may fail in: all ranks learn of it, and none waits for one that gave up."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator
from typing import Any, TypeVar

import torch.distributed as dist

from kernels.symmetric_heap.heap import HeapError

Made = TypeVar("Made")


def need_process_group() -> None:
    """HeapError without the default process group."""
    if not dist.is_initialized():
        raise HeapError(
            "a symmetric heap on GPUs needs the default process group: call "
            "torch.distributed.init_process_group before, with a backend for the GPU"
        )


def gathered(value: Any) -> list[Any]:
    """What every rank gave, in rank order; a collective call over the default process group."""
    found: list[Any] = [None] * dist.get_world_size()
    dist.all_gather_object(found, value)
    return found


def together(step: Callable[[], Made]) -> Made:
    """What the step gave on this rank; HeapError with one text on all ranks if it raised HeapError on any.

    A collective call.
    """
    made, why = None, ""
    try:
        made = step()
    except HeapError as error:
        why = str(error)
    whys = gathered(why)
    failed = [rank for rank, text in enumerate(whys) if text]
    if failed:
        where = "" if len(failed) == len(whys) else f" (on rank {failed[0]} of {len(whys)})"
        raise HeapError(whys[failed[0]] + where)
    return made  # type: ignore[return-value]


@contextlib.contextmanager
def named(call: str, next_step: str) -> Iterator[None]:
    """Any failure inside becomes a HeapError that names the call, its error in one line, and what to do."""
    try:
        yield
    except HeapError:
        raise
    except Exception as error:
        text = (str(error).strip().splitlines() or ["no message"])[0]
        raise HeapError(f"{call} failed: {type(error).__name__}: {text}; {next_step}") from error
