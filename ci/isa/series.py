"""What the compiler emits as exact asv series: one value per kernel, backend, configuration and architecture.

They lie in a results folder of their own (asv.isa.json) under one machine, `isa`: code depends on the commit and on
Triton, not on the machine that compiled it.  In the folder of the measured records asv would find one machine more, and
ask for `--machine` where a desk has only one.  asv takes smaller for better: of each series less is better.
"""

from __future__ import annotations

import itertools
import json
import math
import os
import platform
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

from filelock import FileLock

from ci.git.repository import Commit
from ci.records import asv_files
from ci.records.store import read_benchmarks

MACHINE = "isa"
"""Name of the machine in asv's sense.  No device reports it, so it collides with none."""

YARDSTICK = "isa-1"
"""asv version of every series; raise it when a metric means something else."""

_AMD_WAVES, _NVIDIA_WARPS = 8, 16
"""Waves a SIMD can hold: CDNA3 and CDNA4 8, Hopper 16 warps a sub-core (kernels.hardware: waves_per_simd)."""

SERIES: dict[str, tuple[str, Callable[[Mapping[str, Any]], float | None]]] = {
    "vgpr": ("registers", lambda m: m.get("vgpr", m.get("registers"))),
    "spills": ("registers", lambda m: m.get("vgpr_spills")),
    "scalar_spills": ("registers", lambda m: m.get("sgpr_spills")),
    "scratch_bytes": ("bytes", lambda m: m["scratch_bytes"]),
    "scratch_ops_in_loops": ("instructions", lambda m: m["scratch_ops_in_loops"]),
    "lds_bytes": ("bytes", lambda m: m["lds_bytes"]),
    "empty_wave_slots": ("waves", lambda m: (_AMD_WAVES if "vgpr" in m else _NVIDIA_WARPS) - m["occupancy"]),
    "code_bytes": ("bytes", lambda m: m["code_bytes"]),
    "loop_instructions": ("instructions", lambda m: (m["loop"] or {}).get("instructions")),
    "stores": ("instructions", lambda m: sum(m["store_widths"].values())),
    "loads": ("instructions", lambda m: sum(m["load_widths"].values())),
    "remote_stores": ("instructions", lambda m: sum(m.get("remote_store_widths", {}).values())),
    "subdword_remote_stores": ("instructions", lambda m: m.get("subdword_remote_stores")),
    "heap_base_loads": ("loads", lambda m: m.get("heap_base_loads")),
    "barriers": ("instructions", lambda m: m["barriers"]),
    "waits": ("instructions", lambda m: m["waits"]),
}
"""Unit and value of each series, None where the architecture does not have it."""

Rows = dict[str, list[Any]]
Grid = dict[str, dict[tuple[str, str, str], Mapping[str, Any]]]


def env_name(document: Mapping[str, Any]) -> str:
    """The asv environment: only Triton matters."""
    return f"triton{str(document['triton']).split('+')[0]}"


def grid(document: Mapping[str, Any]) -> Grid:
    """kernel -> (backend, configuration, arch) -> entry; a configuration is a case, and its label if it has more."""
    found: Grid = {}
    entries = [(e, case) for e in document["entries"] if e["status"] != "unsupported" for case in e["cases"]]
    labels: dict[tuple[str, ...], set[str]] = {}
    for entry, case in entries:
        labels.setdefault((entry["kernel"], entry["backend"], entry["arch"], case), set()).add(entry["label"])
    for entry, case in entries:
        several = len(labels[entry["kernel"], entry["backend"], entry["arch"], case]) > 1
        name = f"{case} [{entry['label']}]" if several else case
        found.setdefault(entry["kernel"], {})[entry["backend"], name, entry["arch"]] = entry
    return found


def rows(document: Mapping[str, Any], started_ms: int) -> Rows:
    """asv rows by benchmark name: null for what failed to compile, NaN for what does not exist."""
    return {name: [values, params, YARDSTICK, started_ms] for name, _, params, values in _series(document)}


