"""The repository around a folder: its commits, which of them are compared, and where each lies checked out."""

from __future__ import annotations

import contextlib
import dataclasses
import glob
import os
import shutil
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path

from ci.git.command import GitError, git, git_or_none, is_branch_name, succeeds

# Commits checked out in worktrees of their own, beside the folder a person works in.


NO_HOOKS = {"GIT_CONFIG_COUNT": "1", "GIT_CONFIG_KEY_0": "core.hooksPath", "GIT_CONFIG_VALUE_0": "/dev/null"}
"""For git: the hooks of a repository are for its people, and one that fails would fail the checkout (githooks(5),
post-checkout); a kernel can leave one, too.  git 2.31 and newer read this."""


def check_out(repository: Path, folder: Path, commit: str, *, in_place: bool = False) -> None:
    """Make `folder` a worktree of exactly `commit` (full hash); one that is there and clean is used as it is.

    in_place: a worktree of another commit is switched and cleaned, of ignored files too, instead of made again.
    A lock beside the folder keeps two processes from doing so at once.  Raises GitError.
    """
    from filelock import FileLock  # not needed to measure on a node without git

    folder.parent.mkdir(parents=True, exist_ok=True)
    with FileLock(f"{folder}.lock"):
        if in_place and is_worktree(folder):
            git(folder, "checkout", "--quiet", "--force", "--detach", commit, env=NO_HOOKS)
            git(folder, "clean", "-ffdxq")
        elif not is_clean(folder, commit):
            shutil.rmtree(folder, ignore_errors=True)
            git(repository, "worktree", "prune")
            git(repository, "worktree", "add", "--force", "--detach", "--quiet", str(folder), commit, env=NO_HOOKS)


def is_worktree(folder: Path) -> bool:
    """Whether the folder itself, and not one above it, is a worktree that git knows."""
    return (folder / ".git").is_file() and succeeds(folder, "rev-parse", "--git-dir")


def is_clean(folder: Path, commit: str) -> bool:
    """Whether the folder is a worktree at that commit, without changes."""
    return (
        is_worktree(folder)
        and git_or_none(folder, "rev-parse", "HEAD") == commit
        and git_or_none(folder, "status", "--porcelain") == ""
    )


WORK = (":!.ridgeline", ":!.asv")
"""What commands write beside records and site; a project may not have listed it in .gitignore."""

NAMED = 3
"""Files with uncommitted changes that a sentence names."""

SITE = (":!site", "site/.ridgeline-site")
"""The page as it lies by default, and what says that it is one (dashboards.draft.MARKER)."""

BESIDE = ("csv", "md", "json", "png", "svg", "draft")
"""Suffixes of what is made of a trial file, beside it by its name or in a folder of its name."""


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
    """A side under test on this disk: its role ("base" or "head"), folder, commit, and its files with other changes."""

    role: str
    path: Path
    commit: Commit
    changed: tuple[str, ...] = ()

    @property
    def dirty(self) -> bool:
        """Whether it is something else than its commit."""
        return bool(self.changed)

    @property
    def changes(self) -> str:
        """For people: "uncommitted changes (a.py, b.py and 4 more)"."""
        more = len(self.changed) - NAMED
        return f"uncommitted changes ({', '.join(self.changed[:NAMED])}{f' and {more} more' if more > 0 else ''})"

    @property
    def label(self) -> str:
        """What a person reads: short hash, and uncommitted changes."""
        return self.commit.short + (f" + {self.changes}" if self.dirty else "")


class RangeError(ValueError):
    """A range of commits is not written A..B; the text says how."""


