"""`python -m benchmarks.isa`: compile a source tree ahead of time and report what came out, as JSON.

Exit codes: 0 everything compiled, 1 something did not, 2 nothing was compiled, 3 usage or infrastructure, 130
interrupted.
"""

from __future__ import annotations

import dataclasses
import fnmatch
import importlib
import json
import os
import sys
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Annotated, Literal

from benchmarks import points, program
from benchmarks.coordinator.orders import one_at_a_time
from benchmarks.coordinator.worker_pools import launch_environment
from benchmarks.isa.compile import ARCHES
from benchmarks.isa.pool import MOST_FOR_POINTS, Choice, CompilePool, CompileSetting, Limits, compile_all
from benchmarks.plan import UsageError, tiers_of
from benchmarks.points import Point, PointsFile
from benchmarks.shapes import Json, JsonObject, digest_of, one_of, some_of
from kernels.hardware import DEVICES, lds_limit, resident_waves


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
    --processes: that compile (default: 4; with --points one a core).  --cache: folder of compiled results,
    hidden or outside of the tree.
    --out: file to write (default: standard output).  --timeout, --memory: seconds and MB for one compilation.
    --progress: on stderr, as json, text or none.
    """

    tree: program.File = Path()
    arch: tuple[Annotated[str, one_of(*ARCHES)], ...] = ()
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
    words = sys.argv[1:] if arguments is None else arguments
    return program.run(lambda: _compile(program.parse_options(CompiledArms, words)), "what is compiled is kept")


def _compile(asked: CompiledArms) -> int:
    result = points_compiled(asked, asked.points) if asked.points else compiled(asked)
    text = json.dumps(result, indent=None if asked.points else 1) + "\n"  # indenting 2000 points takes 0.5 s
    if asked.out:
        asked.out.write_text(text)
    else:
        print(text, end="")
    return _exit_code(result)


def compiled(asked: CompiledArms) -> JsonObject:
    """Compile as asked; UsageError for what does not exist."""
    arches = list(dict.fromkeys(asked.arch or [a for a in ARCHES if a.startswith("gfx")]))
    if asked.out and not asked.out.absolute().parent.is_dir():
        raise UsageError(f"--out {asked.out} cannot be written: its folder does not exist")
    choice = Choice(tiers_of(asked.tier), asked.kernel, asked.case, asked.backend)
    runs = compile_all(arches, choice, _setting(asked), _on_progress(asked.progress))
    if not asked.lenient:
        _check_names(asked, [run.listing for run in runs if run.listing is not None])
    result = document(runs)
    if asked.execute:
        emulation = importlib.import_module("benchmarks.emulation.executed")
        result["executed"] = emulation.executed(arches, choice, _setting(asked), _on_progress(asked.progress))
    return result


def points_compiled(asked: CompiledArms, path: Path) -> JsonObject:
    """Compile the points of a file; UsageError for what does not exist."""
    if len(asked.arch) != 1:
        raise UsageError("--points goes with one --arch")
    if asked.kernel or asked.case or asked.backend:
        raise UsageError("--points names kernel, cases, backends and knobs; leave --kernel and the like out")
    file = points.read(path)
    wanted = points_of(file)
    named = tuple({"case": point.case, **point.as_json()} for point in wanted)
    choice = Choice(kernels=(file.operator,), points=named)
    [run] = compile_all(asked.arch, choice, _setting(asked), _on_progress(asked.progress))
    listing = run.listing
    if listing and file.operator not in listing["known"] and not listing["broken"]:
        raise UsageError(f"no kernel {file.operator!r}; known: {_some(listing['known'])}")
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
        processes=asked.processes or (min(MOST_FOR_POINTS, os.cpu_count() or 1) if asked.points else None),
    )


def _check_names(asked: CompiledArms, listings: list[JsonObject]) -> None:
    """UsageError if a kernel does not exist, or if nothing is left to compile; a broken module excuses both."""
    for listing in listings:
        for what, names, known in (
            ("kernel {!r}", asked.kernel, listing["known"]),
            ("backend {!r} with an isa() declaration", asked.backend, listing["backends"]),
            ("case {!r} in tier " + asked.tier, asked.case, listing["cases"]),
        ):
            for name in names if not listing["broken"] else ():
                if not fnmatch.filter(known, name):
                    raise UsageError(f"no {what.format(name)}; known: {_some(known)}")


def _some(names: Sequence[str]) -> str:
    return some_of(list(dict.fromkeys(names)), 12) or "none"


def _on_progress(style: str) -> Callable[..., None]:
    """What prints how far an architecture is; from any thread."""
    report = one_at_a_time(program.reporter(style))
    return lambda arch, done, total: report({"done": done, "total": total, "arch": arch, "what": ""})


def _exit_code(result: JsonObject) -> int:
    entries = result.get("points") or result.get("entries", [])
    good = [entry for entry in entries if entry["status"] == "ok"]
    bad = [entry for entry in entries if entry["status"] in ("failed", "refused")]
    if not good:
        return program.NOTHING
    faults = bad or result["broken"] or result.get("failures") or result.get("failure")
    return program.FAULTS if faults else program.MEASURED


# The metrics of a compiled kernel: what each means, and what follows from the limits of the chip; the result file.


MEANING: dict[str, str] = {
    "vgpr": "vector registers per lane, architectural and accumulation together (AMD)",
    "agpr": "accumulation registers per lane, part of vgpr (AMD)",
    "sgpr": "scalar registers per wave (AMD)",
    "registers": "registers per thread (NVIDIA)",
    "vgpr_spills": "vector registers spilled to memory",
    "sgpr_spills": "scalar registers spilled to lanes of vector registers",
    "scratch_bytes": "private memory per lane, bytes",
    "scratch_ops": "instructions that read or write private memory",
    "scratch_ops_in_loops": "those of them in loops",
    "agpr_moves_in_loops": "moves between architectural and accumulation registers in loops",
    "lds_bytes": "LDS (shared memory) per workgroup, bytes",
    "lds_limit": "LDS that a workgroup may have on this chip, bytes",
    "waves_per_group": "waves (warps) per workgroup",
    "occupancy": "resident waves per SIMD, from registers and LDS; 0: the kernel does not load",
    "occupancy_by_registers": "resident waves per SIMD if LDS were unlimited",
    "occupancy_by_lds": "resident waves per SIMD if registers were unlimited",
    "code_bytes": "size of the machine code, bytes",
    "instructions": "machine instructions",
    "mix": "the same by class: valu, salu, mfma, load, store, lds, ... (AMD); alu, matrix, load, ... (NVIDIA)",
    "matrix": "matrix (MFMA, tensor-core) instructions by name",
    "load_widths": "vector loads by bytes per lane",
    "store_widths": "vector stores by bytes per lane",
    "store_names": "vector stores by name",
    "bytes_per_load": "mean bytes per lane of a vector load",
    "bytes_per_store": "mean bytes per lane of a vector store",
    "loads_to_lds": "loads that write LDS directly",
    "remote_store_widths": "stores through peers' heap bases by bytes per lane (AMD)",
    "remote_store_names": "the same by name",
    "remote_store_bytes": "bytes per lane of all remote stores on the path with the most, each loop run once",
    "remote_store_bytes_in_loops": "the same of those in loops",
    "bytes_per_remote_store": "mean bytes per lane of a remote store",
    "subdword_remote_stores": "remote stores of less than 4 bytes per lane",
    "remote_store_drains": "waits for remote stores between the first and the last one of a block (AMD)",
    "remote_store_drains_between": "the same from the last one of a block to the first one of the next",
    "heap_base_loads": "heap bases loaded on the path with the most, each loop run once",
    "heap_base_loads_in_loops": "the same of those in loops",
    "lds_read_widths": "LDS reads by bytes per lane; 2x8 is two of 8 bytes in one instruction",
    "lds_write_widths": "LDS writes by bytes per lane",
    "barriers": "workgroup barriers",
    "waits": "wait instructions",
    "atomics": "atomic instructions by name",
    "loops": "natural loops",
    "loop": "the hottest innermost loop: instructions, depth, mix by class, matrix_share",
}
"""Every metric, in the order in which they are shown."""


def finish(raw: Json, arch: str) -> JsonObject:
    """The metrics with what follows from them: means, the chip's LDS limit, occupancy by registers and by LDS."""
    registers = raw.get("vgpr", raw.get("registers"))
    waves, lds = raw["waves_per_group"], raw["lds_bytes"]
    added = {
        "lds_limit": lds_limit(arch),
        "occupancy": resident_waves(arch, registers, lds, waves) if lds <= lds_limit(arch) else 0,
        "occupancy_by_registers": resident_waves(arch, registers, 0, waves),
        "occupancy_by_lds": resident_waves(arch, 1, lds, waves) if lds <= lds_limit(arch) else 0,
    }
    for name in ("load", "store", "remote_store"):
        if f"{name}_widths" in raw:
            added[f"bytes_per_{name}"] = mean_width(raw[f"{name}_widths"])
    every = {**raw, **added}
    return {name: every[name] for name in MEANING if name in every}


