"""What this machine is, what can be measured on it, and what is wrong with it.

What torch and the kernels are good for is judged here, the node by `benchmarks.preflight`; `ridgeline doctor` shows the
same problems and adds what it alone knows (git, records, Slurm).
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from pathlib import Path

from benchmarks import plan, preflight
from benchmarks.coordinator import device_state, fingerprint
from benchmarks.coordinator.checkouts import Checkout
from benchmarks.coordinator.trial import Session
from benchmarks.plan import Protocol, Selection
from benchmarks.preflight import judge
from benchmarks.preflight.system import Demand, Problem
from benchmarks.shapes import Json, JsonObject

TESTED = {"python": ((3, 11), (3, 14)), "torch": ((2, 11), (2, 14)), "triton": ((3, 6), (3, 8))}
"""Oldest and newest version that Ridgeline is tested with (2026-11)."""


def examine(checkout: Path, folders: Sequence[Path] = ()) -> JsonObject:
    """Everything as JSON values; /tmp and `folders` are the places whose disks are looked at."""
    with Session([Checkout("head", checkout)], Protocol(), Selection()) as session:
        found = session.descriptions["head"]
        machine = session.machine
    report = {
        **look(found.devices, found.environment, folders),
        "machine": machine,
        "unseen_gpu": fingerprint.unseen_gpu(found.devices, found.environment),
        "kernels": {name: _cases(kernel, machine) for name, kernel in found.kernels.items()},
        "broken": [{"module": b["module"], "reason": b["reason"]} for b in found.broken],
    }
    return {**report, "problems": [{"why": "", **problem.as_json()} for problem in problems(report)]}


def look(devices: Sequence[Json], environment: Json, folders: Sequence[Path], root: Path = Path("/")) -> JsonObject:
    """What the machine tells of itself, and what is wrong with it as a node.  devices, environment: worker.probe."""
    monitor, why_no_state = device_state.open_monitor(devices)
    node = preflight.facts(None, folders, root)
    found = (*judge.unusable(devices, root), *preflight.problems(node, Demand()))
    return {
        "machine": fingerprint.fingerprint(devices, monitor.static(0) if monitor else {}),
        "devices": devices,
        "environment": environment,
        "state": monitor.read(0) if monitor else None,
        "why_no_state": why_no_state,
        "unseen_gpu": "",
        "broken": [],
        "node": {"problems": [problem.as_json() for problem in found], "facts": node.compact()},
    }


def _cases(kernel: Json, machine: Json) -> dict[str, str]:
    """Why each case cannot be measured here, "" if it can."""
    planned = plan.plan_kernel({"head": kernel}, machine, Selection(tier="sweep"), "cold")
    return {case.name: case.skip for case in planned}


# ---- judging -----------------------------------------------------------------------------------------------------


def problems(report: Json) -> list[Problem]:
    """What is wrong, by the facts of a report."""
    node = [Problem(**one) for one in report["node"]["problems"]]
    return [*_modules(report), *_versions(report), *_devices(report), *node]


def _modules(report: Json) -> Iterator[Problem]:
    for module in report["broken"]:
        what = f"module {module['module']} does not import"
        next_step = "correct it; its kernels are missing from every run until then"
        yield _warning("broken_module", what, module["reason"], next_step)


def _versions(report: Json) -> Iterator[Problem]:
    for name, (oldest, newest) in TESTED.items():
        version = report["environment"].get(name)
        tested = f"{dotted(oldest)} to {dotted(newest)}"
        if not version:
            why = report["environment"].get(f"{name}_missing", "what needs it cannot be measured")
            next_step = f"install {name} {tested}, in the build for this machine's devices"
            yield _warning("library_missing", f"{name} cannot be imported", why, next_step)
        elif not is_tested(name, version):
            what = f"{name} {version} is outside {tested}"
            next_step = f"install {name} {tested}, or report how it went"
            yield _warning("untested_version", what, "Ridgeline was not tested with it", next_step)


def _devices(report: Json) -> Iterator[Problem]:
    machine = report["machine"]
    if report["unseen_gpu"]:
        what, next_step = "the GPU of this machine is not seen by torch", "correct it: nothing is measured until then"
        yield Problem("unseen_gpu", "error", what, next_step, report["unseen_gpu"])
    if unknown := fingerprint.unknown_warning(machine):
        what = f"{machine['device']} ({machine['arch']}) is not in the table of hardware"
        next_step = "add it to kernels/hardware.py: DEVICES, with its source and date"
        yield _warning("unknown_hardware", what, f"times are right, but {unknown}", next_step)
    if machine["kind"] == "gpu" and report["why_no_state"]:
        library = "nvidia-ml-py" if machine["arch"].startswith("sm_") else "amdsmi (part of ROCm)"
        what = "clocks, power and throttling cannot be read"
        next_step = f"install {library}, so that a slow machine can be told from a slow kernel"
        yield _warning("no_device_state", what, report["why_no_state"], next_step)


def _warning(kind: str, text: str, why: str, next_step: str) -> Problem:
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
