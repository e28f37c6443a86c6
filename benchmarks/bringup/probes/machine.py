"""The machine as the doctor sees it: what is wrong with it, and what there is.

Reads files and drivers' libraries; torch's view comes with the context, so that a broken torch breaks nothing here.
"""

from __future__ import annotations

from collections import Counter
from pathlib import Path
from typing import Any

from benchmarks import doctor
from benchmarks.bringup.steps import Row, StepContext, failed, passed
from benchmarks.preflight import judge

CACHE = Path.home() / ".triton"
"""Where Triton keeps what it has compiled, unless TRITON_CACHE_DIR says otherwise (triton/knobs.py, 3.6 to 3.9)."""

UNITS = {"sm_clock_mhz": "MHz", "mem_clock_mhz": "MHz", "temperature_c": "C", "power_w": "W"}
"""What a monitor reads, and its units."""

OTHER_ROWS = ("library_missing",)
"""Kinds of problems that the steps `torch` and `triton` have a row for."""


def machine(context: StepContext) -> list[Row]:
    """A row for every problem: what the doctor calls an error fails, a warning is told with its next step."""
    root = Path(context.root)
    report = doctor.look(context.devices, context.environment, (Path(context.checkout), CACHE), root)
    missing = {problem.text for problem in judge.unusable(context.devices, root)}
    rows = []
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
