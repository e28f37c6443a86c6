"""What is wrong with a node, by its facts, and which of its GPUs cannot be used and why.

The rules are pure; each yields nothing on a healthy node.
"""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, Literal

from benchmarks.preflight import system
from benchmarks.preflight.system import HIDING, Demand, GpuFacts, NodeFacts, PciGpu, Problem
from kernels.hardware import by_market_name

LEAST_DISK_BYTES, LOW_DISK_BYTES = 100 << 20, 2 << 30
"""A trial file of the pr tier has some MB; with less than the first a run ends in the middle.  A nightly run writes
some 100 MB of trials, Triton's cache up to 1 GB (2026-11)."""
LEAST_SHM_BYTES = 1 << 30
"""Buffers that ranks share: the largest all_gather of the pr tier on two CPU ranks fills 512 MB (2026-11)."""
LEAST_MEMLOCK_BYTES = 1 << 30
"""RCCL and NCCL lock the buffers of every rank; 64 KiB is what a container gets without --ulimit=memlock=-1."""
BUSY_BYTES, BUSY_PERCENT = 3 << 30, 5
"""More than a driver takes on an idle GPU (0.6 GB on H200, some 0.3 GB on MI300X), and more than a monitor's own query
in one sample (2026-11)."""
CLOCK_SLACK = 0.98
"""Part of a product's top clock below which it counts as limited: parts of one product differ by a step of 15 MHz."""

Level = Literal["error", "warning"]


def problems(facts: NodeFacts, wanted: Demand) -> Iterator[Problem]:
    """Everything that is wrong."""
    yield from (*_count(facts, wanted), *_product(facts, wanted))
    for rule in (_partitions, _power, _clocks, _memory, _links, _others, _host, _space, _libraries):
        yield from rule(facts)


def _count(facts: NodeFacts, wanted: Demand) -> Iterator[Problem]:
    if wanted.count and len(facts.gpus) != wanted.count:
        said = f"{len(facts.gpus)} GPUs can be used, and the job has {wanted.count}"
        missing = "read `dmesg | grep -iE 'amdgpu|nvrm'`; correct the pool or the allocation"
        too_many = "correct the pool's isolation: the job could use GPUs of others"
        yield _error("gpu count", said, missing if len(facts.gpus) < wanted.count else too_many)


def _product(facts: NodeFacts, wanted: Demand) -> Iterator[Problem]:
    kinds = Counter(gpu.product or gpu.name or gpu.chip_id for gpu in facts.gpus)
    said = ", ".join(f"{number} x {name}" for name, number in kinds.items())
    if len(kinds) > 1:
        yield _error("product", f"mixed products: {said}", "measure one product at a time")
    elif wanted.product and kinds and wanted.product not in kinds:
        yield _error("product", f"{said}, and the pool is of {wanted.product}", "correct gpu in ci/runners.toml")


def _partitions(facts: NodeFacts) -> Iterator[Problem]:
    kinds = Counter("/".join(filter(None, (gpu.compute, gpu.memory))) for gpu in facts.gpus)
    if len(kinds) > 1:
        said = ", ".join(f"{mode or 'unknown'} on {number}" for mode, number in kinds.items())
        next_step = "one mode for all: `sudo amd-smi set --compute-partition SPX`, `--memory-partition NPS1`"
        yield _error("partition", f"GPUs in different modes: {said}", next_step)


def _power(facts: NodeFacts) -> Iterator[Problem]:
    caps = {gpu.power_cap_w for gpu in facts.gpus if gpu.power_cap_w}
    if len(caps) > 1:
        said = f"power caps differ: {', '.join(f'{cap:g} W' for cap in sorted(caps))}"
        yield _error("power cap", said, "give all GPUs one cap (amd-smi set --power-cap, nvidia-smi -pl)")
        return
    for gpu in facts.gpus[:1]:
        if gpu.power_cap_w and gpu.power_default_w and gpu.power_cap_w < gpu.power_default_w:
            said = f"the power cap is {gpu.power_cap_w:g} W of {gpu.power_default_w:g} W"
            yield _warning("power cap", said, "times belong to this cap; records are kept apart by it")


