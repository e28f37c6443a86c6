"""What a measuring process sees, its GPUs and its versions, and where it runs.  torch and triton may be absent."""

from __future__ import annotations

import ctypes
import os
import platform
import re
from typing import Any

from ..shapes import JsonObject

VARIABLES = (
    "RIDGELINE_HEAP",
    "RIDGELINE_IPC_",
    "NCCL_",
    "RCCL_",
    "HSA_",
    "HIP_",
    "ROCR_",
    "CUDA_",
    "TRITON_",
    "TORCH_",
    "PYTORCH_",
    "OMP_",
    "MKL_",
    "GPU_",
    "AMD_",
    "HIPBLASLT_",
    "ROCBLAS_",
    "TENSILE_",
    "ROCM_",  # ROCM_ALLOW_GROUP_GEMM_CK: what torch._grouped_mm runs on AMD
    "AITER_",
    "FLYDSL_",
    "MXFP4_",  # aiter's switches of its FP4 kernels
    "PRIMUS_TURBO_",
)
"""Environment variables with these prefixes can change a time; they are recorded."""

PRIVATE = re.compile(r"KEY|TOKEN|SECRET|PASSW|CREDENTIAL|DIR|PATH|HOME|FILE|HOST")
"""Variables with such names are not recorded: secrets, and paths or hosts that identify people."""


def devices() -> list[JsonObject]:
    """The GPUs torch sees, as JSON values; empty without a GPU or without torch."""
    try:
        import torch
    except Exception:
        return []
    if not torch.cuda.is_available():
        return []
    return [_device(torch, index) for index in range(torch.cuda.device_count())]


def _device(torch: Any, index: int) -> JsonObject:
    properties = torch.cuda.get_device_properties(index)
    gcn = getattr(properties, "gcnArchName", "") if torch.version.hip else ""
    return {
        "index": index,
        "name": properties.name,
        "arch": gcn.split(":")[0] if gcn else f"sm_{properties.major}{properties.minor}",
        "compute_units": properties.multi_processor_count,
        "memory_bytes": properties.total_memory,
        "l2_bytes": getattr(properties, "L2_cache_size", None),
        "pci": _pci(properties),
    }


def _pci(properties: Any) -> str | None:
    """Bus address as sysfs writes it, "0000:1b:00.0"."""
    parts = [getattr(properties, name, None) for name in ("pci_domain_id", "pci_bus_id", "pci_device_id")]
    if any(not isinstance(part, int) for part in parts):
        return None
    return "{:04x}:{:02x}:{:02x}.0".format(*parts)


def environment() -> JsonObject:
    """Versions that can change a time."""
    found: JsonObject = {
        "python": platform.python_version(),
        **dict.fromkeys(("torch", "triton", "cuda", "hip", "nccl", "executable")),
        "variables": _variables(),
    }
    try:
        import torch

        found.update(torch=str(torch.__version__), cuda=torch.version.cuda, hip=torch.version.hip, nccl=_nccl(torch))
    except Exception as error:
        found["torch_missing"] = f"{type(error).__name__}: {error}"
    try:
        import triton

        found["triton"] = str(triton.__version__)
    except Exception as error:
        found["triton_missing"] = f"{type(error).__name__}: {error}"
    return found


def _nccl(torch: Any) -> str | None:
    if not torch.cuda.is_available():
        return None
    try:
        return ".".join(str(part) for part in torch.cuda.nccl.version())
    except Exception:
        return None


def _variables() -> dict[str, str]:
    return {
        name: value
        for name, value in sorted(os.environ.items())
        if name.startswith(VARIABLES) and not PRIVATE.search(name)
    }


# A measuring process on a core: what makes equal code take equal time on a machine that others use too.
#
# Two things made it differ by factors from process to process (2 shared cores, load 4; a product of 384 x 384 and a
# layer norm of 4 MB; 2026-11-23):
#
# * Threads that wait for each other. With one to a core, a call lasts until the scheduler has run all of them: 0.6 ms
#   or 16 ms, a time slice. A process has one thread, on one core, the same for both sides, which work in turn.
# * Page faults.  glibc gives blocks beyond a threshold back to the system, and moves the threshold by what was freed
#   before: a call that makes a tensor of 4 MB took 0 or 1100 faults, 0.7 ms or 3.1 ms of CPU time.  Memory is kept.
#
# What is left is 3 to 8 %: where code and data lie. The time in which the core ran somebody else is no part of a
# sample (clocks.HostClock).


M_TRIM_THRESHOLD, M_MMAP_MAX = -1, -4
"""Parameters of mallopt(3), malloc.h of glibc."""

NEVER = 2**31 - 1


def settle_on(core: int | None) -> None:
    """Have this process run on one core, and keep its memory; nothing where there is none to name (a GPU is timed)."""
    if core is None:
        return
    if hasattr(os, "sched_setaffinity"):
        os.sched_setaffinity(0, {core})
    libc = ctypes.CDLL(None)
    if hasattr(libc, "mallopt"):
        libc.mallopt(M_MMAP_MAX, 0)
        libc.mallopt(M_TRIM_THRESHOLD, NEVER)


def make_process_group(rank: int, world: int, device: str, store: str) -> None:
    """Of a worker's ranks, over a store of its own (a file): RCCL or NCCL for "cuda:0", gloo for "cpu"; unconnected."""
    import torch
    import torch.distributed as dist

    gpu = device != "cpu"
    dist.init_process_group(
        "nccl" if gpu else "gloo",
        store=dist.FileStore(store, world),
        rank=rank,
        world_size=world,
        device_id=torch.device(device) if gpu else None,
    )
