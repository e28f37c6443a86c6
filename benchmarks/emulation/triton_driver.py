"""A driver for Triton whose launches are executed on this CPU: operators run as they are, on CPU tensors.

While it is active (`emulated`), `kernel[grid](...)` compiles for the target and executes its code object in the
memory of this process.  Other driver functions are not there.
"""

from __future__ import annotations

import contextlib
import ctypes
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from types import SimpleNamespace
from typing import Any

import numpy as np

from .. import naming
from . import code_object, launch
from .waves import Memory

Told = Callable[[launch.Execution], None]


@dataclass(frozen=True)
class Launch:
    """One launch: arguments are addresses in `memory` and numbers, in the kernel's order; watch as Machine has it."""

    code: code_object.KernelCode
    memory: Memory
    arguments: list[Any]
    grid: tuple[int, int, int]
    warps: int
    lds_bytes: int
    watch: Any = None

    def executed(self) -> launch.Execution:
        """Execute it alone, to its end."""
        arguments = launch.segment(self.code, self.arguments)
        shape = self.grid, self.warps, self.lds_bytes
        return launch.launch(self.code, self.memory, arguments, *shape, watch=self.watch)


class EmulatedDriver:
    """What Triton's runtime asks of a driver, for one target; `told` gets every launch."""

    def __init__(self, arch: str, told: Callable[[Launch], None]) -> None:
        from triton.backends.compiler import GPUTarget

        self.arch, self.told = arch, told
        self.watch: Any = None
        self._target = GPUTarget("hip", arch, 64)
        self.utils = SimpleNamespace(
            get_device_properties=lambda device: {"max_shared_mem": naming.our("kernels.hardware").lds_limit(arch)},
            load_binary=lambda name, kernel, shared, device: (None, kernel, 0, 0, 1024),
            unload_module=lambda module: None,
        )

    def get_current_target(self) -> Any:
        """The architecture compiled for."""
        return self._target

    def get_current_device(self) -> int:
        """One for each target, and another while launches are watched: Triton keeps compiled kernels and limits by the
        device's number, and what is watched is compiled with the lines of its source."""
        return list(code_object.TARGETS.values()).index(self.arch) + len(code_object.TARGETS) * bool(self.watch)

    def get_current_stream(self, device: int | None = None) -> int:
        """The default one: launches are complete when they return."""
        return 0

    def get_active_torch_device(self) -> Any:
        """Where tensors lie."""
        import torch

        return torch.device("cpu")

    def launcher_cls(self, source: Any, metadata: Any) -> Callable[..., None]:
        """What launches a compiled kernel: (grid, stream, code object, ..., arguments)."""
        kinds = list(source.signature.values())

        def run(x: int, y: int, z: int, stream: int, function: bytes, *rest: Any) -> None:
            values = [value for value, kind in zip(rest[-len(kinds) :], kinds, strict=True) if kind != "constexpr"]
            memory = Memory()
            arguments = [_argument(value, memory) for value in values]
            code, grid = code_object.read(function), (x, y, z)
            self.told(Launch(code, memory, arguments, grid, metadata.num_warps, metadata.shared, self.watch))

        return run


def _argument(value: Any, memory: Memory) -> Any:
    """A tensor's address, its storage made known to the memory; numbers as they are."""
    if not hasattr(value, "data_ptr"):
        return np.asarray(value if value is not None else 0)
    storage = value.untyped_storage()
    if storage.nbytes() and not memory.knows(storage.data_ptr()):
        contents = (ctypes.c_uint8 * storage.nbytes()).from_address(storage.data_ptr())
        memory.add(storage.data_ptr(), np.ctypeslib.as_array(contents), f"a tensor of {tuple(value.shape)}")
    return np.uint64(value.data_ptr())


@contextlib.contextmanager
def driving(arch: str, launched: Callable[[Launch], None]) -> Iterator[EmulatedDriver]:
    """Triton compiles for `arch` (gfx942 or gfx950) and gives its launches to `launched`, until the block ends."""
    from triton.runtime.driver import driver

    before = getattr(driver, "_active", None)
    active = EmulatedDriver(arch, launched)
    driver.set_active(active)
    try:
        yield active
    finally:
        driver._active = before


def emulated(arch: str, told: Told = lambda execution: None) -> contextlib.AbstractContextManager[EmulatedDriver]:
    """Triton's launches are executed for `arch` on this CPU, until the block ends; `told` gets what each did."""
    return driving(arch, lambda one: told(one.executed()))
