"""What code an arm launched: a digest that is equal for equal code objects launched in the same way.

It covers every Triton launch (assembly without debug information, shared memory, warps, grid, scalar arguments) and
every torch operation (name, shapes, types) of one call, in order.  Addresses do not count.  Without a Triton launch
there is no digest: a vendor library's choice of kernel cannot be seen from here.  Nor is there one in a process that
has another compiler of kernels, whose launches nobody sees.
"""

from __future__ import annotations

import contextlib
import hashlib
import inspect
import json
import re
import sys
import time
from collections.abc import Iterator
from typing import Any

import torch
from torch.overrides import TorchFunctionMode

LAUNCHERS = (
    *("cupy", "pycuda", "numba.cuda", "pyopencl", "hip", "tinygrad", "tilelang", "tvm", "warp", "taichi", "cutlass"),
    *("flydsl", "jax", "mojo", "cuda.core", "cuda.tile"),
)
"""Packages that compile and launch kernels by themselves (2026-11)."""

ADDRESS = 1 << 32
"""An integer argument of at least this is taken to be an address, which differs from process to process."""

DESCRIBES = ("shape", "strides", "block_shape")
"""What a tensor descriptor of Triton says of its tensor."""

_DEBUG = re.compile(r"^\s*\.(file|loc|ident|cfi\w*)\b|^\$L__(tmp|func_begin|func_end)\d+:")
"""Lines that say where code comes from, and labels that only these name."""

_COMMENT = {"ptx": "//", "amdgcn": ";"}
"""What starts a comment, by kind of assembly.  In PTX a semicolon ends a statement."""


class Trace:
    """Launches and operations of one call, in order, as JSON values.  kernels: names, by what stands for their code."""

    def __init__(self) -> None:
        self.events: list[Any] = []
        self.kernels: dict[str, str] = {}
        self.launches = 0

    def digest(self) -> str | None:
        """16 hex digits; None if no Triton kernel was launched, or others may have been that were not seen."""
        if not self.launches or any(name in sys.modules for name in LAUNCHERS):
            return None
        return hashlib.sha256(json.dumps(self.events, sort_keys=True).encode()).hexdigest()[:16]


@contextlib.contextmanager
def traced(operations: bool = True) -> Iterator[Trace]:
    """Record what is launched inside.  operations: and what Python asks of torch, for which torch.compile would compile
    everything anew.
    """
    trace = Trace()
    with _triton_launches(trace), _Operations(trace) if operations else contextlib.nullcontext():
        yield trace


class _Operations(TorchFunctionMode):
    """Sees what Python asks of torch.  (A dispatch mode would see more, but takes a second to import.)"""

    def __init__(self, trace: Trace) -> None:
        super().__init__()
        self._trace = trace

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        name = getattr(func, "__qualname__", None) or getattr(func, "__name__", type(func).__name__)
        self._trace.events.append(
            [name, [value_of(a) for a in args], {k: value_of(v) for k, v in (kwargs or {}).items()}]
        )
        return func(*args, **(kwargs or {}))


@contextlib.contextmanager
def _triton_launches(trace: Trace) -> Iterator[None]:
    """Every launch of Triton 3.x asks the kernel for its launch metadata, hooks or not: we record it there."""
    if "triton" not in sys.modules:  # without it nothing is launched; importing it takes a second
        yield
        return
    from triton.compiler import CompiledKernel

    original = CompiledKernel.launch_metadata

    def recording(self: Any, grid: Any, stream: Any, *args: Any) -> Any:
        trace.launches += 1
        code = code_of(self)
        trace.kernels[code] = str(getattr(self, "name", "of Triton"))
        trace.events.append([code, [value_of(g) for g in grid], [value_of(a) for a in args]])
        return original(self, grid, stream, *args)

    with in_place_of(CompiledKernel, "launch_metadata", recording):
        yield


@contextlib.contextmanager
def in_place_of(owner: Any, name: str, method: Any) -> Iterator[None]:
    """Have a method of a class be another one inside."""
    original = getattr(owner, name)
    setattr(owner, name, method)
    try:
        yield
    finally:
        setattr(owner, name, original)


@contextlib.contextmanager
def compiling() -> Iterator[list[float]]:
    """The seconds that Triton takes inside to compile, to load from its cache, and to make launchers."""
    seconds: list[float] = []
    with contextlib.ExitStack() as stack:
        for module, owner, name in (
            ("triton.runtime.jit", "JITFunction", "_do_compile"),
            ("triton.compiler.compiler", "CompiledKernel", "_init_handles"),
        ):
            found = getattr(sys.modules.get(module), owner, None)
            if hasattr(found, name):
                stack.enter_context(in_place_of(found, name, _timing(getattr(found, name), seconds)))
        yield seconds


def _timing(original: Any, seconds: list[float]) -> Any:
    """A method that collects the seconds of its calls."""

    def timing(self: Any, *args: Any, **kwargs: Any) -> Any:
        start = time.perf_counter()
        try:
            return original(self, *args, **kwargs)
        finally:
            seconds.append(time.perf_counter() - start)

    return timing


def code_of(kernel: Any) -> str:
    """Digest of a compiled kernel: its assembly, or its binary, and what the launcher takes from its metadata."""
    kind = next((kind for kind in _COMMENT if kind in kernel.asm), None)
    body = normalised(kernel.asm[kind], kind).encode() if kind else bytes(kernel.kernel)
    launch = [getattr(kernel.metadata, name, None) for name in ("num_warps", "shared", "cluster_dims", "num_ctas")]
    return hashlib.sha256(body + repr(launch).encode()).hexdigest()


def normalised(assembly: str, kind: str) -> str:
    """Assembly without comments, debug sections and line information."""
    code = re.split(r"^\s*\.section\s+\"?\.debug", assembly, maxsplit=1, flags=re.MULTILINE)[0]
    bare = (line.split(_COMMENT[kind])[0].rstrip() for line in code.splitlines() if not _DEBUG.match(line))
    return "\n".join(line for line in bare if line)


def value_of(value: Any) -> Any:
    """An argument without addresses."""
    if isinstance(value, torch.Tensor):
        return [str(value.dtype), list(value.shape), list(value.stride())]
    if isinstance(value, bool) or value is None or isinstance(value, (float, str)):
        return repr(value)
    if isinstance(value, int):
        return "address" if abs(value) >= ADDRESS else value
    if isinstance(value, (tuple, list)):
        return [value_of(item) for item in value]
    held = {part: inspect.getattr_static(value, part, None) for part in DESCRIBES}
    if held["block_shape"] is not None:  # a tensor descriptor; getattr would run code of an object that answers for all
        return [type(value).__name__, *map(value_of, held.values())]
    return type(value).__name__
