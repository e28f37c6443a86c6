"""Stand-ins for nodes: trees of /sys, /proc and /dev as the kernel shows them, and the devices that torch sees."""

from __future__ import annotations

from pathlib import Path
from typing import Any

RENDER = 128
"""Minor number of the first render node (linux: drivers/gpu/drm/drm_drv.c)."""

AMDGPU_FILES = {"current_compute_partition": "SPX", "current_memory_partition": "NPS1", "gpu_busy_percent": "0"}


def address(index: int) -> str:
    return f"0000:{0x05 + 0x10 * index:02x}:00.0"


def write(path: Path, text: str) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(f"{text}\n")


def pci(root: Path, index: int, vendor: str = "0x1002", kind: str = "0x120000", driver: str = "amdgpu") -> Path:
    """A device on the PCI bus; driver "": nobody took it."""
    folder = root / "sys/bus/pci/devices" / address(index)
    write(folder / "vendor", vendor)
    write(folder / "class", kind)
    if driver:
        (root / "sys/bus/pci/drivers" / driver).mkdir(parents=True, exist_ok=True)
        (folder / "driver").symlink_to(root / "sys/bus/pci/drivers" / driver)
    return folder


def mi300x(root: Path, index: int, used_bytes: int = 290 << 20, **files: str) -> None:
    """A healthy MI300X: PCI device, render node, KFD node.  files: of its PCI device, instead of AMDGPU_FILES."""
    folder = pci(root, index)
    (folder / "drm" / f"renderD{RENDER + index}").mkdir(parents=True)
    for name, text in {**AMDGPU_FILES, "mem_info_vram_used": str(used_bytes), **files}.items():
        write(folder / name, text)
    write(root / f"dev/dri/renderD{RENDER + index}", "")
    kfd_node(root, index + 2, RENDER + index)


def kfd_node(root: Path, node: int, minor: int, simds: int = 1216, version: int = 90402) -> Path:
    """A node of the KFD's topology; 0 and 1 are CPUs."""
    properties = {"cpu_cores_count": 0, "simd_count": simds, "simd_per_cu": 4, "drm_render_minor": minor}
    path = root / f"sys/class/kfd/kfd/topology/nodes/{node}/properties"
    write(path.with_name("gpu_id"), str(1000 + node) if simds else "0")
    write(path, "\n".join(f"{name} {value}" for name, value in {**properties, "gfx_target_version": version}.items()))
    return path


def amd_node(root: Path, count: int = 8, **files: str) -> Path:
    """A node of that many healthy MI300X."""
    write(root / "dev/kfd", "")
    for index in range(2):
        kfd_node(root, index, 0, simds=0, version=0)
    for index in range(count):
        mi300x(root, index, **files)
    return root


def h200(root: Path, index: int) -> None:
    """A healthy H200."""
    pci(root, index, vendor="0x10de", kind="0x030200", driver="nvidia")
    write(root / f"proc/driver/nvidia/gpus/{address(index)}/information", f"Model: H200\nDevice Minor: \t {index}")
    write(root / f"dev/nvidia{index}", "")


def device(index: int, name: str = "AMD Instinct MI300X", arch: str = "gfx942", cus: int = 304) -> dict[str, Any]:
    """What torch says of a device (benchmarks.worker.probe.devices)."""
    known = {"index": index, "name": name, "arch": arch, "compute_units": cus, "memory_bytes": 205_822_885_888}
    return {**known, "l2_bytes": 4 << 20, "uuid": f"uuid-{index}", "pci": address(index)}
