"""What the compiler emits as exact asv series: one value per kernel, backend, configuration and architecture.

They lie in a results folder of their own (asv.isa.json) under one machine, `isa`: code depends on the commit and on
Triton, not on the machine that compiled it.  In the folder of the measured records asv would find one machine more, and
ask for `--machine` where there is only one.  asv takes smaller for better, and of each series less is better.
"""

from __future__ import annotations

import dataclasses
import importlib.metadata
import itertools
import json
import math
import platform
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from filelock import FileLock

from ci.git.command import GitError
from ci.git.repository import Commit, Repository
from ci.isa.compiled import CompiledTree, CompileError, CompileStatus, Executed, IsaError, Json, Metrics, Wanted
from ci.isa.judge import entries_by_case
from ci.judging.reach import NO_FILES, file_labels
from ci.records import rows as asv_files
from ci.records.store import read_benchmarks
from ci.report.words import plural
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

EXECUTED: dict[str, tuple[str, Callable[[Executed], int]]] = {
    "executed_instructions": ("instructions", lambda c: c.total),
    "executed_valu": ("instructions", lambda c: c.classes.get("valu", 0)),
    "executed_matrix_cycles": ("cycles", lambda c: c.matrix_cycles),
    "executed_memory_requests": ("requests", lambda c: c.all_requests),
    "executed_memory_bytes": ("bytes", lambda c: 64 * sum(c.lines.values())),
    "executed_lds_cycles": ("cycles", lambda c: c.lds_cycles),
    "executed_bank_conflicts": ("cycles", lambda c: c.bank_conflicts),
    "executed_scalar_loads": ("instructions", lambda c: c.classes.get("scalar_load", 0)),
    "executed_waits": ("instructions", lambda c: c.classes.get("wait", 0)),
    "executed_divergent_branches": ("branches", lambda c: c.divergent),
    "executed_idle_lanes": ("lanes", lambda c: c.idle),
}
"""The same of what the launch of a case executes in an emulator, in the small shape that stands for it."""

Rows = dict[str, list[Any]]
"""Results in asv's format: benchmark name -> [values, params, version, start]."""

Cell = tuple[str, str, str]
"""backend, configuration, arch"""


def asked_of(wanted: Wanted, triton: str | None) -> Json:
    """What was asked of the compiler when a commit was recorded; asked again, the record is left as it is.

    series: what a metric meant then (SERIES_VERSION).  A record that has something else there is made again.
    """
    chosen = {name: list(getattr(wanted, name)) for name in ("kernels", "cases", "backends")}
    head: Json = {"arches": list(wanted.arches), "tier": wanted.tier}
    executed: Json = {"execute": True} if wanted.execute else {}
    return {**head, **chosen, **executed, "triton": triton, "series": SERIES_VERSION}


def installed_triton() -> str | None:
    """The version of Triton in this Python, None without one."""
    try:
        return importlib.metadata.version("triton")
    except importlib.metadata.PackageNotFoundError:
        return None


def env_name(triton: str | None) -> str:
    """The asv environment: only Triton matters."""
    return f"triton{str(triton).split('+')[0]}"


def compiled_cells(tree: CompiledTree) -> dict[str, dict[Cell, Metrics | None]]:
    """By kernel, what is declared, None where it does not compile.

    A configuration is a case, with a label where the case has several.
    """
    entries = tuple(entry for entry in tree.entries if entry.status is not CompileStatus.UNSUPPORTED)
    by_case = entries_by_case(dataclasses.replace(tree, entries=entries))
    cells: dict[str, dict[Cell, Metrics | None]] = {}
    for entry in entries:
        for case in entry.cases:
            labels = {other.label for other in by_case[entry.kernel, entry.backend, entry.arch, case]}
            name = f"{case} [{entry.label}]" if len(labels) > 1 else case
            own = cells.setdefault(entry.kernel, {})
            own[entry.backend, name, entry.arch] = entry.code.metrics if entry.code else None
    return cells


def executed_cells(tree: CompiledTree) -> dict[str, dict[Cell, Executed | None]]:
    """By kernel, what launches execute, None where they could not be executed."""
    cells: dict[str, dict[Cell, Executed | None]] = {}
    for launch in tree.executed:
        own = {(launch.backend, case, launch.arch): launch.counts for case in launch.cases}
        cells.setdefault(launch.kernel, {}).update(own if launch.at else {})
    return cells


def rows(tree: CompiledTree, started_ms: int) -> Rows:
    """asv rows by benchmark name: null for what failed to compile, NaN for what does not exist."""
    return {name: [values, params, SERIES_VERSION, started_ms] for name, _, params, values in _series(tree)}


def benchmarks(tree: CompiledTree, date_ms: int) -> dict[str, dict[str, Any]]:
    """Entries of benchmarks.json for the series of a compiled tree."""
    about = {"type": "track", "param_names": ["backend", "configuration", "arch"]}
    return {
        name: {"name": name, "unit": unit, **about, "params": params, "version": SERIES_VERSION, "declared_ms": date_ms}
        for name, unit, params, _ in _series(tree)
    }


