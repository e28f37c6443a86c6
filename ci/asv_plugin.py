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

import functools
import json
import os
import shlex
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from asv import util
from asv.config import Config
from asv.console import log
from asv.environment import Environment
from asv.machine import Machine, MachineCollection
from asv.plugins.git import Git

from benchmarks.shapes import built
from ci import asv_suite
from ci.asv_suite import Grid, Installed, Listing
from ci.git import checkout as worktrees
from ci.git.command import GitError
from ci.git.repository import Repository
from ci.harness import HARNESS, TIERS, MeasureError, query
from ci.records import rows
from ci.records import store as records
from ci.records.pooling import PooledTrials, pool
from ci.trials import file as trial_files
from ci.trials.trial import Environment as Versions
from ci.trials.trial import Machine as Fingerprinted


class Fingerprint:
    """A class attribute that finds this machine's name when it is read, and introduces the machine to asv."""

    def __get__(self, instance: object, owner: type | None = None) -> str:
        machine = rows.machine_record(built(Fingerprinted, doctor()["machine"]))
        MachineCollection.save(machine["machine"], machine)
        return machine["machine"]


Machine.hardcoded_machine_name = Fingerprint()


@functools.cache
def doctor() -> asv_suite.Json:
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
        self._earlier: asv_suite.Json = {}
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
        listed = listing(folder, commit_hash)
        self._tell(Installed(str(folder), commit_hash, date_ms, listed))

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
            found = asv_suite.outcomes(operator, self._grid, installed, chosen_tier(os.environ), measured)
            (folder / "outcomes.json").write_text(json.dumps(found))
        return answer

    def _installed(self) -> Installed:
        return Installed.read(json.loads(self._suite.read_text()))

    def _tell(self, installed: Installed) -> None:
        """Write the file that benchmarks/suite.py reads."""
        if self._grid is None:
            self._grid = Grid.union(installed, listing(self._repository, None))
        self._suite.write_text(json.dumps(asv_suite.document(installed, self._grid, chosen_tier(os.environ))))

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
def listing(folder: Path, commit: str | None) -> Listing:
    """What a checkout declares, asked once for a commit that lies there (None: the working tree)."""
    try:
        return Listing.of_answer(query("list", "--tree", str(folder)))
    except MeasureError as error:
        return Listing.of_nothing(str(error))


def make_files_of_asv(argv: Sequence[str]) -> None:
    """What asv reads, made of the notes in the results folder of the configuration that asv was started with.

    asv imports this module before it reads anything; what starts it otherwise (a test, a type checker) makes nothing.
    """
    program = Path(argv[0])
    if "asv" not in (program.stem, program.parent.name):
        return
    named = (argv[at + 1] if word == "--config" else word.partition("=")[2] for at, word in enumerate(argv)
             if word.startswith("--config"))  # fmt: skip
    configuration = Config.load(Path(next(named, "asv.conf.json")).name)  # asv has gone to its folder
    try:
        for problem in records.make_asv_files(Path(configuration.results_dir)):
            log.warning(f"{problem}; asv shows its commit without it")
    except records.RecordError as error:
        log.error(str(error))


make_files_of_asv(sys.argv)
