"""A driver for Triton whose launches are executed on this CPU: operators run as they are, on CPU tensors.

While it is active (`emulated`), `kernel[grid](...)` compiles for the target and executes its code object in the
memory of this process.  Other driver functions are not there, which NotEmulated says.
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

WAVE, MAX_THREADS = 64, 1024
"""Lanes of a wave; threads of a workgroup."""


class NotEmulated(code_object.NotExecutable, AttributeError):
    """Something of a GPU's driver that an emulator does not have."""


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
            get_device_properties=self._properties,
            load_binary=lambda name, kernel, shared, device: (None, kernel, 0, 0, MAX_THREADS),
            unload_module=lambda module: None,
        )

    def __getattr__(self, name: str) -> Any:
        raise NotEmulated(f"an emulator of {self.arch} has no {name}() of a driver")

    def _properties(self, device: int) -> dict[str, int]:
        """What persistent kernels ask for, of the first product of the architecture."""
        hardware = naming.our("kernels.hardware")
        product = next(one for one in hardware.DEVICES if one.arch == self.arch)
        return {
            "max_shared_mem": hardware.lds_limit(self.arch),
            "multiprocessor_count": product.compute_units,
            "warpSize": WAVE,
            "max_num_regs": 512 * WAVE,
        }

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
    from triton.runtime.autotuner import Autotuner
    from triton.runtime.driver import driver

    before, times = getattr(driver, "_active", None), Autotuner._bench
    active = EmulatedDriver(arch, launched)
    driver.set_active(active)
    Autotuner._bench = _first_that_fits
    try:
        yield active
    finally:
        driver._active, Autotuner._bench = before, times


CHOSEN, LATER = [0.0] * 3, [float("inf")] * 3
"""In place of times of a configuration, which an emulator cannot take."""


def _first_that_fits(tuner: Any, *args: Any, config: Any, **meta: Any) -> list[float]:
    """In place of Autotuner._bench: the first configuration that compiles and fits the device is the fastest.

    Nothing is launched, and the configurations after it are not compiled.
    """
    from triton.compiler.errors import CompileTimeAssertionFailure
    from triton.runtime.errors import OutOfResources

    if getattr(tuner, "chosen_for", None) is tuner.nargs:  # a new dictionary in each run of the tuner
        return LATER
    arguments = {**meta, **config.all_kwargs()}
    if config.pre_hook:
        config.pre_hook({**tuner.nargs, **arguments})
    try:
        compiled = tuner.fn.run(*args, **{**arguments, "warmup": True})
        compiled._init_handles()
    except (OutOfResources, CompileTimeAssertionFailure):
        return LATER
    tuner.chosen_for = tuner.nargs
    return CHOSEN


def emulated(arch: str, told: Told = lambda execution: None) -> contextlib.AbstractContextManager[EmulatedDriver]:
    """Triton's launches are executed for `arch` on this CPU, until the block ends; `told` gets what each did."""
    return driving(arch, lambda one: told(one.executed()))
