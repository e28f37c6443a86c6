"""The commits between two, and which of them leave a kernel's files as they were."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Sequence

from benchmarks.reach.names import Unreadable
from benchmarks.reach.operators import declared, reached
from benchmarks.reach.tree import SourceTree
from ci.bisect.axes import CommitAxis
from ci.bisect.types import BisectError
from ci.git.command import succeeds
from ci.git.repository import Commit, Repository
from ci.judging.reach import trees_of


def commit_axis(repository: Repository, good: str, bad: str, kernels: Sequence[str]) -> CommitAxis:
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
    return CommitAxis(repository, commits, file_labels(repository, commits, kernels))


def file_labels(repository: Repository, commits: Sequence[Commit], kernels: Sequence[str]) -> list[str]:
    """Of each commit a digest of the files that the kernels' code can come from: equal digests, equal code.

    Of no kernels it is all kernels'.  Where it is not certain which files those are, every Python file counts, and
    whatever lies in a package with kernels.
    """
    return [_label(tree, kernels) for tree in trees_of(repository.root, [one.hash for one in commits])]


def _label(tree: SourceTree, kernels: Sequence[str]) -> str:
    files = sorted(_files(tree, kernels))
    text = "".join(f"{path}\0{tree.files[path].digest}\n" for path in files)
    return hashlib.sha256(text.encode()).hexdigest()[:16]


def _files(tree: SourceTree, kernels: Sequence[str]) -> Iterable[str]:
    try:
        homes = declared(tree)
    except (Unreadable, ValueError, SyntaxError):
        homes = {}
    if not homes or not homes.keys() >= set(kernels):
        return [path for path in tree.files if path.endswith(".py") or tree.listed(path)]
    return reached(tree, dict.fromkeys(part for name in kernels or homes for part in homes[name]))