def _clocks(facts: NodeFacts) -> Iterator[Problem]:
    for index, gpu in enumerate(facts.gpus):
        if gpu.clock_limit:
            next_step = "set it back: `sudo amd-smi set --perf-level auto`, `nvidia-smi -rgc`"
            yield _warning("clock", f"GPU {index}: {gpu.clock_limit}", next_step)
        top = by_market_name(gpu.product).clock_mhz if gpu.product else 0
        if gpu.max_clock_mhz and gpu.max_clock_mhz < top * CLOCK_SLACK:
            said = f"GPU {index}: its clock is limited to {gpu.max_clock_mhz} of {top} MHz"
            yield _warning("clock", said, "times belong to this limit")


def _memory(facts: NodeFacts) -> Iterator[Problem]:
    for index, gpu in enumerate(facts.gpus):
        if gpu.uncorrected:
            said = f"GPU {index} ({gpu.address}): {gpu.uncorrected} uncorrected ECC errors since the driver was loaded"
            yield _error("ECC", said, "reset or replace it; until then leave it out")
        if gpu.bad_pages:
            said = f"GPU {index} ({gpu.address}): memory pages wait to be retired"
            yield _error("bad pages", said, "reset the GPU (amd-smi reset, nvidia-smi -r) or reboot the node")


def _links(facts: NodeFacts) -> Iterator[Problem]:
    for index, gpu in enumerate(facts.gpus):
        if gpu.links_down and len(facts.gpus) > 1:
            said = f"GPU {index} ({gpu.address}): {gpu.links_down} of {gpu.links} links are down"
            yield _error("links", said, "read `amd-smi xgmi` or `nvidia-smi nvlink -s`; reseat or replace the GPU")
        if gpu.link_errors:
            said = f"GPU {index} ({gpu.address}): its links count errors"
            yield _warning("links", said, "`amd-smi reset --xgmierr` sets them to 0; look whether they come back")


def _others(facts: NodeFacts) -> Iterator[Problem]:
    for index, gpu in enumerate(facts.gpus):
        busy, silent = is_busy(gpu), gpu.used_bytes is None and gpu.busy_percent is None
        if gpu.processes or busy:
            taken = f"{(gpu.used_bytes or 0) / 1e9:.1f} GB taken, {gpu.busy_percent or 0} % busy"
            said = f"GPU {index} is used by somebody else: {', '.join((gpu.processes or (taken,))[:5])}"
            # Without a process, it may be what one left that has just ended, and not given back yet.
            level: Level = "error" if gpu.processes and (silent or busy) else "warning"
            yield Problem("in use", level, said, "wait or stop them, or choose other GPUs")


def _host(facts: NodeFacts) -> Iterator[Problem]:
    if not facts.gpus:
        return
    if facts.numa_balancing:
        next_step = "as root: echo 0 > /proc/sys/kernel/numa_balancing"
        yield _warning("NUMA balancing", "automatic NUMA balancing is on", next_step)
    if facts.iommu_pt is False and _is_amd(facts.gpus):
        yield _warning("IOMMU", "the kernel was booted without iommu=pt", "add it to the kernel's command line")
    locked = facts.memlock_bytes
    if locked is not None and 0 <= locked < LEAST_MEMLOCK_BYTES and len(facts.gpus) > 1:
        said = f"a process may lock {locked >> 10} KiB of memory only"
        yield _warning("memlock", said, "start the container with --ulimit=memlock=-1, or raise `ulimit -l`")


def _space(facts: NodeFacts) -> Iterator[Problem]:
    for folder, free in facts.disk_bytes.items():
        if free < LOW_DISK_BYTES:
            level: Level = "error" if free < LEAST_DISK_BYTES else "warning"
            said, least = f"{free >> 20} MiB are free where {folder} lies", f"at least {LOW_DISK_BYTES >> 20} MiB"
            why = "trials and compiled kernels are written there"
            yield Problem(
                "disk", level, said, f"free space, {least}, or put TMPDIR and TRITON_CACHE_DIR elsewhere", why
            )
    if facts.shm_bytes is not None and facts.shm_bytes < LEAST_SHM_BYTES:
        said, next_step = f"/dev/shm has {facts.shm_bytes >> 20} MiB free", "start the container with --shm-size=16G"
        yield Problem("shm", "warning", said, f"{next_step} or --ipc=host", "ranks share their buffers there")


