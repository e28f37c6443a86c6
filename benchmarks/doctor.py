"""What this machine is, what can be measured on it, and what is wrong with it.

The facts and limits that measuring needs are judged here only; `ridgeline doctor` shows the same problems and adds
what it alone knows (git, records, Slurm).
"""

from __future__ import annotations

import enum
import re
import shutil
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from benchmarks import plan
from benchmarks.bringup.probes import devices
from benchmarks.coordinator import device_state, fingerprint
from benchmarks.coordinator.checkouts import Checkout
from benchmarks.coordinator.trial import Session
from benchmarks.plan import Protocol, Selection
from benchmarks.preflight import host
from benchmarks.preflight.judge import LEAST_SHM_BYTES, Level
from benchmarks.preflight.types import Problem

LEAST_DISK_BYTES = 2 << 30
"""A nightly run writes some 100 MB of trials, Triton's cache up to 1 GB (2026-11)."""

TESTED = {"python": ((3, 11), (3, 12)), "torch": ((2, 11), (2, 13)), "triton": ((3, 6), (3, 9))}
"""Oldest and newest version that Ridgeline is tested with (2026-11)."""

SHM = Path("/dev/shm")
"""Where symmetric heaps of CPU ranks lie."""


class Kind(enum.StrEnum):
    """What a problem is about."""

    BROKEN_MODULE = "broken_module"
    LIBRARY_MISSING = "library_missing"
    UNTESTED_VERSION = "untested_version"
    UNKNOWN_HARDWARE = "unknown_hardware"
    UNSEEN_GPU = "unseen_gpu"
    GPU_FAULT = "gpu_fault"
    NO_DEVICE_STATE = "no_device_state"
    LOW_DISK = "low_disk"
    LOW_SHM = "low_shm"


def examine(checkout: Path, folders: Sequence[Path] = ()) -> dict[str, Any]:
    """Everything as JSON values; /tmp and `folders` are the places whose disks are looked at."""
    with Session([Checkout("head", checkout)], Protocol(), Selection()) as session:
        found = session.descriptions["head"]
        machine = session.machine
    monitor, why_no_state = device_state.open_monitor(found.devices)
    report = {
        "machine": machine,
        "devices": found.devices,
        "environment": found.environment,
        "state": monitor.read(0) if monitor else None,
        "why_no_state": why_no_state,
        "unseen_gpu": fingerprint.unseen_gpu(found.devices, found.environment),
        "gpu_faults": [{"text": row.text, "next_step": row.next_step} for row in devices.faults(found.devices)],
        "kernels": {name: _cases(kernel, machine) for name, kernel in found.kernels.items()},
        "broken": [{"module": b["module"], "reason": b["reason"]} for b in found.broken],
        "disk": [{"path": path, "free_bytes": free} for path, free in _disks(folders).items()],
        "shm": _shm(),
    }
    return {**report, "problems": [problem.as_json() for problem in problems(report)]}


def _cases(kernel: Mapping[str, Any], machine: Mapping[str, Any]) -> dict[str, str]:
    """Why each case cannot be measured here, "" if it can."""
    planned = plan.plan_kernel({"head": kernel}, machine, Selection(tier="sweep"), "cold")
    return {case.name: case.skip for case in planned}


def _disks(folders: Sequence[Path]) -> dict[str, int]:
    found: dict[str, int] = host.read(Path("/"), folders)["disk_bytes"]
    return found


def _shm() -> dict[str, Any] | None:
    if not SHM.is_dir():
        return None
    usage = shutil.disk_usage(SHM)
    return {"path": str(SHM), "free_bytes": usage.free, "total_bytes": usage.total}


# ---- judging -----------------------------------------------------------------------------------------------------


def problems(report: Mapping[str, Any]) -> list[Problem]:
    """What is wrong, by the facts of a report."""
    return [problem for judge in (_modules, _versions, _devices, _space) for problem in judge(report)]


def _modules(report: Mapping[str, Any]) -> Iterator[Problem]:
    for module in report["broken"]:
        what = f"module {module['module']} does not import"
        next_step = "correct it; its kernels are missing from every run until then"
        yield _warning(Kind.BROKEN_MODULE, what, module["reason"], next_step)


def _versions(report: Mapping[str, Any]) -> Iterator[Problem]:
    for name, (oldest, newest) in TESTED.items():
        version = report["environment"].get(name)
        tested = f"{dotted(oldest)} to {dotted(newest)}"
        if not version:
            why = report["environment"].get(f"{name}_missing", "what needs it cannot be measured")
            next_step = f"install {name} {tested}, in the build for this machine's devices"
            yield _warning(Kind.LIBRARY_MISSING, f"{name} cannot be imported", why, next_step)
        elif not is_tested(name, version):
            what = f"{name} {version} is outside {tested}"
            next_step = f"install {name} {tested}, or report how it went"
            yield _warning(Kind.UNTESTED_VERSION, what, "Ridgeline was not tested with it", next_step)


