"""Compiled trees and result files of `python -m benchmarks.isa` by hand, for tests of what reads them."""

from __future__ import annotations

import json
from typing import Any

from ci.isa.compiled import CompiledEntry, CompiledTree, parse

METRICS: dict[str, Any] = {
    "vgpr": 86,
    "agpr": 0,
    "sgpr": 24,
    "vgpr_spills": 0,
    "sgpr_spills": 0,
    "scratch_bytes": 0,
    "scratch_ops": 0,
    "scratch_ops_in_loops": 0,
    "agpr_moves_in_loops": 0,
    "lds_bytes": 32768,
    "lds_limit": 65536,
    "waves_per_group": 8,
    "occupancy": 4,
    "occupancy_by_registers": 4,
    "occupancy_by_lds": 4,
    "code_bytes": 3400,
    "instructions": 532,
    "mix": {"salu": 120, "valu": 224, "mfma": 96, "load": 12, "store": 8, "lds": 48, "wait": 19, "barrier": 5},
    "matrix": {"v_mfma_f32_16x16x16_f16": 96},
    "load_widths": {"16": 12},
    "store_widths": {"8": 8},
    "store_names": {"buffer_store_dwordx2": 8},
    "bytes_per_load": 16.0,
    "bytes_per_store": 8.0,
    "loads_to_lds": 0,
    "remote_store_widths": {},
    "remote_store_names": {},
    "remote_store_bytes": 0,
    "remote_store_bytes_in_loops": 0,
    "bytes_per_remote_store": None,
    "subdword_remote_stores": 0,
    "remote_store_drains": 0,
    "remote_store_drains_between": 0,
    "heap_base_loads": 0,
    "heap_base_loads_in_loops": 0,
    "lds_read_widths": {"2x8": 36},
    "lds_write_widths": {"2x8": 12},
    "barriers": 5,
    "waits": 30,
    "atomics": {},
    "loops": 1,
    "loop": {"instructions": 70, "depth": 1, "mix": {"mfma": 32, "lds": 16, "valu": 22}, "matrix_share": 0.4571},
}

REMOTE: dict[str, Any] = {
    "store_widths": {"16": 16},
    "store_names": {"global_store_dwordx4": 16},
    "remote_store_widths": {"16": 16},
    "remote_store_names": {"global_store_dwordx4": 16},
    "remote_store_bytes": 256,
    "heap_base_loads": 8,
}
"""What differs in a kernel that stores to remote ranks."""


def entry_json(
    kernel="gemm",
    code="a",
    *,
    backend="triton",
    label="",
    arch="gfx942",
    cases=("one",),
    status="ok",
    why="",
    will_not_load=None,
    notes=(),
    without=(),
    **metrics,
) -> dict[str, Any]:
    """One compilation; `code` is its hash, further keywords are its metrics.  without: metrics that are left out."""
    head = {"kernel": kernel, "backend": backend, "label": label, "arch": arch, "triton": "3.8.0"}
    head |= {"cases": list(cases), "status": status}
    if status != "ok":
        return head | {"why": why or "it says why"}
    kept = {name: value for name, value in (METRICS | metrics).items() if name not in without}
    remarks = {"notes": list(notes), "will_not_load": will_not_load}
    return head | {"hash": code, "asm": f"{code}.s", "metrics": kept} | remarks


def document_json(*entries, triton="3.8.0", broken=(), failures=()) -> dict[str, Any]:
    """A result file of these entries."""
    head = {"format": "ridgeline-isa", "version": 1, "triton": triton, "arches": ["gfx942"]}
    return head | {"entries": list(entries), "broken": list(broken), "failures": list(failures)}


def entry(*words, **fields) -> CompiledEntry:
    """The same, as it is read."""
    return parse(json.dumps(document_json(entry_json(*words, **fields))), "a result file").entries[0]


def document(*entries, triton="3.8.0", broken=(), failures=()) -> CompiledTree:
    """A compiled tree of these entries; broken and failures: {module or architecture: why}."""
    return CompiledTree(triton, ("gfx942",), entries, dict(broken), dict(failures))
