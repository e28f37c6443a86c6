"""What this machine is, what can be measured on it, and what is wrong with it.

What torch and the kernels are good for is judged here, the node by `benchmarks.machine.limits`; `ridgeline doctor`
shows the same problems and adds what it alone knows (git, records, Slurm).
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from pathlib import Path

from benchmarks import plan
from benchmarks.coordinator.checkouts import Checkout
from benchmarks.coordinator.trial import Session
from benchmarks.machine import limits
from benchmarks.machine.gpus import open_monitor
from benchmarks.machine.limits import Problem
from benchmarks.plan import Protocol, Selection
from benchmarks.shapes import Json, JsonObject

TESTED = {"python": ((3, 11), (3, 14)), "torch": ((2, 11), (2, 15)), "triton": ((3, 6), (3, 9))}
"""Oldest and newest version that Ridgeline is tested with (2026-11)."""


def examine(checkout: Path, folders: Sequence[Path] = ()) -> JsonObject:
    """Everything as JSON values; /tmp and `folders` are the places whose disks are looked at."""
    with Session([Checkout("head", checkout)], Protocol(), Selection()) as session:
        description, machine = session.descriptions["head"], session.machine
    every, devices = Selection(tier="sweep"), description.devices
    plans = {
        name: plan.plan_kernel({"head": kernel}, machine, every, "cold") for name, kernel in description.kernels.items()
    }
    monitor, why_no_state = open_monitor(devices)
    node = limits.examined(limits.node_facts(None, folders))
    node["problems"] += map(vars, limits.unseen_gpus(devices))
    report = {
        "machine": machine,
        "devices": devices,
        "environment": description.environment,
        "state": monitor.read(0) if monitor else None,
        "why_no_state": why_no_state,
        "unseen_gpu": limits.unseen_gpu(devices, description.environment),
        "node": node,
        "kernels": {name: {case.name: case.skip for case in cases} for name, cases in plans.items()},
        "broken": [{"module": broken["module"], "reason": broken["reason"]} for broken in description.broken],
    }
    return {**report, "problems": list(map(vars, problems(report)))}


def problems(report: Json) -> list[Problem]:
    """What is wrong, by the facts of a report."""
    node = [Problem(**problem) for problem in report["node"]["problems"]]
    return [*_broken_modules(report), *_untested_versions(report), *_devices(report), *node]


def _broken_modules(report: Json) -> Iterator[Problem]:
    next_step = "correct it; its kernels are missing from every run until then"
    for module in report["broken"]:
        text = f"module {module['module']} does not import"
        yield Problem("broken_module", "warning", text, next_step, module["reason"])


def _untested_versions(report: Json) -> Iterator[Problem]:
    for name, span in TESTED.items():
        version = report["environment"].get(name)
        tested = " to ".join(map(dotted, span))
        if not version:
            why = report["environment"].get(f"{name}_missing", "what needs it cannot be measured")
            next_step = f"install {name} {tested}, in the build for this machine's devices"
            yield Problem("library_missing", "warning", f"{name} cannot be imported", next_step, why)
        elif not is_tested(name, version):
            text, why = f"{name} {version} is outside {tested}", "Ridgeline was not tested with it"
            yield Problem("untested_version", "warning", text, f"install {name} {tested}, or report how it went", why)


def _devices(report: Json) -> Iterator[Problem]:
    machine = report["machine"]
    if why := report["unseen_gpu"]:
        text, next_step = "the GPU of this machine is not seen by torch", "correct it: nothing is measured until then"
        yield Problem("unseen_gpu", "error", text, next_step, why)
    if unknown := limits.unknown_warning(machine):
        text = f"{machine['device']} ({machine['arch']}) is not in the table of hardware"
        next_step = "add it to kernels/hardware.py: DEVICES, with its source and date"
        yield Problem("unknown_hardware", "warning", text, next_step, f"times are right, but {unknown}")
    if machine["kind"] == "gpu" and (why := report["why_no_state"]):
        library = "nvidia-ml-py" if machine["arch"].startswith("sm_") else "amdsmi (part of ROCm)"
        next_step = f"install {library}, so that a slow machine can be told from a slow kernel"
        yield Problem("no_device_state", "warning", "clocks, power and throttling cannot be read", next_step, why)


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
