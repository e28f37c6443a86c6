"""`python -m benchmarks.isa`: compile a source tree ahead of time and report what came out, as JSON.

Exit codes: 0 everything compiled, 1 something did not, 2 nothing was compiled, 3 usage.
"""

from __future__ import annotations

import dataclasses
import fnmatch
import hashlib
import importlib
import json
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Literal

from benchmarks import points, program
from benchmarks.coordinator.orders import one_at_a_time
from benchmarks.coordinator.worker_pools import launch_environment
from benchmarks.isa.compile import ARCHES, target
from benchmarks.isa.metrics import document, finish, will_not_load
from benchmarks.isa.pool import Choice, CompilePool, CompileSetting, Limits, compile_all, most_for_points
from benchmarks.plan import UsageError, tiers_of
from benchmarks.points import Point, PointsFile
from benchmarks.shapes import Json, JsonObject

ALL, SOME, NONE, USAGE = 0, 1, 2, 3


@dataclasses.dataclass(frozen=True, kw_only=True)
class CompiledArms:
    """--tree: source tree to compile (default: this folder).  --arch: repeatable (default: AMD).

    --tier, --kernel, --case, --backend: only these cases, cases by pattern; the last three are repeatable.
    --lenient: a name that this tree does not have is not an error.
    --compute-units: CUs or SMs of the device to compile for, such as 80 for MI308X or 38 for a CPX partition of MI300X
    (default: of the first product of the architecture in kernels/hardware.py).
    --points: only the points of this file (benchmarks/points.py), for one --arch: which of them compile, will not load,
    or are the same code in the same launch as others.
    --launch-cache: leave the binaries where the launches of this environment look for them (TRITON_CACHE_DIR), so that
    measuring on this machine compiles nothing.
    --execute: also execute every case of one GPU in an emulator of gfx942 and gfx950, in a small shape, and count what
    it does: `executed` in the result (extra `emulate`).
    --processes: that compile (default: 4; with --points one a core).  --cache: folder of compiled results.
    --out: file to write (default: standard output).  --timeout, --memory: seconds and MB for one compilation.
    --progress: on stderr, as json, text or none.
    """

    tree: program.File = Path()
    arch: tuple[str, ...] = ()
    tier: program.Tier = "pr"
    kernel: tuple[str, ...] = ()
    case: tuple[str, ...] = ()
    backend: tuple[str, ...] = ()
    lenient: bool = False
    compute_units: program.Count | None = None
    points: program.File | None = None
    launch_cache: bool = False
    execute: bool = False
    processes: program.Count | None = None
    cache: program.File = Path(".ridgeline/isa")
    out: program.File | None = None
    timeout: program.Seconds = Limits.seconds
    memory: program.Count = Limits.memory_mb
    progress: Literal["none", "text", "json"] = "text"


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command; returns its exit code."""
    try:
        asked = program.asked(CompiledArms, sys.argv[1:] if arguments is None else arguments)
        result = points_compiled(asked, asked.points) if asked.points else compiled(asked)
    except (UsageError, ValueError) as error:
        print(f"Error: {error}", file=sys.stderr)
        return USAGE
    text = json.dumps(result, indent=None if asked.points else 1) + "\n"  # indenting 2000 points takes 0.5 s
    if asked.out:
        asked.out.write_text(text)
    else:
        print(text, end="")
    return _exit_code(result)


def compiled(asked: CompiledArms) -> JsonObject:
    """Compile as asked; ValueError for what does not exist."""
    arches = list(dict.fromkeys(asked.arch or [a for a in ARCHES if a.startswith("gfx")]))
    for arch in arches:
        target(arch)
    if not asked.tree.is_dir():
        raise ValueError(f"the source tree {asked.tree} is not a folder")
    if asked.out and not asked.out.absolute().parent.is_dir():
        raise ValueError(f"--out {asked.out} cannot be written: its folder does not exist")
    choice = Choice(tiers_of(asked.tier), asked.kernel, asked.case, asked.backend)
    runs = compile_all(arches, choice, _setting(asked), _on_progress(asked.progress))
    if not asked.lenient:
        _check_names(asked, [run.listing for run in runs if run.listing is not None])
    result = document([(run.arch, run.listing, run.records, run.failure) for run in runs])
    if asked.execute:
        emulation = importlib.import_module("benchmarks.emulation.executed")
        result["executed"] = emulation.executed(arches, choice, _setting(asked), _on_progress(asked.progress))
    return result


def points_compiled(asked: CompiledArms, path: Path) -> JsonObject:
    """Compile the points of a file; ValueError for what does not exist."""
    if len(asked.arch) != 1:
        raise ValueError("--points goes with one --arch")
    if asked.kernel or asked.case or asked.backend:
        raise ValueError("--points names kernel, cases, backends and knobs; leave --kernel and the like out")
    target(asked.arch[0])
    file = points.read(path)
    wanted = points_of(file)
    named = tuple({"case": point.case, **point.as_json()} for point in wanted)
    choice = Choice(kernels=(file.operator,), points=named)
    [run] = compile_all(asked.arch, choice, _setting(asked), _on_progress(asked.progress))
    listing = run.listing
    if listing and file.operator not in listing["known"] and not listing["broken"]:
        raise ValueError(f"no kernel {file.operator!r}; known: {_some(listing['known'])}")
    return document_of_points(file, wanted, run)


def _setting(asked: CompiledArms) -> CompileSetting:
    limits = Limits(asked.timeout, asked.memory)
    asked.cache.mkdir(parents=True, exist_ok=True)
    return CompileSetting(
        asked.tree,
        asked.cache,
        limits,
        asked.compute_units,
        variables=launch_environment() if asked.launch_cache else None,
        processes=asked.processes or (most_for_points() if asked.points else None),
    )


def _check_names(asked: CompiledArms, listings: list[JsonObject]) -> None:
    """ValueError if a kernel does not exist, or if nothing is left to compile; a broken module excuses both."""
    for listing in listings:
        for what, names, known in (
            ("kernel {!r}", asked.kernel, listing["known"]),
            ("backend {!r} with an isa() declaration", asked.backend, listing["backends"]),
            ("case {!r} in tier " + asked.tier, asked.case, listing["cases"]),
        ):
            for name in names if not listing["broken"] else ():
                if not fnmatch.filter(known, name):
                    raise ValueError(f"no {what.format(name)}; known: {_some(known)}")


def _some(names: Sequence[str], most: int = 12) -> str:
    names = list(dict.fromkeys(names))
    return ", ".join([*names[:most], *([f"and {len(names) - most} more"] if len(names) > most else [])]) or "none"


def _on_progress(style: str) -> Callable[..., None]:
    """What prints how far an architecture is; from any thread."""
    report = one_at_a_time(program.reporter(style))
    return lambda arch, done, total: report({"done": done, "total": total, "arch": arch, "what": ""})


def _exit_code(result: JsonObject) -> int:
    entries = result.get("points") or result.get("entries", [])
    good = [entry for entry in entries if entry["status"] == "ok"]
    bad = [entry for entry in entries if entry["status"] in ("failed", "refused")]
    if not good:
        return NONE
    return SOME if bad or result["broken"] or result.get("failures") or result.get("failure") else ALL


# The points of a sweep, compiled ahead: which of them load, which are the same code in the same launch.


WORST_FIRST = ("failed", "refused", "unsupported", "undeclared", "ok")
"""The status of a point is the worst of its compilations'."""


