"""What the compiler emits as exact asv series: one value per kernel, backend, configuration and architecture.

They lie in a results folder of their own (asv.isa.json) under one machine, `isa`: code depends on the commit and on
Triton, not on the machine that compiled it.  In the folder of the measured records asv would find one machine more, and
ask for `--machine` where there is only one.  asv takes smaller for better, and of each series less is better.
"""

from __future__ import annotations

import dataclasses
import itertools
import json
import math
import platform
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

from filelock import FileLock

from ci.git.repository import Commit
from ci.isa.compiled import CompiledEntry, CompiledTree, CompileStatus, Metrics
from ci.isa.judge import entries_by_case
from ci.records import asv_files
from ci.records.store import read_benchmarks
from ci.whole_files import replace

MACHINE = "isa"
"""Name of the machine in asv's sense.  No device reports it, so it collides with none."""

SERIES_VERSION = "isa-1"
"""asv version of every series; raise it when a metric means something else."""

_AMD_WAVES, _NVIDIA_WARPS = 8, 16
"""Waves that a SIMD can hold: CDNA3 and CDNA4 8, Hopper 16 warps per sub-core (kernels.hardware: waves_per_simd)."""

ValueOf = Callable[[Metrics], int | None]

SERIES: dict[str, tuple[str, ValueOf]] = {
    "vgpr": ("registers", lambda m: m.lane_registers),
    "spills": ("registers", lambda m: m.vgpr_spills),
    "scalar_spills": ("registers", lambda m: m.sgpr_spills),
    "scratch_bytes": ("bytes", lambda m: m.scratch_bytes),
    "scratch_ops_in_loops": ("instructions", lambda m: m.scratch_ops_in_loops),
    "lds_bytes": ("bytes", lambda m: m.lds_bytes),
    "empty_wave_slots": ("waves", lambda m: (_AMD_WAVES if m.is_amd else _NVIDIA_WARPS) - m.occupancy),
    "code_bytes": ("bytes", lambda m: m.code_bytes),
    "loop_instructions": ("instructions", lambda m: m.loop.instructions if m.loop else None),
    "stores": ("instructions", lambda m: sum(m.store_widths.values())),
    "loads": ("instructions", lambda m: sum(m.load_widths.values())),
    "remote_stores": ("instructions", lambda m: sum((m.remote_store_widths or {}).values())),
    "subdword_remote_stores": ("instructions", lambda m: m.subdword_remote_stores),
    "remote_store_drains": ("waits", lambda m: m.remote_store_drains),
    "heap_base_loads": ("loads", lambda m: m.heap_base_loads),
    "barriers": ("instructions", lambda m: m.barriers),
    "waits": ("instructions", lambda m: m.waits),
}
"""Unit and value of each series, None where the architecture does not have it."""

Rows = dict[str, list[Any]]
"""Results in asv's format: benchmark name -> [values, params, version, start]."""

Grid = dict[str, dict[tuple[str, str, str], CompiledEntry]]


@dataclasses.dataclass(frozen=True)
class Asked:
    """What was asked of the compiler when a commit was recorded; asked again, the record is left as it is.

    series: what a metric meant then (SERIES_VERSION).  A record that has something else there is made again.
    """

    arches: Sequence[str]
    tier: str
    kernels: Sequence[str]
    cases: Sequence[str]
    backends: Sequence[str]
    triton: str | None
    series: str = SERIES_VERSION

    def as_json(self) -> dict[str, Any]:
        """As it stands in the file, under "asked"."""
        listed = {name: list(getattr(self, name)) for name in ("kernels", "cases", "backends")}
        return {"arches": list(self.arches), "tier": self.tier, **listed, "triton": self.triton, "series": self.series}


def env_name(triton: str | None) -> str:
    """The asv environment: only Triton matters."""
    return f"triton{str(triton).split('+')[0]}"


def grid(tree: CompiledTree) -> Grid:
    """kernel -> (backend, configuration, arch) -> entry; a configuration is a case, and its label if it has more."""
    found: Grid = {}
    declared = dataclasses.replace(
        tree, entries=tuple(e for e in tree.entries if e.status is not CompileStatus.UNSUPPORTED)
    )
    labels = {where: {e.label for e in entries} for where, entries in entries_by_case(declared).items()}
    for entry in declared.entries:
        for case in entry.cases:
            several = len(labels[entry.kernel, entry.backend, entry.arch, case]) > 1
            name = f"{case} [{entry.label}]" if several else case
            found.setdefault(entry.kernel, {})[entry.backend, name, entry.arch] = entry
    return found


