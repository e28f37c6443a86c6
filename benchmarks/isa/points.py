"""The points of a sweep, compiled ahead: which of them load, which are the same code in the same launch."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping, Sequence
from typing import Any

from benchmarks.isa.metrics import finish, will_not_load
from benchmarks.isa.pool import CompilePool
from benchmarks.points import Point, PointsFile

WORST_FIRST = ("failed", "refused", "unsupported", "undeclared", "ok")
"""The status of a point is the worst of its compilations'."""


def of_file(file: PointsFile) -> list[Point]:
    """Every point of a file once, and the anchors as points without knobs."""
    found = [point for batch in file.batches for point in (Point(batch.case, batch.anchor), *batch.points)]
    return list({(point.case, point.label): point for point in found}.values())


def asked(points: Sequence[Point]) -> tuple[dict[str, Any], ...]:
    """The points as pool.Choice takes them."""
    return tuple({"case": point.case, **point.as_json()} for point in points)


def document(file: PointsFile, points: Sequence[Point], run: CompilePool) -> dict[str, Any]:
    """What came out, as JSON: one entry for each point, in their order.

    status, why: the worst of its compilations.  equal: points with the same text launch the same code in the same way;
    null where this is not known.  will_not_load: why it cannot be launched, or null.  metrics: of the compilation with
    the most scratch memory and registers.
    """
    listing = run.listing or {"triton": None, "broken": [], "units": []}
    by_point: dict[int, list[dict[str, Any]]] = {}
    for index, unit in enumerate(listing["units"]):
        record = run.records.get(index, {"status": "failed", "why": run.failure or "it was not compiled"})
        by_point.setdefault(unit["point"], []).append(_compilation(run.arch, unit, record))
    missing = {"status": "failed", "why": run.failure or f"no kernel {file.operator!r}; a broken module may hide it"}
    return {
        "format": "ridgeline-isa-points",
        "version": 1,
        "sweep": file.sweep,
        "operator": file.operator,
        "arch": run.arch,
        "triton": listing["triton"],
        "points": [_entry(point, by_point.get(index, [missing])) for index, point in enumerate(points)],
        "broken": listing["broken"],
        "failure": run.failure,
    }


def _compilation(arch: str, unit: Mapping[str, Any], record: Mapping[str, Any]) -> dict[str, Any]:
    entry = {"label": unit["label"], "status": record["status"], **unit.get("launch", {})}
    if record["status"] != "ok" or "metrics" not in record:
        return entry | {"why": record.get("why", "")}
    done = finish(record["metrics"], arch)
    return entry | {"hash": record["hash"], "metrics": done, "will_not_load": will_not_load(done, arch)}


def _entry(point: Point, compilations: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    worst = min(compilations, key=lambda one: WORST_FIRST.index(one["status"]))
    about = {"case": point.case, "id": point.id, **point.as_json(), "status": worst["status"]}
    if worst["status"] != "ok":
        return about | {"why": worst["why"], "compilations": list(compilations)}
    grids = [one["grid"] for one in compilations]
    return about | {
        "hash": joint([one["hash"] for one in compilations]),
        "grid": grids[0] if len(grids) == 1 else grids,
        "equal": equality(compilations),
        "will_not_load": next((one["will_not_load"] for one in compilations if one["will_not_load"]), None),
        "metrics": max((one["metrics"] for one in compilations), key=_weight),
        "compilations": list(compilations),
    }


def joint(hashes: Sequence[str]) -> str:
    """One hash for all compilations of a point, in order."""
    return hashes[0] if len(hashes) == 1 else hashlib.sha256("".join(hashes).encode()).hexdigest()[:16]


def equality(compilations: Sequence[Mapping[str, Any]]) -> str | None:
    """A text that points share if their compilations have the same code, scalar arguments and grids; None: unknown."""
    if any(one["grid"] is None for one in compilations):
        return None
    told = [[one["hash"], one["scalars"], one["grid"]] for one in compilations]
    return hashlib.sha256(json.dumps(told, sort_keys=True).encode()).hexdigest()[:16]


def _weight(metrics: Mapping[str, Any]) -> tuple[float, float]:
    return metrics.get("scratch_bytes") or 0, metrics.get("vgpr") or metrics.get("registers") or 0
