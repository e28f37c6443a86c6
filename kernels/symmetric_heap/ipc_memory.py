"""The home `ipc`: memory of the GPU's runtime that every rank maps by an IPC handle, with a barrier of its own.

What torch does not offer of the runtime is called here: memory with flags, and IPC handles.  HIP and CUDA have the
same functions under two prefixes.  The library is the very file that torch has loaded: a second copy, found by name,
would not know torch's devices and streams.

**Which memory (HIP).**  hipMalloc gives coarse-grained memory, which is up to date for others only after a kernel has
ended ("Coherence control", rocm.docs.amd.com HIP 7.2.2); our kernels read what peers store while they run.  What
others do: ROCm/iris allocated all its memory with hipDeviceMallocFinegrained (csrc/finegrained_alloc, 3b4c197 of
2025-07-14; today torch's memory over DMA-BUF).  AMD-AGI/Primus-Turbo takes hipMalloc for data, and
hipDeviceMallocUncached where a running kernel reads what peers push, because a cached line was seen to go stale
(primus_turbo/pytorch/core/symm_mem.py, a6a16cd of 2026-08-21).  ROCm/rocSHMEM takes fine-grained memory for what it
polls (ROBackend::ro_net_device_uc_malloc).  openxla/xla counts on coarse-grained memory on gfx942 and gfx950 and
refuses gfx90a (pull request 48069, 2026-08).  Fine-grained is what HIP promises to be coherent within a kernel and is
the default here; RIDGELINE_IPC_MEMORY takes another kind, to find out on a machine what it costs.
"""

from __future__ import annotations

import contextlib
import ctypes
import os
import re
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import Any, TypeVar

import torch

from kernels.symmetric_heap.heap import HeapError
from kernels.symmetric_heap.meeting import gathered, named, need_process_group, together

HEADER = 4096
"""Bytes in front of a heap: the barrier's flags, int32[world]."""

GRANULE = 2 << 20
"""Bytes; sizes are rounded up to it, so that no other allocation shares a 2 MiB page that is handed to other
processes."""

Made = TypeVar("Made")


