"""Source trees: which commits are compared, and where each lies checked out."""

from __future__ import annotations

import dataclasses
import os
import re
import shutil
import subprocess
import tomllib
from collections.abc import Iterable
from pathlib import Path


class TreeError(Exception):
    """A commit or tree cannot be used; the text names it and says the next step."""


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
class Tree:
    """A checked-out source tree: its role ("base" or "head"), folder, commit (None if unknown), uncommitted changes."""

    role: str
    path: Path
    commit: Commit | None
    dirty: bool = False

    @property
    def label(self) -> str:
        """What a person reads: short hash, and a mark for uncommitted changes."""
        if self.commit is None:
            return str(self.path)
        return self.commit.short + (" + uncommitted changes" if self.dirty else "")


class Repository:
    """The git repository around a folder."""

    def __init__(self, root: Path) -> None:
        top = _git(root, "rev-parse", "--show-toplevel", check=False)
        if top is None:
            raise TreeError(
                f"{root} is not inside a git repository; run this in a clone, "
                "or name the commit yourself: ridgeline run --commit HASH --out FILE"
            )
        self.root = Path(top)

    def resolve(self, revision: str) -> Commit:
        """The commit a revision names."""
        if revision.startswith("-"):
            raise TreeError(f"{revision!r} is not a revision; give a branch, tag or commit hash")
        found = _git(self.root, "rev-parse", "--verify", "--quiet", f"{revision}^{{commit}}", check=False)
        if found is None:
            hint = " This clone is shallow: `git fetch --unshallow` brings the history." if self.is_shallow() else ""
            raise TreeError(
                f"{revision!r} names no commit of {self.root}.{hint} `git log --oneline` lists what is there."
            )
        date, subject = str(_git(self.root, "show", "-s", "--format=%ct%n%s", found)).split("\n", 1)
        return Commit(found, int(date) * 1000, subject)

    def is_shallow(self) -> bool:
        """Whether history was cut (depth-1 clone)."""
        return _git(self.root, "rev-parse", "--is-shallow-repository") == "true"

    def has_history(self) -> bool:
        """Whether there is any commit."""
        return _git(self.root, "rev-parse", "--verify", "--quiet", "HEAD", check=False) is not None

    def is_dirty(self) -> bool:
        """Uncommitted changes to tracked files, or untracked ones that are not ignored; records do not count."""
        return bool(_git(self.root, "status", "--porcelain", "--", ".", ":!results", ":!results_isa"))

    def default_base(self) -> Commit | None:
        """What HEAD is compared with: the merge base with the main branch, or HEAD's parent on that branch itself."""
        head = self.resolve("HEAD")
        for branch in self._main_branches():
            base = _git(self.root, "merge-base", "HEAD", branch, check=False)
            if base and base != head.hash:
                return self.resolve(base)
        parent = _git(self.root, "rev-parse", "--verify", "--quiet", "HEAD^", check=False)
        return self.resolve(parent) if parent else None

    def same_kernels(self, base: Tree, head: Tree) -> bool:
        """Whether both trees hold the same files in every package with kernels: then nothing can have changed speed."""
        if base.commit is None or head.commit is None or head.dirty or base.dirty:
            return False
        packages = [listed_packages(tree.path) for tree in (base, head)]
        if packages[0] != packages[1]:
            return False
        paths = [package.replace(".", "/") for package in packages[0]]
        return all(self._object(base.commit, path) == self._object(head.commit, path) is not None for path in paths)

    def _object(self, commit: Commit, path: str) -> str | None:
        return _git(self.root, "rev-parse", "--verify", "--quiet", f"{commit.hash}:{path}", check=False)

    def _main_branches(self) -> list[str]:
        target = os.environ.get("GITHUB_BASE_REF", "")
        if target and not re.fullmatch(r"[\w./-]+", target):
            raise TreeError(f"GITHUB_BASE_REF is {target!r}; a branch name is expected")
        return ([f"origin/{target}"] if target else []) + [
            "origin/HEAD",
            "origin/main",
            "main",
            "origin/master",
            "master",
        ]

    def working_tree(self) -> Tree:
        """HEAD as it lies in the folder."""
        return Tree("head", self.root, self.resolve("HEAD"), self.is_dirty())

    def checkout(self, revision: str, role: str) -> Tree:
        """The revision in a worktree of its own under .ridgeline/trees, made once and reused."""
        commit = self.resolve(revision)
        path = self.root / ".ridgeline" / "trees" / commit.hash[:12]
        from filelock import FileLock  # not needed to measure on a node without git

        path.parent.mkdir(parents=True, exist_ok=True)
        with FileLock(f"{path}.lock"):
            if not _is_clean(path, commit):
                shutil.rmtree(path, ignore_errors=True)
                _git(self.root, "worktree", "prune")
                _git(self.root, "worktree", "add", "--force", "--detach", "--quiet", str(path), commit.hash)
        return Tree(role, path, commit)


def _is_clean(worktree: Path, commit: Commit) -> bool:
    """Whether a worktree of ours is there, at that commit and unchanged."""
    return (
        (worktree / ".git").is_file()
        and _git(worktree, "rev-parse", "HEAD", check=False) == commit.hash
        and _git(worktree, "status", "--porcelain", check=False) == ""
    )


def history_order(folder: Path, commits: Iterable[str]) -> dict[str, int]:
    """Places of commits in the history of the repository around `folder`: a parent's is lower than its child's.

    Dates alone do not say it: a rebase gives many commits the same second.  Commits that the repository does not have
    are left out; {} where there is no repository, or no git.
    """
    names = "".join(f"{commit}\n" for commit in dict.fromkeys(commits))
    try:
        listed = _git(
            folder, "rev-list", "--date-order", "--reverse", "--ignore-missing", "--stdin", check=False, given=names
        )
    except TreeError:
        return {}
    return {commit: place for place, commit in enumerate((listed or "").split())}


def listed_packages(tree: Path) -> list[str]:
    """The packages with kernels that a tree lists in pyproject.toml, [tool.ridgeline] kernels; ["kernels"] without."""
    file = tree / "pyproject.toml"
    try:
        project = tomllib.loads(file.read_text(encoding="utf-8")) if file.is_file() else {}
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise TreeError(f"{file} is not TOML: {error}") from None
    listed = project.get("tool", {}).get("ridgeline", {}).get("kernels", ["kernels"])
    return [str(package) for package in listed] if isinstance(listed, list) else ["kernels"]


def _git(folder: Path, *arguments: str, check: bool = True, given: str = "") -> str | None:
    if not folder.is_dir():
        return None if not check else _fail(f"the folder {folder} does not exist")
    try:
        done = subprocess.run(["git", "-C", str(folder), *arguments], capture_output=True, text=True, input=given)
    except FileNotFoundError:
        raise TreeError(
            "git is not installed here; install it, or name the commit yourself: ridgeline run --commit HASH --out FILE"
        ) from None
    if done.returncode == 0:
        return done.stdout.strip()
    return (
        None if not check else _fail(f"git {' '.join(arguments)} failed: {done.stderr.strip() or done.stdout.strip()}")
    )


def _fail(text: str) -> str:
    raise TreeError(text)
