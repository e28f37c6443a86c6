"""What machine this is: by what the devices report, never by a label of a runner."""

from __future__ import annotations

import hashlib
import json
import os
import platform
import re
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from kernels import hardware


def fingerprint(found: Sequence[Mapping[str, Any]], static: Mapping[str, Any]) -> dict[str, Any]:
    """The machine of a trial line.  found: devices(); static: power cap, driver, partition from benchmarks/state.py."""
    cpu = {
        "cpu": cpu_name(),
        "cpu_count": cpu_count(),
        "ram_bytes": _ram_bytes(),
        "os": f"{platform.system()} {'.'.join(platform.release().split('.')[:2])}",
        "host": None,
    }
    if not found:
        whole = {
            "kind": "cpu",
            "arch": "cpu",
            "device": cpu["cpu"],
            "market_name": None,
            "count": 1,
            "compute_units": None,
            "memory_bytes": cpu["ram_bytes"],
            "power_cap_w": None,
            "chip_id": None,
            "partition": None,
            "driver": None,
            **cpu,
        }
        return {"name": machine_name(whole), **whole}
    first = found[0]
    whole = {
        "kind": "gpu",
        "arch": first["arch"],
        "device": first["name"],
        "market_name": None,
        "count": len(found),
        "compute_units": first["compute_units"],
        "memory_bytes": first["memory_bytes"],
        "power_cap_w": static.get("power_cap_w"),
        "chip_id": _chip_id(first) or static.get("chip_id"),
        "partition": static.get("partition"),
        "driver": static.get("driver"),
        **cpu,
    }
    peak = known_hardware(whole)
    whole["market_name"] = peak.market_name if peak else None
    return {"name": machine_name(whole), **whole}


def known_hardware(machine: Mapping[str, Any]) -> hardware.Hardware | None:
    """The entry of the table kernels/hardware.py, None for a CPU or a device that is not in it."""
    if machine["kind"] == "cpu":
        return None
    try:
        return hardware.lookup(
            machine["device"], machine["arch"], machine["compute_units"], machine["chip_id"], machine["memory_bytes"]
        )
    except hardware.UnknownHardware:
        return None


def unknown_warning(machine: Mapping[str, Any]) -> str | None:
    """A sentence if the device is not in the table of peaks."""
    if machine["kind"] == "cpu" or known_hardware(machine):
        return None
    return (
        f"peak unknown: {machine['device']!r} ({machine['arch']}, {machine['compute_units']} CUs, chip "
        f"{machine['chip_id']}) is not in kernels/hardware.py: DEVICES; add it there to see % of peak"
    )


def machine_name(machine: Mapping[str, Any]) -> str:
    """A readable slug and a digest of the static identity: never a driver, never a host name."""
    keys = ("kind", "arch", "device", "count", "compute_units", "power_cap_w", "chip_id", "partition")
    if machine["kind"] == "cpu":
        keys = ("kind", "device", "cpu_count")
    identity = json.dumps([machine[key] for key in keys])
    bare = re.sub(
        r"\b(nvidia|amd|instinct|intel|corporation|inc|cpu|processor|\(r\)|\(tm\))", " ", machine["device"].lower()
    )
    slug = re.sub(r"[^a-z0-9]+", "-", bare).strip("-")[:24].strip("-") or machine["arch"]
    count = f"x{machine['count']}" if machine["kind"] == "gpu" else f"-cpu{machine['cpu_count']}"
    return f"{slug}{count}-{hashlib.sha256(identity.encode()).hexdigest()[:8]}"


def cpu_count() -> int:
    """Cores this process may use."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else (os.cpu_count() or 1)


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


def _chip_id(device: Mapping[str, Any]) -> str | None:
    """PCI device id, four hex digits, from sysfs: the same place on AMD and NVIDIA."""
    if not device.get("pci"):
        return None
    try:
        return hardware.normal_chip_id(Path(f"/sys/bus/pci/devices/{device['pci']}/device").read_text().strip())
    except OSError:
        return None


def versions_of_this_python() -> dict[str, str]:
    """For `doctor`: the conductor's own Python."""
    return {"python": platform.python_version(), "executable": sys.executable}