def _devices(report: Mapping[str, Any]) -> Iterator[Problem]:
    machine = report["machine"]
    if report["unseen_gpu"]:
        what, next_step = "the GPU of this machine is not seen by torch", "correct it: nothing is measured until then"
        yield Problem(Kind.UNSEEN_GPU, "error", what, next_step, report["unseen_gpu"])
    for fault in report["gpu_faults"]:
        why = "what uses several GPUs may not run, or means something else, until then"
        yield _warning(Kind.GPU_FAULT, fault["text"], why, fault["next_step"])
    if unknown := fingerprint.unknown_warning(machine):
        what = f"{machine['device']} ({machine['arch']}) is not in the table of hardware"
        next_step = "add it to kernels/hardware.py: DEVICES, with its source and date"
        yield _warning(Kind.UNKNOWN_HARDWARE, what, f"times are right, but {unknown}", next_step)
    if machine["kind"] == "gpu" and report["why_no_state"]:
        library = "nvidia-ml-py" if machine["arch"].startswith("sm_") else "amdsmi (part of ROCm)"
        what = "clocks, power and throttling cannot be read"
        next_step = f"install {library}, so that a slow machine can be told from a slow kernel"
        yield _warning(Kind.NO_DEVICE_STATE, what, report["why_no_state"], next_step)


def _space(report: Mapping[str, Any]) -> Iterator[Problem]:
    for disk in report["disk"]:
        if disk["free_bytes"] < LEAST_DISK_BYTES:
            level: Level = "error" if disk["free_bytes"] < LEAST_DISK_BYTES // 20 else "warning"
            what = f"{_mib(disk['free_bytes'])} are free where {disk['path']} lies"
            next_step = f"free space, at least {_mib(LEAST_DISK_BYTES)}"
            yield Problem(Kind.LOW_DISK, level, what, next_step, "trials and compiled kernels are written there")
    shm = report["shm"]
    if shm and shm["free_bytes"] < LEAST_SHM_BYTES:
        what = f"{shm['path']} has {_mib(shm['free_bytes'])} free of {_mib(shm['total_bytes'])}"
        next_step = "free some, or start the container with --shm-size=16G or --ipc=host"
        yield _warning(Kind.LOW_SHM, what, "ranks share their buffers there", next_step)


def _warning(kind: Kind, text: str, why: str, next_step: str) -> Problem:
    return Problem(kind, "warning", text, next_step, why)


def is_tested(name: str, version: str) -> bool:
    """Whether Ridgeline is tested with this version of python, torch or triton."""
    (oldest, newest), numbers = TESTED[name], version_numbers(version)
    return oldest <= numbers and numbers[: len(newest)] <= newest


def version_numbers(version: str) -> tuple[int, ...]:
    """The first three numbers of a version; local parts ("+rocm7.2") do not count."""
    return tuple(int(part) for part in re.findall(r"\d+", version.partition("+")[0])[:3])


def dotted(version: tuple[int, ...]) -> str:
    """A version as it is written."""
    return ".".join(map(str, version))


def _mib(size: int) -> str:
    return f"{size >> 20} MiB"


# ---- for people --------------------------------------------------------------------------------------------------


def in_words(report: Mapping[str, Any]) -> str:
    """A report for people."""
    machine, environment = report["machine"], report["environment"]
    versions = [f"{k} {environment[k]}" for k in ("python", "torch", "triton", "cuda", "hip") if environment.get(k)]
    device = f"no GPU; CPU {machine['device']}, {machine['cpu_count']} cores"
    if machine["kind"] == "gpu":
        device = f"{machine['count']} x {machine['device']} ({machine['arch']})"
    lines = [f"machine   {machine['name']}", f"device    {device}", f"versions  {', '.join(versions)}"]
    for name, cases in report["kernels"].items():
        measurable = sum(1 for why in cases.values() if not why)
        lines.append(f"kernel    {name}: {measurable} of {len(cases)} cases can be measured here")
        lines += [f"          - {why}" for why in dict.fromkeys(why for why in cases.values() if why)]
    lines += [f"PROBLEM   {p['text']} ({p['why']}); {p['next_step']}" for p in report["problems"]]
    return "\n".join(lines if report["problems"] else [*lines, "no problem found"])
