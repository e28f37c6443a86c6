"""The repository around a folder: its commits, which of them are compared, and where each lies checked out."""

from __future__ import annotations

import contextlib
import dataclasses
import glob
import os
import re
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path

from ci.git import worktrees
from ci.git.command import GitError, git, git_or_none

WORK = (":!.ridgeline", ":!.asv")
"""What commands write beside records and site; a project may not have listed it in .gitignore."""

BESIDE = ("csv", "md", "json", "png", "svg", "draft")
"""Suffixes of what is made of a trial file, beside it by its name or in a folder of its name."""

NO_CODE = (":!*.md", ":!*.rst", ":!.github")
"""What no kernel reads: its changes alone leave every speed as it was."""


@dataclasses.dataclass(frozen=True)
class Commit:
    """A commit: 40 hex digits, committer date in milliseconds since 1970 UTC, first line of its message."""

    hash: str
    date_ms: int
    subject: str

    @property
    def short(self) -> str:
        """The first eight digits, as asv names its files."""
        return self.hash[:8]


@dataclasses.dataclass(frozen=True)
class LocalCheckout:
    """A side under test on this disk: its role ("base" or "head"), folder, commit, and whether it has other changes."""

    role: str
    path: Path
    commit: Commit
    dirty: bool = False

    @property
    def label(self) -> str:
        """What a person reads: short hash, and a mark for uncommitted changes."""
        return self.commit.short + (" + uncommitted changes" if self.dirty else "")


class Repository:
    """The git repository around a folder."""

    def __init__(self, root: Path) -> None:
        top = git_or_none(root, "rev-parse", "--show-toplevel")
        if top is None:
            raise GitError(
                f"{root} is not inside a git repository; run this in a clone, "
                "or name the commit yourself: ridgeline run --commit HASH --out FILE"
            )
        self.root = Path(top)

    def resolve(self, revision: str) -> Commit:
        """The commit a revision names; A...B is where B left A, as in `git diff`."""
        if revision.startswith("-"):
            raise GitError(f"{revision!r} is not a revision; give a branch, tag or commit hash")
        first, dots, second = revision.partition("...")
        found = self.merge_base(first, second) if dots else self._hash(f"{revision}^{{commit}}")
        if found is None:
            hint = " This clone is shallow: `git fetch --unshallow` brings the history." if self.is_shallow() else ""
            raise GitError(
                f"{revision!r} names no commit of {self.root}.{hint} `git log --oneline` lists what is there."
            )
        return self._log("-1", found)[0]

    def merge_base(self, one: str, other: str) -> str | None:
        """The newest commit that two revisions have in common; None if one is unknown or there is none."""
        known = [self._hash(f"{revision or 'HEAD'}^{{commit}}") for revision in (one, other)]
        return git_or_none(self.root, "merge-base", *filter(None, known)) or None if all(known) else None

    def commits(self, start: str, end: str, paths: Sequence[str] = ()) -> list[Commit]:
        """Commits after `start` ("": from the first one) up to `end`, oldest first, along first parents.

        paths: only those that change one of these.
        """
        ends = [self.resolve(end).hash, *([f"^{self.resolve(start).hash}"] if start else [])]
        return self._log("--reverse", "--first-parent", *ends, "--", *paths)

    def is_shallow(self) -> bool:
        """Whether history was cut (depth-1 clone)."""
        return git(self.root, "rev-parse", "--is-shallow-repository") == "true"

    def has_history(self) -> bool:
        """Whether there is any commit."""
        return self._hash("HEAD") is not None

    def length(self) -> int:
        """Number of commits up to HEAD."""
        return int(git(self.root, "rev-list", "--count", "HEAD")) if self.has_history() else 0

    def is_dirty(self, out: Path | None = None) -> bool:
        """Uncommitted changes to tracked files, or untracked ones that are not ignored; records do not count.

        out: nor does the trial file that the command writes, with what lies beside it by its name: a command that goes
        on where it was interrupted measures the same code as before.
        """
        own = _written(self.root, out) if out else ()
        return bool(git(self.root, "status", "--porcelain", "--", ".", *records(self.root), *WORK, *own))

    def default_base(self) -> Commit | None:
        """What HEAD is compared with: the merge base with the main branch, or HEAD's parent on that branch itself."""
        head = self.resolve("HEAD")
        for branch in _main_branches():
            base = git_or_none(self.root, "merge-base", "HEAD", branch)
            if base and base != head.hash:
                return self.resolve(base)
        parent = self._hash("HEAD^")
        return self.resolve(parent) if parent else None

    def same_kernels(self, base: LocalCheckout, head: LocalCheckout) -> bool:
        """Whether every package with kernels has the same files on both sides: then nothing can have changed speed.

        Kernels of a project that only declares them there call code elsewhere in it, so all of its files count.
        """
        if base.dirty or head.dirty:
            return False
        if not all((side.path / "kernels" / "spec.py").is_file() for side in (base, head)):
            ends = (base.commit.hash, head.commit.hash)
            return not git(self.root, "diff", "--name-only", *ends, "--", ".", *records(self.root), *NO_CODE)
        packages = listed_packages(base.path)
        if packages != listed_packages(head.path):
            return False
        paths = [package.replace(".", "/") for package in packages]
        of_base, of_head = ([self._hash(f"{side.commit.hash}:{path}") for path in paths] for side in (base, head))
        return None not in of_base and of_base == of_head

    def working_tree(self, out: Path | None = None) -> LocalCheckout:
        """HEAD as it lies in the folder.  out: see `is_dirty`."""
        return LocalCheckout("head", self.root, self.resolve("HEAD"), self.is_dirty(out))

    def checkout(self, revision: str, role: str) -> LocalCheckout:
        """The revision in a worktree of its own under .ridgeline/trees, made once and reused."""
        commit = self.resolve(revision)
        path = self._worktree(commit)
        worktrees.check_out(self.root, path, commit.hash)
        return LocalCheckout(role, path, commit)

    @contextlib.contextmanager
    def borrowed(self, commit: Commit) -> Iterator[Path]:
        """The folder of a checkout that is removed again if it was not there: a long range must not fill the disk."""
        was_there = self._worktree(commit).exists()
        path = self.checkout(commit.hash, "head").path
        try:
            yield path
        finally:
            if not was_there:
                worktrees.remove(self.root, path)

    def _worktree(self, commit: Commit) -> Path:
        return self.root / ".ridgeline" / "trees" / commit.hash[:12]

    def _hash(self, name: str) -> str | None:
        """The object (commit, or commit:path) that git knows by this name."""
        return git_or_none(self.root, "rev-parse", "--verify", "--quiet", name)

    def _log(self, *arguments: str) -> list[Commit]:
        lines = git(self.root, "log", "--format=%H %ct %s", *arguments).splitlines()
        parts = (line.split(" ", 2) for line in lines)
        return [Commit(commit, int(date) * 1000, subject) for commit, date, subject in parts]


