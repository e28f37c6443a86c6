"""The metrics of a compiled kernel: what each means, what follows from the chip's limits, and the result file."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from benchmarks.shapes import Json, JsonObject
from kernels.hardware import DEVICES, lds_limit, resident_waves

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
    registers = raw["vgpr"] if "vgpr" in raw else raw["registers"]
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
        registers = metrics["vgpr"] if "vgpr" in metrics else metrics["registers"]
        return (
            f"{registers} registers per lane times {metrics['waves_per_group']} waves do not fit the register file "
            f"of {arch}; use smaller tiles or fewer warps"
        )
    return None


def entries(arch: str, listing: Json, records: Mapping[int, Json]) -> list[JsonObject]:
    """One entry per kernel, backend, label and compilation, with all cases that lead to it."""
    merged: dict[tuple[Any, ...], JsonObject] = {}
    for index, unit in enumerate(listing["units"]):
        record = dict(records[index])
        identity = record.pop("key", None) or record["why"]
        where = (unit["kernel"], unit["backend"], unit["label"], identity)
        if where not in merged:
            merged[where] = _entry(arch, listing["triton"], unit, record)
        merged[where]["cases"].append(unit["case"])
    return list(merged.values())


def _entry(arch: str, triton: str, unit: Json, record: Json) -> JsonObject:
    entry: JsonObject = {name: unit[name] for name in ("kernel", "backend", "label")}
    entry |= {"arch": arch, "triton": triton, "cases": [], "status": record["status"]}
    if record["status"] != "ok":
        return entry | {"why": record["why"]}
    done = finish(record["metrics"], arch)
    entry |= {"hash": record["hash"], "asm": record["asm"], "metrics": done}
    return entry | {"notes": list(record["notes"]), "will_not_load": will_not_load(done, arch)}


Run = tuple[str, Json | None, Mapping[int, Json], str]
"""Architecture, listing (None without), records by unit, and what made the whole of it fail ("" if nothing did)."""


def document(runs: Sequence[Run]) -> JsonObject:
    """The result file of all architectures; free of paths, dates and chance."""
    broken: dict[str, dict[str, str]] = {}
    found: list[JsonObject] = []
    failures: list[dict[str, str]] = []
    versions: set[str] = set()
    for arch, listing, records, failure in runs:
        if failure:
            failures.append({"arch": arch, "why": failure})
        if listing is not None:
            versions.add(listing["triton"])
            broken |= {b["module"]: b for b in listing["broken"]}
            found += entries(arch, listing, records) if not failure else []
    return {
        "format": "ridgeline-isa",
        "version": 1,
        "triton": "/".join(sorted(versions)) or None,
        "arches": [run[0] for run in runs],
        "entries": found,
        "broken": list(broken.values()),
        "failures": failures,
    }
