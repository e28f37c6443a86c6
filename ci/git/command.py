"""The only call of git: its environment cleaned, its time limited, its failure one sentence; the push of records."""

from __future__ import annotations

import base64
import os
import re
import subprocess
import time
from collections.abc import Callable, Mapping
from pathlib import Path

TIMEOUT_S = 600.0
"""Seconds for one command: a fetch or push over a slow network; everything local takes milliseconds."""
HOOK_VARIABLES = ("GIT_DIR", "GIT_WORK_TREE", "GIT_INDEX_FILE", "GIT_COMMON_DIR", "GIT_PREFIX")
"""What git sets for a hook (`git rev-parse --local-env-vars`): each would point us at the hook's repository."""
SHOWN_WORDS, SHOWN_OUTPUT = 4, 2000
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


# ---- records on a branch that others push to as well -----------------------------------------------------------------

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