class Repository:
    """The git repository around a folder."""

    def __init__(self, root: Path) -> None:
        top = git_or_none(root, "rev-parse", "--show-toplevel")
        if top is None:
            raise GitError(
                f"{root} is not inside a git repository; run this in a clone, "
                "or name the commit and a file yourself: `ridgeline run --help`"
            )
        self.root = Path(top)

    def resolve(self, revision: str) -> Commit:
        """The commit a revision names; A...B is where B left A, as in `git diff`."""
        if revision.startswith("-"):
            raise GitError(f"{revision!r} is not a revision; give a branch, tag or commit hash")
        first, dots, second = revision.partition("...")
        found = self.merge_base(first, second) if dots else self._hash(f"{revision}^{{commit}}")
        if found is None and not self.has_history():
            raise GitError(
                f"{self.root} has no commit yet; `git add` what belongs to it, `git commit`, then run this again"
            )
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

    @staticmethod
    def ends(span: str) -> tuple[str, str]:
        """(A, B) of "A..B"; "..B" begins before the first commit and has "", "A.." ends at HEAD.  RangeError."""
        start, dots, end = span.partition("..")
        if not dots or end.startswith("."):
            raise RangeError(f"{span!r} is not a range; give for instance v1.0..HEAD, or ..HEAD for all commits")
        return start, end or "HEAD"

    def is_shallow(self) -> bool:
        """Whether history was cut (depth-1 clone)."""
        return git(self.root, "rev-parse", "--is-shallow-repository") == "true"

    def has_history(self) -> bool:
        """Whether there is any commit."""
        return self._hash("HEAD") is not None

    def tracks(self, below: Path) -> bool:
        """Whether git knows a file in a folder below the top."""
        return bool(git(self.root, "ls-files", "--", f"{below}/"))

    def length(self) -> int:
        """Number of commits up to HEAD."""
        return int(git(self.root, "rev-list", "--count", "HEAD")) if self.has_history() else 0

    def changed(self, out: Path | None = None) -> tuple[str, ...]:
        """Tracked files with uncommitted changes, and untracked ones that are not ignored; records do not count.

        out: nor does the trial file that the command writes, with what lies beside it by its name: a command that goes
        on where it was interrupted measures the same code as before.
        """
        own = [*(_written(self.root, out) if out else ()), *([SITE[0]] if (self.root / SITE[1]).exists() else ())]
        status = ("status", "--porcelain", "-z", "--no-renames", "--", ".")
        listed = git(self.root, *status, *records(self.root), *WORK, *own).split("\0")
        return tuple(line.split(maxsplit=1)[1] for line in listed if line)  # git() strips the first one's space

    def default_base(self) -> Commit | None:
        """What HEAD is compared with: the merge base with the main branch, or HEAD's parent on that branch itself."""
        head = self.resolve("HEAD")
        for branch in _main_branches():
            base = git_or_none(self.root, "merge-base", "HEAD", branch)
            if base and base != head.hash:
                return self.resolve(base)
        parent = self._hash("HEAD^")
        return self.resolve(parent) if parent else None

    def working_tree(self, out: Path | None = None) -> LocalCheckout:
        """HEAD as it lies in the folder.  out: see `changed`."""
        return LocalCheckout("head", self.root, self.resolve("HEAD"), self.changed(out))

    def checkout(self, revision: str, role: str) -> LocalCheckout:
        """The revision in a worktree of its own under .ridgeline/trees, made once and reused."""
        commit = self.resolve(revision)
        path = self._worktree(commit)
        check_out(self.root, path, commit.hash)
        return LocalCheckout(role, path, commit)

    @contextlib.contextmanager
    def borrowed(self, commit: Commit) -> Iterator[Path]:
        """The folder of a checkout that is removed again if it was not there: a long range must not fill the disk."""
        was_there = self._worktree(commit).exists()
        path = self.checkout(commit.hash, "head").path
        try:
            yield path
        finally:
            if not was_there:  # one that cannot be removed is only reused later
                git_or_none(self.root, "worktree", "remove", "--force", str(path))

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
    if target and not is_branch_name(target):
        raise GitError(f"GITHUB_BASE_REF is {target!r}, which `git check-ref-format --branch` refuses; name a branch")
    usual = ["origin/HEAD", "origin/main", "main", "origin/master", "master"]
    return [f"origin/{target}", *usual] if target else usual


def on_main(folder: Path) -> set[str] | None:
    """Every commit of the main branch, here or on the remote; None where there is no such branch, or no git."""
    there = [name for name in _main_branches() if git_or_none(folder, "rev-parse", "--verify", "--quiet", name)]
    return set(git(folder, "rev-list", *there).split()) if there else None


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
