"""The GPUs: how many there are and how many torch sees, permission, products, others who use them, partitions.

Reads files and drivers' libraries; torch's view comes with the context, so that a broken torch breaks nothing here.
"""

from __future__ import annotations

import dataclasses
import os
import time
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from benchmarks.bringup.context import StepContext
from benchmarks.bringup.rows import Row, RowStatus, failed, not_here, passed
from benchmarks.coordinator import fingerprint
from benchmarks.preflight import sources, sysfs
from benchmarks.preflight.judge import is_busy
from benchmarks.preflight.sysfs import Access, PciGpu
from benchmarks.preflight.types import GpuFacts

LOOKS, PAUSE_S = 3, 1.0
"""The least of so many looks counts: the memory of a process that just ended is given back after a moment."""

USUAL = (1, 2, 4, 8)
"""Numbers of GPUs that nodes and allocations have."""

UNHEALTHY = "read `dmesg | grep -iE 'amdgpu|nvrm'`; reset or replace it, and measure with the others meanwhile"
"""What to do about a GPU whose driver has given it up."""

WHOLE = {"SPX", ""}
"""Compute partition of a whole GPU; "" on a device without partitions."""


def devices(context: StepContext) -> list[Row]:
    """Count, permission, products, and whether somebody else is on them."""
    root = Path(context.root)
    pci = sysfs.pci_gpus(root)
    rows = [*count(root, pci, context.devices, hiding()), *products(context.devices)]
    return [*rows, *others(context)] if context.devices else rows


def faults(seen: Sequence[Mapping[str, Any]], root: Path = Path("/")) -> list[Row]:
    """What is wrong with the GPUs by the files of the system alone: missing, not permitted, mixed, in unequal modes."""
    pci = sysfs.pci_gpus(root)
    rows = [*count(root, pci, seen, hiding()), *products(seen)]
    modes = [(gpu.compute, gpu.memory) for gpu in pci if gpu.compute]
    if modes and seen:
        rows.append(judge_partitions(modes, seen))
    return [row for row in rows if row.status == RowStatus.FAIL and row.name != "count"]


def hiding() -> str:
    """NAME=VALUE of the variables that hide GPUs from this process on purpose, "" without one."""
    return ", ".join(f"{name}={os.environ[name]}" for name in fingerprint.HIDING if name in os.environ)


# ---- how many ----------------------------------------------------------------------------------------------------


def count(root: Path, pci: Sequence[PciGpu], seen: Sequence[Mapping[str, Any]], hidden: str) -> Iterator[Row]:
    """One row for the count, and one for each GPU that should be there and is not."""
    addresses = {device["pci"] for device in seen}
    faults = {gpu.address: fault for gpu in pci if (fault := fault_of(root, gpu, gpu.address in addresses, hidden))}
    for address, (what, next_step) in faults.items():
        yield failed("GPU", f"{address}: {what}", next_step)
    yield from kfd_row(root)
    if not seen:
        yield no_gpu(pci, faults)
        return
    numbers = {"seen": (len(seen), "devices"), "on_pci": (len(pci), "GPUs")}
    said = f"torch sees {len(seen)} device{'s'[: len(seen) > 1]}" + (f", the PCI bus {len(pci)} GPUs" if pci else "")
    if faults:
        yield failed("count", f"{said}; {len(faults)} not usable", "see above; the others are tried", **numbers)
    elif hidden and len(seen) < len(pci):
        yield passed("count", f"{said}; others are hidden by {hidden}", **numbers)
    else:
        odd = len(seen) == len(pci) and len(seen) not in USUAL
        hint = "if one is missing, it fell off the bus: `lspci`, `dmesg`"
        yield passed("count", said, hint if odd else "", **numbers)


def no_gpu(pci: Sequence[PciGpu], faults: Mapping[str, Any]) -> Row:
    """The row of a machine whose torch sees no GPU."""
    if faults:
        return failed("count", f"torch sees none of {len(pci)} GPUs on the PCI bus", "see the lines above")
    return not_here("count", "no GPU: only CPU backends are tried")


