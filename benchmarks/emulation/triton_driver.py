"""A driver for Triton whose launches are executed on this CPU: operators run as they are, on CPU tensors.

While it is active (`emulated`), `kernel[grid](...)` compiles for the target and executes its code object in the
memory of this process.  Other driver functions are not there, which NotEmulated says.
"""

from __future__ import annotations

import contextlib
import ctypes
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from types import SimpleNamespace
from typing import Any

import numpy as np

from .. import naming
from . import code_object, launch
from .waves import Memory

__tracebackhide__ = True  # pytest shows the program's frames alone

Told = Callable[[launch.Execution], None]

WAVE, MAX_THREADS = 64, 1024
"""Lanes of a wave; threads of a workgroup."""

HBM_BITS = 8192
"""Width of the bus to the HBM of MI300X and MI355X: eight stacks of 1024 bits, at two transfers a clock."""


class NotEmulated(code_object.NotExecutable, AttributeError):
    """Something of a GPU's driver that an emulator does not have."""


@dataclass(frozen=True)
class Launch:
    """One launch: arguments are addresses in `memory` and numbers, in the kernel's order; watch as Machine has it.

    configuration: what was compiled in, by name.  sizes: of what the kernel was given: dtypes and shapes, and numbers.
    """

    code: code_object.KernelCode
    memory: Memory
    arguments: list[Any]
    grid: tuple[int, int, int]
    warps: int
    lds_bytes: int
    watch: Any = None
    configuration: Mapping[str, Any] = field(default_factory=dict)
    sizes: tuple[str, ...] = ()

    def executed(self, sampled: bool = False) -> launch.Execution:
        """Execute it alone, to its end.  sampled: as of launch.launch."""
        arguments = launch.segment(self.code, self.arguments)
        shape = self.grid, self.warps, self.lds_bytes
        return launch.launch(self.code, self.memory, arguments, *shape, watch=self.watch, sampled=sampled)