def _series(tree: CompiledTree) -> Iterator[tuple[str, str, list[list[str]], list[float | None]]]:
    """Name, unit, parameters and values of each series, the values in the order of the parameters' product."""
    tables: tuple[tuple[Mapping[str, Any], Mapping[str, Mapping[Cell, Any]]], ...]
    tables = ((SERIES, compiled_cells(tree)), (EXECUTED, executed_cells(tree)))
    for series, by_kernel in tables:
        for kernel, cells in by_kernel.items():
            axes = [list(dict.fromkeys(axis)) for axis in zip(*cells, strict=True)]
            params = [[repr(value) for value in axis] for axis in axes]
            for name, (unit, value_of) in series.items():
                values = [_value(cells, cell, value_of) for cell in itertools.product(*axes)]
                if any(value is None or not math.isnan(value) for value in values):
                    yield f"{kernel}.track_isa_{name}", unit, params, values


def _value(cells: Mapping[Cell, Any], cell: tuple[str, ...], value_of: Callable[[Any], int | None]) -> float | None:
    """NaN for what does not exist, None for what failed."""
    counts = cells.get((cell[0], cell[1], cell[2]), math.nan)
    value = counts if counts is None or counts is math.nan else value_of(counts)
    return math.nan if value is None and counts is not None else value


# ---- files ---------------------------------------------------------------------------------------------------------


def path_of(results_dir: Path, commit: Commit, triton: str | None) -> Path:
    """The asv file of a commit under a version of Triton."""
    return results_dir / MACHINE / f"{commit.hash[:8]}-{env_name(triton)}.json"


def is_recorded(results_dir: Path, commit: Commit, asked: Json) -> bool:
    """Whether a commit has been recorded as asked, see :func:`record`."""
    return bool(_file_of(path_of(results_dir, commit, asked["triton"]), commit).get("asked") == asked)


def record(tree: CompiledTree, commit: Commit, results_dir: Path, asked: Json | None = None) -> Path:
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


def _asv_file(tree: CompiledTree, commit: Commit, kept: Rows, asked: Json | None) -> Json:
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
        "asked": asked,
    }


def _file_of(path: Path, commit: Commit) -> dict[str, Any]:
    """The commit's file as it is; empty if it is missing or torn, since compiling again gives all of it."""
    try:
        data = json.loads(path.read_text())
    except (OSError, ValueError):
        return {}
    good = isinstance(data, dict) and data.get("commit_hash") == commit.hash and isinstance(data.get("results"), dict)
    return data if good else {}


# The machine code of a range of commits: each is compiled in a worktree and recorded as series for asv.


Compile = Callable[[Path, str], CompiledTree]
"""(source tree, its name in the progress bar) -> what it compiles to; raises CompileError or IsaError."""


@dataclasses.dataclass
class Filled:
    """What became of a range: files written, commits that had one already, and problems in a sentence each."""

    recorded: list[Path] = dataclasses.field(default_factory=list)
    known: list[str] = dataclasses.field(default_factory=list)
    problems: list[str] = dataclasses.field(default_factory=list)

    @property
    def exit_code(self) -> int:
        """0 if the range has records now, 2 if nothing in it could be recorded."""
        return 0 if self.recorded or self.known else 2


def commits_of(repository: Repository, span: str) -> list[Commit]:
    """The commits after A up to B of "A..B" ("..B": from the first one), oldest first, along first parents.

    Those that leave the code of all operators as it was compile to what the one before does and are left out.
    RangeError for another form, GitError for ends that do not exist.
    """
    start, end = repository.ends(span)
    commits = repository.commits(start, end)
    if not commits:
        return []
    labels = file_labels(repository, [repository.resolve(start), *commits] if start else commits)
    labels = labels if start else [NO_FILES, *labels]
    changes = itertools.pairwise(labels)
    return [commit for commit, (before, after) in zip(commits, changes, strict=True) if before != after]


def record_range(
    repository: Repository,
    commits: Sequence[Commit],
    results: Path,
    asked: Json,
    compile_tree: Compile,
    report: Callable[[str], None],
) -> Filled:
    """Compile and record commits; those that are recorded as asked stay, one that cannot be compiled stops nothing.

    report: hears what became of each.
    """
    filled = Filled()
    for number, commit in enumerate(commits, 1):
        place = f"{number}/{len(commits)} {commit.short}"
        try:
            if is_recorded(results, commit, asked):
                filled.known.append(commit.short)
                outcome = "recorded already"
            else:
                with repository.borrowed(commit) as folder:
                    outcome = _recorded(compile_tree(folder, place), commit, results, asked, filled)
        except (CompileError, IsaError, GitError) as error:
            outcome = str(error)
            filled.problems.append(f"{commit.short}: {error}")
        report(f"{place} {commit.subject}: {outcome}")
    return filled


def _recorded(tree: CompiledTree, commit: Commit, results: Path, asked: Json, filled: Filled) -> str:
    """Record one commit; what became of it.  A commit without kernels is recorded as nothing."""
    lost = [f"module {name} cannot be imported: {why}" for name, why in tree.broken.items()]
    filled.problems += [f"{commit.short}: {why}" for why in (*tree.failures.values(), *lost)]
    if tree.failures and not tree.entries:
        return f"{commit.short}: {next(iter(tree.failures.values()))}"
    filled.recorded.append(record(tree, commit, results, None if tree.failures else asked))
    if not tree.entries:
        return "declares nothing to compile"
    failed = sum(entry.status in (CompileStatus.FAILED, CompileStatus.REFUSED) for entry in tree.entries)
    doubt = f", {failed} of them {'does' if failed == 1 else 'do'} not compile" if failed else ""
    return plural(len(tree.entries), "configuration") + doubt