def fault_of(root: Path, gpu: PciGpu, seen: bool, hidden: str) -> tuple[str, str] | None:
    """What keeps a GPU from being used and what to do, None if nothing does or it is not meant for us."""
    if seen or hidden:
        return None
    if not gpu.driver:
        next_step = "read `dmesg | grep -iE 'amdgpu|nvrm'`; load the driver, or have the GPU looked at"
        return "no driver has taken it: it is not healthy, or the driver is not loaded", next_step
    if not gpu.taken:
        return None  # vfio-pci and the like: it belongs to a virtual machine
    if not gpu.files:
        return _dropped(root, gpu)
    if gpu.vendor == "amd" and sysfs.access(root, "/dev/kfd") is Access.ABSENT:
        return None  # graphics of a machine that does not compute
    for file in gpu.files:
        found = sysfs.access(root, file)
        if found is Access.DENIED:
            return f"no permission on {file} ({sysfs.owner(root, file)})", _group()
        if found is Access.BROKEN:
            return f"{file} cannot be opened: it is not healthy", UNHEALTHY
        if found is not Access.OPEN:
            return None  # it belongs to another container or job
    next_step = "check that this torch is built for its architecture; read `dmesg | tail -50`"
    return "its device file can be opened, but torch does not see it", next_step


def _dropped(root: Path, gpu: PciGpu) -> tuple[str, str] | None:
    """amdgpu makes a render node for every GPU that it could start."""
    if gpu.vendor != "amd" or sysfs.access(root, "/dev/kfd") is Access.ABSENT:
        return None
    return "its driver has started without a render node: it is not healthy", UNHEALTHY


def kfd_row(root: Path) -> Iterator[Row]:
    """Permission on /dev/kfd, through which all AMD GPUs compute."""
    if sysfs.access(root, "/dev/kfd") is Access.DENIED:
        yield failed("kfd", f"no permission on /dev/kfd ({sysfs.owner(root, '/dev/kfd')})", _group())
    gpus, denied = sysfs.kfd_gpus(root)
    files = [f"/dev/dri/renderD{gpu.minor}" for gpu in gpus]
    closed = [file for file in files if sysfs.access(root, file) is Access.DENIED]
    if closed:
        said = f"no permission on {closed[0]} ({sysfs.owner(root, closed[0])})"
        more = f" and {len(closed) - 1} more" if len(closed) > 1 else ""
        yield failed("kfd", f"{said}{more}", _group())
    elif gpus:
        kinds = Counter((gpu.gfx, gpu.cu_count) for gpu in gpus)
        said = ", ".join(f"{number} x {gfx} with {cus} CUs" for (gfx, cus), number in kinds.items())
        yield passed("kfd", f"{said}{f'; {denied} nodes of other containers' if denied else ''}")


def _group() -> str:
    return (
        "add this user to the groups `render` and `video`; a container needs --group-add with the number of the group"
    )


def products(seen: Sequence[Mapping[str, Any]]) -> Iterator[Row]:
    """Whether all devices are one product."""
    kinds = Counter((d["name"], d["arch"], d["compute_units"], d["memory_bytes"]) for d in seen)
    said = ", ".join(
        f"{n} x {name} ({arch}, {cus} {_units(arch)}, {size / 1e9:.0f} GB)"
        for (name, arch, cus, size), n in kinds.items()
    )
    if len({kind[:3] for kind in kinds}) > 1:
        next_step = "measure one product at a time: HIP_VISIBLE_DEVICES or CUDA_VISIBLE_DEVICES with its indices"
        yield failed("products", f"mixed products: {said}", next_step)
    elif kinds:
        yield passed("products", said)


def _units(arch: str) -> str:
    return "SMs" if arch.startswith("sm_") else "CUs"


# ---- who else ----------------------------------------------------------------------------------------------------


def others(context: StepContext) -> Iterator[Row]:
    """Whether somebody else uses the GPUs that torch sees.  No process of ours is on them now."""
    looks = [_gpus(context)]
    while len(looks) < LOOKS and any(map(is_busy, looks[-1])):
        time.sleep(PAUSE_S)
        looks.append(_gpus(context))
    variable = "HIP_VISIBLE_DEVICES" if context.amd else "CUDA_VISIBLE_DEVICES"
    yield from judge_use([_least(look) for look in zip(*looks, strict=True)], "" if hiding() else variable)


def _gpus(context: StepContext) -> list[GpuFacts]:
    """What the GPUs that torch sees tell of themselves, in its order."""
    found = {gpu.address: gpu for gpu in sources.gpus(Path(context.root))[0]}
    return [found.get(address, GpuFacts(address)) for address in (device["pci"] or "" for device in context.devices)]


