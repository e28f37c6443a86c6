"""Streams, events and graphs of the emulated device: what is launched is complete when the launch returns.

There are no times: an event knows none, and NaN is what lies between two.
"""

from __future__ import annotations

import contextlib
import math
from collections.abc import Callable, Iterator
from typing import Any

import torch

from . import backend
from .refusals import NotOnThisDevice


class Stream:
    """The device has one queue, by whatever name."""

    cuda_stream, stream_id, priority, device_index = 0, 0, 0, 0
    device = backend.DEVICE

    def __init__(self, device: Any = None, priority: int = 0, **kwargs: Any) -> None:
        self.priority = priority

    def synchronize(self) -> None:
        """Everything is complete."""

    def query(self) -> bool:
        """Everything is complete."""
        return True

    def is_capturing(self) -> bool:
        """Whether this thread captures a graph."""
        return getattr(backend.recorders, "graph", None) is not None

    def wait_event(self, event: Any) -> None:
        """It has happened."""

    def wait_stream(self, stream: Any) -> None:
        """It is idle."""

    def record_event(self, event: Any = None) -> Any:
        """An event that has happened."""
        return event or Event()

    def __enter__(self) -> Stream:
        return self

    def __exit__(self, *error: Any) -> None:
        pass


CURRENT = Stream()


class Event:
    """Something that has happened, at no time."""

    cuda_event, device = 0, backend.DEVICE

    def __init__(
        self, enable_timing: bool = False, blocking: bool = False, interprocess: bool = False, **_: Any
    ) -> None:
        self.enable_timing = enable_timing

    def record(self, stream: Any = None) -> None:
        """It has happened."""

    def wait(self, stream: Any = None) -> None:
        """It has happened."""

    def synchronize(self) -> None:
        """It has happened."""

    def query(self) -> bool:
        """It has happened."""
        return True

    def elapsed_time(self, end_event: Any) -> float:
        """NaN: an emulator takes no times."""
        return math.nan


class Graph:
    """What is done while it captures, done again by `replay`.

    While it captures, operations that make tensors are executed, so that their sizes are known; launches of kernels and
    operations that change memory are only noted, as on a GPU.
    """

    def __init__(self, keep_graph: bool = False) -> None:
        self._steps: list[Callable[[], Any]] = []

    def operation(self, schema: Any, func: Any, args: list[Any], kwargs: dict[str, Any]) -> Any:
        """Note an operation on the CPU's views, which `func` does; its result."""
        if schema.is_mutable:
            self._steps.append(lambda: func(*args, **kwargs))
            changed = [
                kwargs.get(argument.name, args[at] if at < len(args) else None)
                for at, argument in enumerate(schema.arguments)
                if argument.alias_info and argument.alias_info.is_write
            ]
            returns = len(schema.returns)
            return changed[0] if returns == 1 else tuple(changed[:returns])
        result = func(*args, **kwargs)
        made = [each for each in (result if isinstance(result, (tuple, list)) else [result]) if _is_new(each, args)]
        if made:
            self._steps.append(lambda: _copied(made, func(*args, **kwargs)))
        return result

    def launch(self, execute: Callable[[], Any]) -> None:
        """Note a launch of a kernel."""
        self._steps.append(execute)

    def capture_begin(self, *args: Any, **kwargs: Any) -> None:
        """Note what this thread does from here."""
        if getattr(backend.recorders, "graph", None) is not None:
            raise RuntimeError("a graph is being captured on this thread already")
        backend.recorders.graph, self._steps = self, []

    def capture_end(self) -> None:
        """Until here."""
        backend.recorders.graph = None

    def replay(self) -> None:
        """Do it all again, in the same memory."""
        for step in self._steps:
            step()

    def reset(self) -> None:
        """Forget it."""
        self._steps = []

    def pool(self) -> tuple[int, int]:
        """The id of its memory pool: that of none."""
        return (0, 0)

    def instantiate(self) -> None:
        """Nothing is left to do."""


def _is_new(result: Any, args: list[Any]) -> bool:
    """Whether an operation has made this tensor, and did not return a view of what was there."""
    if not isinstance(result, torch.Tensor):
        return False
    there = {each.untyped_storage()._cdata for each in _tensors(args)}
    return result.untyped_storage()._cdata not in there


def _tensors(values: Any) -> Iterator[torch.Tensor]:
    for value in values:
        if isinstance(value, torch.Tensor):
            yield value
        elif isinstance(value, (list, tuple)):
            yield from _tensors(value)


def _copied(made: list[torch.Tensor], result: Any) -> None:
    """The tensors of another run of the same operation into those of the first."""
    again = [each for each in (result if isinstance(result, (tuple, list)) else [result]) if torch.is_tensor(each)]
    for first, second in zip(made, again, strict=True):
        first.copy_(second)


@contextlib.contextmanager
def graph(cuda_graph: Graph, pool: Any = None, stream: Any = None, **_: Any) -> Iterator[None]:
    """torch.cuda.graph: capture what the block does."""
    cuda_graph.capture_begin()
    try:
        yield
    finally:
        cuda_graph.capture_end()


def make_graphed_callables(callables: Any, sample_args: Any, **_: Any) -> Any:
    """Refused: its callables have a backward pass that is a graph as well."""
    raise NotOnThisDevice("torch.cuda.make_graphed_callables is not emulated: call the functions as they are")
