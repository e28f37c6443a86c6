"""Compiling the points of a file before they are measured, in many processes, into the cache that launches look in.

The compiling processes need no GPU: they let the JIT specialise stand-ins for the tensors and make the compiler's call
that a launch makes (benchmarks.isa), so that the key of Triton's cache is the launch's: source, types, alignment,
constants, options, target, and the environment variables that change code.
"""

from __future__ import annotations

import tempfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from benchmarks.coordinator.trial import Session
from benchmarks.coordinator.worker_pools import launch_environment
from benchmarks.isa import points as of_points
from benchmarks.isa.pool import Choice, CompilePool, CompileSetting, Limits, compile_all, most_for_points
from benchmarks.isa.targets import ARCHES
from benchmarks.points import Point, PointsFile
from benchmarks.sweeping.batches import ROLE, Compiled

LIMITS = Limits(seconds=120.0, memory_mb=6000)
"""Of one compilation; the largest of ours takes 7 s (spilling MXFP4 on gfx942, 2026-11)."""


def compile_ahead(session: Session, file: PointsFile, processes: int | None = None) -> Compiled:
    """By (case, label), "" for a point whose first launch finds its binaries, or why it cannot be compiled.

    A point that is not named is compiled by its launch: its backend declares no isa(), or there is nothing to compile
    for on this machine.  processes: None for one per CPU core.
    """
    arch = session.machine["arch"]
    if session.machine["kind"] != "gpu" or arch not in ARCHES:
        return {}
    points = of_points.of_file(file)
    checkout = next(one for one in session.checkouts if one.role == ROLE)

    def tell(arch: str, done: int, total: int) -> None:
        session.on_progress({"done": done, "total": total, "what": f"compiling ahead for {arch}"})

    with tempfile.TemporaryDirectory(prefix="ridgeline-ahead-") as unused:
        setting = CompileSetting(
            checkout.path,
            Path(unused),
            checkout.python,
            limits=LIMITS,
            compute_units=session.machine["compute_units"],
            variables=launch_environment(),
            metrics=False,
            processes=processes or most_for_points(),
        )
        [run] = compile_all([arch], Choice(kernels=(file.operator,), points=of_points.asked(points)), setting, tell)
    return outcomes(points, run)


def outcomes(points: list[Point], run: CompilePool) -> dict[tuple[str, str], str]:
    """What became of each point; the default of a backend is never kept from a launch, which says more."""
    found: dict[tuple[str, str], str] = {}
    for index, unit in enumerate(run.listing["units"] if run.listing else ()):
        point, record = points[unit["point"]], run.records.get(index, {"status": "undeclared"})
        key = point.case, point.label
        why = _why(unit, record)
        if why is not None and (point.id or not why):
            found[key] = found.get(key) or why
    return found


def _why(unit: Mapping[str, Any], record: Mapping[str, Any]) -> str | None:
    """An empty text if it is compiled, why it cannot be, or None if only its launch can tell."""
    if record["status"] == "ok":
        return ""
    compiles = "status" not in unit  # what the declaration refuses may still be launched
    return str(record["why"]) if compiles and record["status"] == "failed" else None
