"""`--device cpu`: what a script asks of "cuda" it gets on the CPU, so that its torch closures run without a GPU.

Tensors and modules go to the CPU whatever device they are sent to; events and streams are the host's clock; questions
about the device get an answer where a CPU has one.  Kernels of Triton, HIP and CUDA do not run: they raise as they do
on any machine without a GPU.
"""

from __future__ import annotations

import contextlib
import os
import time
from types import SimpleNamespace
from typing import Any

GPUS = ("cuda", "hip", "xpu")

RESETS = ("reset_peak_memory_stats", "reset_max_memory_allocated")
SIZES = ("max_memory_allocated", "memory_allocated", "memory_reserved", "max_memory_reserved")
"""Questions about memory: a CPU answers 0."""


class HostEvent:
    """torch.cuda.Event on the host's clock."""

    def __init__(self, *_: Any, **__: Any) -> None:
        self._s = 0.0

    def record(self, *_: Any) -> None:
        """Now."""
        self._s = time.perf_counter()

    def elapsed_time(self, other: HostEvent) -> float:
        """Milliseconds to another event; never 0, by which scripts divide."""
        return max((other._s - self._s) * 1e3, 1e-6)

    def query(self) -> bool:
        """Reached: nothing runs asynchronously."""
        return True

    def synchronize(self, *_: Any) -> None:
        """Nothing to wait for."""

    wait = synchronize


class HostStream:
    """torch.cuda.Stream, of which a CPU has none."""

    cuda_stream = 0

    def __init__(self, *_: Any, **__: Any) -> None: ...

    def synchronize(self, *_: Any) -> None:
        """Nothing to wait for."""

    wait_stream = wait_event = record_event = synchronize

    def __enter__(self) -> HostStream:
        return self

    def __exit__(self, *_: object) -> None: ...


class HostDevice(contextlib.nullcontext[None]):
    """torch.cuda.device: the one device there is."""

    def __init__(self, *_: Any) -> None:
        super().__init__()
        self.idx = 0


def of_torch(torch: Any) -> None:
    """Send everything to the CPU from now on."""
    _answer_for_the_device(torch)
    from torch.overrides import TorchFunctionMode

    class OnCpu(TorchFunctionMode):
        """Every call of torch: devices among its arguments become the CPU."""

        def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
            if func is torch.Tensor.cuda:
                return args[0]
            if func in (torch.Tensor.pin_memory, torch.Tensor.record_stream):
                return args[0]
            named = {key: _cpu(torch, one) if key == "device" else one for key, one in (kwargs or {}).items()}
            named.pop("pin_memory", None)
            moved = tuple(_cpu(torch, one) for one in args) if func is torch.Tensor.to else args
            return func(*moved, **named)

    OnCpu().__enter__()


def _cpu(torch: Any, value: Any) -> Any:
    if isinstance(value, torch.device) and value.type in GPUS:
        return torch.device("cpu")
    if isinstance(value, str) and value.partition(":")[0] in GPUS:
        return "cpu"
    return torch.device("cpu") if type(value) is int else value


def _answer_for_the_device(torch: Any) -> None:
    """The questions that scripts ask before they time; what no CPU can answer raises as without a GPU."""
    cuda = torch.cuda
    for name in ("synchronize", "empty_cache", "set_device", "init", "manual_seed", "manual_seed_all", *RESETS):
        _set(cuda, name, None)
    for name in ("current_device", *SIZES):
        _set(cuda, name, 0)
    cuda.is_available, cuda.device_count = _answering("is_available", True), _answering("device_count", 1)
    cuda.get_device_name = _answering("get_device_name", "CPU")
    cuda.get_device_capability = _answering("get_device_capability", (0, 0))
    cuda.get_device_properties = _answering("get_device_properties", _properties(torch))
    cuda._lazy_init = _answering("_lazy_init", None)
    cuda.Event, cuda.Stream = HostEvent, HostStream
    for name in ("current_stream", "default_stream"):
        setattr(cuda, name, _answering(name, HostStream()))
    cuda.stream = _answering("stream", contextlib.nullcontext())
    cuda.device = HostDevice
    torch.nn.Module.cuda = lambda self, *_, **__: self
    default = torch.set_default_device
    torch.set_default_device = lambda device: default(_cpu(torch, device))


def _set(cuda: Any, name: str, value: Any) -> None:
    """An answer, under both names that torch has for what concerns memory."""
    setattr(cuda, name, _answering(name, value))
    if hasattr(cuda.memory, name):
        setattr(cuda.memory, name, getattr(cuda, name))


def _properties(torch: Any) -> Any:
    """What scripts read of a device: a chip of no known generation with as many units as threads."""
    units = torch.get_num_threads()
    sizes = {"total_memory": os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES"), "L2_cache_size": 1 << 20}
    return SimpleNamespace(name="CPU", major=0, minor=0, multi_processor_count=units, gcnArchName="cpu", **sizes)


def _answering(name: str, value: Any) -> Any:
    """A function that gives this value; one for each name, because torch.compile keeps a rule for each."""

    def answer(*_: Any, **__: Any) -> Any:
        return value

    answer.__name__ = answer.__qualname__ = name
    return answer
