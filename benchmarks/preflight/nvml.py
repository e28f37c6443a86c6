"""GPUs of NVIDIA, through nvidia-ml-py.  What a driver does not report is None."""

from __future__ import annotations

import importlib
import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from benchmarks.preflight.drivers import asked
from benchmarks.preflight.types import GpuFacts

MOST_LINKS = 18
"""NVLinks of one GPU (NVML_NVLINK_MAX_LINKS, nvml.h of CUDA 12 and 13)."""
UNCORRECTED, CORRECTED, VOLATILE = 1, 0, 0
"""NVML_MEMORY_ERROR_TYPE_*, NVML_VOLATILE_ECC: since the driver was loaded (nvml.h)."""
SM = 1
"""NVML_CLOCK_SM (nvml.h)."""


def read() -> Iterator[GpuFacts]:
    """Every GPU that NVML shows; raises what NVML raises if there is none."""
    nvml = importlib.import_module("pynvml")
    nvml.nvmlInit()
    return iter([_gpu(nvml, nvml.nvmlDeviceGetHandleByIndex(index)) for index in range(nvml.nvmlDeviceGetCount())])


def _gpu(nvml: Any, handle: Any) -> GpuFacts:
    pci = nvml.nvmlDeviceGetPciInfo(handle)
    states = [asked(nvml, "nvmlDeviceGetNvLinkState", handle, index) for index in range(MOST_LINKS)]
    links = [state for state in states if state is not None]
    retiring = asked(nvml, "nvmlDeviceGetRetiredPagesPendingStatus", handle)
    remapped = asked(nvml, "nvmlDeviceGetRemappedRows", handle)
    return GpuFacts(
        address=address(_text(pci.busId)),
        name=_text(asked(nvml, "nvmlDeviceGetName", handle)),
        chip_id=f"{pci.pciDeviceId >> 16:04x}",
        compute="MIG" if (asked(nvml, "nvmlDeviceGetMigMode", handle) or [0])[0] else "",
        power_cap_w=_watts(asked(nvml, "nvmlDeviceGetPowerManagementLimit", handle)),
        power_default_w=_watts(asked(nvml, "nvmlDeviceGetPowerManagementDefaultLimit", handle)),
        max_clock_mhz=asked(nvml, "nvmlDeviceGetMaxClockInfo", handle, SM),
        corrected=asked(nvml, "nvmlDeviceGetTotalEccErrors", handle, CORRECTED, VOLATILE),
        uncorrected=asked(nvml, "nvmlDeviceGetTotalEccErrors", handle, UNCORRECTED, VOLATILE),
        bad_pages=_pending(retiring, remapped),
        links=len(links) if links else None,
        links_down=links.count(0) if links else None,
        used_bytes=getattr(asked(nvml, "nvmlDeviceGetMemoryInfo", handle), "used", None),
        busy_percent=getattr(asked(nvml, "nvmlDeviceGetUtilizationRates", handle), "gpu", None),
        processes=_processes(asked(nvml, "nvmlDeviceGetComputeRunningProcesses", handle)),
    )


def address(text: str) -> str:
    """As the kernel writes it: "00000000:C1:00.0" is "0000:c1:00.0"."""
    domain, _, rest = text.lower().partition(":")
    return f"{domain[-4:].rjust(4, '0')}:{rest}"


def _pending(retiring: Any, remapped: Any) -> int | None:
    """Pages that wait for a reset: retirement before Ampere, row remapping since; 1 stands for any number."""
    rows = None if remapped is None else int(bool(remapped[2]) or bool(remapped[3]))
    return rows if rows is not None else None if retiring is None else int(bool(retiring))


def _processes(running: Any) -> tuple[str, ...] | None:
    return None if running is None else named(int(one.pid) for one in running)


def named(pids: Any, root: Path = Path("/")) -> tuple[str, ...]:
    """ "python (pid 7)" for each process that is not this one."""
    return tuple(f"{_command(root, pid)} (pid {pid})" for pid in sorted(set(pids)) if pid != os.getpid())


def _command(root: Path, pid: int) -> str:
    try:
        return (root / f"proc/{pid}/comm").read_text(errors="replace").strip()
    except OSError:
        return "process of another container"


def _watts(milliwatts: Any) -> float | None:
    return None if milliwatts is None else round(milliwatts * 1e-3, 1)


def _text(value: Any) -> str:
    return value.decode(errors="replace") if isinstance(value, bytes) else str(value or "")
