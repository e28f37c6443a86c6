"""Starting a GPU run on the ref that is made for it, and asking whether a machine took one of its jobs.

`REF` is moved to the newest commit of the default branch before each start, so the workflow files and the tools are
those of the default branch, and the measured commit is an input.  The run's rights to caches and environments are those
of this ref: nothing that measured code writes there is read by a run of the default branch.
"""

from __future__ import annotations

import re
import time
from collections.abc import Callable, Mapping

from ci.github.client import GitHub, GitHubError

REF = "ridgeline/gpu"
WORKFLOW = "gpu.yml"

ASK_EVERY_S = 30.0
"""Seconds between two questions: 60 calls in half an hour, of the 1,000 that a job's token has an hour (REST API,
2026-11)."""


class StartError(Exception):
    """A GPU run cannot be started; the text names the value and what is allowed."""


def start(github: GitHub, sha: str, inputs: Mapping[str, str]) -> str:
    """Start the GPU workflow for a commit; returns the commit of the default branch whose files it runs.

    inputs: further ones of the workflow; empty ones are left out.  Raises StartError, GitHubError.
    """
    if not re.fullmatch(r"[0-9a-f]{40}", sha):
        raise StartError(f"{sha!r:.60} is not a full commit hash (40 hex digits): a run is for exactly one commit")
    branch = github.get("")["default_branch"]
    if branch == REF:
        raise StartError(f"the default branch is called {REF}: GPU runs need a ref of their own; rename the branch")
    trusted = str(github.get(f"git/ref/heads/{branch}")["object"]["sha"])
    _move(github, trusted)
    given = {"sha": sha, **{name: value for name, value in inputs.items() if value}}
    github.post(f"actions/workflows/{WORKFLOW}/dispatches", {"ref": REF, "inputs": given})
    return trusted


def _move(github: GitHub, commit: str) -> None:
    """Put REF on a commit, whether it is there or not."""
    if github.get(f"git/ref/heads/{REF}", none_for=(404,)) is None:
        github.create("git/refs", {"ref": f"refs/heads/{REF}", "sha": commit}, lambda: None)
    else:
        github.patch(f"git/refs/heads/{REF}", {"sha": commit, "force": True})


def taken(
    github: GitHub,
    run: int,
    job: str,
    minutes: float,
    sleep: Callable[[float], None] = time.sleep,
    clock: Callable[[], float] = time.monotonic,
) -> bool:
    """Wait until a machine takes a job of a run, or has ended it; False if none came in so many minutes.

    A job that does not exist yet may still come: GitHub makes the jobs of a called workflow one after the other.
    """
    end = clock() + 60 * minutes
    while True:
        found = [one for one in github.items(f"actions/runs/{run}/jobs", "jobs") if one.get("name") == job]
        if any(one.get("status") in ("in_progress", "completed") for one in found):
            return True
        left = end - clock()
        if left <= 0:
            return False
        sleep(min(ASK_EVERY_S, left))


def of_run(environ: Mapping[str, str]) -> int:
    """The run of which this is a step.  Raises GitHubError outside a workflow."""
    run = environ.get("GITHUB_RUN_ID", "")
    if not run.isdecimal():
        raise GitHubError(f"GITHUB_RUN_ID is {run!r:.40}; a workflow's step has it, elsewhere give --run ID")
    return int(run)
