"""Commits checked out in worktrees of their own, beside the folder a person works in."""

from __future__ import annotations

import shutil
from pathlib import Path

from ci.git.command import git, git_or_none, succeeds

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


def remove(repository: Path, folder: Path) -> None:
    """Take a worktree away; one that cannot be removed is only reused later."""
    git_or_none(repository, "worktree", "remove", "--force", str(folder))


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
