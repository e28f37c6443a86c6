"""asv's environment type "worktree": commits as git worktrees, one prebuilt Python, records that keep their trials.

asv 0.6 loads this module because asv.conf.json lists it; nothing in asv is patched.  It

* checks the commit under test out as a git worktree in asv's env_dir; nothing is built or installed;
* asks the measuring program what that checkout declares and tells benchmarks/suite.py through one JSON file;
* keeps the grid of parameters fixed while several commits run: asv discovers it once and then names combinations by
  number, so a commit with other cases would otherwise be measured under wrong names;
* records the trials of each kernel with :mod:`ci.records.store` as soon as they are measured;
* makes the files that asv reads from the notes of our records, whatever asv is asked to do;
* names this machine by its fingerprint, so that `asv machine` is not needed;
* counts as commits of a branch those that a merge brought in, as every other reader of the records does.
"""

from __future__ import annotations

import argparse
import dataclasses
import functools
import itertools
import json
import math
import os
import shlex
import sys
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from asv import util
from asv.config import Config
from asv.console import log
from asv.environment import Environment
from asv.machine import Machine, MachineCollection
from asv.plugins.git import Git

from benchmarks.shapes import built
from ci.git import checkout as worktrees
from ci.git.command import GitError
from ci.git.repository import Repository
from ci.harness import HARNESS, TIERS, MeasureError, query
from ci.records import rows
from ci.records import store as records
from ci.records.pooling import Cell, PooledTrials, pool
from ci.trials import file as trial_files
from ci.trials.trial import Declaration
from ci.trials.trial import Environment as Versions
from ci.trials.trial import Machine as Fingerprinted

Json = dict[str, Any]
Outcome = Mapping[str, str | list[float]]
"""What asv is told of one combination: {"samples": seconds}, {"failed": why} or {"absent": why}."""


def declared(listing: Json) -> dict[str, Declaration]:
    """The operators of a listing, {"kernels": {name: declaration}, "broken": [{"module", "reason"}]}, by name."""
    return {name: Declaration.of(data) for name, data in listing["kernels"].items()}


@dataclasses.dataclass(frozen=True)
class Installed:
    """The commit under test: where it is checked out, its committer date (ms since 1970 UTC), what it declares."""

    tree: str
    commit: str
    date_ms: int
    listing: Json

    @functools.cached_property
    def operators(self) -> dict[str, Declaration]:
        """By name."""
        return declared(self.listing)

    @property
    def name(self) -> str:
        """For messages."""
        return f"commit {self.commit[:8]}"


@dataclasses.dataclass(frozen=True)
class Grid:
    """What a run measures, fixed while several commits run.

    benchmarks: entries of asv's benchmarks.json.  operators: the declarations whose benchmark definitions count.
    """

    benchmarks: Mapping[str, Json]
    operators: Mapping[str, Declaration]

    @classmethod
    def union(cls, installed: Installed, current: Mapping[str, Declaration]) -> Grid:
        """What the discovered commit declares, widened by the operators and cases of the current checkout.

        So `asv find`, which discovers from its oldest commit, knows the operators of today.
        """
        benchmarks: Json = rows.broken_benchmark()
        for operator in current.values():
            benchmarks |= rows.benchmarks_of(operator)
        for operator in installed.operators.values():
            benchmarks = rows.merged(benchmarks, rows.benchmarks_of(operator, installed.date_ms))
        benchmarks.pop("version", None)
        return cls(benchmarks, {**current, **installed.operators})

    def combinations(self, operator: str) -> Iterator[tuple[str, str]]:
        """Backend and case of each combination of an operator's times."""
        axes = self.benchmarks[f"{operator}.{rows.TIME}"]["params"]
        backends, cases = ([text[1:-1] for text in axis] for axis in axes)
        return itertools.product(backends, cases)


def document(installed: Installed, grid: Grid, tier: str) -> Json:
    """What benchmarks/suite.py reads; its docstring describes it."""
    absent = {name: why for name in grid.operators if (why := why_absent(name, grid, installed))}
    return {
        "tree": installed.tree,
        "commit": installed.commit,
        "date_ms": installed.date_ms,
        "listing": installed.listing,
        "tier": tier,
        "broken": installed.listing["broken"],
        "absent": absent,
        "values": dict(_exact_values(installed, grid, absent)),
        "benchmarks": grid.benchmarks,
    }


def why_absent(operator: str, grid: Grid, installed: Installed, case: str = "") -> str:
    """Why an operator, or a case of it, cannot be measured at a commit in this run, "" if it can."""
    own, counts = installed.operators.get(operator), grid.operators[operator]
    if own is None:
        return f"{installed.name} declares no kernel {operator!r}"
    if own.definition != counts.definition:
        return (
            f"{installed.name} measures {operator!r} by another benchmark definition ({own.definition}) than this run "
            f"({counts.definition}); `asv run {installed.commit[:8]}^!` measures it by its own"
        )
    if case and case not in own.cases:
        return f"{installed.name} declares no case {case!r} of {operator!r}"
    if case and (case not in counts.cases or own.cases[case].definition != counts.cases[case].definition):
        return f"{installed.name} means something else by case {case!r}: its benchmark definition differs"
    return ""