def mean_width(widths: Mapping[str, int]) -> float | None:
    """Mean bytes per lane over instructions; None without any."""
    count = sum(widths.values())
    return round(sum(int(width) * number for width, number in widths.items()) / count, 3) if count else None


def will_not_load(metrics: Json, arch: str) -> str | None:
    """Why a configuration cannot be launched on the chip, or None; a sweep asks this before it asks for a GPU."""
    device = next(d for d in DEVICES if d.arch == arch)
    threads = metrics["waves_per_group"] * device.wave_size
    if metrics["lds_bytes"] > lds_limit(arch):
        limit = f"a workgroup on {arch} may have {lds_limit(arch)} B"
        return f"it needs {metrics['lds_bytes']} B of LDS and {limit}; use fewer stages or smaller tiles"
    if threads > 1024:
        return f"its workgroup has {threads} threads and {arch} allows 1024; use fewer warps"
    if metrics["occupancy"] == 0:
        registers = metrics.get("vgpr", metrics.get("registers"))
        return (
            f"{registers} registers per lane times {metrics['waves_per_group']} waves do not fit the register file "
            f"of {arch}; use smaller tiles or fewer warps"
        )
    return None


def entries(arch: str, listing: Json, records: Mapping[int, Json]) -> list[JsonObject]:
    """One entry per kernel, backend, label and compilation, with all cases that lead to it."""
    merged: dict[tuple[str, ...], JsonObject] = {}
    for index, unit in enumerate(listing["units"]):
        record = dict(records[index])
        identity = record.pop("key", None) or record["why"]
        where = (unit["kernel"], unit["backend"], unit["label"], identity)
        if where not in merged:
            merged[where] = _entry(arch, listing["triton"], unit, record)
        merged[where]["cases"].append(unit["case"])
    return list(merged.values())


