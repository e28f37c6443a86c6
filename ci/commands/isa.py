"""`ridgeline isa`: what the compiler emits, compared over commits, or recorded for a range of them."""

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

import click
from filelock import FileLock

from ci.git.command import GitError
from ci.git.repository import Commit, Repository
from ci.harness import HARNESS
from ci.isa import text as isa_text
from ci.isa.compiled import (
    TARGETS,
    CompiledTree,
    CompileError,
    CompileStatus,
    IsaError,
    Json,
    Metrics,
    TreeCompiler,
    Wanted,
    parse,
)
from ci.isa.judge import CodeVerdict, IsaJudgement, as_json, by_case, compare
from ci.isa.rules import load_policy
from ci.isa.text import code_diff
from ci.judging.reach import NO_FILES, file_labels
from ci.options import (
    CASES,
    DRY_RUN,
    JSON,
    POLICY,
    Given,
    err_console,
    flag,
    option,
    print_json,
    project_folder,
    several,
    verb,
)
from ci.records import rows as asv_files
from ci.records.store import read_benchmarks
from ci.report.words import plural
from ci.whole_files import replace
from kernels import project

EXAMPLES = """\
ridgeline isa                                  the code of the working tree
  ridgeline isa main my-branch --show            what changed, judged
  ridgeline isa main --execute --kernel gemm     and what its launches execute, in an emulator
  ridgeline isa --range v1.0..HEAD               record the history (..HEAD: all of it); goes on where it stopped
  asv --config asv.isa.json compare -f 1 A B     the same counts by asv
"""


@verb(EXAMPLES, title="Examples")
@click.argument("base", required=False)
@click.argument("head", required=False)
@several("--arch ARCH -> arches", "gfx942, gfx950, sm_90 (repeatable; default: all; with --range the AMD ones).")
@CASES
@POLICY
@JSON
@DRY_RUN
@flag("--execute", "Also count what launches execute, in an emulator of gfx942 and gfx950 (extra emulate).")
@flag("--show", "Show the changed instructions as a diff.")
@option("--range A..B -> span", "Record the commits after A up to B that touch kernels.")
@option("--newest N", "With --range: only the newest N of them.", click.IntRange(min=1))
@project_folder("--results", "code", "results_isa", "The recorded ")
def isa(given: Given) -> int:
    """Compile for MI300X, MI355X and H200 without a GPU: metrics, differences, verdict.

    With BASE, compare it with HEAD (default: the working tree).  Exit codes: 0 the same code, 1 regression, 2 no
    verdict: other code that no rule calls worse, or nothing to compare; 3 usage.
    """
    if given.base and given.span:
        raise click.UsageError("BASE HEAD and --range exclude each other; give one of them")
    if given.execute and given.span:
        raise click.UsageError("--execute counts what two commits execute; with --range leave it out")
    if given.newest and not given.span:
        raise click.UsageError("--newest belongs to --range; give for instance --range ..HEAD")
    try:
        root = Repository(Path.cwd()).root
    except GitError:  # no git, or no repository: the folder itself
        root = Path.cwd() if (Path.cwd() / "kernels").is_dir() else HARNESS
    compiler = TreeCompiler(root / ".ridgeline" / "isa", err_console())
    chosen = given.tier, given.kernels, given.cases, given.backends
    wanted = Wanted(given.arches or (() if given.span else TARGETS), *chosen, execute=given.execute)
    if given.span:
        return _record_range(given, Repository(root), compiler, wanted)
    if given.base:
        return _compare(given, Repository(root), compiler, wanted)
    return _describe(given, root, compiler, wanted)


def _describe(given: Given, root: Path, compiler: TreeCompiler, wanted: Wanted) -> int:
    """Print the metrics of the working tree."""
    if given.dry_run:
        return _would(f"compile {root}")
    text = compiler.result(root, wanted, "working tree")
    tree = parse(text, "the result of compiling the working tree")
    if given.as_json:
        click.echo(text, nl=False)
    else:
        click.echo(isa_text.listing(tree), nl=False)
    if not tree.entries:
        _report(f"{root} declares nothing that can be compiled ahead: no backend here has an isa()")
    return 0 if any(entry.code for entry in tree.entries) else 2