def outcomes(operator: str, grid: Grid, installed: Installed, tier: str, measured: PooledTrials | None) -> Json:
    """Outcomes of an operator by backend and case."""
    outcomes: dict[str, dict[str, Outcome]] = {}
    missing = f"{installed.name} has no time of it in tier {tier!r} (RIDGELINE_TIER) with this number of devices"
    for backend, case in grid.combinations(operator):
        cell = measured.cells.get((operator, backend, case)) if measured else None
        why = why_absent(operator, grid, installed, case)
        outcome = {"absent": why or missing} if why or cell is None else _outcome(cell)
        outcomes.setdefault(backend, {})[case] = outcome
    return outcomes


def _outcome(cell: Cell) -> Outcome:
    if cell.trials:
        return {"samples": [float(value) for trial in cell.trials for value in trial]}
    failed = rows.value_of(cell) is None
    return {"failed" if failed else "absent": f"{cell.status}: {cell.why}"}


def _exact_values(
    installed: Installed, grid: Grid, absent: Mapping[str, str]
) -> Iterator[tuple[str, dict[str, float]]]:
    """FLOPs or bytes of each case for which the declaration states them, by benchmark."""
    for name in grid.benchmarks:
        operator, _, series = name.partition(".")
        if series in rows.EXACT and operator not in absent:
            own = installed.operators[operator]
            costs = {case: rows.cost_of(own, case, series) for case in own.cases}
            yield name, {case: value for case, value in costs.items() if not math.isnan(value)}


class Fingerprint:
    """A class attribute that finds this machine's name when it is read, and introduces the machine to asv."""

    def __get__(self, instance: object, owner: type | None = None) -> str:
        machine = rows.machine_record(built(Fingerprinted, doctor()["machine"]))
        MachineCollection.save(machine["machine"], machine)
        return machine["machine"]


Machine.hardcoded_machine_name = Fingerprint()


@functools.cache
def doctor() -> Json:
    """What the measuring program says about this machine and this Python: {"machine", "environment", ...}."""
    try:
        return query("doctor")
    except MeasureError as error:
        raise util.UserError(str(error)) from None


class EveryParent(Git):  # type: ignore[misc]
    """`"dvcs": "git-every-parent"`: asv 0.6 follows first parents, and leaves out the records of what was merged."""

    dvcs = "git-every-parent"

    def get_hashes_from_range(self, range_spec: str) -> list[str]:
        """Commits of a range of git, newest first."""
        found: str = self._run_git(["rev-list", *shlex.split(range_spec), "--"], valid_return_codes=(0, 1), dots=False)
        return found.split()


class Worktree(Environment):  # type: ignore[misc]
    """One Python that is there already; a commit is a worktree of its own source."""

    tool_name = "worktree"

    def __init__(self, conf: Any, python: str, wanted: Any, tagged_env_vars: Any) -> None:
        versions = Versions.of(doctor()["environment"])
        self._env_name = versions.name
        self._requirements = versions.requirements
        self._results = Path(conf.results_dir).resolve()
        self._repository = Path(conf.repo if Path(conf.repo).is_dir() else conf.project).resolve()
        self._grid: Grid | None = None
        self._earlier: Json = {}
        conf.benchmark_dir = str(HARNESS / "benchmarks")  # a project of your own has no suite
        super().__init__(conf, versions.python, self._requirements, tagged_env_vars)
        self._suite = Path(self._path) / "suite.json"
        self._global_env_vars["RIDGELINE_SUITE"] = str(self._suite)

    @property
    def name(self) -> str:
        """The name that `ridgeline records add` gives this environment, so that both write one file."""
        return self._env_name

    @property
    def dir_name(self) -> str:
        """Folder under env_dir."""
        return self._env_name

    @property
    def installed_commit_hash(self) -> None:
        """Nothing is ever taken as installed: a checkout takes milliseconds."""

    def _get_installed_commit_hash(self) -> None:
        return None

    def check_presence(self) -> bool:
        """Whether the folder is there."""
        return Path(self._path).is_dir()

    def _setup(self) -> None:
        Path(self._path).mkdir(parents=True, exist_ok=True)

    def find_executable(self, executable: str) -> str:
        """The Python that runs asv, for "python"."""
        return sys.executable if executable == "python" else str(super().find_executable(executable))

    def install_project(self, conf: Any, repo: Any, commit_hash: str) -> None:
        """Check the commit out and tell the suite what it declares."""
        folder = Path(self._build_root) / (self._repo_subdir or "")
        date_ms = checkout(self._repository, Path(self._build_root), commit_hash)
        self._set_commit_hash(commit_hash)
        self._set_build_dirs(str(folder), None)
        self._global_env_vars["ASV_PYTHONPATH"] = str(folder)
        self._tell(Installed(str(folder), commit_hash, date_ms, listing(folder, commit_hash)))

    def run(self, args: Sequence[str], **kwargs: Any) -> Any:
        """Run asv's runner; what it discovers is widened before, what it measures recorded after."""
        task = args[1] if len(args) > 1 else ""
        if task == "discover":
            self._earlier = records.read_benchmarks(self._results)
            self._grid = None
            self._tell(self._installed())
        answer = self.run_executable("python", list(args), **kwargs)
        if task == "setup_cache" and answer[2] == 0:
            # Record what setup_cache left in its folder, and leave there what each combination hands to asv.
            operator, folder = args[3].split(".")[0], Path(kwargs["cwd"])
            installed = self._installed()
            assert self._grid is not None
            try:
                measured = self._pool(folder / "trials.jsonl", installed.commit)
            except records.RecordError as error:
                log.error(str(error))
                return f"{answer[0]}\n{error}", answer[1], 1
            found = outcomes(operator, self._grid, installed, chosen_tier(os.environ), measured)
            (folder / "outcomes.json").write_text(json.dumps(found))
        return answer

    def _installed(self) -> Installed:
        """As the suite's file says: asv may run the process that measures apart from the one that installed."""
        suite = json.loads(self._suite.read_text())
        return Installed(suite["tree"], suite["commit"], suite["date_ms"], suite["listing"])

    def _tell(self, installed: Installed) -> None:
        """Write the file that benchmarks/suite.py reads."""
        if self._grid is None:
            self._grid = Grid.union(installed, declared(listing(self._repository, None)))
        self._suite.write_text(json.dumps(document(installed, self._grid, chosen_tier(os.environ))))

    def _pool(self, path: Path, commit: str) -> PooledTrials | None:
        """All trials of this commit in this environment: the new ones and, where results are saved, all before."""
        file = trial_files.read(path) if path.exists() else trial_files.TrialFile(path)
        for one in file.rejected:
            log.warning(f"{one.at(path)}: {one.why}")
        if not file.trials:
            return None
        place = records.Place(file.trials[-1].machine.name, commit, self._env_name)
        if not saves(sys.argv):
            return pool(file.trials, place)
        for problem in records.record([file], self._results).problems:
            log.warning(str(problem))
        records.keep_grids(self._results, self._earlier)
        return records.pool_at(self._results, place)