def points_of(file: PointsFile) -> list[Point]:
    """Every point of a file once, and the anchors as points without knobs."""
    found = [point for batch in file.batches for point in (Point(batch.case, batch.anchor), *batch.points)]
    return list({(point.case, point.label): point for point in found}.values())


def document_of_points(file: PointsFile, points: Sequence[Point], run: CompilePool) -> JsonObject:
    """What came out, as JSON: one entry for each point, in their order.

    status, why: the worst of its compilations.  equal: points with the same text launch the same code in the same way;
    null where this is not known.  will_not_load: why it cannot be launched, or null.  metrics: of the compilation with
    the most scratch memory and registers.
    """
    listing = run.listing or {"triton": None, "broken": [], "units": []}
    by_point: dict[int, list[JsonObject]] = {}
    for index, unit in enumerate(listing["units"]):
        record = run.records.get(index, {"status": "failed", "why": run.failure or "it was not compiled"})
        by_point.setdefault(unit["point"], []).append(_compilation(run.arch, unit, record))
    missing = {"status": "failed", "why": run.failure or f"no kernel {file.operator!r}; a broken module may hide it"}
    about = {"format": "ridgeline-isa-points", "version": 1, "sweep": file.sweep, "operator": file.operator}
    return {
        **about,
        "arch": run.arch,
        "triton": listing["triton"],
        "points": [_entry(point, by_point.get(index, [missing])) for index, point in enumerate(points)],
        "broken": listing["broken"],
        "failure": run.failure,
    }


def _compilation(arch: str, unit: Json, record: Json) -> JsonObject:
    entry = {"label": unit["label"], "status": record["status"], **unit.get("launch", {})}
    if record["status"] != "ok":
        return entry | {"why": record.get("why", "")}
    done = finish(record["metrics"], arch)
    return entry | {"hash": record["hash"], "metrics": done, "will_not_load": will_not_load(done, arch)}


def _entry(point: Point, compilations: Sequence[Json]) -> JsonObject:
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


def equality(compilations: Sequence[Json]) -> str | None:
    """A text that points share if their compilations have the same code, scalar arguments and grids; None: unknown."""
    if any(one["grid"] is None for one in compilations):
        return None
    told = [[one["hash"], one["scalars"], one["grid"]] for one in compilations]
    return hashlib.sha256(json.dumps(told, sort_keys=True).encode()).hexdigest()[:16]


def _weight(metrics: Json) -> tuple[float, float]:
    return metrics.get("scratch_bytes") or 0, metrics.get("vgpr") or metrics.get("registers") or 0


if __name__ == "__main__":
    sys.exit(main())