def _libraries(facts: NodeFacts) -> Iterator[Problem]:
    """Without NVML or amdsmi, ECC, links and processes are not known in full."""
    if facts.absent:
        said = "; ".join(f"{name}: {why}" for name, why in facts.absent.items())
        next_step = "install nvidia-ml-py, or amdsmi of ROCm"
        yield _warning("library", f"the GPUs do not tell their state in full ({said})", next_step)


def is_busy(gpu: GpuFacts) -> bool:
    """Whether somebody works on it, or holds much of its memory, as far as it says so."""
    return (gpu.used_bytes or 0) > BUSY_BYTES or (gpu.busy_percent or 0) > BUSY_PERCENT


def _is_amd(gpus: Sequence[GpuFacts]) -> bool:
    return any(gpu.product and by_market_name(gpu.product).arch.startswith("gfx") for gpu in gpus)


def _error(kind: str, text: str, next_step: str) -> Problem:
    return Problem(kind, "error", text, next_step)


def _warning(kind: str, text: str, next_step: str) -> Problem:
    return Problem(kind, "warning", text, next_step)


# ---- GPUs that should be there -----------------------------------------------------------------------------------

UNHEALTHY = "read `dmesg | grep -iE 'amdgpu|nvrm'`; reset or replace it, and measure with the others meanwhile"
"""What to do about a GPU whose driver has given it up."""

GROUP = "add this user to the groups `render` and `video`; a container needs --group-add with the number of the group"
"""What to do about a device file that the user may not open."""


def unusable(seen: Sequence[Mapping[str, Any]], root: Path = Path("/")) -> Iterator[Problem]:
    """Each GPU that this process should be able to use and that torch does not see.  seen: worker.probe.devices()."""
    addresses, missing = {device["pci"] for device in seen}, False
    for gpu in system.pci_gpus(root):
        if gpu.address not in addresses and not hiding() and (fault := _fault_of(root, gpu)):
            missing = True
            yield _unusable(f"{gpu.address}: {fault[0]}", fault[1])
    nodes = (f"/dev/dri/renderD{minor}" for minor in system.kfd_nodes(root))
    closed = [one for one in ("/dev/kfd", *nodes) if system.access(root, one) is system.Access.DENIED]
    if closed and not missing:
        yield _unusable(f"no permission on {', '.join(closed[:2])} ({system.owner(root, closed[0])})", GROUP)


def _unusable(text: str, next_step: str) -> Problem:
    why = "what uses several GPUs may not run, or means something else, until then"
    return Problem("gpu_fault", "warning", text, next_step, why)


def hiding() -> str:
    """NAME=VALUE of the variables that hide GPUs from this process on purpose, "" without one."""
    return ", ".join(f"{name}={os.environ[name]}" for name in HIDING if name in os.environ)


def _fault_of(root: Path, gpu: PciGpu) -> tuple[str, str] | None:
    """What keeps a GPU from being used and what to do, None if nothing does or it is not meant for us."""
    if not gpu.driver:
        next_step = "read `dmesg | grep -iE 'amdgpu|nvrm'`; load the driver, or have the GPU looked at"
        return "no driver has taken it: it is not healthy, or the driver is not loaded", next_step
    if not gpu.taken:
        return None  # vfio-pci and the like: it belongs to a virtual machine
    computes = gpu.vendor != "amd" or system.access(root, "/dev/kfd") is not system.Access.ABSENT
    if not gpu.files:  # amdgpu makes a render node for every GPU that it could start
        dropped = gpu.vendor == "amd" and computes
        return ("its driver has started without a render node: it is not healthy", UNHEALTHY) if dropped else None
    if not computes:
        return None  # graphics of a machine that does not compute
    for file in gpu.files:
        found = system.access(root, file)
        if found is system.Access.DENIED:
            return f"no permission on {file} ({system.owner(root, file)})", GROUP
        if found is system.Access.BROKEN:
            return f"{file} cannot be opened: it is not healthy", UNHEALTHY
        if found is not system.Access.OPEN:
            return None  # it belongs to another container or job
    next_step = "check that this torch is built for its architecture; read `dmesg | tail -50`"
    return "its device file can be opened, but torch does not see it", next_step
