"""The checkouts that a verb measures, which of their cases, where the trials go, and how long it took."""

from __future__ import annotations

import dataclasses
import datetime
import os
import time
from collections.abc import Sequence
from pathlib import Path

import click
from rich.console import Console

from benchmarks.reach import Reach
from benchmarks.shapes import some_of
from ci import harness
from ci.git.command import GitError
from ci.git.repository import Commit, LocalCheckout, Repository
from ci.harness import INTERRUPTED, MEASURED, TIERS, USAGE, MeasureError, MeasurePlan, machine_kind, options, query
from ci.isa.compiled import TARGETS
from ci.options import Given, err_console
from ci.report.run_summary import RunSeconds, seconds_of
from ci.trials.file import missing
from ci.trials.trial import Trial
from kernels import project


def here(out: Path | None = None) -> LocalCheckout:
    """The working tree of the project that we stand in.  out: the trial file that the verb writes, no change of it."""
    return Repository(project.around(Path.cwd()).root).working_tree(out)


def one_checkout(given: Given) -> LocalCheckout:
    """The checkout of a verb with SOURCE and --out: named by the caller on a node without git, else the working tree.

    Raises GitError; UsageError for a folder that was named and has no kernels, for which ours would be measured.
    """
    path: Path = given.tree or project.around(Path.cwd()).root
    if given.tree and not (vars(given).get("program") or has_packages(path)):
        listed = ", ".join(project.layout(path).packages)
        raise click.UsageError(
            f"--tree {path} has none of the packages with kernels that it lists ({listed}); "
            "name a checkout, or list its packages, and folders that they lie in, in its ridgeline.toml: "
            "kernels = [...], sources = [...]"
        )
    if given.commit is None:
        return Repository(path).working_tree(vars(given).get("out"))
    date_ms = given.commit_date
    if date_ms is None:
        try:
            date_ms = Repository(path).resolve(given.commit).date_ms
        except GitError:
            date_ms = int(datetime.datetime.now(datetime.UTC).timestamp() * 1000)
            click.echo("the commit's date is not known here: today's is recorded; --commit-date gives it", err=True)
    return LocalCheckout("head", path.resolve(), Commit(given.commit, date_ms, ""))


def has_packages(root: Path) -> bool:
    """Whether a checkout has a package with kernels that its project lists."""
    found = project.layout(root)
    places = [root / part / name.replace(".", "/") for name in found.packages for part in found.sources]
    return any(place.is_dir() or place.with_name(f"{place.name}.py").is_file() for place in places)


def compared_revisions(repository: Repository, base: str | None, head: str | None) -> tuple[str, str | None]:
    """The commits of base and head as hashes; None for the working tree as head.  GitError for one that is not there.

    base: None for where the working tree left the main branch.
    """
    found = repository.resolve(base) if base else repository.default_base()
    if found is None:
        first = "there is no base to compare with: HEAD is the first commit of this clone"
        hint = " (the clone is shallow: `git fetch --unshallow`)" if repository.is_shallow() else ""
        raise GitError(f"{first}; commit a change first, or name a base{hint}")
    return found.hash, repository.resolve(head).hash if head else None


def two_checkouts(
    repository: Repository, base: str, head: str | None, out: Path | None = None
) -> tuple[LocalCheckout, LocalCheckout]:
    """Checkouts of base and head; of the working tree where head is None.

    out: the trial file that the verb writes; it is no change of the tree.
    """
    first_side = repository.checkout(base, "base")
    return first_side, repository.checkout(head, "head") if head else repository.head_of_comparison(out)


TRIALS = ".ridgeline/trials"
"""Below the root of the project: the trial files that nobody named."""


def scratch(verb: str, checkout: LocalCheckout, root: Path | None = None) -> Path:
    """A new trial file in TRIALS, named by time and commit.  root: of a project that the current folder is not in."""
    stamp = datetime.datetime.now(datetime.UTC).strftime("%Y%m%d-%H%M%S")
    return project.place(f"{TRIALS}/{stamp}-{verb}-{checkout.commit.short}-{os.getpid()}.jsonl", root)


def measure_missing(
    checkout: LocalCheckout, plan: MeasurePlan, out: Path, done: Sequence[Trial], operators: Sequence[str]
) -> int:
    """Measure the trials of a plan that `done` lacks; the worst exit code, at once where measuring broke off.

    operators: () for all of the plan.
    """
    codes = [MEASURED]
    for batch in missing(done, operators or ("",), plan.first_trial, plan.trials):
        kernels = tuple(filter(None, batch.operators)) or plan.kernels
        part = dataclasses.replace(plan, kernels=kernels, first_trial=batch.first, trials=batch.count)
        codes.append(harness.measure([checkout], part, out, err_console()))
        if codes[-1] in (USAGE, INTERRUPTED):
            break
    return max(codes)


# The wall clock of a verb that measures, and what it says of it at its end.


class VerbClock:
    """Runs from the start of a verb."""

    def __init__(self) -> None:
        self._begun, self._moment_s = time.monotonic(), time.time()

    def spent(self, trials: Sequence[Trial]) -> RunSeconds | None:
        """Where the seconds went until now; None if nothing was measured since.  trials: of a file, earlier ones too.

        The moments of trials are whole seconds, cut off.
        """
        own = [trial for trial in trials if trial.started_ms >= 1000 * (int(self._moment_s) - 1)]
        return seconds_of(own, time.monotonic() - self._begun)

    def say(self, trials: Sequence[Trial], to_stderr: bool = False) -> None:
        """One line."""
        if found := self.spent(trials):
            click.echo(found.sentence(), err=to_stderr)


# ---- the cases whose tuned knobs a change of tables changes, of whatever tier --------------------------------------


TABLE = ".toml"
"""How the name of a table of knobs ends (kernels/_shared/tuning.py)."""


def with_changed_rows(
    plan: MeasurePlan, reach: Reach, checkouts: Sequence[LocalCheckout], console: Console
) -> MeasurePlan:
    """The plan with the cases whose knobs differ, where tables alone differ; else the plan as it is.

    plan: its kernels are those that differ, and it names no cases.  A row of a nightly case counts like any other; the
    cases whose knobs are equal run equal code.
    """
    files = {path for name in plan.kernels for path in reach.differing.get(name, ("",))}
    if plan.cases or not files or not all(path.endswith(TABLE) for path in files):
        return plan
    arches = [""] if machine_kind() == "gpu" else TARGETS
    try:
        cases = sorted({case for arch in arches for case in _differing_cases(checkouts, plan.kernels, arch)})
    except MeasureError as error:  # a side that declares no such operator, or cannot be imported: measuring says so
        console.print(f"the cases of the changed rows are not known: {error}", markup=False)
        return plan
    what = (
        f"measuring the cases whose rows changed ({some_of(cases, 4)})"
        if cases
        else "no declared case uses a changed row"
    )
    console.print(f"only tables of tuned knobs differ: {what}", markup=False)
    return dataclasses.replace(plan, tier=TIERS[-1], cases=tuple(cases)) if cases else plan


def _differing_cases(checkouts: Sequence[LocalCheckout], kernels: Sequence[str], arch: str) -> set[str]:
    """The cases for which some backend chooses other knobs in head than in base.  Raises MeasureError.

    arch: "" for the device here.
    """
    base, head = (
        {
            (kernel, row["case"], row["backend"]): row["config"]
            for kernel in kernels
            for row in query("candidates", *options(tree=side.path, kernel=kernel, arch=arch or None))["entries"]
        }
        for side in checkouts
    )
    return {key[1] for key, knobs in head.items() if base.get(key) != knobs}
