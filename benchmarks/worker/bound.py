"""What the harness calls to measure and to compare: held here before an operator is imported, and watched.

The clocks call the names of this module.  `replaced` says which of them, or of what they rest on, is another object
now than when this module was imported, by name.
"""

from __future__ import annotations

import builtins
import gc
import inspect
import os
import sys
import time
from collections.abc import Iterator, Mapping
from typing import Any, NamedTuple

import torch

perf_counter, monotonic, process_time = time.perf_counter, time.monotonic, time.process_time
pread: Any = os.pread
gc_enable, gc_disable, gc_isenabled = gc.enable, gc.disable, gc.isenabled
Event = torch.cuda.Event
record, query, elapsed_time = Event.record, Event.query, Event.elapsed_time
event_synchronize = Event.synchronize
synchronize, current_stream, set_stream = torch.cuda.synchronize, torch.cuda.current_stream, torch.cuda.set_stream
sleep_cycles: Any = torch.cuda._sleep
manual_seed = torch.manual_seed  # not watched: torch._dynamo, which torch.compile imports, puts another in its place
total: Any = torch.sum

_TENSOR = (
    *("copy_", "fill_", "zero_", "roll", "view", "reshape", "to", "cpu", "clone", "contiguous", "data_ptr", "numel"),
    *("sum", "all", "any", "abs", "max", "min", "item", "tolist", "double", "float", "int", "is_contiguous"),
    *("__eq__", "__ne__", "__sub__", "__add__", "__mul__", "__invert__", "__bool__", "__float__", "__int__"),
)
_TORCH = (
    *("sum", "equal", "allclose", "isclose", "isfinite", "isnan", "empty", "empty_like", "rand", "randn", "randint"),
    *("where", "stack", "promote_types", "Generator", "Tensor", "roll", "ones", "zeros", "full"),
)
_WATCHED: tuple[tuple[Any, str, tuple[str, ...]], ...] = (
    (
        time,
        "time",
        ("perf_counter", "perf_counter_ns", "monotonic", "monotonic_ns", "time", "time_ns", "process_time", "sleep"),
    ),
    (os, "os", ("pread",)),
    (gc, "gc", ("enable", "disable", "isenabled", "collect")),
    (builtins, "builtins", ("max", "min", "sum", "len", "all", "any", "abs", "sorted", "zip", "isinstance", "float")),
    (torch, "torch", _TORCH),
    (torch.linalg, "torch.linalg", ("vector_norm",)),
    (torch.testing, "torch.testing", ("assert_close",)),
    (torch.Tensor, "torch.Tensor", _TENSOR),
    (
        torch.cuda,
        "torch.cuda",
        ("Event", "Stream", "CUDAGraph", "graph", "synchronize", "current_stream", "set_stream", "stream", "_sleep"),
    ),
    (torch.cuda.Event, "torch.cuda.Event", ("__new__", "record", "wait", "query", "elapsed_time", "synchronize")),
    (torch.cuda.Stream, "torch.cuda.Stream", ("__new__", "wait_event", "wait_stream", "record_event", "synchronize")),
    (torch.cuda.CUDAGraph, "torch.cuda.CUDAGraph", ("__new__", "capture_begin", "capture_end", "replay")),
)
"""What clocks, graphs, random numbers and comparisons rest on: (owner, its name, attributes).

Patches of Event.elapsed_time, synchronize, perf_counter and the tests of equality have been published
(tests/benchmarks/exploits/exploits.py)."""

OURS = tuple(
    f"ridgeline.house.{name}"
    for name in ("benchmarks.worker.", "benchmarks.channel", "benchmarks.naming", "kernels.numerics")
)
"""Modules of the harness in a measuring process; all that they define is watched, from when they are loaded."""


class HeldObject(NamedTuple):
    """What was found under an attribute.  place: the live names among which it was; nearer: those that come first."""

    place: Mapping[str, Any]
    nearer: tuple[Mapping[str, Any], ...]
    attribute: str
    value: Any
    code: Any


class Originals:
    """Remembers objects by name, and says which are others now."""

    def __init__(self) -> None:
        self._held: dict[str, HeldObject] = {}
        self._orders: dict[type, tuple[str, tuple[type, ...]]] = {}
        for owner, prefix, names in _WATCHED:
            for name in names:
                self._hold(owner, prefix, name)

    def ours(self) -> None:
        """From now on, watch the modules of the harness that are loaded, too; call before foreign code is imported."""
        for module_name, module in list(sys.modules.items()):
            if module_name.startswith(OURS):
                for name, value in _defined(module):
                    self._hold(module, module_name, name)
                    for own in _methods(value):
                        self._hold(value, f"{module_name}.{name}", own)

    def replaced(self) -> list[str]:
        """Names of what is another object, or has another body, than when it was held.  Asked after every request."""
        found = [
            name
            for name, (place, nearer, attribute, value, code) in self._held.items()
            if place.get(attribute) is not value
            or (code is not None and value.__code__ is not code)
            or any(attribute in one for one in nearer)
        ]
        return found + [f"the bases of {name}" for one, (name, order) in self._orders.items() if one.__mro__ != order]

    def _hold(self, owner: Any, prefix: str, attribute: str) -> None:
        name, homes = f"{prefix}.{attribute}", [vars(home) for home in _homes(owner)]
        place = next((n for n, home in enumerate(homes) if attribute in home), None)
        if place is None or name in self._held:
            return
        value = homes[place][attribute]
        code = getattr(value, "__code__", None)
        self._held[name] = HeldObject(homes[place], tuple(homes[:place]), attribute, value, code)
        if isinstance(owner, type):
            self._orders.setdefault(owner, (prefix, owner.__mro__))


def _defined(module: Any) -> Iterator[tuple[str, Any]]:
    """Functions and classes that a module of ours has, also those that it imported."""
    for name, value in list(vars(module).items()):
        if isinstance(value, type) or inspect.isroutine(value):
            yield name, value


def _methods(value: Any) -> list[str]:
    return [name for name, own in vars(value).items() if inspect.isroutine(own)] if isinstance(value, type) else []


def _homes(owner: Any) -> tuple[Any, ...]:
    """Where a module or a class has its names, nearest first."""
    return owner.__mro__ if isinstance(owner, type) else (owner,)


WATCH = Originals()
