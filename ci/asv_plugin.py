"""asv's environment type "worktree": commits as git worktrees, one prebuilt Python, records that keep their trials.

asv 0.6 loads this module because asv.conf.json lists it; nothing in asv is patched.  It

* checks the commit under test out as a git worktree in asv's env_dir; nothing is built or installed;
* asks the harness what that tree declares and tells the suite (benchmarks/suite.py) through one JSON file;
* keeps the grid of parameters fixed while several commits run: asv discovers it once and then names combinations by
  number, so a commit with other cases would otherwise be measured under wrong names;
* records the trials of each kernel with :mod:`ci.records.store` as soon as they are measured;
* names this machine by its fingerprint, so that `asv machine` is not needed.
"""

from __future__ import annotations

import functools
import hashlib
import itertools
import json
import math
import os
import shutil
import subprocess
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from asv import util
from asv.console import log
from asv.environment import Environment
from asv.machine import Machine, MachineCollection

from ci.harness import HARNESS, MeasureError, query
from ci.records import asv_files
from ci.records import store as records
from ci.records.pooling import Pool, pool
from ci.trials.file import env_name, python_version, read_trials, requirements

TIERS = ("pr", "nightly", "sweep")


class Fingerprint:
    """A class attribute that finds out this machine's name when it is asked for, and introduces the machine to asv."""

    def __get__(self, instance: object, owner: type | None = None) -> str:
        machine = asv_files.machine_record(doctor()["machine"])
        MachineCollection.save(machine["machine"], machine)
        return machine["machine"]


Machine.hardcoded_machine_name = Fingerprint()


@functools.cache
def doctor() -> dict[str, Any]:
    """What the harness says about this machine and this Python: {"machine": .., "environment": .., ...}."""
    try:
        answer = query("doctor")
    except MeasureError as error:
        raise util.UserError(str(error)) from None
    missing = {"machine", "environment"} - answer.keys()
    if missing:
        raise util.UserError(
            f"`python -m benchmarks doctor --json` lacks {', '.join(sorted(missing))}; "
            "this checkout's benchmarks/ and ci/ do not belong together"
        )
    return answer


class Worktree(Environment):  # type: ignore[misc]
    """One Python that is there already; a commit is a worktree of its own source."""

    tool_name = "worktree"

    def __init__(self, conf: Any, python: str, wanted: Any, tagged_env_vars: Any) -> None:
        environment = doctor()["environment"]
        self._env_name = env_name(environment)
        self._requirements = requirements(environment)
        self._results = Path(conf.results_dir).resolve()
        self._grid: dict[str, Any] | None = None
        self._earlier: dict[str, Any] = {}
        super().__init__(conf, python_version(environment), self._requirements, tagged_env_vars)
        self._told = Path(self._path) / "suite.json"
        self._global_env_vars["RIDGELINE_SUITE"] = str(self._told)

    @property
    def name(self) -> str:
        """The name that `ridgeline record` gives this environment, so that both write one file."""
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
        checkout(Path(conf.repo if Path(conf.repo).is_dir() else conf.project), Path(self._build_root), commit_hash)
        tree = Path(self._build_root) / (self._repo_subdir or "")
        self._set_commit_hash(commit_hash)
        self._set_build_dirs(str(tree), None)
        self._global_env_vars["ASV_PYTHONPATH"] = str(tree)
        listed = listing(tree, commit_hash, Path(self._env_dir))
        self._tell({"tree": str(tree), "commit": commit_hash, "date_ms": commit_date_ms(tree), "listing": listed})

    def run(self, args: Sequence[str], **kwargs: Any) -> Any:
        """Run asv's runner; what it discovers is widened before, what it measures recorded after."""
        task = args[1] if len(args) > 1 else ""
        if task == "discover":
            self._earlier = records.read_benchmarks(self._results)
            self._grid = None
            self._tell(json.loads(self._told.read_text()))
        answer = self.run_executable("python", list(args), **kwargs)
        if task == "setup_cache" and answer[2] == 0:
            return self._record(answer, args[3].split(".")[0], Path(kwargs["cwd"]))
        return answer

    def _tell(self, known: dict[str, Any]) -> None:
        """Write the file that benchmarks/suite.py reads."""
        declared = known["listing"]["kernels"]
        if self._grid is None:
            self._grid = union(known, listing(HARNESS, None, Path(self._env_dir)))
        tier = chosen_tier(os.environ)
        absent = {
            kernel: why
            for kernel, grid in self._grid["kernels"].items()
            if (why := why_absent(kernel, grid, declared.get(kernel), known["commit"]))
        }
        exact = [name.split(".") for name in self._grid["benchmarks"] if name.partition(".")[2] in asv_files.EXACT]
        values = {
            f"{kernel}.{series}": exact_values(declared[kernel], series)
            for kernel, series in exact
            if kernel not in absent
        }
        told = {
            **known,
            "tier": tier,
            "broken": known["listing"]["broken"],
            "absent": absent,
            "values": values,
            "benchmarks": self._grid["benchmarks"],
        }
        self._told.write_text(json.dumps(told))

    def _record(self, answer: Any, kernel: str, folder: Path) -> Any:
        """Record what setup_cache left in its folder, and leave there what each combination hands to asv."""
        told = json.loads(self._told.read_text())
        assert self._grid is not None
        try:
            measured = self._pool(folder / "trials.jsonl", told["commit"])
        except records.RecordError as error:
            log.error(str(error))
            return f"{answer[0]}\n{error}", answer[1], 1
        found = outcomes(kernel, told, self._grid["kernels"][kernel], measured)
        (folder / "outcomes.json").write_text(json.dumps(found))
        return answer

    def _pool(self, trials: Path, commit: str) -> Pool | None:
        """All trials of this commit in this environment: the new ones and, where results are saved, all before."""
        lines, bad = read_trials(trials) if trials.exists() else ([], [])
        for number, _, why in bad:
            log.warning(f"{trials}:{number}: {why}")
        if not lines:
            return None
        place = records.Place(str(lines[-1].data["machine"]["name"]), commit, self._env_name)
        if not saves(sys.argv):
            return pool(lines, place)
        for problem in records.record([trials], self._results).problems:
            log.warning(str(problem))
        records.keep_grids(self._results, self._earlier)
        return records.pool_at(self._results, place)


