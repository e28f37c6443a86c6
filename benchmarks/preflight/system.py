"""What the operating system tells of a node and its GPUs before a run, and the types for what is told and wrong."""

from __future__ import annotations

import contextlib
import dataclasses
import enum
import errno
import os
import re
import resource
import shutil
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Literal


@dataclasses.dataclass(frozen=True)
class GpuFacts:
    """One GPU as drivers and files show it; None or "" where nobody says it.

    address: on the PCI bus, "0000:c1:00.0".  chip_id: PCI device id, four hex digits.  product: its market name in
    kernels.hardware.  compute, memory: partition modes ("SPX", "NPS1"; "MIG").  power_cap_w, power_default_w: watts.
    max_clock_mhz: of the compute units.  clock_limit: why they may not choose their clock themselves.
    corrected, uncorrected: ECC errors since the driver was loaded.  bad_pages: memory pages that wait to be retired.
    links, links_down: XGMI or NVLink.  link_errors: whether one counts errors.  used_bytes, busy_percent: of
    its memory and its time.  processes: who is on it.
    """

    address: str
    name: str = ""
    chip_id: str = ""
    product: str = ""
    compute: str = ""
    memory: str = ""
    power_cap_w: float | None = None
    power_default_w: float | None = None
    max_clock_mhz: int | None = None
    clock_limit: str = ""
    corrected: int | None = None
    uncorrected: int | None = None
    bad_pages: int | None = None
    links: int | None = None
    links_down: int | None = None
    link_errors: bool | None = None
    used_bytes: int | None = None
    busy_percent: int | None = None
    processes: tuple[str, ...] | None = None

    def or_else(self, other: GpuFacts) -> GpuFacts:
        """What this one says, and the other where it says nothing."""
        mine = dataclasses.asdict(self)
        return dataclasses.replace(other, **{key: value for key, value in mine.items() if value not in (None, "")})


@dataclasses.dataclass(frozen=True)
class NodeFacts:
    """The node.  gpus: those of the run.  absent: by library, why it says nothing.

    numa_balancing: the kernel's setting.  iommu_pt: whether iommu=pt was given at boot.  memlock_bytes: how much a
    process may lock, -1 without limit.  shm_bytes, disk_bytes: free in /dev/shm and on each disk that a run writes to.
    """

    gpus: tuple[GpuFacts, ...] = ()
    absent: Mapping[str, str] = dataclasses.field(default_factory=dict)
    numa_balancing: int | None = None
    iommu_pt: bool | None = None
    memlock_bytes: int | None = None
    shm_bytes: int | None = None
    disk_bytes: Mapping[str, int] = dataclasses.field(default_factory=dict)

    def compact(self) -> dict[str, Any]:
        """As JSON values: a fact that all GPUs share stands once, one that nobody says is left out."""
        whole = {key: value for key, value in dataclasses.asdict(self).items() if key != "gpus" and value is not None}
        names = [field.name for field in dataclasses.fields(GpuFacts)]
        columns = {name: [getattr(gpu, name) for gpu in self.gpus] for name in names}
        said = {name: values for name, values in columns.items() if any(value not in (None, "") for value in values)}
        listed = {name: [list(v) if isinstance(v, tuple) else v for v in values] for name, values in said.items()}
        shared = {name: v[0] if all(one == v[0] for one in v) else v for name, v in listed.items()}
        return {**whole, "gpus": {"count": len(self.gpus), **shared}}


@dataclasses.dataclass(frozen=True)
class Demand:
    """What the pool says of its machines: the product, and how many GPUs the job has; "" and 0: whatever is there."""

    product: str = ""
    count: int = 0


@dataclasses.dataclass(frozen=True)
class Problem:
    """One thing that is wrong with a machine.  level: "error" fails it, "warning" is kept beside the times.

    why: it matters; "" where the text says it.
    """

    kind: str
    level: Literal["error", "warning"]
    text: str
    next_step: str
    why: str = ""

    def as_json(self) -> dict[str, str]:
        """JSON values, without a reason where there is none."""
        return {name: str(value) for name, value in dataclasses.asdict(self).items() if value or name != "why"}


