"""Is a machine fit to measure?  One list of facts, limits and sentences; and what machine it is.

An "error" fails the machine: its times would not be those of a healthy one, so no verdict rests on them.  A "warning"
is kept beside the times.  A fact that a machine does not report is not a problem.
"""

from __future__ import annotations

import dataclasses
import os
import platform
import re
from collections import Counter
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, Literal

from benchmarks.machine import gpus, system
from benchmarks.machine.gpus import GpuFacts
from benchmarks.machine.system import HIDING, ROOT, HostFacts
from benchmarks.plan import known_hardware
from benchmarks.shapes import Json, JsonObject, digest_of
from kernels.hardware import by_market_name, normal_chip_id

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


@dataclasses.dataclass(frozen=True)
class Problem:
    """One thing that is wrong with a machine.  why: it matters; "" where the text says it."""

    kind: str
    level: Level
    text: str
    next_step: str
    why: str = ""


@dataclasses.dataclass(frozen=True)
class NodeFacts:
    """A node.  gpus: those of the run.  absent: by library, why it says nothing.

    product, gpu_count: what the pool says of its machines and how many GPUs the job has; "" and 0: whatever is there.
    """

    gpus: tuple[GpuFacts, ...] = ()
    absent: Mapping[str, str] = dataclasses.field(default_factory=dict)
    host: HostFacts = HostFacts()
    product: str = ""
    gpu_count: int = 0

    @property
    def gpu_sentence(self) -> str:
        """How many GPUs there are, and how many there should be."""
        return f"{len(self.gpus)} GPUs can be used, and the job has {self.gpu_count}"

    @property
    def is_amd(self) -> bool:
        """Whether one of its GPUs is AMD's."""
        return any(gpu.product and by_market_name(gpu.product).arch.startswith("gfx") for gpu in self.gpus)

    def compact(self) -> JsonObject:
        """As JSON values: a fact that nobody says is left out."""
        host, *gpus = (
            {name: one for name, one in vars(of).items() if one not in (None, "")} for of in (self.host, *self.gpus)
        )
        return {"absent": dict(self.absent), **host, "gpus": gpus}


def node_facts(
    addresses: Collection[str] | None = None, folders: Sequence[Path] = (), root: Path = ROOT, **pool: Any
) -> NodeFacts:
    """Everything that can be read here.  addresses: on the PCI bus, of the run's GPUs; None: all that it may use.

    pool: product and gpu_count of NodeFacts.
    """
    present, absent = gpus.gpu_facts(root)
    return NodeFacts(tuple(gpus.gpus_of_run(present, addresses)), absent, system.host_facts(root, folders), **pool)


def examined(node: NodeFacts) -> JsonObject:
    """{"problems": [{kind, level, text, next_step, why}], "facts": {...}} as a trial line keeps it."""
    return {"problems": list(map(vars, problems(node))), "facts": node.compact()}


# ---- the list --------------------------------------------------------------------------------------------------------


@dataclasses.dataclass(frozen=True)
class Limit:
    """sentence: of facts that are beyond it, of a GPU or a node; falsy for all others."""

    kind: str
    level: Level
    sentence: Callable[[Any], object]
    next_step: str
    why: str = ""


def is_busy(gpu: GpuFacts) -> bool:
    """Whether somebody works on it, or holds much of its memory, as far as it says so."""
    return (gpu.used_bytes or 0) > BUSY_BYTES or (gpu.busy_percent or 0) > BUSY_PERCENT


def is_taken(gpu: GpuFacts) -> bool:
    """Whether another process works on it.  Without a process, what one left that has just ended may fill it still."""
    return bool(gpu.processes) and (is_busy(gpu) or (gpu.used_bytes is None and gpu.busy_percent is None))


def users(gpu: GpuFacts) -> str:
    """Who is on a GPU, or how much of it is taken; "" if nobody is."""
    taken = f"{(gpu.used_bytes or 0) / 1e9:.1f} GB taken, {gpu.busy_percent or 0} % busy" if is_busy(gpu) else ""
    return ", ".join((gpu.processes or ())[:5]) or taken


def clock_below_top(gpu: GpuFacts) -> str:
    """A sentence if the clock may not reach that of the product."""
    top = by_market_name(gpu.product).clock_mhz if gpu.product else 0
    is_limited = gpu.max_clock_mhz and gpu.max_clock_mhz < top * CLOCK_SLACK
    return f"its clock is limited to {gpu.max_clock_mhz} of {top} MHz" if is_limited else ""


def power_cap_below_default(gpu: GpuFacts) -> str:
    """A sentence if its watts are limited to less than the product's."""
    is_limited = gpu.power_cap_w and gpu.power_default_w and gpu.power_cap_w < gpu.power_default_w
    return f"the power cap is {gpu.power_cap_w:g} W of {gpu.power_default_w:g} W" if is_limited else ""


