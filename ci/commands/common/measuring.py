"""The checkouts that a verb measures, and where their trials go."""

from __future__ import annotations

import datetime
import os
import time
from collections.abc import Sequence
from pathlib import Path

import click

from ci.git.command import GitError
from ci.git.repository import Commit, LocalCheckout, Repository
from ci.options import RARE, Given, flag, out_console
from ci.report.run_summary import RunSeconds, seconds_of
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
    if given.tree:
        found = project.layout(path)
        places = [path / part / name.replace(".", "/") for name in found.packages for part in found.sources]
        if not any(place.is_dir() or place.with_name(f"{place.name}.py").is_file() for place in places):
            raise click.UsageError(
                f"--tree {path} has none of the packages with kernels that it lists ({', '.join(found.packages)}); "
                "name a checkout, or list its packages in its ridgeline.toml: kernels = [...]"
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


def two_checkouts(
    repository: Repository, base: str | None, head: str | None, out: Path | None = None
) -> tuple[LocalCheckout, LocalCheckout]:
    """Base and head of a comparison; by default the working tree and where it left the main branch.

    out: the trial file that the verb writes; it is no change of the tree.
    """
    if base is None:
        found = repository.default_base()
        if found is None:
            first = "there is no base to compare with: HEAD is the first commit of this clone"
            hint = " (the clone is shallow: `git fetch --unshallow`)" if repository.is_shallow() else ""
            raise GitError(f"{first}; commit a change first, or name a base{hint}")
        base = found.hash
    first_side = repository.checkout(base, "base")
    return first_side, repository.checkout(head, "head") if head else repository.head_of_comparison(out)


TRIALS = ".ridgeline/trials"
"""Below the root of the project: the trial files that nobody named."""


def scratch(verb: str, checkout: LocalCheckout, root: Path | None = None) -> Path:
    """A new trial file in TRIALS, named by time and commit.  root: of a project that the current folder is not in."""
    stamp = datetime.datetime.now(datetime.UTC).strftime("%Y%m%d-%H%M%S")
    return project.place(f"{TRIALS}/{stamp}-{verb}-{checkout.commit.short}-{os.getpid()}.jsonl", root)


# The wall clock of a verb that measures, and what it says of it at its end.


TIMINGS = flag("--timings", "Show where the seconds went, phase by phase.", heading=RARE)


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

    def say(self, trials: Sequence[Trial], timings: bool, to_stderr: bool = False) -> None:
        """One line; the table where it is asked for."""
        found = self.spent(trials)
        if found is None:
            return
        if timings and not to_stderr:
            out_console().print(found.table())
        else:
            click.echo(found.sentence(), err=to_stderr)