# GPUs as the operating system shows them: PCI, the KFD, render nodes.  Reads files only; `root` is / or a stand-in.
#
# KFD topology: nodes/N/properties holds "name value" lines (drivers/gpu/drm/amd/amdkfd/kfd_topology.c: node_show; GPUs
# have simd_count > 0 and their drm_render_minor); reading a node that the container may not use gives EPERM
# (kfd_devcgroup_check_permission).  Partition modes are files of the PCI device, current_compute_partition ("SPX") and
# current_memory_partition ("NPS1") (drivers/gpu/drm/amd/amdgpu/{amdgpu_gfx,amdgpu_gmc}.c).  torvalds/linux, 2026-11.


HIDING = ("HIP_VISIBLE_DEVICES", "ROCR_VISIBLE_DEVICES", "CUDA_VISIBLE_DEVICES")
"""Variables that choose the GPUs of a process, or hide all of them, if they are empty or -1."""

VENDORS = {"0x1002": "amd", "0x10de": "nvidia"}
"""PCI vendor ids of AMD and NVIDIA (pci.ids)."""

DISPLAY, ACCELERATOR = "0x03", "0x12"
"""PCI base classes of GPUs: display controllers (H200: 3D, 0x0302) and processing accelerators (MI300X: 0x1200)."""

DRIVERS = {"amd": "amdgpu", "nvidia": "nvidia"}
"""The driver under which a GPU computes."""

GPU_FILES = ("kfd", "nvidia[0-9]*")
"""In /dev, of AMD and of NVIDIA."""


@dataclasses.dataclass(frozen=True)
class PciGpu:
    """A GPU on the PCI bus.  driver: "" if none took it.  files: device files that using it takes, as far as known.

    used_bytes, busy_percent, compute, memory: of amdgpu, None or "" elsewhere.
    """

    address: str
    vendor: str
    driver: str
    files: tuple[str, ...] = ()
    used_bytes: int | None = None
    busy_percent: int | None = None
    compute: str = ""
    memory: str = ""

    @property
    def taken(self) -> bool:
        """Whether the driver that computes has taken it."""
        return self.driver == DRIVERS[self.vendor]


def gpu_file(root: Path = Path("/")) -> str:
    """A device file of a GPU that computes, "" if there is none: the KFD's, else that of the first NVIDIA GPU."""
    return next((str(path) for name in GPU_FILES for path in sorted((root / "dev").glob(name))), "")


def pci_gpus(root: Path = Path("/")) -> list[PciGpu]:
    """GPUs of AMD and NVIDIA, by address.  Graphics of a laptop are among them."""
    folders = sorted((root / "sys/bus/pci/devices").glob("*"))
    return [_pci_gpu(root, folder, VENDORS[text_of(folder / "vendor")]) for folder in folders if _is_gpu(folder)]


def _is_gpu(folder: Path) -> bool:
    return text_of(folder / "vendor") in VENDORS and text_of(folder / "class").startswith((DISPLAY, ACCELERATOR))


def _pci_gpu(root: Path, folder: Path, vendor: str) -> PciGpu:
    return PciGpu(
        folder.name,
        vendor,
        (folder / "driver").resolve().name if (folder / "driver").exists() else "",
        tuple(_render_nodes(folder) if vendor == "amd" else _nvidia_files(root, folder.name)),
        _number(folder / "mem_info_vram_used"),
        _number(folder / "gpu_busy_percent"),
        text_of(folder / "current_compute_partition"),
        text_of(folder / "current_memory_partition"),
    )


def _render_nodes(folder: Path) -> list[str]:
    return [f"/dev/dri/{path.name}" for path in sorted((folder / "drm").glob("renderD*"))]


