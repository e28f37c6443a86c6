"""The checkouts that a verb measures, and where their trials go."""

from __future__ import annotations

import datetime
import os
from pathlib import Path

import click

from ci.git.command import GitError
from ci.git.repository import Commit, LocalCheckout, Repository
from kernels import project


def one_checkout(commit: str | None, date_ms: int | None, path: Path | None, out: Path | None = None) -> LocalCheckout:
    """The checkout of `run`: named by the caller on a node without git, else the working tree of the repository.

    out: the trial file that the verb writes; it is no change of the tree.
    Raises GitError; UsageError for a folder that was named and has no kernels, for which ours would be measured.
    """
    folder = path or project.around(Path.cwd()).root
    if path is not None:
        found = project.layout(path)
        listed, sources = found.packages, found.sources
        places = [path / part / name.replace(".", "/") for name in listed for part in sources]
        if not any(place.is_dir() or place.with_name(f"{place.name}.py").is_file() for place in places):
            raise click.UsageError(
                f"--tree {path} has none of the packages with kernels that it lists ({', '.join(listed)}); "
                "name a checkout, or list its packages in its ridgeline.toml: kernels = [...]"
            )
    if commit is None:
        return Repository(folder).working_tree(out)
    if date_ms is None:
        try:
            date_ms = Repository(folder).resolve(commit).date_ms
        except GitError:
            date_ms = int(datetime.datetime.now(datetime.UTC).timestamp() * 1000)
            click.echo("the commit's date is not known here: today's is recorded; --commit-date gives it", err=True)
    return LocalCheckout("head", folder.resolve(), Commit(commit, date_ms, ""))


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
    return first_side, repository.checkout(head, "head") if head else repository.working_tree(out)


TRIALS = ".ridgeline/trials"
"""Below the root of the project: the trial files that nobody named."""


def scratch(verb: str, checkout: LocalCheckout, root: Path | None = None) -> Path:
    """A new trial file in TRIALS, named by time and commit.  root: of a project that the current folder is not in."""
    stamp = datetime.datetime.now(datetime.UTC).strftime("%Y%m%d-%H%M%S")
    name = checkout.commit.short if checkout.commit else "tree"
    return project.place(f"{TRIALS}/{stamp}-{verb}-{name}-{os.getpid()}.jsonl", root)
