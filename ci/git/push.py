"""Commit new records and push them to a branch that others push to as well.

Two nights, two machines or a person may push at the same time: a refused push is followed by a fetch and a rebase.
Records are files named by machine and commit, so a rebase conflicts only where two writers recorded the same commit on
the same machine; that is reported, and the trial files are still there to be recorded again.
"""

from __future__ import annotations

import base64
import os
import re
import time
from collections.abc import Callable, Mapping
from pathlib import Path

from ci.git.command import GitError, git, is_branch_name, succeeds

PUSHES = 5
IDENTITY = ("ridgeline", "ridgeline@users.noreply.github.com")
"""Author of the commits: the name shows that a program made them."""

SERVER = "https://github.com"
"""Where a token belongs unless GITHUB_SERVER_URL says otherwise (GitHub Enterprise)."""


class PushError(Exception):
    """Records were committed or pushed only in part; the text says what is where and what to do."""


def push_records(
    folder: Path,
    branch: str,
    message: str,
    token: str = "",
    sleep: Callable[[float], None] = time.sleep,
    server: str = SERVER,
) -> str:
    """Commit everything new under `folder` and push it to `branch`; returns the commit, "" if there was nothing new.

    token: of `server`.  It goes to that server only, over https only, and not on to where a redirection points; it is
    passed in the environment, so it appears neither in arguments nor in the repository's configuration.  Only `folder`
    is committed, whatever else has changed.
    """
    if not is_branch_name(branch):
        raise PushError(f"{branch!r} cannot be the name of a branch (`git check-ref-format --branch NAME`)")
    where, env = folder.resolve().parent, {**author(), **_authority(token, server)}
    if not succeeds(where, "remote", "get-url", "origin"):
        raise PushError(
            "there is no remote called origin to push to: `git remote add origin URL`; nothing was committed"
        )
    try:
        if not _commit(where, env, folder.name, message):
            return ""
        for attempt in range(PUSHES):
            if succeeds(where, "push", "--quiet", "origin", f"HEAD:refs/heads/{branch}", env=env):
                return git(where, "rev-parse", "HEAD")
            sleep(2.0**attempt)
            _rebase(where, env, branch)
    except GitError as error:
        raise PushError(str(error)) from error
    raise PushError(f"origin refused {branch} {PUSHES} times; the records are committed here, push them by hand")


def pushed(folder: Path, branch: str, message: str) -> str:
    """push_records with the token of the environment, where there is one; a sentence for people."""
    token, server = _known_token()
    commit = push_records(folder, branch, message, token=token, server=server)
    return f"pushed {commit[:8]} to {branch}" if commit else "nothing new to push"


def _commit(where: Path, env: Mapping[str, str], name: str, message: str) -> bool:
    """Commit the folder `name`; whether there was anything new in it.  Drafts of writers that were killed stay out."""
    git(where, "add", "--", name, f":(exclude,glob){name}/**/.*.draft")
    if succeeds(where, "diff", "--cached", "--quiet", "--", name):
        return False
    git(where, "commit", "--quiet", "--message", message, "--", name, env=env)
    return True


def _rebase(where: Path, env: Mapping[str, str], branch: str) -> None:
    git(where, "fetch", "--quiet", "origin", branch, env=env)
    if not succeeds(where, "rebase", "--quiet", "--autostash", "FETCH_HEAD", env=env):
        succeeds(where, "rebase", "--abort")
        raise PushError(
            f"origin/{branch} recorded the same commit on the same machine meanwhile; the records are committed here:"
            " pull, then record the trial files again"
        )


def author() -> dict[str, str]:
    """The variables that tell git who commits."""
    named = zip(("NAME", "EMAIL"), IDENTITY, strict=True)
    return {f"GIT_{role}_{key}": value for key, value in named for role in ("AUTHOR", "COMMITTER")}


def _known_token() -> tuple[str, str]:
    """The token of the environment, "" without one, and its server."""
    return os.environ.get("GITHUB_TOKEN", ""), os.environ.get("GITHUB_SERVER_URL") or SERVER


def _authority(token: str, server: str) -> dict[str, str]:
    """How git is to show the token: to URLs of this server only (git matches scheme, host and port).

    Git would keep the header after a redirection, so none is followed.  Raises PushError for a server without https.
    """
    if not token:
        return {}
    if not re.fullmatch(r"https://[\w.-]+(:\d+)?/?", server):
        raise PushError(
            f"GITHUB_SERVER_URL is {server!r:.100}; a token is sent to https://HOST only: unset GITHUB_TOKEN"
        )
    secret = base64.b64encode(f"x-access-token:{token}".encode()).decode()
    settings = {
        f"http.{server.rstrip('/')}/.extraheader": f"Authorization: Basic {secret}",
        "http.followRedirects": "false",
    }
    env = {"GIT_CONFIG_COUNT": str(len(settings))}
    for number, (key, value) in enumerate(settings.items()):
        env |= {f"GIT_CONFIG_KEY_{number}": key, f"GIT_CONFIG_VALUE_{number}": value}
    return env