def _nvidia_files(root: Path, address: str) -> list[str]:
    """/dev/nvidiaN of a GPU: /proc/driver/nvidia/gpus/ADDRESS/information names its minor number."""
    said = re.search(r"Device Minor:\s*(\d+)", text_of(root / f"proc/driver/nvidia/gpus/{address}/information"))
    return [f"/dev/nvidia{said[1]}"] if said else []


def kfd_nodes(root: Path = Path("/")) -> dict[int, Path]:
    """The nodes of the KFD's topology that are GPUs and that we may read, by the minor of their render device."""
    folders = (root / "sys/class/kfd/kfd/topology/nodes").glob("[0-9]*")
    minors = {one: re.search(r"^drm_render_minor (\d+)$", text_of(one / "properties"), re.MULTILINE) for one in folders}
    return {int(minor[1]): folder for folder, minor in minors.items() if minor and int(minor[1])}


class Access(enum.Enum):
    """What opening a device file comes to."""

    OPEN = enum.auto()
    ABSENT = enum.auto()  # not passed to this container
    WITHHELD = enum.auto()  # given to another job: the device controller of cgroups refuses with EPERM
    DENIED = enum.auto()  # its mode refuses this user, with EACCES
    BROKEN = enum.auto()  # the driver refuses


def access(root: Path, file: str) -> Access:
    """Open a device file as a library does, and close it.

    devcgroup_check_permission (linux: security/device_cgroup.c, 2026-11) returns EPERM; a mode gives EACCES.
    """
    try:
        os.close(os.open(root / file.lstrip("/"), os.O_RDWR | os.O_CLOEXEC))
    except FileNotFoundError:
        return Access.ABSENT
    except PermissionError as error:
        return Access.WITHHELD if error.errno == errno.EPERM else Access.DENIED
    except OSError:
        return Access.BROKEN
    return Access.OPEN


def owner(root: Path, file: str) -> str:
    """Group and mode of a device file, for a message."""
    with contextlib.suppress(OSError):
        found = (root / file.lstrip("/")).stat()
        return f"mode {found.st_mode & 0o777:o}, group {found.st_gid}"
    return "unknown"


def text_of(path: Path) -> str:
    """What a small file holds, "" if it cannot be read."""
    with contextlib.suppress(OSError):
        return path.read_text(errors="replace").strip()
    return ""


def _number(path: Path) -> int | None:
    text = text_of(path)
    return int(text) if text.isdigit() else None


# The machine around the GPUs: settings of the kernel, limits of the process, space.  Reads files only.


def settings(root: Path, folders: Sequence[Path] = ()) -> dict[str, Any]:
    """The fields of NodeFacts beside its GPUs."""
    shm, locked = root / "dev/shm", resource.getrlimit(resource.RLIMIT_MEMLOCK)[0]
    return {
        "numa_balancing": _number(root / "proc/sys/kernel/numa_balancing"),
        "iommu_pt": _iommu_pt(root / "proc/cmdline"),
        "memlock_bytes": -1 if locked == resource.RLIM_INFINITY else locked,
        "shm_bytes": free_bytes(shm) if shm.is_dir() else None,
        "disk_bytes": {str(one): free for one in (Path("/tmp"), *folders) if (free := free_bytes(one)) is not None},
    }


def _iommu_pt(path: Path) -> bool | None:
    """iommu=pt lets devices reach memory without translation (ROCm: system optimisation of MI300X, 2026-11)."""
    try:
        return bool(re.search(r"\biommu=pt\b", path.read_text(errors="replace")))
    except OSError:
        return None


def free_bytes(folder: Path) -> int | None:
    """Space on the disk that holds the folder, or would hold it; None if it cannot be asked."""
    with contextlib.suppress(OSError, StopIteration):
        return shutil.disk_usage(next(p for p in (folder.absolute(), *folder.absolute().parents) if p.exists())).free
    return None