def _least(looks: Sequence[GpuFacts]) -> GpuFacts:
    """The last look at a GPU, with the least that it said of its memory and its time."""
    used = [one.used_bytes for one in looks if one.used_bytes is not None]
    busy = [one.busy_percent for one in looks if one.busy_percent is not None]
    return dataclasses.replace(looks[-1], used_bytes=min(used, default=None), busy_percent=min(busy, default=None))


def judge_use(gpus: Sequence[GpuFacts], variable: str) -> Iterator[Row]:
    """One row per busy GPU, or one that all are idle.

    variable: that leaves a GPU out; "" if it is set already, so that its numbers are others than those of `gpus`.
    """
    processes = sorted({one for gpu in gpus for one in gpu.processes or ()})
    listed = f" (processes on GPUs: {', '.join(processes[:5])})" if processes else ""
    free = ",".join(str(index) for index, gpu in enumerate(gpus) if not is_busy(gpu))
    for index, gpu in enumerate(gpus):
        if is_busy(gpu):
            shown = f"{(gpu.used_bytes or 0) / 1e9:.1f} GB taken, {gpu.busy_percent or 0} % busy"
            choice = f", or leave it out: {variable}={free}" if free and variable else ", or choose others"
            yield failed(
                "in use", f"GPU {index} is used by somebody else: {shown}{listed}", f"wait or stop them{choice}"
            )
    if any(map(is_busy, gpus)):
        return
    taken = [gpu.used_bytes for gpu in gpus if gpu.used_bytes is not None]
    if taken:
        yield passed("in use", f"all idle, at most {max(taken) / 1e9:.1f} GB taken{listed}")
    else:
        yield not_here("in use", "memory taken by others cannot be read here")


# ---- partitions --------------------------------------------------------------------------------------------------


def partition(context: StepContext) -> list[Row]:
    """Compute and memory partition of AMD GPUs, MIG of NVIDIA's."""
    if not context.devices:
        return [not_here("partition", "torch sees no GPU")]
    found, absent = sources.gpus(Path(context.root))
    if not context.amd:
        return [judge_mig(_gpus(context), absent.get("nvml", ""), context.devices[0]["compute_units"])]
    if modes := [(gpu.compute, gpu.memory) for gpu in found if gpu.compute]:
        return [judge_partitions(modes, context.devices)]
    why = absent.get("amdsmi", "no answer")
    where = "current_compute_partition is not in sysfs"
    return [not_here("partition", f"{where}, and amdsmi does not say it ({why}): a guest, or an old driver")]


def judge_mig(gpus: Sequence[GpuFacts], why_absent: str, units: int) -> Row:
    """One row on the MIG mode of all GPUs."""
    if why_absent:
        return not_here("partition", f"MIG mode cannot be read: {why_absent}")
    parted = sum(gpu.compute == "MIG" for gpu in gpus)
    if parted:
        next_step = "parts of a GPU have no links; for whole GPUs an administrator switches MIG off"
        return passed("partition", f"MIG is on for {parted} of {len(gpus)} GPUs", next_step)
    return passed("partition", f"no MIG: whole GPUs of {units} SMs")


def judge_partitions(modes: Sequence[tuple[str, ...]], seen: Sequence[Mapping[str, Any]]) -> Row:
    """One row on the modes (compute, memory) of all GPUs."""
    kinds = Counter("/".join(filter(None, mode)) for mode in modes)
    said = ", ".join(f"{mode} on {number}" for mode, number in kinds.items())
    if len(kinds) > 1:
        next_step = "one mode for all: `sudo amd-smi set --compute-partition SPX`, `--memory-partition NPS1`"
        return failed("partition", f"GPUs in different modes: {said}", next_step)
    compute, cus = modes[0][0], seen[0]["compute_units"]
    if compute in WHOLE:
        return passed("partition", f"{said} GPUs: whole GPUs of {cus} CUs")
    parts = f"{len(seen)} devices of {cus} CUs, each a part of a GPU"
    next_step = "numbers belong to this mode only; for whole GPUs `sudo amd-smi set --compute-partition SPX`"
    return passed("partition", f"{said} GPUs: {parts}", next_step)