def chosen_tier(environment: Mapping[str, str]) -> str:
    """RIDGELINE_TIER, "pr" by default.  UserError for another word, and for too few rounds for asv to see anything."""
    tier = environment.get("RIDGELINE_TIER", "pr")
    if tier not in TIERS:
        raise util.UserError(f"RIDGELINE_TIER is {tier!r}; it is one of {', '.join(TIERS)}")
    rounds = environment.get("RIDGELINE_ROUNDS", "")
    if rounds and not (rounds.isdecimal() and int(rounds) >= rows.FEWEST_SAMPLES):
        raise util.UserError(
            f"RIDGELINE_ROUNDS is {rounds!r}; give {rows.FEWEST_SAMPLES} or more:"
            " with 6 samples per side `asv compare` never calls anything different"
        )
    return tier


def saves(argv: Sequence[str]) -> bool:
    """Whether this asv command saves results; asv does not tell an environment."""
    return not any(word == "-n" or word.startswith(("--dry", "--skip-sa")) for word in argv[1:])


def checkout(repository: Path, folder: Path, commit: str) -> int:
    """Make `folder` a git worktree of `commit`, with nothing else in it; returns its committer date, ms since 1970 UTC.

    Raises ProcessError if git cannot: asv then goes on with the next commit.
    """
    try:
        worktrees.check_out(repository, folder, commit, in_place=True)
        return Repository(folder).resolve("HEAD").date_ms
    except GitError as error:
        log.error(str(error))
        raise util.ProcessError(["git", "worktree"], 1, "", str(error)) from error


@functools.cache
def listing(folder: Path, commit: str | None) -> Json:
    """What a checkout declares, asked once for a commit that lies there (None: the working tree).

    One that cannot be listed at all, being older than kernels/, is its one broken module.
    """
    try:
        answer = query("list", "--tree", str(folder))
    except MeasureError as error:
        return {"kernels": {}, "broken": [{"module": "kernels", "reason": str(error)}]}
    return {"kernels": {operator["kernel"]: operator for operator in answer["kernels"]}, "broken": answer["broken"]}


def make_files_of_asv(argv: Sequence[str]) -> None:
    """What asv reads, made of the notes in the results folder of the configuration that asv was started with.

    asv imports this module before it reads anything; what starts it otherwise (a test, a type checker) makes nothing.
    """
    program = Path(argv[0])
    if "asv" not in (program.stem, program.parent.name):
        return
    parser = argparse.ArgumentParser(add_help=False, allow_abbrev=False)
    parser.add_argument("--config", default="asv.conf.json")
    named = parser.parse_known_args(argv[1:])[0].config
    configuration = Config.load(Path(named).name)  # asv has gone to its folder
    try:
        for problem in records.make_asv_files(Path(configuration.results_dir)):
            log.warning(f"{problem}; asv shows its commit without it")
    except records.RecordError as error:
        log.error(str(error))


make_files_of_asv(sys.argv)
