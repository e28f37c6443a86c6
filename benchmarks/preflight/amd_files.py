"""GPUs of AMD, from the files of amdgpu and the KFD: what is left where no library answers.

hwmon: power1_cap and power1_cap_default in microwatts; ras/NAME_err_count: "ue: N" and "ce: N";
ras/gpu_vram_bad_pages: one line a page, "ADDRESS : SIZE : FLAG" with P for a page that waits to be retired
(torvalds/linux: Documentation/gpu/amdgpu/{thermal,ras}.rst, drivers/gpu/drm/amd/amdgpu/amdgpu_ras.c);
/sys/class/kfd/kfd/proc/PID/vram_GPUID: bytes of a process on a GPU, whose id is in the topology's gpu_id
(amdkfd/kfd_process.c), 2026-11.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

from benchmarks.preflight import sysfs
from benchmarks.preflight.amd_library import limit
from benchmarks.preflight.nvml import named
from benchmarks.preflight.sysfs import PciGpu
from benchmarks.preflight.types import GpuFacts


def read(root: Path) -> Iterator[GpuFacts]:
    """Every GPU of AMD whose render device this process may open."""
    owners = _processes(root)
    for gpu in sysfs.pci_gpus(root):
        if gpu.vendor == "amd" and any(sysfs.access(root, file) is sysfs.Access.OPEN for file in gpu.files):
            yield _gpu(root, gpu, owners)


def _gpu(root: Path, gpu: PciGpu, owners: dict[int, set[int]]) -> GpuFacts:
    folder = root / "sys/bus/pci/devices" / gpu.address
    minors = [int(file.removeprefix("/dev/dri/renderD")) for file in gpu.files]
    known = owners.keys() >= {*minors}
    return GpuFacts(
        address=gpu.address,
        name=sysfs.text_of(folder / "product_name"),
        chip_id=sysfs.text_of(folder / "device"),
        compute=gpu.compute,
        memory=gpu.memory,
        power_cap_w=_watts(folder, "power1_cap"),
        power_default_w=_watts(folder, "power1_cap_default"),
        clock_limit=limit(None, sysfs.text_of(folder / "power_dpm_force_performance_level")),
        corrected=_errors(folder, "ce"),
        uncorrected=_errors(folder, "ue"),
        bad_pages=_bad_pages(folder / "ras/gpu_vram_bad_pages"),
        used_bytes=gpu.used_bytes,
        busy_percent=gpu.busy_percent,
        processes=named((pid for minor in minors for pid in owners[minor]), root) if known else None,
    )


def _processes(root: Path) -> dict[int, set[int]]:
    """Process ids with memory on a GPU, by the minor of its render device."""
    found: dict[int, set[int]] = {}
    for minor, folder in sysfs.kfd_nodes(root).items():
        if gpu := sysfs.text_of(folder / "gpu_id"):
            files = (root / "sys/class/kfd/kfd/proc").glob(f"[0-9]*/vram_{gpu}")
            found[minor] = {int(file.parent.name) for file in files if sysfs.text_of(file) not in ("", "0")}
    return found


def _errors(folder: Path, kind: str) -> int | None:
    """The sum over the blocks of a GPU."""
    texts = [sysfs.text_of(path) for path in (folder / "ras").glob("*_err_count")]
    counts = [int(found[1]) for text in texts if (found := re.search(rf"^{kind}:\s*(\d+)", text, re.MULTILINE))]
    return sum(counts) if counts else None


def _bad_pages(path: Path) -> int | None:
    if not path.is_file():
        return None
    return sum(bool(re.search(r":\s*P\s*$", line)) for line in sysfs.text_of(path).splitlines())


def _watts(folder: Path, name: str) -> float | None:
    texts = [sysfs.text_of(path / name) for path in sorted((folder / "hwmon").glob("hwmon*"))]
    numbers = [int(text) for text in texts if text.isdigit()]
    return round(numbers[0] * 1e-6, 1) if numbers else None