def _compare(given: Given, repository: Repository, compiler: TreeCompiler, wanted: Wanted) -> int:
    """Judge a commit, or the working tree, against another commit."""
    base, head, policy = given.base, given.head, load_policy(given.policy_file)
    if given.dry_run:
        return _would(f"compile {base} and {head or 'the working tree'}, and compare them")
    old = repository.checkout(base, "base")
    new = repository.checkout(head, "head") if head else repository.head_of_comparison()
    lenient = dataclasses.replace(wanted, lenient=True)
    before = compiler.compile(old.path, lenient, f"base {old.label}")
    after = compiler.compile(new.path, lenient if before.entries else wanted, f"head {new.label}")
    judgement = compare(before, after, policy, project.layout(new.path).renamed)
    if not given.arches:
        _report(f"compiled for {', '.join(wanted.arches)}, as `check` does")
    if given.as_json:
        named = ({"commit": side.commit.hash, "dirty": side.dirty} for side in (old, new))
        print_json(as_json(judgement) | dict(zip(("base", "head"), named, strict=True)))
    else:
        click.echo(isa_text.terminal(judgement), nl=False)
        if given.show:
            click.echo(changed_code(judgement, compiler.cache))
    return judgement.exit_code


def _record_range(given: Given, repository: Repository, compiler: TreeCompiler, wanted: Wanted) -> int:
    """Record every commit of a range; one that cannot be compiled is reported, and the others go on."""
    commits = commits_of(repository, given.span)[-(given.newest or 0) :]
    if given.dry_run:
        return _would(f"compile {plural(len(commits), 'commit')} and record their series under {given.results}")
    lenient, asked = dataclasses.replace(wanted, lenient=True), asked_of(wanted, installed_triton())

    def compile_tree(tree: Path, what: str) -> CompiledTree:
        return compiler.compile(tree, lenient, what)

    filled = record_range(repository, commits, given.results, asked, compile_tree, _report)
    if given.as_json:
        recorded = [str(path) for path in filled.recorded]
        print_json({"recorded": recorded, "known": filled.known, "problems": filled.problems})
    else:
        for problem in filled.problems:
            _report(f"Warning: {problem}")
        counts = f"{len(filled.known)} known already, {plural(len(filled.problems), 'problem')}."
        click.echo(f"{plural(len(filled.recorded), 'commit')} recorded in {given.results}, {counts}")
    return 0 if filled.recorded or filled.known else 2


def _report(text: str) -> None:
    err_console().print(text, markup=False, highlight=False, soft_wrap=True)


def _would(what: str) -> int:
    click.echo(f"Would {what}.")
    return 0


def changed_code(judgement: IsaJudgement, cache: Path) -> str:
    """The changed code of every configuration that is worse (or, without such, changed), from the kept code texts."""
    blocks = []
    for difference in judgement.of(CodeVerdict.SLOWER) or judgement.of(CodeVerdict.CHANGED):
        assert difference.base is not None
        assert difference.head is not None
        base, head = ((cache / entry.emitted.asm).read_text() for entry in (difference.base, difference.head))
        blocks.append(f"{difference.name} on {difference.arch}\n{code_diff(base, head)}")
    return "\n".join(blocks)


# What the compiler emits as exact asv series: one value per kernel, backend, configuration and architecture.
#
# They lie in a results folder of their own (asv.isa.json) under one machine, `isa`: code depends on the commit and on
# Triton, not on the machine that compiled it.  In the folder of the measured records asv would find one machine more,
# and ask for `--machine` where there is only one.  asv takes smaller for better, and of each series less is better.


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
    for (kernel, backend, arch, case), entries in by_case(compiled).items():
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


def record(tree: CompiledTree, commit: Commit, results_dir: Path, asked: Json | None = None) -> Path:
    """Write a commit's series into its asv file; other kernels' rows in it are kept.  Twice is the same as once.

    asked: what was to be compiled; kept for :func:`record_range`, unknown to asv.
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
            if _file_of(path_of(results, commit, asked["triton"]), commit).get("asked") == asked:
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