DMESG = "read `dmesg | grep -iE 'amdgpu|nvrm'`"
IN_USE = "wait or stop them, or choose other GPUs"

GPU_LIMITS = (
    Limit(
        "ECC",
        "error",
        lambda gpu: gpu.uncorrected and f"{gpu.uncorrected} uncorrected ECC errors since the driver was loaded",
        "reset or replace it; until then leave it out",
    ),
    Limit(
        "bad pages",
        "error",
        lambda gpu: gpu.bad_pages and "memory pages wait to be retired",
        "reset the GPU (amd-smi reset, nvidia-smi -r) or reboot the node",
    ),
    Limit("in use", "error", lambda gpu: is_taken(gpu) and f"used by somebody else: {users(gpu)}", IN_USE),
    Limit(
        "in use",
        "warning",
        lambda gpu: users(gpu) and not is_taken(gpu) and f"used by somebody else: {users(gpu)}",
        IN_USE,
    ),
    Limit(
        "links",
        "warning",
        lambda gpu: gpu.link_errors and "its links count errors",
        "`amd-smi reset --xgmierr` sets them to 0; look whether they come back",
    ),
    Limit(
        "clock",
        "warning",
        lambda gpu: gpu.clock_limit,
        "set it back: `sudo amd-smi set --perf-level auto`, `nvidia-smi -rgc`",
    ),
    Limit("clock", "warning", clock_below_top, "times belong to this limit"),
    Limit("power cap", "warning", power_cap_below_default, "times belong to this cap; records are kept apart by it"),
)

LINKS = Limit(
    "links",
    "error",
    lambda gpu: gpu.links_down and f"{gpu.links_down} of {gpu.links} links are down",
    "read `amd-smi xgmi` or `nvidia-smi nvlink -s`; reseat or replace the GPU",
)
"""Of each GPU where a run has several."""

ALIKE = (
    ("product", "products", lambda gpu: gpu.product or gpu.name or gpu.chip_id, "measure one product at a time"),
    (
        "partition",
        "partition modes",
        lambda gpu: "/".join(filter(None, (gpu.compute, gpu.memory))) or "unknown",
        "one mode for all: `sudo amd-smi set --compute-partition SPX`, `--memory-partition NPS1`",
    ),
    (
        "power cap",
        "power caps",
        lambda gpu: gpu.power_cap_w and f"{gpu.power_cap_w:g} W",
        "give all GPUs one cap (amd-smi set --power-cap, nvidia-smi -pl)",
    ),
)
"""Kind, words, fact (falsy: not told), next step: in what the GPUs of a run must be alike."""


def product_of_another_pool(node: NodeFacts) -> str:
    """A sentence if no GPU is of the pool's product."""
    products = {gpu.product or gpu.name or gpu.chip_id for gpu in node.gpus}
    is_other = node.product and products and node.product not in products
    return f"{len(node.gpus)} x {', '.join(products)}, and the pool is of {node.product}" if is_other else ""


NODE_LIMITS = (
    Limit(
        "gpu count",
        "error",
        lambda node: len(node.gpus) < node.gpu_count and node.gpu_sentence,
        f"{DMESG}; correct the pool or the allocation",
    ),
    Limit(
        "gpu count",
        "error",
        lambda node: len(node.gpus) > node.gpu_count > 0 and node.gpu_sentence,
        "correct the pool's isolation: the job could use GPUs of others",
    ),
    Limit("product", "error", product_of_another_pool, "correct gpu in ci/runners.toml"),
    Limit(
        "NUMA balancing",
        "warning",
        lambda node: node.gpus and node.host.numa_balancing and "automatic NUMA balancing is on",
        "as root: echo 0 > /proc/sys/kernel/numa_balancing",
    ),
    Limit(
        "IOMMU",
        "warning",
        lambda node: node.is_amd and node.host.iommu_pt is False and "the kernel was booted without iommu=pt",
        "add it to the kernel's command line",
    ),
    Limit(
        "memlock",
        "warning",
        lambda node: (
            len(node.gpus) > 1
            and is_below(node.host.memlock_bytes, LEAST_MEMLOCK_BYTES)
            and f"a process may lock {node.host.memlock_bytes >> 10} KiB of memory only"
        ),
        "start the container with --ulimit=memlock=-1, or raise `ulimit -l`",
    ),
    Limit(
        "shm",
        "warning",
        lambda node: (
            is_below(node.host.shm_bytes, LEAST_SHM_BYTES) and f"/dev/shm has {node.host.shm_bytes >> 20} MiB free"
        ),
        "start the container with --shm-size=16G or --ipc=host",
        "ranks share their buffers there",
    ),
    Limit(
        "library",
        "warning",
        lambda node: (
            node.absent
            and f"the GPUs do not tell their state in full ({'; '.join(map(': '.join, node.absent.items()))})"
        ),
        "install nvidia-ml-py, or amdsmi of ROCm",
    ),
)