def chosen_tier(environment: Mapping[str, str]) -> str:
    """RIDGELINE_TIER, "pr" by default.  UserError for another word, and for too few rounds for asv to see anything."""
    tier = environment.get("RIDGELINE_TIER", "pr")
    if tier not in TIERS:
        raise util.UserError(f"RIDGELINE_TIER is {tier!r}; it is one of {', '.join(TIERS)}")
    rounds = environment.get("RIDGELINE_ROUNDS", "")
    if rounds and not (rounds.isdecimal() and int(rounds) >= asv_files.FEWEST_SAMPLES):
        raise util.UserError(
            f"RIDGELINE_ROUNDS is {rounds!r}; give {asv_files.FEWEST_SAMPLES} or more: with 6 samples "
            "a side `asv compare` never calls anything different"
        )
    return tier


def saves(argv: Sequence[str]) -> bool:
    """Whether this asv command saves results; asv does not tell an environment."""
    return not any(word == "-n" or word.startswith(("--dry", "--skip-sa")) for word in argv[1:])


def checkout(repository: Path, tree: Path, commit: str) -> None:
    """Make `tree` a git worktree of `commit`, with nothing else in it.  ProcessError if git cannot."""
    if not _is_worktree(tree):
        shutil.rmtree(tree, ignore_errors=True)
        _git(repository, "worktree", "prune")
        _git(repository, "worktree", "add", "--quiet", "--force", "--detach", str(tree), commit)
    _git(tree, "checkout", "--quiet", "--force", "--detach", commit)
    _git(tree, "clean", "-ffdxq")


def commit_date_ms(tree: Path) -> int:
    """Committer date of what is checked out, milliseconds since 1970 UTC."""
    return int(_git(tree, "show", "-s", "--format=%ct", "HEAD")) * 1000


def listing(tree: Path, commit: str | None, env_dir: Path) -> dict[str, Any]:
    """{"kernels": {name: declaration}, "broken": [{"module", "reason"}]} of a tree; kept on disk for a commit.

    A tree that cannot be listed at all (it is older than kernels/) declares nothing, and that is its one broken module.
    """
    kept = env_dir / "listings" / f"{_harness_digest()}-{commit}.json"
    if commit and kept.exists():
        return dict(json.loads(kept.read_text()))
    try:
        answer: Mapping[str, Any] = query("list", "--tree", str(tree))
    except MeasureError as error:
        return {"kernels": {}, "broken": [{"module": "kernels", "reason": str(error)}]}
    found = {"kernels": {kernel["kernel"]: kernel for kernel in answer["kernels"]}, "broken": answer["broken"]}
    if commit:
        kept.parent.mkdir(parents=True, exist_ok=True)
        draft = kept.with_suffix(f".{os.getpid()}")
        draft.write_text(json.dumps(found))
        draft.replace(kept)
    return found


def union(known: Mapping[str, Any], current: Mapping[str, Any]) -> dict[str, Any]:
    """The grid of a run: what the discovered commit declares, widened by the kernels and cases of the current checkout.

    So `asv find`, which discovers from its oldest commit, knows the kernels of today.
    """
    of_commit, of_checkout = known["listing"]["kernels"], current["kernels"]
    benchmarks: dict[str, Any] = asv_files.broken_benchmark()
    for declared in of_checkout.values():
        benchmarks |= asv_files.benchmarks_of(declared)
    for declared in of_commit.values():
        benchmarks = asv_files.merged(benchmarks, asv_files.benchmarks_of(declared, known["date_ms"]))
    benchmarks.pop("version", None)
    return {"benchmarks": benchmarks, "kernels": {**of_checkout, **of_commit}}


