"""The repository around a folder: its commits, which of them are compared, and where each lies checked out."""

from __future__ import annotations

import contextlib
import dataclasses
import functools
import glob
import os
import re
import shlex
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path

from ci.git.checkout import check_out, missing_files, remove
from ci.git.command import GitError, GitFailed, git, git_or_none, is_branch_name, succeeds

WORK = (":!.ridgeline", ":!.asv")
"""What commands write beside records and site; a project may not have listed it in .gitignore."""

NAMED = 3
"""Files with uncommitted changes that a sentence names."""

SITE = (":!site", "site/.ridgeline-site")
"""The page as it lies by default, and what says that it is one (dashboards.files.MARKER)."""


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

    @functools.cached_property
    def missing(self) -> dict[str, str]:
        """What it lacks of its commit, by path, with the next command (`ci.git.checkout.missing_files`)."""
        return missing_files(self.path) if (self.path / ".git").exists() else {}

    @property
    def changes(self) -> str:
        """For people: "uncommitted changes (a.py, b.py and 4 more)"."""
        more = len(self.changed) - NAMED
        return f"uncommitted changes ({', '.join(self.changed[:NAMED])}{f' and {more} more' if more > 0 else ''})"

    @property
    def label(self) -> str:
        """What a person reads: short hash, and uncommitted changes."""
        return self.commit.short + (f" + {self.changes}" if self.dirty else "")


DUBIOUS = re.compile(r"dubious ownership in repository at '(.*?)'")
"""What git says of a repository that another user owns (git-config(1), safe.directory)."""


class RangeError(ValueError):
    """A range of commits is not written A..B; the text says how."""