def is_below(number: int | None, least: int) -> bool:
    """Whether it is told and too small."""
    return number is not None and number < least


def problems(node: NodeFacts) -> list[Problem]:
    """What is wrong with the node, errors first.  Pure."""
    several = len(node.gpus) > 1
    limits = (*GPU_LIMITS, LINKS) if several else GPU_LIMITS
    beyond = [
        *(_problem(limit, sentence) for limit in NODE_LIMITS if (sentence := limit.sentence(node))),
        *_unlike(node.gpus),
        *(problem for limit in limits for problem in _of_gpus(limit, node.gpus)),
        *_disks(node.host),
    ]
    return sorted(beyond, key=lambda problem: problem.level != "error")


def _problem(limit: Limit, sentence: object) -> Problem:
    return Problem(limit.kind, limit.level, str(sentence), limit.next_step, limit.why)


def _of_gpus(limit: Limit, gpus: Sequence[GpuFacts]) -> Iterator[Problem]:
    """One problem for all GPUs of which the same is said."""
    sentences = {index: sentence for index, gpu in enumerate(gpus) if (sentence := limit.sentence(gpu))}
    for sentence in dict.fromkeys(sentences.values()):
        indices = [index for index in sentences if sentences[index] == sentence]
        alone, together = f"GPU {indices[0]} ({gpus[indices[0]].address})", f"GPUs {', '.join(map(str, indices))}"
        yield _problem(limit, f"{alone if len(indices) == 1 else together}: {sentence}")


def _unlike(gpus: Sequence[GpuFacts]) -> Iterator[Problem]:
    for kind, words, fact, next_step in ALIKE:
        counts = Counter(filter(None, map(fact, gpus)))
        if len(counts) > 1:
            listed = ", ".join(f"{value} on {number}" for value, number in counts.items())
            yield Problem(kind, "error", f"{words} differ: {listed}", next_step)


def _disks(host: HostFacts) -> Iterator[Problem]:
    for folder, free in host.disk_bytes.items():
        if free < LOW_DISK_BYTES:
            yield Problem(
                "disk",
                "error" if free < LEAST_DISK_BYTES else "warning",
                f"{free >> 20} MiB are free where {folder} lies",
                f"free space, at least {LOW_DISK_BYTES >> 20} MiB, or put TMPDIR and TRITON_CACHE_DIR elsewhere",
                "trials and compiled kernels are written there",
            )


# ---- GPUs that should be there ---------------------------------------------------------------------------------------


def unseen_gpus(devices: Sequence[Mapping[str, Any]], root: Path = ROOT) -> Iterator[Problem]:
    """One problem for all GPUs that are meant for this process and that torch does not see (worker.probe.devices())."""
    seen = {device["pci"] for device in devices}
    missing = [gpu.address for gpu in system.pci_gpus(root) if gpu.address not in seen and gpu.is_ours(root)]
    if missing and not any(name in os.environ for name in HIDING):
        yield Problem(
            "gpu_fault",
            "warning",
            f"torch does not see {', '.join(missing)}",
            f"{DMESG}; reset or replace it; this user must be in the groups `render` and `video` (of a container: "
            "--group-add), and torch built for its architecture",
            "what uses several GPUs may not run, or means something else, until then",
        )


def unseen_gpu(devices: Sequence[Json], environment: Json, root: Path = ROOT) -> str:
    """Why the GPU of this machine is not seen by torch, with the next step; "" if it is, or is hidden on purpose.

    devices: worker.probe.devices(); environment: worker.probe.environment().  A run that fell back to the CPU without a
    word would be taken for the GPU's.
    """
    device = system.gpu_file(root)
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


# ---- what machine this is: by what the devices report, never by a label of a runner ----------------------------------


def fingerprint(devices: Sequence[Json], gpu: GpuFacts | None = None) -> JsonObject:
    """The machine of a trial line.  devices: worker.probe.devices(); gpu: what the first tells of itself."""
    gpu, first = gpu or GpuFacts(""), devices[0] if devices else {}
    cpu, ram_bytes = system.cpu_name(), system.ram_bytes()
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
        "cpu_count": system.cpu_count(),
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
    identity = digest_of([machine[key] for key in keys], 8)
    bare = VENDOR_WORDS.sub(" ", machine["device"].lower())
    slug = re.sub(r"[^a-z0-9]+", "-", bare).strip("-")[:24].strip("-") or machine["arch"]
    count = f"x{machine['count']}" if machine["kind"] == "gpu" else f"-cpu{machine['cpu_count']}"
    return f"{slug}{count}-{identity}"


def _chip_id(device: Json) -> str | None:
    """PCI device id, four hex digits, from sysfs: the same place on AMD and NVIDIA."""
    pci = device.get("pci")
    return normal_chip_id(system.text_of(ROOT / f"sys/bus/pci/devices/{pci}/device")) if pci else None