def why_absent(kernel: str, grid: Mapping[str, Any], declared: Mapping[str, Any] | None, commit: str) -> str:
    """Why a kernel cannot be measured at a commit in this run, "" if it can."""
    if declared is None:
        return f"commit {commit[:8]} declares no kernel {kernel!r}"
    if declared["yardstick"] != grid["yardstick"]:
        return (
            f"commit {commit[:8]} measures {kernel!r} by another yardstick ({declared['yardstick']}) than this run "
            f"({grid['yardstick']}); `asv run {commit[:8]}^!` measures it by its own"
        )
    return ""


def exact_values(declared: Mapping[str, Any], series: str) -> dict[str, float]:
    """FLOPs or bytes of each case for which the declaration states them."""
    values = {case: asv_files.cost_of(declared, case, series) for case in asv_files.case_names(declared)}
    return {case: value for case, value in values.items() if not math.isnan(value)}


def outcomes(kernel: str, told: Mapping[str, Any], grid: Mapping[str, Any], measured: Pool | None) -> dict[str, Any]:
    """What asv is told about each (backend, case): {"samples"}, {"failed": why} or {"absent": why}."""
    axes = told["benchmarks"][f"{kernel}.{asv_files.TIME}"]["params"]
    backends, cases = ([text[1:-1] for text in axis] for axis in axes)
    found: dict[str, dict[str, Any]] = {backend: {} for backend in backends}
    for backend, case in itertools.product(backends, cases):
        cell = measured.cells.get((kernel, backend, case)) if measured else None
        why = told["absent"].get(kernel) or _why_case_absent(told, grid, kernel, case)
        if why or cell is None:
            found[backend][case] = {"absent": why or _why_not_measured(told, kernel, backend, case)}
        elif cell.trials:
            found[backend][case] = {"samples": [float(value) for trial in cell.trials for value in trial]}
        else:
            failed = asv_files.value_of(cell) is None
            found[backend][case] = {"failed" if failed else "absent": f"{cell.status}: {cell.why}"}
    return found


def _why_not_measured(told: Mapping[str, Any], kernel: str, backend: str, case: str) -> str:
    declared = told["listing"]["kernels"][kernel]
    tier = next(str(c.get("tier")) for c in declared["cases"] if c["name"] == case)
    if backend not in declared["backends"]:
        return f"commit {told['commit'][:8]} has no backend {backend!r} of {kernel!r}"
    return f"not measured in tier {told['tier']!r}: the case belongs to {tier!r}; set RIDGELINE_TIER={tier}"


def _why_case_absent(told: Mapping[str, Any], grid: Mapping[str, Any], kernel: str, case: str) -> str:
    declared = told["listing"]["kernels"][kernel]
    described = next((c for c in declared["cases"] if c["name"] == case), None)
    if described is None:
        return f"commit {told['commit'][:8]} declares no case {case!r} of {kernel!r}"
    if (declared.get("case_yardsticks") or {}).get(case) != (grid.get("case_yardsticks") or {}).get(case):
        return f"commit {told['commit'][:8]} means something else by case {case!r}: its yardstick differs"
    return ""


@functools.cache
def _harness_digest() -> str:
    """Digest of what decides how a tree is listed: the harness and the versions it runs with."""
    contract = [HARNESS / "kernels" / name for name in ("spec.py", "registry.py")]
    files = [*sorted((HARNESS / "benchmarks").glob("*.py")), *contract]
    digest = hashlib.sha256(json.dumps(doctor()["environment"], sort_keys=True).encode())
    for file in files:
        digest.update(file.read_bytes() if file.is_file() else b"")
    return digest.hexdigest()[:16]


def _is_worktree(tree: Path) -> bool:
    """Whether `tree` itself, and not a folder above it, is a git worktree."""
    if not (tree / ".git").is_file():
        return False
    done = subprocess.run(["git", "-C", str(tree), "rev-parse", "--git-dir"], capture_output=True, env=_git_env())
    return done.returncode == 0


def _git(folder: Path, *arguments: str) -> str:
    command = [util.which("git"), "-C", str(folder), *arguments]
    return str(util.check_output(command, env=_git_env(), dots=False)).strip()


def _git_env() -> dict[str, str]:
    """The environment without what a git hook sets: it would point every command at the hook's repository."""
    hook = ("GIT_DIR", "GIT_WORK_TREE", "GIT_INDEX_FILE")
    return {key: value for key, value in os.environ.items() if key not in hook}
