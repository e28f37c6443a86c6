"""Whom to ask about GPUs: NVIDIA's through NVML; AMD's through amdsmi, then amd-smi, then the files of amdgpu."""

from __future__ import annotations

import dataclasses
import os
import re
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from pathlib import Path

from benchmarks.preflight import amd_command, amd_files, amd_library, nvml, sysfs
from benchmarks.preflight.sysfs import HIDING
from benchmarks.preflight.types import GpuFacts
from kernels.hardware import DEVICES, normal_chip_id

Reader = Callable[[], Iterator[GpuFacts]]
"""What reads a library."""


def gpus(root: Path = Path("/")) -> tuple[list[GpuFacts], dict[str, str]]:
    """All GPUs that this process can reach, by address, and why a library says nothing of them."""
    present = [gpu for gpu in sysfs.pci_gpus(root) if gpu.taken]
    absent: dict[str, str] = {}
    found: dict[str, GpuFacts] = {}
    if any(gpu.vendor == "nvidia" for gpu in present):
        found |= _asked({"nvml": nvml.read}, absent)
    if any(gpu.vendor == "amd" and _is_open(root, gpu) for gpu in present):
        of_files = {one.address: one for one in amd_files.read(root)}
        said = _asked({"amdsmi": amd_library.read, "amd-smi": amd_command.read}, absent)
        found |= {address: said[address].or_else(one) if address in said else one for address, one in of_files.items()}
    return [_named(found[address], root) for address in sorted(found)], absent


def _is_open(root: Path, gpu: sysfs.PciGpu) -> bool:
    return any(sysfs.access(root, file) is sysfs.Access.OPEN for file in gpu.files)


def _asked(libraries: Mapping[str, Reader], absent: dict[str, str]) -> dict[str, GpuFacts]:
    """What the first library that answers says, by address; the reasons of those before it go into `absent`."""
    for name, read in libraries.items():
        try:
            return {one.address: one for one in read()}
        except Exception as error:  # a library of the driver's: whatever it raises, it says nothing
            absent[name] = f"{type(error).__name__}: {error}"[:300]
    return {}


def _named(one: GpuFacts, root: Path) -> GpuFacts:
    chip = one.chip_id or sysfs.text_of(root / "sys/bus/pci/devices" / one.address / "device")
    known = normal_chip_id(chip) or ""
    return dataclasses.replace(one, chip_id=known, product=product(one.name, known))


def product(name: str, chip_id: str) -> str:
    """The market name of what reports this, "" if it is not in the table of hardware, or fits several entries."""
    by_chip = {device.market_name for device in DEVICES if chip_id and chip_id in device.chip_ids}
    if len(by_chip) == 1:
        return by_chip.pop()
    words = set(re.findall(r"[A-Z0-9]+", name.upper()))
    by_name = [device for device in DEVICES if any(set(one.upper().split()) <= words for one in device.names)]
    longest = max((len(one) for device in by_name for one in device.names), default=0)
    best = {device.market_name for device in by_name if any(len(one) == longest for one in device.names)}
    return best.pop() if len(best) == 1 else ""


def chosen(found: Sequence[GpuFacts], ours: Collection[str] | None) -> Iterable[GpuFacts]:
    """Those of a run: by address, or those that this process's variables leave visible."""
    if ours is not None:
        return [one for one in found if one.address in {address.lower() for address in ours}]
    variable = next((name for name in HIDING if name in os.environ), None)
    entries = [entry.strip() for entry in os.environ[variable].split(",")] if variable else []
    if not all(entry.isdigit() for entry in entries) or not variable:
        return [] if variable and entries in ([""], ["-1"]) else found
    return [found[int(entry)] for entry in entries if int(entry) < len(found)]
