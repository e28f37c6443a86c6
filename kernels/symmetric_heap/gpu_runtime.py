"""The few calls of the GPU's runtime that torch does not offer: memory with flags, and IPC handles.

HIP and CUDA have the same functions under two prefixes.  The library is the very file that torch has loaded: a second
copy, found by name, would not know torch's devices and streams.

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

import ctypes
import os
import re
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

from kernels.symmetric_heap.heap import HeapError

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
