"""Commit new records and push them to a branch that others push to as well.

Two nights, two machines or a person may push at the same time: a refused push is followed by a fetch and a rebase.
Records are files named by machine and commit, so a rebase conflicts only where two writers recorded the same commit on
the same machine; that is reported, and the trial files are still there to be recorded again.
"""

from __future__ import annotations

import base64
import os
import re
import subprocess
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

ATTEMPTS = 5
IDENTITY = ("ridgeline", "ridgeline@users.noreply.github.com")
"""Author of the commits: a name that says a program did it."""


class PushError(Exception):
    """Records were committed or pushed only in part; the text says what is where and what to do."""


def push_records(
    folder: Path,
    branch: str,
    message: str,
    remote: str = "origin",
    token: str = "",
    sleep: Callable[[float], None] = time.sleep,
) -> str:
    """Commit everything new under `folder` and push it to `branch`; returns the commit, "" if there was nothing new.

    token: for an https remote; it is passed in the environment, so it appears neither in arguments nor in the
    repository's configuration.  Only `folder` is committed, whatever else has changed.
    """
    if not re.fullmatch(r"(?!-)[\w./-]+", branch):
        raise PushError(f"{branch!r} cannot be the name of a branch")
    where, env = folder.resolve().parent, _environment(token)
    _git(where, env, "add", "--", folder.name)
    if _run(where, env, "diff", "--cached", "--quiet", "--", folder.name).returncode == 0:
        return ""
    _git(where, env, "commit", "--quiet", "--message", message, "--", folder.name)
    for attempt in range(ATTEMPTS):
        if _run(where, env, "push", "--quiet", remote, f"HEAD:refs/heads/{branch}").returncode == 0:
            return _git(where, env, "rev-parse", "HEAD").strip()
        sleep(2.0**attempt)
        _rebase(where, env, remote, branch)
    raise PushError(f"{remote} refused {branch} {ATTEMPTS} times; the records are committed here, push them by hand")


def pushed(folder: Path, branch: str, message: str) -> str:
    """push_records with the token of the environment, where there is one; a sentence for people."""
    commit = push_records(folder, branch, message, token=os.environ.get("GITHUB_TOKEN", ""))
    return f"pushed {commit[:8]} to {branch}" if commit else "nothing new to push"


def _rebase(where: Path, env: Mapping[str, str], remote: str, branch: str) -> None:
    _git(where, env, "fetch", "--quiet", remote, branch)
    if _run(where, env, "rebase", "--quiet", "--autostash", "FETCH_HEAD").returncode:
        _run(where, env, "rebase", "--abort")
        raise PushError(
            f"{remote}/{branch} recorded the same commit on the same machine meanwhile; the records are"
            " committed here: pull, then `ridgeline record` the trial files again"
        )


def _environment(token: str) -> dict[str, str]:
    name, mail = IDENTITY
    env = {
        **os.environ,
        "GIT_AUTHOR_NAME": name,
        "GIT_AUTHOR_EMAIL": mail,
        "GIT_COMMITTER_NAME": name,
        "GIT_COMMITTER_EMAIL": mail,
        "GIT_TERMINAL_PROMPT": "0",
    }
    if token:
        secret = base64.b64encode(f"x-access-token:{token}".encode()).decode()
        env |= {
            "GIT_CONFIG_COUNT": "1",
            "GIT_CONFIG_KEY_0": "http.extraheader",
            "GIT_CONFIG_VALUE_0": f"Authorization: Basic {secret}",
        }
    return env


def _run(where: Path, env: Mapping[str, str], *argv: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(["git", *argv], cwd=where, env=dict(env), text=True, capture_output=True, timeout=600)


def _git(where: Path, env: Mapping[str, str], *argv: str) -> str:
    done = _run(where, env, *argv)
    if done.returncode:
        raise PushError(f"git {_shown(argv)} failed in {where}: {done.stderr.strip()[-400:]}")
    return done.stdout


def _shown(argv: Sequence[str]) -> str:
    return " ".join(argv[:4])
