"""The machine as the doctor sees it: what is wrong with it, who else is on its GPUs, and what there is.

Reads files and drivers' libraries; torch's view comes with the context, so that a broken torch breaks nothing here.
"""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from benchmarks import doctor
from benchmarks.bringup.steps import Row, StepContext, failed, passed
from benchmarks.preflight import gpus, judge

CACHE = Path.home() / ".triton"
"""Where Triton keeps what it has compiled, unless TRITON_CACHE_DIR says otherwise (triton/knobs.py, 3.6 to 3.9)."""

LOOKS, PAUSE_S = 3, 1.0
"""A GPU is in use if every one of so many looks says so: the memory of a process that just ended is given back after a
moment."""

UNITS = {"sm_clock_mhz": "MHz", "mem_clock_mhz": "MHz", "temperature_c": "C", "power_w": "W"}
"""What a monitor reads, and its units."""

OTHER_ROWS = ("library_missing", "in use")
"""Kinds of problems that the steps `torch` and `triton` have a row for, and in_use."""


def machine(context: StepContext) -> list[Row]:
    """A row for every problem: what the doctor calls an error fails, a warning is told with its next step."""
    root = Path(context.root)
    report = doctor.look(context.devices, context.environment, (Path(context.checkout), CACHE), root)
    missing = {problem.text for problem in judge.unusable(context.devices, root)}
    rows = list(in_use(context))
    for problem in doctor.problems(report):
        if problem.kind not in OTHER_ROWS:
            wrong = problem.level == "error" or problem.text in missing
            rows.append((failed if wrong else passed)(problem.kind, problem.text, problem.next_step))
    return [summary(report), *rows]


def summary(report: dict[str, Any]) -> Row:
    """What there is, and a reading of the first GPU."""
    told, machine = report["node"]["facts"]["gpus"], report["machine"]
    if machine["kind"] != "gpu":
        return passed("machine", "no GPU: only CPU backends are tried")
    units = "SMs" if machine["arch"].startswith("sm_") else "CUs"
    seen = Counter((one["name"], one["arch"], one["compute_units"]) for one in report["devices"])
    said = ", ".join(f"{number} x {name} ({arch}, {cus} {units})" for (name, arch, cus), number in seen.items())
    modes = [told[name] if isinstance(told[name], str) else "mixed" for name in ("compute", "memory") if name in told]
    parts = f" on {told['count']} GPUs in mode {'/'.join(modes)}" if modes else ""
    odd = machine["count"] not in judge.USUAL and machine["count"] == told["count"]
    hint = "if a GPU is missing, it fell off the bus: `lspci`, `dmesg`" if odd else ""
    state = report["state"] or {}
    numbers = {name: (state[name], unit) for name, unit in UNITS.items() if state.get(name) is not None}
    if machine["power_cap_w"]:
        numbers["power_cap"] = (machine["power_cap_w"], "W")
    return passed("machine", f"torch sees {said}{parts}", hint, **numbers)


def in_use(context: StepContext) -> Iterator[Row]:
    """A row for every GPU of ours that somebody else uses.  No process of ours is on them now."""
    root, ours = Path(context.root), [device["pci"] or "" for device in context.devices]
    busy = ours
    for look in range(LOOKS if ours else 0):
        time.sleep(PAUSE_S if look else 0.0)
        found = {gpu.address: gpu for gpu in gpus.gpus(root)[0]}
        busy = [address for address in busy if address in found and judge.is_busy(found[address])]
        if not busy:
            return
    variable = "HIP_VISIBLE_DEVICES" if context.amd else "CUDA_VISIBLE_DEVICES"
    free = ",".join(str(index) for index, address in enumerate(ours) if address not in busy)
    choice = f"leave it out: {variable}={free}" if free and not judge.hiding() else "choose others"
    for address in busy:
        gpu = found[address]
        listed = f" (processes on it: {', '.join(gpu.processes[:5])})" if gpu.processes else ""
        shown = f"{(gpu.used_bytes or 0) / 1e9:.1f} GB taken, {gpu.busy_percent or 0} % busy"
        said = f"GPU {ours.index(address)} is used by somebody else: {shown}{listed}"
        yield failed("in use", said, f"wait or stop them, or {choice}")
