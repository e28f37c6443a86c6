"""What machine this is: by what the devices report, never by a label of a runner."""

from __future__ import annotations

import hashlib
import json
import os
import platform
import random
import re
from collections.abc import Sequence
from pathlib import Path

from benchmarks.machine.gpus import GpuFacts
from benchmarks.machine.system import HIDING, ROOT, gpu_file
from benchmarks.plan import known_hardware
from benchmarks.shapes import Json, JsonObject
from kernels import hardware


def unseen_gpu(devices: Sequence[Json], environment: Json, root: Path = ROOT) -> str:
    """Why the GPU of this machine is not seen by torch, with the next step; "" if it is, or is hidden on purpose.

    devices: worker.probe.devices(); environment: worker.probe.environment().  A run that fell back to the CPU without a
    word would be taken for the GPU's.
    """
    device = gpu_file(root)
    if devices or not device or any(os.environ.get(name) in ("", "-1") for name in HIDING):
        return ""
    torch = environment.get("torch")
    why = f"torch {torch} sees none" if torch else f"torch cannot be imported ({environment.get('torch_missing')})"
    build = f"hip {environment.get('hip')}, cuda {environment.get('cuda')}"
    return (
        f"this machine has a GPU ({device}), but {why} ({build}); use the Python that has the GPU build of torch "
        "(`make PYTHON=...` in a clone), check the permission on the device, or hide the GPU to time the CPU: "
        "CUDA_VISIBLE_DEVICES= (HIP_VISIBLE_DEVICES=)"
    )


def fingerprint(devices: Sequence[Json], gpu: GpuFacts | None = None) -> JsonObject:
    """The machine of a trial line.  devices: worker.probe.devices(); gpu: what the first tells of itself."""
    gpu, first = gpu or GpuFacts(""), devices[0] if devices else {}
    cpu, ram_bytes = cpu_name(), _ram_bytes()
    machine = {
        "kind": "gpu" if devices else "cpu",
        "arch": first.get("arch", "cpu"),
        "device": first.get("name", cpu),
        "market_name": None,
        "count": len(devices) or 1,
        "compute_units": first.get("compute_units"),
        "memory_bytes": first.get("memory_bytes", ram_bytes),
        "power_cap_w": gpu.power_cap_w,
        "chip_id": _chip_id(first) or gpu.chip_id or None,
        "partition": f"{gpu.compute}/{gpu.memory}" if gpu.compute and gpu.memory else None,
        "driver": gpu.driver or None,
        "cpu": cpu,
        "cpu_count": cpu_count(),
        "ram_bytes": ram_bytes,
        "os": f"{platform.system()} {'.'.join(platform.release().split('.')[:2])}",
        "host": None,
    }
    known = known_hardware(machine)
    machine["market_name"] = known.market_name if known else None
    return {"name": machine_name(machine), **machine}


def unknown_warning(machine: Json) -> str | None:
    """A sentence if the device is not in the table of peaks."""
    if machine["kind"] == "cpu" or known_hardware(machine):
        return None
    return (
        f"peak unknown: {machine['device']!r} ({machine['arch']}, {machine['compute_units']} CUs, chip "
        f"{machine['chip_id']}) is not in kernels/hardware.py: DEVICES; add it there to see % of peak"
    )


VENDOR_WORDS = re.compile(r"\b(nvidia|amd|instinct|intel|corporation|inc|cpu|processor|\(r\)|\(tm\))")
"""Words of a device's name that the machine's name leaves out."""


def machine_name(machine: Json) -> str:
    """A readable slug and a digest of the static identity: never a driver, never a host name."""
    keys = ("kind", "arch", "device", "count", "compute_units", "power_cap_w", "chip_id", "partition")
    if machine["kind"] == "cpu":
        keys = ("kind", "device", "cpu_count")
    identity = json.dumps([machine[key] for key in keys])
    bare = VENDOR_WORDS.sub(" ", machine["device"].lower())
    slug = re.sub(r"[^a-z0-9]+", "-", bare).strip("-")[:24].strip("-") or machine["arch"]
    count = f"x{machine['count']}" if machine["kind"] == "gpu" else f"-cpu{machine['cpu_count']}"
    return f"{slug}{count}-{hashlib.sha256(identity.encode()).hexdigest()[:8]}"


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
    try:
        for line in Path("/proc/cpuinfo").read_text().splitlines():
            if line.lower().startswith("model name"):
                return line.split(":", 1)[1].strip()
    except OSError:
        return platform.processor() or platform.machine()
    return platform.processor() or platform.machine()


def _ram_bytes() -> int | None:
    try:
        return os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    except (ValueError, OSError):
        return None


def _chip_id(device: Json) -> str | None:
    """PCI device id, four hex digits, from sysfs: the same place on AMD and NVIDIA."""
    if not device.get("pci"):
        return None
    try:
        return hardware.normal_chip_id(Path(f"/sys/bus/pci/devices/{device['pci']}/device").read_text().strip())
    except OSError:
        return None


# The last-level cache of the CPU; read by the coordinator, so without torch.


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
