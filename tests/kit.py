"""What tests of every room build with: repositories and their commits, and a command of ours in this process."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import time
from pathlib import Path

import pytest
from click.testing import CliRunner

from ci.__main__ import main

ROOT = Path(__file__).parent.parent
SECOND = "2026-11-01T12:00:00+00:00"
AUTHOR = {f"GIT_{role}_{key}": "t@example.org" for role in ("AUTHOR", "COMMITTER") for key in ("NAME", "EMAIL")}


def git(folder, *words, **variables):
    """What git prints there, as an author that is nobody."""
    env = {**os.environ, **AUTHOR, **variables}
    argv = ["git", "-C", str(folder), *map(str, words)]
    done = subprocess.run(argv, env=env, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    return done.stdout.strip()


def commit(folder, message="change", **files):
    """Write files (`kernels__a` is kernels/a) and commit everything; the hash."""
    for name, text in files.items():
        path = folder / (name if "/" in name else name.replace("__", "/"))
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    git(folder, "add", "-A")
    git(folder, "commit", "-q", "--allow-empty", "-m", message)
    return git(folder, "rev-parse", "HEAD")


def repository(folder, **files):
    """A new repository with one commit on the branch main."""
    folder.mkdir(parents=True, exist_ok=True)
    git(folder, "init", "-q", "-b", "main")
    commit(folder, **files)
    return folder


def commits_of_one_second(folder, count):
    """A new repository in `folder` with so many commits, as a rebase leaves them; their hashes, oldest first.

    Dates alone do not tell their order.
    """
    dates = {"GIT_AUTHOR_DATE": SECOND, "GIT_COMMITTER_DATE": SECOND}
    git(folder, "init", "-q", "-b", "main")
    for number in range(count):
        git(folder, "commit", "-q", "--allow-empty", "-m", number, **dates)
    return git(folder, "rev-list", "--reverse", "HEAD").split()


class Repo:
    """A repository with commits of given days."""

    def __init__(self, folder):
        self.folder = folder
        self.git("init", "-q", "-b", "main")

    def git(self, *words, **variables):
        """What git answers in it."""
        return git(self.folder, *words, **variables)

    def commit(self, subject, day=1, author="A. Author"):
        """An empty commit of a day of 2026-11 (the first: of SECOND); its hash."""
        date = SECOND.replace("-01T", f"-{day:02d}T")
        words = ("--allow-empty", "--allow-empty-message", f"--author={author} <a@b>", "-m", subject)
        self.git("commit", "-q", *words, GIT_COMMITTER_DATE=date, GIT_AUTHOR_DATE=date)
        return self.git("rev-parse", "HEAD")


LEFT_OUT = ("tests", "results", "results_isa", "results_sustained")
OPERATOR = ("_shared", "symmetric_heap", "gemm")


def copied(folder):
    """This project with one of its operators, for a repository of its own: the files as they lie here, committed or
    not, without tests, records and the other operators."""
    for name in git(ROOT, "ls-files", "-z", "--cached", "--others", "--exclude-standard").split("\0"):
        first, *more = Path(name).parts or LEFT_OUT
        needed = more[0] in OPERATOR if first == "kernels" and len(more) > 1 else first not in LEFT_OUT
        if needed and (ROOT / name).is_file():
            (folder / name).parent.mkdir(parents=True, exist_ok=True)
            shutil.copy(ROOT / name, folder / name)
    return folder


def ridgeline(*words, given=None):
    """A command of ours, in this process; a fault of ours is raised."""
    return CliRunner().invoke(main, list(map(str, words)), input=given)


HANGS_S = 600.0
"""What takes longer hangs: a machine that does much else makes minutes of seconds."""


def until(condition, what="it", every_s=0.01):
    """What a condition says once it is true; what: its words, or what has them; every_s: less often for Slurm."""
    end = time.monotonic() + HANGS_S
    while not (said := condition()):
        assert time.monotonic() < end, f"waited {HANGS_S:g} s for {what() if callable(what) else what}"
        time.sleep(every_s)
    return said


def mostly_nightly(values, *representatives):
    """Parameters of a test: those that stand for the others, and the others, which are of the nightly set."""
    rows = [(value, value if isinstance(value, tuple) else (value,)) for value in values]
    return [pytest.param(*row, marks=() if value in representatives else pytest.mark.nightly) for value, row in rows]


def calls(function, most):
    """How many functions of Python a call calls: its work, which no other process changes.  Fails at `most`."""
    count = 0

    def counting(frame, event, argument):
        nonlocal count
        count += event == "call"
        assert count < most, f"{most:,} calls, and no end"

    sys.setprofile(counting)
    try:
        function()
    finally:
        sys.setprofile(None)
    return count


def said(done):
    """What a command printed, in one line."""
    return " ".join(done.output.split())
