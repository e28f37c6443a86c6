"""What this machine is, what can be measured on it, what is broken, and what to do about it."""

from __future__ import annotations

import shutil
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from benchmarks import plan
from benchmarks.coordinator import device_state as state
from benchmarks.coordinator import fingerprint as machine
from benchmarks.coordinator.checkouts import Tree
from benchmarks.coordinator.trial import Session
from benchmarks.plan import Protocol, Selection

LEAST_DISK_BYTES, LEAST_SHM_BYTES = 1 << 30, 256 << 20
"""Below these, compiler caches and symmetric heaps of a CPU do not fit."""


def examine(tree: Path) -> dict[str, Any]:
    """Everything as JSON values; `problems` are sentences, each with the next step."""
    session = Session([Tree("head", tree)], Protocol(), Selection(), None)
    try:
        session.describe()
    finally:
        session.close()
    found = session.descriptions["head"]
    monitor, why_no_state = state.open_monitor(found.devices)
    kernels = {name: _cases(kernel, session.machine) for name, kernel in found.kernels.items()}
    return {
        "machine": session.machine,
        "devices": found.devices,
        "environment": found.environment,
        "state": monitor.read(0) if monitor else None,
        "why_no_state": why_no_state,
        "kernels": kernels,
        "broken": [{"module": b["module"], "reason": b["reason"]} for b in found.broken],
        "problems": problems(session.machine, found.environment, found.broken, why_no_state),
    }


def _cases(kernel: Mapping[str, Any], where: Mapping[str, Any]) -> dict[str, str]:
    """Why each case cannot be measured here, "" if it can."""
    planned = plan.plan_kernel({"head": kernel}, where, Selection(tier="sweep"), "cold")
    return {case.name: case.skip for case in planned}


def problems(
    where: Mapping[str, Any], environment: Mapping[str, Any], broken: list[dict[str, Any]], why_no_state: str | None
) -> list[str]:
    """What is wrong, and what to do about it."""
    found = [
        f"module {b['module']} does not import: {b['reason']}; correct it, the others are measured" for b in broken
    ]
    for library in ("torch", "triton"):
        if f"{library}_missing" in environment:
            found.append(
                f"{library} cannot be imported ({environment[f'{library}_missing']}); "
                "install the build for this machine's devices"
            )
    unknown = machine.unknown_warning(where)
    if unknown:
        found.append(unknown)
    if where["kind"] == "gpu" and why_no_state:
        library = "nvidia-ml-py" if where["arch"].startswith("sm_") else "amdsmi (part of ROCm)"
        found.append(f"clocks and power cannot be read ({why_no_state}); install {library}")
    for path, least in (("/tmp", LEAST_DISK_BYTES), ("/dev/shm", LEAST_SHM_BYTES)):
        if Path(path).is_dir() and (free := shutil.disk_usage(path).free) < least:
            found.append(f"{path} has {free >> 20} MiB free, at least {least >> 20} MiB are needed; free some")
    return found


def in_words(report: Mapping[str, Any]) -> str:
    """The same for people."""
    where, environment = report["machine"], report["environment"]
    lines = [
        f"machine   {where['name']}",
        f"device    {where['device']} ({where['arch']}), {where['count']} of them"
        if where["kind"] == "gpu"
        else f"device    no GPU; CPU {where['device']}, {where['cpu_count']} cores",
        "versions  "
        + ", ".join(
            f"{k} {environment[k]}" for k in ("python", "torch", "triton", "cuda", "hip") if environment.get(k)
        ),
    ]
    for name, cases in report["kernels"].items():
        open_ = sum(1 for why in cases.values() if not why)
        lines.append(f"kernel    {name}: {open_} of {len(cases)} cases can be measured here")
        lines += [f"          - {why}" for why in dict.fromkeys(why for why in cases.values() if why)]
    lines += [f"PROBLEM   {problem}" for problem in report["problems"]] or ["no problem found"]
    return "\n".join(lines)
