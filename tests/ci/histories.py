"""Small repositories with a history that dates alone do not tell."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

SECOND = "2026-11-01T12:00:00+00:00"


def commits_of_one_second(folder: Path, count: int) -> list[str]:
    """A new repository in `folder` with so many commits, as a rebase leaves them; their hashes, oldest first."""
    dates = {"GIT_AUTHOR_DATE": SECOND, "GIT_COMMITTER_DATE": SECOND}

    def git(*arguments: str) -> str:
        command = ["git", "-C", str(folder), "-c", "user.name=a", "-c", "user.email=a@b", *arguments]
        return subprocess.run(command, check=True, capture_output=True, text=True, env={**os.environ, **dates}).stdout

    git("init", "-q", "-b", "main")
    for number in range(count):
        git("commit", "-q", "--allow-empty", "-m", f"{number}")
    return git("rev-list", "--reverse", "HEAD").split()