class Repository:
    """The git repository around a folder."""

    def __init__(self, root: Path) -> None:
        try:
            self.root = Path(git(root, "rev-parse", "--show-toplevel"))
        except GitFailed as error:
            if foreign := DUBIOUS.search(str(error)):
                allow = f"git config --global --add safe.directory {shlex.quote(foreign[1])}"
                raise GitError(
                    f"{foreign[1]} belongs to another user, and git does not read it: `{allow}` allows it"
                ) from None
            raise GitError(
                f"{root} is not inside a git repository; run this in a clone, "
                "or name the commit and a file yourself: `ridgeline run --help`"
            ) from None

    def resolve(self, revision: str) -> Commit:
        """The commit a revision names; A...B is where B left A, as in `git diff`."""
        if revision.startswith("-"):
            raise GitError(f"{revision!r} is not a revision; give a branch, tag or commit hash")
        first, dots, second = revision.partition("...")
        found = self.merge_base(first, second) if dots else self._commit(revision)
        if found is None and not self.has_history():
            raise GitError(
                f"{self.root} has no commit yet; `git add` what belongs to it, `git commit`, then run this again"
            )
        if found is None:
            hint = " This clone is shallow: `git fetch --unshallow` brings the history." if self.is_shallow() else ""
            if ".." in revision:
                hint = f" It is a range: name its ends apart, `{revision.replace('..', ' ')}`."
            raise GitError(
                f"{revision!r} names no commit of {self.root}.{hint} `git log --oneline` lists what is there."
            )
        branch, tag = (self._hash(f"refs/{kind}/{revision}^{{commit}}") for kind in ("heads", "tags"))
        if branch and tag and branch != tag:
            raise GitError(f"{revision!r} is a branch and a tag: name heads/{revision} or tags/{revision}")
        return self._log("-1", found)[0]

    def _commit(self, revision: str) -> str | None:
        """The hash of the commit that a revision names.  ":/TEXT" takes nothing behind it (gitrevisions(7))."""
        return self._hash(f"{revision}^{{commit}}") or self._hash(f"{self._hash(revision)}^{{commit}}")

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
        """What HEAD is compared with; None for a first commit.  GitError where a shallow clone hides it.

        The commit where HEAD left the main branch; on that branch itself, and where there is none, HEAD's parent.  Of
        the merge of a pull request, which CI makes and checks out, it is the first parent, however old the main branch
        is that the clone knows.
        """
        head, first_parent = self.resolve("HEAD"), self._hash("HEAD^")
        known = [branch for branch in _main_branches() if self._hash(branch)]
        bases = (self.merge_base("HEAD", branch) for branch in known)
        base = next((one for one in bases if one and one != head.hash), None)
        if first_parent and self._is_merge_of_ci() and (base is None or self._is_ancestor(base, first_parent)):
            return self.resolve(first_parent)
        if base:
            return self.resolve(base)
        if known and self.is_shallow() and not any(self._is_ancestor(head.hash, branch) for branch in known):
            raise GitError(
                f"this clone is shallow and does not hold the commit where HEAD left {known[0]}: "
                "`git fetch --unshallow` brings it, --base names another"
            )
        return self.resolve(first_parent) if first_parent else None

    def has_main_branch(self) -> bool:
        """Whether the clone knows a main branch, its own or of the remote."""
        return any(self._hash(branch) for branch in _main_branches())

    def _is_merge_of_ci(self) -> bool:
        """Whether HEAD is a merge that no branch holds, as CI systems make it of a pull request."""
        detached = git_or_none(self.root, "symbolic-ref", "--quiet", "HEAD") is None
        return detached and self._hash("HEAD^2") is not None

    def _is_ancestor(self, one: str, other: str) -> bool:
        return succeeds(self.root, "merge-base", "--is-ancestor", one, other)

    def working_tree(self, out: Path | None = None) -> LocalCheckout:
        """HEAD as it lies in the folder.  out: see `changed`."""
        return LocalCheckout("head", self.root, self.resolve("HEAD"), self.changed(out))

    def head_of_comparison(self, out: Path | None = None) -> LocalCheckout:
        """HEAD as it lies in the folder, with its changes; made like base where a project prepares its checkouts."""
        from kernels import project

        tree = self.working_tree(out)
        prepared = project.around(self.root).prepare and not tree.dirty
        return self.checkout("HEAD", "head") if prepared else tree

    def checkout(self, revision: str, role: str) -> LocalCheckout:
        """The revision in a checkout of its own under .ridgeline/trees, made once and reused."""
        commit = self.resolve(revision)
        path = self._worktree(commit)
        ignored_by_git(self.root)
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
            if not was_there:
                remove(self.root, path)

    def _worktree(self, commit: Commit) -> Path:
        return self.root / ".ridgeline" / "trees" / commit.hash[:12]

    def _hash(self, name: str) -> str | None:
        """The object (commit, or commit:path) that git knows by this name."""
        return git_or_none(self.root, "rev-parse", "--verify", "--quiet", name)

    def _log(self, *arguments: str) -> list[Commit]:
        lines = git(self.root, "log", "--format=%H %ct %s", *arguments).splitlines()
        parts = (line.split(" ", 2) for line in lines)
        return [Commit(commit, int(date) * 1000, subject) for commit, date, subject in parts]


def ignored_by_git(root: Path) -> None:
    """Make the folder for what commands write, .ridgeline, as one that git ignores whatever the project says."""
    (root / ".ridgeline").mkdir(exist_ok=True)
    ignores = root / ".ridgeline" / ".gitignore"
    if not ignores.exists():
        ignores.write_text("*\n")


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
    """Leaves out of git's answers a trial file with its locks, its drafts and checks."""
    place = out.resolve()
    if not place.is_relative_to(root.resolve()):
        return
    stem = place.name.removesuffix(".gz").removesuffix(".jsonl")
    name, stem = (glob.escape(one.replace("\\", r"\\")) for one in (place.name, stem))
    folder = place.parent.relative_to(root.resolve()).as_posix()
    for one in (name, f"{name}.*", f".{name}.*", f".{stem}.*", "checks/*.jsonl"):
        yield f":(exclude,top,glob){one if folder == '.' else f'{glob.escape(folder)}/{one}'}"


def records(root: Path) -> tuple[str, ...]:
    """Folders whose changes do not make a checkout dirty, as git leaves them out: the records of what was measured."""
    from kernels import project  # imported here: asv's plug-in does without

    found = project.around(root)
    folders = (found.results, found.code, found.results.with_name(f"{found.results.name}_sustained"))
    return tuple(f":!{folder.relative_to(root.resolve())}" for folder in folders)