def _entry(arch: str, triton: str, unit: Json, record: Json) -> JsonObject:
    about = {name: unit[name] for name in ("kernel", "backend", "label")}
    entry = {**about, "arch": arch, "triton": triton, "cases": [], **came_to(record, arch)}
    return entry | ({"asm": record["asm"], "notes": list(record["notes"])} if record["status"] == "ok" else {})


def came_to(record: Json, arch: str) -> JsonObject:
    """What a compilation came to: status; hash, metrics and will_not_load (null where it loads), or why."""
    if record["status"] != "ok":
        return {"status": record["status"], "why": record.get("why", "")}
    metrics = finish(record["metrics"], arch)
    loads = {"metrics": metrics, "will_not_load": will_not_load(metrics, arch)}
    return {"status": "ok", "hash": record["hash"], **loads}


def document(runs: Sequence[CompilePool]) -> JsonObject:
    """The result file of all architectures; free of paths, dates and chance."""
    listings = [run.listing for run in runs if run.listing is not None]
    whole = [(run, run.listing) for run in runs if run.listing is not None and not run.failure]
    return {
        "format": "ridgeline-isa",
        "version": 1,
        "triton": "/".join(sorted({listing["triton"] for listing in listings})) or None,
        "arches": [run.arch for run in runs],
        "entries": [entry for run, listing in whole for entry in entries(run.arch, listing, run.records)],
        "broken": list({broken["module"]: broken for listing in listings for broken in listing["broken"]}.values()),
        "failures": [{"arch": run.arch, "why": run.failure} for run in runs if run.failure],
    }


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
    null where this is not known.  will_not_load: why it cannot be launched, or null.
    """
    listing = run.listing or {"broken": [], "units": []}
    by_point: dict[int, list[JsonObject]] = {}
    for index, unit in enumerate(listing["units"]):
        record = run.records.get(index, {"status": "failed", "why": run.failure or "it was not compiled"})
        by_point.setdefault(unit["point"], []).append({**unit.get("launch", {}), **came_to(record, run.arch)})
    missing = {"status": "failed", "why": run.failure or f"no kernel {file.operator!r}; a broken module may hide it"}
    return {
        "format": "ridgeline-isa-points",
        "version": 2,
        "points": [_point_entry(point, by_point.get(index, [missing])) for index, point in enumerate(points)],
        "broken": listing["broken"],
        "failure": run.failure,
    }


def _point_entry(point: Point, compilations: Sequence[Json]) -> JsonObject:
    worst = min(compilations, key=lambda one: WORST_FIRST.index(one["status"]))
    about = {"case": point.case, **point.as_json(), "status": worst["status"]}
    if worst["status"] != "ok":
        return about | {"why": worst["why"]}
    unloadable = next((one["will_not_load"] for one in compilations if one["will_not_load"]), None)
    return about | {"equal": equality(compilations), "will_not_load": unloadable}


def equality(compilations: Sequence[Json]) -> str | None:
    """A text that points share if their compilations have the same code, scalar arguments and grids; None: unknown."""
    if any(one["grid"] is None for one in compilations):
        return None
    told = [[one["hash"], one["scalars"], one["grid"]] for one in compilations]
    return digest_of(told)


if __name__ == "__main__":
    sys.exit(main())
