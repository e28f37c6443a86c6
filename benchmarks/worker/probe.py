"""What a measuring process sees: its GPUs and its versions.  torch and triton may be absent."""

from __future__ import annotations

import os
import platform
import re
from typing import Any

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


def devices() -> list[dict[str, Any]]:
    """The GPUs torch sees, as JSON values; empty without a GPU or without torch."""
    try:
        import torch
    except Exception:
        return []
    if not torch.cuda.is_available():
        return []
    return [_device(torch, index) for index in range(torch.cuda.device_count())]


def _device(torch: Any, index: int) -> dict[str, Any]:
    properties = torch.cuda.get_device_properties(index)
    gcn = getattr(properties, "gcnArchName", "") if torch.version.hip else ""
    uuid = getattr(properties, "uuid", None)
    return {
        "index": index,
        "name": properties.name,
        "arch": gcn.split(":")[0] if gcn else f"sm_{properties.major}{properties.minor}",
        "compute_units": properties.multi_processor_count,
        "memory_bytes": properties.total_memory,
        "l2_bytes": getattr(properties, "L2_cache_size", None),
        "uuid": str(uuid) if uuid else None,
        "pci": _pci(properties),
    }


def _pci(properties: Any) -> str | None:
    """Bus address as sysfs writes it, "0000:1b:00.0"."""
    parts = [getattr(properties, name, None) for name in ("pci_domain_id", "pci_bus_id", "pci_device_id")]
    if any(not isinstance(part, int) for part in parts):
        return None
    return "{:04x}:{:02x}:{:02x}.0".format(*parts)


def environment() -> dict[str, Any]:
    """Versions that can change a time."""
    found: dict[str, Any] = {
        "python": platform.python_version(),
        "torch": None,
        "triton": None,
        "cuda": None,
        "hip": None,
        "nccl": None,
        "executable": None,
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
