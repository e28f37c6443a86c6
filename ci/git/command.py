"""The only call of git: its environment cleaned, its time limited, its failure one sentence."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Mapping
from pathlib import Path

TIMEOUT_S = 600.0
"""Seconds for one command: a fetch or push over a slow network; everything local takes milliseconds."""
HOOK_VARIABLES = ("GIT_DIR", "GIT_WORK_TREE", "GIT_INDEX_FILE", "GIT_COMMON_DIR", "GIT_PREFIX")
"""What git sets for a hook (`git rev-parse --local-env-vars`): each would point us at the hook's repository."""
SHOWN_WORDS, SHOWN_OUTPUT = 4, 400
"""How much of a command (words) and of its stderr (characters, from the end) a message quotes."""


class GitError(Exception):
    """A commit, checkout or repository cannot be used; the text names it and the next step."""


class GitFailed(GitError):
    """git ran and refused, or there is no such folder."""


def git(folder: Path, *argv: str, stdin: str = "", env: Mapping[str, str] | None = None) -> str:
    """What a git command prints in `folder`, stripped.  env: variables to add.

    Raises GitFailed if it exits with another code than 0, GitError if git is missing or does not end.
    """
    shown = f"git {' '.join(argv[:SHOWN_WORDS])}"
    if not folder.is_dir():
        raise GitFailed(f"the folder {folder} does not exist")
    command = ["git", "-C", str(folder), *argv]
    ours = {key: value for key, value in os.environ.items() if key not in HOOK_VARIABLES}
    ours |= {"GIT_TERMINAL_PROMPT": "0", **(env or {})}
    try:
        done = subprocess.run(
            command, env=ours, input=stdin, timeout=TIMEOUT_S, capture_output=True, text=True, errors="backslashreplace"
        )
    except FileNotFoundError:
        raise GitError(
            "git is not installed here; install it, or name the commit and a file yourself: `ridgeline run --help`"
        ) from None
    except subprocess.TimeoutExpired:
        raise GitError(f"{shown} did not end within {TIMEOUT_S:g} s in {folder}; try it by hand") from None
    if done.returncode:
        output = (done.stderr.strip() or done.stdout.strip())[-SHOWN_OUTPUT:]
        raise GitFailed(f"{shown} failed in {folder}: {output or f'exit code {done.returncode}'}")
    return done.stdout.strip()


def git_or_none(folder: Path, *argv: str, stdin: str = "", env: Mapping[str, str] | None = None) -> str | None:
    """The same, None if git refuses; still GitError if git is missing or does not end."""
    try:
        return git(folder, *argv, stdin=stdin, env=env)
    except GitFailed:
        return None


def succeeds(folder: Path, *argv: str, env: Mapping[str, str] | None = None) -> bool:
    """Whether the command exits with 0."""
    return git_or_none(folder, *argv, env=env) is not None


def is_branch_name(name: str) -> bool:
    """Whether git takes it as the name of a branch: `rocm-7.2+fixes`, `a@b`, `x#y`, but not `-x`, `a..b`, `@{-1}`."""
    return not name.startswith("-") and succeeds(Path.cwd(), "check-ref-format", f"refs/heads/{name}")