def _main_branches() -> list[str]:
    target = os.environ.get("GITHUB_BASE_REF", "")
    if target and not re.fullmatch(r"[\w./-]+", target):
        raise GitError(f"GITHUB_BASE_REF is {target!r}; a branch name is expected")
    usual = ["origin/HEAD", "origin/main", "main", "origin/master", "master"]
    return [f"origin/{target}", *usual] if target else usual


def history_order(folder: Path, commits: Iterable[str]) -> dict[str, int]:
    """Positions of commits in the history of the repository around `folder`: a parent's is lower than its child's.

    Dates alone cannot order them: a rebase gives many commits the same second.  Commits that the repository does not
    have are left out; {} where there is no repository, or no git.
    """
    names = "".join(f"{commit}\n" for commit in dict.fromkeys(commits))
    order = ("--date-order", "--reverse", "--ignore-missing", "--stdin")
    try:
        listed = git(folder, "rev-list", *order, stdin=names)
    except GitError:
        return {}
    return {commit: position for position, commit in enumerate(listed.split())}


def listed_packages(folder: Path) -> list[str]:
    """The packages with kernels that a checkout lists in pyproject.toml.  Raises kernels.project.ProjectError."""
    from kernels import project  # imported here: asv's plug-in does without

    return list(project.listed_packages(folder))


def _written(root: Path, out: Path) -> Iterator[str]:
    """Leaves out of git's answers a trial file with its locks, drafts, tables, figures and checks."""
    place = out.resolve()
    if not place.is_relative_to(root.resolve()):
        return
    stem = place.name.removesuffix(".gz").removesuffix(".jsonl")
    name, stem = (glob.escape(one.replace("\\", r"\\")) for one in (place.name, stem))
    made = [f"{one}.{suffix}" for one in (stem, f"{stem}.code", f"{stem}/*") for suffix in BESIDE]
    folder = place.parent.relative_to(root.resolve()).as_posix()
    for one in (name, f"{name}.*", f".{name}.*", f".{stem}.*", "checks/*.jsonl", *made):
        yield f":(exclude,top,glob){one if folder == '.' else f'{glob.escape(folder)}/{one}'}"


def records(root: Path) -> tuple[str, ...]:
    """Folders whose changes do not make a checkout dirty, as git leaves them out: the records of what was measured."""
    from kernels import project  # imported here: asv's plug-in does without

    found = project.around(root)
    folders = (found.results, found.code, found.results.with_name(f"{found.results.name}_sustained"))
    return tuple(f":!{folder.relative_to(root.resolve())}" for folder in folders)
