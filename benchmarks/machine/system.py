"""The machine as its kernel shows it: GPUs on the PCI bus and their device files, settings, limits and free space.

Reads files only; `root` is / or a stand-in.  KFD topology: nodes/N/properties holds "name value" lines, GPUs have a
drm_render_minor (linux: drivers/gpu/drm/amd/amdkfd/kfd_topology.c, 2026-11).
"""

from __future__ import annotations

import contextlib
import dataclasses
import errno
import os
import platform
import random
import re
import resource
import shutil
from collections.abc import Mapping, Sequence
from pathlib import Path

ROOT = Path("/")

HIDING = ("HIP_VISIBLE_DEVICES", "ROCR_VISIBLE_DEVICES", "CUDA_VISIBLE_DEVICES")
"""Variables that choose the GPUs of a process, or hide all of them, if they are empty or -1."""

VENDORS = {"0x1002": "amd", "0x10de": "nvidia"}
"""PCI vendor ids of AMD and NVIDIA (pci.ids)."""

DISPLAY, ACCELERATOR = "0x03", "0x12"
"""PCI base classes of GPUs: display controllers (H200: 3D, 0x0302) and processing accelerators (MI300X: 0x1200)."""

DRIVERS = {"amd": "amdgpu", "nvidia": "nvidia"}
"""The driver under which a GPU computes."""

GPU_FILES = {"amd": "kfd", "nvidia": "nvidia[0-9]*"}
"""In /dev, of a GPU that computes."""


@dataclasses.dataclass(frozen=True)
class PciGpu:
    """A GPU on the PCI bus.  driver: "" if none took it.  files: device files that using it takes, as far as known."""

    address: str
    vendor: str
    driver: str
    files: tuple[str, ...]

    @property
    def computes(self) -> bool:
        """Whether the driver that computes has taken it."""
        return self.driver == DRIVERS[self.vendor]

    def is_open(self, root: Path) -> bool:
        """Whether this process may use it."""
        return any(can_open(root, file) for file in self.files)

    def is_ours(self, root: Path) -> bool:
        """Whether it is meant for this process, sound or not: no virtual machine, container or job has it alone."""
        if not self.driver:  # nobody can use it
            return True
        if not self.files:  # amdgpu makes a render node for every GPU that it could start
            return self.computes and self.vendor == "amd" and can_open(root, "/dev/kfd") is not None
        has_kfd = self.vendor != "amd" or can_open(root, "/dev/kfd") is not None  # else it only draws
        return self.computes and has_kfd and any(can_open(root, file) is not None for file in self.files)


def gpu_file(root: Path = ROOT, vendors: Sequence[str] = tuple(GPU_FILES)) -> str:
    """A device file of a GPU that computes, "" if there is none: the KFD's, else that of the first NVIDIA GPU."""
    return next((str(path) for vendor in vendors for path in sorted((root / "dev").glob(GPU_FILES[vendor]))), "")


def pci_gpus(root: Path = ROOT) -> list[PciGpu]:
    """GPUs of AMD and NVIDIA, by address.  Graphics of a laptop are among them."""
    gpus = []
    for folder in sorted((root / "sys/bus/pci/devices").glob("*")):
        vendor = VENDORS.get(text_of(folder / "vendor"))
        if vendor and text_of(folder / "class").startswith((DISPLAY, ACCELERATOR)):
            driver = (folder / "driver").resolve().name if (folder / "driver").exists() else ""
            nodes = [f"/dev/dri/{path.name}" for path in sorted((folder / "drm").glob("renderD*"))]
            files = nodes if vendor == "amd" else _nvidia_files(root, folder.name)
            gpus.append(PciGpu(folder.name, vendor, driver, tuple(files)))
    return gpus


def _nvidia_files(root: Path, address: str) -> list[str]:
    """/dev/nvidiaN of a GPU: /proc/driver/nvidia/gpus/ADDRESS/information names its minor number."""
    minor = re.search(r"Device Minor:\s*(\d+)", text_of(root / f"proc/driver/nvidia/gpus/{address}/information"))
    return [f"/dev/nvidia{minor[1]}"] if minor else []


def kfd_nodes(root: Path = ROOT) -> dict[str, Path]:
    """The nodes of the KFD's topology that are GPUs and that we may read, by the file of their render device."""
    folders = (root / "sys/class/kfd/kfd/topology/nodes").glob("[0-9]*")
    minors = {
        folder: re.search(r"^drm_render_minor (\d+)$", text_of(folder / "properties"), re.MULTILINE)
        for folder in folders
    }
    return {f"/dev/dri/renderD{minor[1]}": folder for folder, minor in minors.items() if minor and int(minor[1])}