def benchmarks(document: Mapping[str, Any], date_ms: int) -> dict[str, dict[str, Any]]:
    """Entries of benchmarks.json for the series of a result file."""
    return {
        name: {
            "name": name,
            "unit": unit,
            "type": "track",
            "param_names": ["backend", "configuration", "arch"],
            "params": params,
            "version": YARDSTICK,
            "declared_ms": date_ms,
        }
        for name, unit, params, _ in _series(document)
    }


def _series(document: Mapping[str, Any]) -> Iterator[tuple[str, str, list[list[str]], list[float | None]]]:
    for kernel, cells in grid(document).items():
        keys = list(cells)
        axes = [list(dict.fromkeys(axis)) for axis in zip(*keys, strict=True)]
        params = [[repr(value) for value in axis] for axis in axes]
        for series, (unit, value_of) in SERIES.items():
            values = [
                _value(cells.get((backend, name, arch)), value_of) for backend, name, arch in itertools.product(*axes)
            ]
            if any(value is None or not math.isnan(value) for value in values):
                yield f"{kernel}.track_isa_{series}", unit, params, values


def _value(entry: Mapping[str, Any] | None, value_of: Callable[[Mapping[str, Any]], float | None]) -> float | None:
    if entry is None:
        return math.nan
    if entry["status"] != "ok":
        return None
    value = value_of(entry["metrics"])
    return math.nan if value is None else value


def path_of(results_dir: Path, commit: Commit, triton: str) -> Path:
    """The asv file of a commit under a version of Triton."""
    return results_dir / MACHINE / f"{commit.hash[:8]}-{env_name({'triton': triton})}.json"


def recorded_as(path: Path, commit: Commit) -> Mapping[str, Any] | None:
    """What was asked of the compiler for a commit's file, as given to :func:`record`; None without such a file."""
    asked = _file_of(path, commit).get("asked")
    return asked if isinstance(asked, dict) else None


def record(
    document: Mapping[str, Any], commit: Commit, results_dir: Path, asked: Mapping[str, Any] | None = None
) -> Path:
    """Write a commit's series into its asv file; other kernels' rows in it are kept.  Twice is the same as once.

    asked: JSON values that say what was to be compiled; kept for :func:`recorded_as`, unknown to asv.
    """
    env, python = env_name(document), ".".join(platform.python_version_tuple()[:2])
    path = path_of(results_dir, commit, document["triton"])
    path.parent.mkdir(parents=True, exist_ok=True)
    needs = {"triton": env.removeprefix("triton")}
    with FileLock(results_dir / ".ridgeline.lock"):
        kept = _file_of(path, commit).get("results", {})
        new = rows(document, commit.date_ms)
        file = {
            "commit_hash": commit.hash,
            "env_name": env,
            "date": commit.date_ms,
            "python": python,
            "params": {"machine": MACHINE, "kind": "compiler", "python": python, **needs},
            "requirements": needs,
            "env_vars": {},
            "result_columns": asv_files.COLUMNS,
            "results": dict(sorted((kept | new).items())),
            "durations": {},
            "version": asv_files.VERSION,
            "asked": asked,
        }
        _write(path, json.dumps(file, separators=(",", ":")))
        machine = {"machine": MACHINE, "kind": "compiler", "version": 1}
        _write(path.with_name("machine.json"), json.dumps(machine, indent=4))
        grids = asv_files.merged(read_benchmarks(results_dir), benchmarks(document, commit.date_ms))
        _write(results_dir / "benchmarks.json", json.dumps(grids, indent=1, sort_keys=True))
    return path


def _file_of(path: Path, commit: Commit) -> dict[str, Any]:
    """The commit's file as it is; empty if it is missing or torn, since compiling again gives all of it."""
    try:
        data = json.loads(path.read_text())
    except (OSError, ValueError):
        return {}
    good = isinstance(data, dict) and data.get("commit_hash") == commit.hash and isinstance(data.get("results"), dict)
    return data if good else {}


def _write(path: Path, text: str) -> None:
    """Replace the whole file, or leave it untouched if nothing changed."""
    if path.exists() and path.read_text() == text:
        return
    draft = path.with_name(f".{path.name}.{os.getpid()}.draft")
    draft.write_text(text)
    os.replace(draft, path)
