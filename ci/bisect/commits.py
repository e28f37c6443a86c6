"""The commits between two, and which of them leave a kernel's files as they were."""

from __future__ import annotations

import json
import tarfile
import tempfile
from collections.abc import Sequence
from pathlib import Path

from rich.console import Console

from ci import harness
from ci.bisect.axes import CommitAxis
from ci.bisect.types import BisectError
from ci.git.command import git, succeeds
from ci.git.repository import Commit, Repository, listed_packages


def commit_axis(repository: Repository, good: str, bad: str, kernels: Sequence[str], console: Console) -> CommitAxis:
    """The commits after `good` up to `bad` along first parents, behind `good`.  Raises BisectError or GitError.

    kernels: those that are measured; of none, all files of all kernels count.
    """
    first, last = repository.resolve(good), repository.resolve(bad)
    if first.hash == last.hash:
        raise BisectError(f"GOOD and BAD are both {first.short}; name two different commits")
    if not succeeds(repository.root, "merge-base", "--is-ancestor", first.hash, last.hash):
        swapped = succeeds(repository.root, "merge-base", "--is-ancestor", last.hash, first.hash)
        hint = f"name the older one first: ridgeline bisect {bad} {good}" if swapped else "name one that is"
        raise BisectError(f"GOOD ({first.short}) is no ancestor of BAD ({last.short}); {hint}")
    commits = [first, *repository.commits(first.hash, last.hash)]
    return CommitAxis(repository, commits, file_labels(repository, commits, kernels, console))


def file_labels(
    repository: Repository, commits: Sequence[Commit], kernels: Sequence[str], console: Console
) -> list[str | None]:
    """Of each commit a digest of the files that the kernels can depend on: equal digests, equal code."""
    packages = listed_packages(repository.root)
    trees = _trees(repository, commits, [package.replace(".", "/") for package in packages])
    different = list(dict.fromkeys(filter(None, trees)))
    if not kernels or len(different) < 2:
        return trees
    example = [next(c for c, tree in zip(commits, trees, strict=True) if tree == one) for one in different]
    digests = dict(zip(different, _digests(repository, example, packages, kernels, console), strict=True))
    return [digests[tree] if tree else None for tree in trees]


def _trees(repository: Repository, commits: Sequence[Commit], paths: Sequence[str]) -> list[str | None]:
    """Of each commit what git calls the contents of these folders, None where it has none of them."""
    asked = [f"{commit.hash}:{path}" for commit in commits for path in paths]
    lines = git(repository.root, "cat-file", "--batch-check=%(objectname)", stdin="\n".join(asked) + "\n").splitlines()
    rows = [lines[n : n + len(paths)] for n in range(0, len(lines), len(paths))]
    return [None if all(name.endswith("missing") for name in row) else " ".join(row) for row in rows]


def _digests(
    repository: Repository, commits: Sequence[Commit], packages: Sequence[str], kernels: Sequence[str], console: Console
) -> list[str]:
    """Digests of the kernels' files, by the program that measuring identifies them with."""
    with tempfile.TemporaryDirectory(prefix="ridgeline-bisect-") as name:
        folder = Path(name)
        trees = [_unpacked(repository, commit, packages, folder / commit.hash) for commit in commits]
        options = harness.options(package=list(packages), kernel=list(kernels), out=folder / "digests.json")
        argv = harness.program("benchmarks.coordinator.kernel_identity", *options, *map(str, trees))
        harness.produce(argv, folder / "digests.json", console, f"comparing the files of {len(trees)} commits")
        return [str(one) for one in json.loads((folder / "digests.json").read_text())]


def _unpacked(repository: Repository, commit: Commit, packages: Sequence[str], folder: Path) -> Path:
    """The packages of a commit in a folder of their own; those that it has."""
    archive = folder.with_suffix(".tar")
    for path in (package.replace(".", "/") for package in packages):
        if succeeds(repository.root, "archive", f"--output={archive}", commit.hash, path):
            with tarfile.open(archive) as packed:
                packed.extractall(folder, filter="data")
            archive.unlink()
    folder.mkdir(exist_ok=True)
    return folder