def can_open(root: Path, file: str) -> bool | None:
    """Whether a device file opens, as a library opens it; None for one that was not given to this container or job.

    The device controller of cgroups refuses with EPERM, a mode with EACCES (linux: security/device_cgroup.c, 2026-11).
    """
    try:
        os.close(os.open(root / file.lstrip("/"), os.O_RDWR | os.O_CLOEXEC))
    except OSError as error:
        return None if error.errno in (errno.ENOENT, errno.EPERM) else False
    return True


def text_of(path: Path) -> str:
    """What a small file holds, "" if it cannot be read."""
    with contextlib.suppress(OSError):
        return path.read_text(errors="replace").strip()
    return ""


def number_of(path: Path) -> int | None:
    """The number that a small file holds."""
    text = text_of(path)
    return int(text) if text.isdigit() else None


# ---- the machine around the GPUs -------------------------------------------------------------------------------------


@dataclasses.dataclass(frozen=True)
class HostFacts:
    """numa_balancing: the kernel's setting.  iommu_pt: whether iommu=pt was given at boot.

    memlock_bytes: how much a process may lock, None without limit.  shm_bytes, disk_bytes: free in /dev/shm and on each
    disk that a run writes to.
    """

    numa_balancing: int | None = None
    iommu_pt: bool | None = None
    memlock_bytes: int | None = None
    shm_bytes: int | None = None
    disk_bytes: Mapping[str, int] = dataclasses.field(default_factory=dict)


def host_facts(root: Path = ROOT, folders: Sequence[Path] = ()) -> HostFacts:
    """The host, with the disks of /tmp and of `folders`.  iommu=pt lets devices reach memory without translation
    (ROCm: system optimisation of MI300X, 2026-11)."""
    lockable = resource.getrlimit(resource.RLIMIT_MEMLOCK)[0]
    boot = text_of(root / "proc/cmdline")
    disks = {str(folder): free_bytes(folder) for folder in (Path("/tmp"), *folders)}
    return HostFacts(
        numa_balancing=number_of(root / "proc/sys/kernel/numa_balancing"),
        iommu_pt=bool(re.search(r"\biommu=pt\b", boot)) if boot else None,
        memlock_bytes=None if lockable == resource.RLIM_INFINITY else lockable,
        shm_bytes=free_bytes(root / "dev/shm") if (root / "dev/shm").is_dir() else None,
        disk_bytes={name: free for name, free in disks.items() if free is not None},
    )


def free_bytes(folder: Path) -> int | None:
    """Space on the disk that holds the folder, or would hold it; None if it cannot be asked."""
    with contextlib.suppress(OSError, StopIteration):
        return shutil.disk_usage(next(p for p in (folder.absolute(), *folder.absolute().parents) if p.exists())).free
    return None


# ---- its CPU and memory ----------------------------------------------------------------------------------------------


def cpu_count() -> int:
    """Cores this process may use."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else (os.cpu_count() or 1)


def cores() -> list[int]:
    """The cores that ranks of a trial on a CPU run on, in turn: both sides on the same, other trials on others."""
    known = sorted(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else [0]
    first = random.randrange(len(known))
    return known[first:] + known[:first]


def cpu_name() -> str:
    """Model name as Linux gives it."""
    named = re.search(r"^model name\s*:(.*)$", text_of(Path("/proc/cpuinfo")), re.MULTILINE | re.IGNORECASE)
    return named[1].strip() if named else platform.processor() or platform.machine()


def ram_bytes() -> int | None:
    """Of the machine."""
    try:
        return os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    except (ValueError, OSError):
        return None


HOST_CACHE_BYTES = 32 << 20
"""Assumed last-level cache of a CPU that reports none (2026: most servers have 32 MiB per cluster of cores)."""


def host_cache_bytes() -> int:
    """Size of the largest cache of the first CPU in bytes, as Linux reports it."""
    sizes = [_bytes(path.read_text()) for path in Path("/sys/devices/system/cpu/cpu0/cache").glob("index*/size")]
    return max(sizes, default=HOST_CACHE_BYTES)


def _bytes(text: str) -> int:
    text = text.strip()
    scale = {"K": 1 << 10, "M": 1 << 20, "G": 1 << 30}.get(text[-1:].upper(), 1)
    return int(text.rstrip("KMGkmg")) * scale