class IpcMemory:
    """Heaps that the ranks have opened from each other.

    runtime: that of the GPU unless given; a test has one of files, for device "cpu", where the barrier is interpreted.
    """

    home = "ipc"

    def __init__(self, rank: int, world: int, device: str, size: int, runtime: GpuRuntime | None = None) -> None:
        need_process_group()
        self.device, self._rank, self._size = device, rank, size
        self._starts: list[int] = [0] * world
        self._runtime = runtime or together(loaded)
        handles = gathered(self._step(self._allocate))
        self._step(lambda: self._open(handles))
        self.bases = [start + HEADER for start in self._starts]
        self._step(self._make_barrier)
        self.barrier()  # compiles its kernel now: in a captured graph it could not

    def _step(self, step: Callable[[], Made]) -> Made:
        """A step of all ranks; what was made before is given back if it fails."""
        try:
            with self._current():
                return together(step)
        except HeapError:
            self._release()
            raise

    def _current(self) -> contextlib.AbstractContextManager[object]:
        """This rank's device is the current one: the runtime allocates and maps there."""
        return contextlib.nullcontext() if self.device == "cpu" else torch.cuda.device(torch.device(self.device))

    def _synchronize(self) -> None:
        if self.device != "cpu":
            torch.cuda.synchronize(self.device)

    def _allocate(self) -> bytes:
        size = -(-(HEADER + self._size) // GRANULE) * GRANULE
        self._starts[self._rank] = self._runtime.allocate(size, kind())
        return self._runtime.handle(self._starts[self._rank])

    def _open(self, handles: list[bytes]) -> None:
        for peer, handle in enumerate(handles):
            if peer != self._rank:
                self._starts[peer] = self._runtime.open(handle)

    def _make_barrier(self) -> None:
        """The flags, zero on this rank before any rank goes on to its first barrier, and the kernel that uses them."""
        with named(
            "importing the barrier's kernel", "install triton 3.6 or later, or the other home: RIDGELINE_HEAP=torch"
        ):
            from kernels.symmetric_heap.flags import barrier
        self._launch = barrier
        with named("zeroing the barrier's flags", "see the driver's log"):
            self._flags = self._bytes(self._starts[self._rank], HEADER).zero_().view(torch.int32)
            self._bases = torch.tensor(self.bases, dtype=torch.int64, device=self.device)
            self._synchronize()

    def _bytes(self, address: int, size: int) -> torch.Tensor:
        """Memory at an address as uint8[size], by this device: who asks the runtime is told of the owner's."""
        storage = torch._C._construct_storage_from_data_pointer(address, torch.device(self.device), size)
        return torch.empty(0, dtype=torch.uint8, device=self.device).set_(storage, 0, (size,), (1,))

    def view(self, rank: int) -> torch.Tensor:
        return self._bytes(self.bases[rank], self._size)

    def reserve(self, start: int, size: int) -> None:
        """Nothing to do: device memory is there from the start."""

    def barrier(self) -> None:
        self._launch(self._flags, self._bases, self._rank, len(self.bases))

    def close(self) -> None:
        """Unmap the peers' heaps; this rank's own is freed when all have done so."""
        self._synchronize()
        with self._current():
            self._close_peers()
            gathered(None)
            self._release()

    def _close_peers(self) -> None:
        for peer, start in enumerate(self._starts):
            if start and peer != self._rank:
                self._starts[peer] = 0
                self._runtime.close(start)

    def _release(self) -> None:
        """Give back what this rank holds."""
        self._close_peers()
        start, self._starts[self._rank] = self._starts[self._rank], 0
        if start:
            self._runtime.free(start)


KINDS: Mapping[str, int] = {"fine": 0x1, "coarse": 0x0, "uncached": 0x3}
"""Flags of hipExtMallocWithFlags: hipDeviceMallocFinegrained, hipDeviceMallocDefault, hipDeviceMallocUncached
(hip_runtime_api.h of ROCm 7).  CUDA has one kind."""

KIND_VARIABLE = "RIDGELINE_IPC_MEMORY"

LAZY_PEER_ACCESS = 1
"""cudaIpcMemLazyEnablePeerAccess, hipIpcMemLazyEnablePeerAccess: the one flag that opening a handle has."""

LIBRARY = re.compile(r"(/\S*/(libamdhip64|libcudart)[^/\s]*\.so\S*)")
"""The runtime's library in a line of /proc/self/maps."""

NEXT_STEPS = {
    "Malloc": "free memory on this GPU, or take smaller cases",
    "ExtMallocWithFlags": f"free memory on this GPU, or try {KIND_VARIABLE}=coarse",
    "IpcGetMemHandle": "take the other home: RIDGELINE_HEAP=torch",
    "IpcOpenMemHandle": "all GPUs must be visible to every rank and reach each other (rocm-smi --showtopoaccess, "
    "nvidia-smi topo -p2p w), and a container needs --ipc=host; or take the other home: RIDGELINE_HEAP=torch",
}
"""What to do about a call that failed."""


class IpcHandle(ctypes.Structure):
    """cudaIpcMemHandle_t and hipIpcMemHandle_t: 64 bytes."""

    _fields_ = [("reserved", ctypes.c_char * 64)]


class GpuRuntime:
    """Calls of one runtime library; a call that fails is a HeapError with its name, its error and what to do."""

    def __init__(self, library: Any, prefix: str) -> None:
        self._library, self.prefix = library, prefix

    def allocate(self, size: int, kind: str) -> int:
        """Address of new memory on the current device; kind: of KINDS, for HIP."""
        pointer = ctypes.c_void_p()
        if self.prefix == "hip":
            flags = ctypes.c_uint(KINDS[kind])
            self._call("ExtMallocWithFlags", ctypes.byref(pointer), ctypes.c_size_t(size), flags)
        else:
            self._call("Malloc", ctypes.byref(pointer), ctypes.c_size_t(size))
        return int(pointer.value or 0)

    def free(self, address: int) -> None:
        """Give memory of allocate back."""
        self._call("Free", ctypes.c_void_p(address))

    def handle(self, address: int) -> bytes:
        """The IPC handle of memory of allocate, for other processes."""
        handle = IpcHandle()
        self._call("IpcGetMemHandle", ctypes.byref(handle), ctypes.c_void_p(address))
        return bytes(handle)

    def open(self, handle: bytes) -> int:
        """The address, in this process, of another process's memory."""
        pointer = ctypes.c_void_p()
        flags = ctypes.c_uint(LAZY_PEER_ACCESS)
        self._call("IpcOpenMemHandle", ctypes.byref(pointer), IpcHandle.from_buffer_copy(handle), flags)
        return int(pointer.value or 0)

    def close(self, address: int) -> None:
        """Unmap what open has mapped."""
        self._call("IpcCloseMemHandle", ctypes.c_void_p(address))

    def _call(self, name: str, *arguments: Any) -> None:
        code = self._function(name)(*arguments)
        if code:
            self._function("GetLastError")()  # else torch's next launch would report it
            said = self._function("GetErrorString")
            said.restype = ctypes.c_char_p
            text = (said(code) or b"unknown error").decode(errors="replace")
            step = NEXT_STEPS.get(name, "restart the processes")
            raise HeapError(f"{self.prefix}{name} failed: {text} (error {code}); {step}")

    def _function(self, name: str) -> Any:
        try:
            return getattr(self._library, self.prefix + name)
        except AttributeError:
            raise HeapError(
                f"the GPU's runtime has no function {self.prefix}{name}; update CUDA or ROCm, or take the other home: "
                "RIDGELINE_HEAP=torch"
            ) from None


def loaded(maps: Path = Path("/proc/self/maps")) -> GpuRuntime:
    """The runtime that torch has loaded into this process."""
    path = library_in(maps.read_text().splitlines())
    return GpuRuntime(ctypes.CDLL(path), "hip" if "libamdhip64" in path else "cuda")


def library_in(lines: Iterable[str]) -> str:
    """Path of the runtime's library among the mapped files of a process; of two copies, that in torch's folder."""
    found: dict[str, str] = {}
    for match in filter(None, map(LIBRARY.search, lines)):
        if match[2] not in found or "/torch/" in match[1]:
            found[match[2]] = match[1]
    for name in ("libamdhip64", "libcudart"):
        if name in found:
            return found[name]
    raise HeapError("no libamdhip64 or libcudart is loaded into this process: this torch is no GPU build")


def kind() -> str:
    """The kind of memory that KIND_VARIABLE asks for; HeapError names the allowed ones."""
    asked = os.environ.get(KIND_VARIABLE, "fine")
    if asked not in KINDS:
        raise HeapError(f"{KIND_VARIABLE}={asked!r} is not one of {', '.join(KINDS)}")
    return asked
