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
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from filelock import FileLock

from ci.git.command import GitError
from ci.git.repository import Commit, Repository
from ci.isa.compiled import CompiledTree, CompileError, CompileStatus, IsaError, Json, Metrics, Wanted
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

Track = tuple[str, list[list[str]], list[float | None]]
"""Unit, parameters and values of a series, the values in the order of the parameters' product."""


def asked_of(wanted: Wanted, triton: str | None) -> Json:
    """What was asked of the compiler when a commit was recorded; asked again, the record is left as it is.

    series: what a metric meant then (SERIES_VERSION).  A record that has something else there is made again.
    """
    chosen = {name: list(getattr(wanted, name)) for name in ("arches", "kernels", "cases", "backends")}
    return {**chosen, "tier": wanted.tier, "triton": triton, "series": SERIES_VERSION}


def installed_triton() -> str | None:
    """The version of Triton in this Python, None without one."""
    try:
        return importlib.metadata.version("triton")
    except importlib.metadata.PackageNotFoundError:
        return None


def env_name(triton: str | None) -> str:
    """The asv environment: only Triton matters."""
    return f"triton{str(triton).split('+')[0]}"


def tracks(tree: CompiledTree) -> dict[str, Track]:
    """By benchmark name, over (backend, configuration, arch): None for what does not compile, NaN for what is absent.

    A configuration is a case, with a label where the case has several.
    """
    compiled = tuple(entry for entry in tree.entries if entry.status is not CompileStatus.UNSUPPORTED)
    cells: dict[str, dict[tuple[str, ...], Metrics | None]] = {}
    for (kernel, backend, arch, case), entries in entries_by_case(dataclasses.replace(tree, entries=compiled)).items():
        several = len({entry.label for entry in entries}) > 1
        for entry in entries:
            cell = backend, f"{case} [{entry.label}]" if several else case, arch
            cells.setdefault(kernel, {})[cell] = entry.code.metrics if entry.code else None
    by_name: dict[str, Track] = {}
    for kernel, of_cell in cells.items():
        axes = [list(dict.fromkeys(axis)) for axis in zip(*of_cell, strict=True)]
        for name, (unit, value_of) in SERIES.items():
            every = {cell: value_of(metrics) if metrics else None for cell, metrics in of_cell.items()}
            known = {cell: value for cell, value in every.items() if value is not None or of_cell[cell] is None}
            if known:
                values: list[float | None] = [known.get(cell, math.nan) for cell in itertools.product(*axes)]
                by_name[f"{kernel}.track_isa_{name}"] = unit, [[*map(repr, axis)] for axis in axes], values
    return by_name


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
    path, series, env = path_of(results_dir, commit, tree.triton), tracks(tree), env_name(tree.triton)
    machine, python = {"machine": MACHINE, "kind": "compiler"}, ".".join(platform.python_version_tuple()[:2])
    path.parent.mkdir(parents=True, exist_ok=True)
    with FileLock(results_dir / ".ridgeline.lock"):
        rows = {name: [values, params, SERIES_VERSION, commit.date_ms] for name, (_, params, values) in series.items()}
        rows = {**_file_of(path, commit).get("results", {}), **rows}
        needs = {"triton": env.removeprefix("triton")}
        file = asv_files.asv_file(commit.hash, env, commit.date_ms, machine, python, needs, rows)
        replace(path, json.dumps({**file, "asked": asked}, separators=(",", ":")))
        replace(path.with_name("machine.json"), json.dumps({**machine, "version": 1}, indent=4))
        axes = {"type": "track", "param_names": ["backend", "configuration", "arch"]}
        about = {**axes, "version": SERIES_VERSION, "declared_ms": commit.date_ms}
        own = {
            name: {"name": name, "unit": unit, **about, "params": params} for name, (unit, params, _) in series.items()
        }
        grids = asv_files.merged(read_benchmarks(results_dir), own)
        replace(results_dir / "benchmarks.json", json.dumps(grids, indent=1, sort_keys=True))
    return path


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
        return next(iter(tree.failures.values()))
    filled.recorded.append(record(tree, commit, results, None if tree.failures else asked))
    failed = sum(entry.status in (CompileStatus.FAILED, CompileStatus.REFUSED) for entry in tree.entries)
    count = plural(len(tree.entries), "configuration") if tree.entries else "declares nothing to compile"
    return count + (f", {failed} of them not compiled" if failed else "")