def rows(tree: CompiledTree, started_ms: int) -> Rows:
    """asv rows by benchmark name: null for what failed to compile, NaN for what does not exist."""
    return {one.name: [one.values, one.params, SERIES_VERSION, started_ms] for one in _series(tree)}


def benchmarks(tree: CompiledTree, date_ms: int) -> dict[str, dict[str, Any]]:
    """Entries of benchmarks.json for the series of a compiled tree."""
    return {
        one.name: {
            "name": one.name,
            "unit": one.unit,
            "type": "track",
            "param_names": ["backend", "configuration", "arch"],
            "params": one.params,
            "version": SERIES_VERSION,
            "declared_ms": date_ms,
        }
        for one in _series(tree)
    }


@dataclasses.dataclass(frozen=True)
class _Series:
    """One series of a kernel over its parameters, as asv has it: the values in the order of the params' product."""

    name: str
    unit: str
    params: list[list[str]]
    values: list[float | None]


def _series(tree: CompiledTree) -> Iterator[_Series]:
    for kernel, cells in grid(tree).items():
        axes = [list(dict.fromkeys(axis)) for axis in zip(*cells, strict=True)]
        params = [[repr(value) for value in axis] for axis in axes]
        entries = [cells.get((backend, name, arch)) for backend, name, arch in itertools.product(*axes)]
        for series, (unit, value_of) in SERIES.items():
            values = [_value(entry, value_of) for entry in entries]
            if any(value is None or not math.isnan(value) for value in values):
                yield _Series(f"{kernel}.track_isa_{series}", unit, params, values)


def _value(entry: CompiledEntry | None, value_of: ValueOf) -> float | None:
    if entry is None:
        return math.nan
    if entry.code is None:
        return None
    value = value_of(entry.code.metrics)
    return math.nan if value is None else value


# ---- files ---------------------------------------------------------------------------------------------------------


def path_of(results_dir: Path, commit: Commit, triton: str | None) -> Path:
    """The asv file of a commit under a version of Triton."""
    return results_dir / MACHINE / f"{commit.hash[:8]}-{env_name(triton)}.json"


def is_recorded(results_dir: Path, commit: Commit, asked: Asked) -> bool:
    """Whether a commit has been recorded as asked, see :func:`record`."""
    found = _file_of(path_of(results_dir, commit, asked.triton), commit).get("asked")
    return bool(found == asked.as_json())


def record(tree: CompiledTree, commit: Commit, results_dir: Path, asked: Asked | None = None) -> Path:
    """Write a commit's series into its asv file; other kernels' rows in it are kept.  Twice is the same as once.

    asked: what was to be compiled; kept for :func:`is_recorded`, unknown to asv.
    """
    path = path_of(results_dir, commit, tree.triton)
    path.parent.mkdir(parents=True, exist_ok=True)
    with FileLock(results_dir / ".ridgeline.lock"):
        file = _asv_file(tree, commit, _file_of(path, commit).get("results", {}), asked)
        replace(path, json.dumps(file, separators=(",", ":")))
        machine = {"machine": MACHINE, "kind": "compiler", "version": 1}
        replace(path.with_name("machine.json"), json.dumps(machine, indent=4))
        grids = asv_files.merged(read_benchmarks(results_dir), benchmarks(tree, commit.date_ms))
        replace(results_dir / "benchmarks.json", json.dumps(grids, indent=1, sort_keys=True))
    return path


def _asv_file(tree: CompiledTree, commit: Commit, kept: Rows, asked: Asked | None) -> dict[str, Any]:
    env, python = env_name(tree.triton), ".".join(platform.python_version_tuple()[:2])
    needs = {"triton": env.removeprefix("triton")}
    return {
        "commit_hash": commit.hash,
        "env_name": env,
        "date": commit.date_ms,
        "python": python,
        "params": {"machine": MACHINE, "kind": "compiler", "python": python, **needs},
        "requirements": needs,
        "env_vars": {},
        "result_columns": asv_files.COLUMNS,
        "results": dict(sorted((kept | rows(tree, commit.date_ms)).items())),
        "durations": {},
        "version": asv_files.VERSION,
        "asked": asked.as_json() if asked else None,
    }


def _file_of(path: Path, commit: Commit) -> dict[str, Any]:
    """The commit's file as it is; empty if it is missing or torn, since compiling again gives all of it."""
    try:
        data = json.loads(path.read_text())
    except (OSError, ValueError):
        return {}
    good = isinstance(data, dict) and data.get("commit_hash") == commit.hash and isinstance(data.get("results"), dict)
    return data if good else {}