class EmulatedDriver:
    """What Triton's runtime asks of a driver, for one target; `told` gets every launch.

    device: of torch, on which the tensors lie that kernels take.
    """

    def __init__(self, arch: str, told: Callable[[Launch], None], device: str = "cpu") -> None:
        from triton.backends.compiler import GPUTarget

        self.arch, self.told, self._device = arch, told, device
        self.watch: Any = None
        self._target = GPUTarget("hip", arch, 64)
        self.utils = SimpleNamespace(
            get_device_properties=self._properties, load_binary=_loaded, unload_module=lambda module: None
        )

    def __getattr__(self, name: str) -> Any:
        raise NotEmulated(f"an emulator of {self.arch} has no {name}() of a driver")

    def _properties(self, device: int) -> dict[str, Any]:
        """What Triton's HIP driver says of a device, of the first product of the architecture; clocks in kHz."""
        hardware = naming.our("kernels.hardware")
        product = next(one for one in hardware.DEVICES if one.arch == self.arch)
        return {
            "max_shared_mem": hardware.lds_limit(self.arch),
            "multiprocessor_count": product.compute_units,
            "warpSize": WAVE,
            "max_num_regs": product.vgpr_file_bytes // 8,  # 4 bytes each, without those of accumulation
            "max_threads_per_sm": product.waves_per_simd * product.simds * WAVE,
            "sm_clock_rate": 1000 * product.clock_mhz,
            "mem_clock_rate": round(product.hbm_bandwidth / (2 * HBM_BITS / 8) / 1000),
            "mem_bus_width": HBM_BITS,
            "arch": f"{self.arch}:sramecc+:xnack-",
            "cooperativeLaunch": 0,
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

        return torch.device(self._device)

    def get_device_interface(self) -> Any:
        """torch.cuda, or what there is for the CPU."""
        import torch

        return torch.get_device_module(self._device.partition(":")[0])

    @staticmethod
    def is_active() -> bool:
        """Whether Triton may choose it."""
        return True

    def set_current_device(self, device: int) -> None:
        """The only one is current."""

    def get_empty_cache_for_benchmark(self) -> Any:
        """What a timer overwrites between two calls: nothing is cached here."""
        import torch

        return torch.empty(0, dtype=torch.int, device=self._device)

    def clear_cache(self, cache: Any) -> None:
        """Nothing is cached."""

    def get_benchmarker(self) -> Any:
        """What times a call."""
        from triton.testing import do_bench

        return do_bench

    def map_python_to_cpp_type(self, kind: str) -> str:
        """As AMD's own driver names it."""
        from triton.backends.amd.driver import ty_to_cpp

        return str(ty_to_cpp(kind))

    def launcher_cls(self, source: Any, metadata: Any) -> Callable[..., None]:
        """What launches a compiled kernel: (grid, stream, code object, ..., arguments)."""
        kinds = list(source.signature.values())
        configuration = {**_constants(source), **_options(metadata)}

        def run(x: int, y: int, z: int, stream: int, function: bytes, *rest: Any) -> None:
            about, enter, leave = rest[1:AHEAD]
            given = rest[AHEAD : AHEAD + len(kinds)]
            if any(kind != "constexpr" for kind in kinds[len(given) :]):
                raise TypeError(f"{metadata.name} is given {len(given)} of its {len(kinds)} arguments")
            values = _flat(kinds[: len(given)], given)
            memory = Memory()
            arguments = [_argument(value, at, memory, self._device) for at, value in enumerate(values)]
            if x * y * z > 0:
                if enter is not None:
                    enter(about)
                code, shape = code_object.read(function), ((x, y, z), metadata.num_warps, metadata.shared)
                sizes = tuple(map(_size, values))
                self.told(Launch(code, memory, arguments, *shape, self.watch, configuration, sizes))
                if leave is not None:
                    leave(about)

        return run


def _loaded(name: str, kernel: bytes, shared: int, device: int) -> tuple[Any, ...]:
    """What a driver says of a loaded code object: its registers of a lane, words that it spills, threads."""
    registers = code_object.read(kernel).registers
    return None, kernel, registers["vgpr_count"], registers["vgpr_spill_count"], MAX_THREADS


AHEAD = 4
"""Before a kernel's arguments come metadata of it and of the launch, and two hooks; constants at their end may lack."""

OPTIONS = ("num_warps", "num_stages", "waves_per_eu", "matrix_instr_nonkdim", "kpack")
"""Compile-time options of AMD's backend that a configuration chooses."""


def _options(metadata: Any) -> dict[str, Any]:
    return {name: getattr(metadata, name) for name in OPTIONS if hasattr(metadata, name)}


def _constants(source: Any) -> dict[str, Any]:
    """Arguments that were compiled in, by name, as far as they are numbers and texts."""
    names = getattr(source.fn, "arg_names", ()) if hasattr(source, "fn") else ()
    found = {}
    for place, value in getattr(source, "constants", {}).items():
        at = place[0] if isinstance(place, tuple) and len(place) == 1 else place
        name = names[at] if isinstance(at, int) and at < len(names) else str(at)
        if isinstance(value, (bool, int, float, str)):
            found[name] = value
    return found


def _flat(kinds: Sequence[Any], values: Sequence[Any]) -> list[Any]:
    """The arguments that a kernel takes: without constants, tuples and tensor descriptors by their parts."""
    flat: list[Any] = []
    for kind, value in zip(kinds, values, strict=True):
        if isinstance(kind, tuple):
            flat += _flat(kind, tuple(value))
        elif str(kind).startswith("tensordesc"):
            from triton.backends.driver import decompose_descriptor

            flat += decompose_descriptor(value)
        elif kind != "constexpr":
            flat.append(value)
    return flat


def _size(value: Any) -> str:
    """bf16[128, 64] of a tensor, or the number itself."""
    if not hasattr(value, "data_ptr"):
        return str(value)
    return f"{str(value.dtype).removeprefix('torch.')}{list(getattr(value, 'shape', ()))}"


def _argument(value: Any, at: int, memory: Memory, device: str) -> Any:
    """A tensor's address, its storage made known to the memory; numbers as they are.

    ValueError as of Triton's own drivers, of a tensor that lies elsewhere.
    """
    if not hasattr(value, "data_ptr"):
        return np.asarray(value if value is not None else 0)
    tensor = getattr(value, "base", value)  # of what triton.reinterpret wraps
    if hasattr(tensor, "device"):  # else it is found by its address, when it is reached
        where = tensor.device.type
        if where != device.partition(":")[0] and not (where == "cpu" and tensor.is_pinned()):
            raise ValueError(f"Pointer argument (at {at}) cannot be accessed from Triton ({where} tensor?)")
        storage = tensor.untyped_storage()
        if storage.nbytes() and not memory.knows(storage.data_ptr()):
            memory.add(storage.data_ptr(), held_by(storage), f"a tensor of {tuple(tensor.shape)}")
    return np.uint64(value.data_ptr())


def held_by(storage: Any) -> Any:
    """Bytes of a storage, up to the end of a word as a GPU allocates: atomics of 2 bytes reach the word they are in."""
    return np.ctypeslib.as_array((ctypes.c_uint8 * (storage.nbytes() + 3 & -4)).from_address(storage.data_ptr()))


@contextlib.contextmanager
def driving(arch: str, launched: Callable[[Launch], None]) -> Iterator[EmulatedDriver]:
    """Triton compiles for `arch` (gfx942 or gfx950) and gives its launches to `launched`, until the block ends."""
    from triton.runtime.autotuner import Autotuner
    from triton.runtime.driver import driver

    before, times = getattr(driver, "_active", None), Autotuner._bench
    active = EmulatedDriver(arch, launched)
    driver.set_active(active)
    Autotuner._bench = first_that_fits
    try:
        yield active
    finally:
        driver._active, Autotuner._bench = before, times


CHOSEN, LATER = [0.0] * 3, [float("inf")] * 3
"""In place of times of a configuration, which an emulator cannot take."""


def first_that_fits(tuner: Any, *args: Any, config: Any, **meta: Any) -> list[float]:
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
