"""What is done about `/ridgeline ...`: who may ask is asked of GitHub, what is measured is exactly what was named."""

from __future__ import annotations

import dataclasses
import datetime
import itertools
import re
import urllib.parse
from typing import Any

from ci.github.client import GitHub, GitHubError
from ci.github.comment import Comments
from ci.github.orders import Order, OrderComment, OrderError, parse
from ci.history.triage import InAdvance

MAY = ("admin", "maintain", "write")
"""Permissions that count (docs.github.com, "Get repository permissions for a user", 2026-11-22)."""
ANSWER = "<!-- ridgeline:answer:{} -->"
GPU_RUN = "GPU {}"
"""The name of a run that measures a commit (`run-name` of .github/workflows/gpu.yml)."""
NEWEST = 300
"""Runs started by hand among which that of a commit is looked for: a few days of a busy repository."""
AGAIN = ("failure", "timed_out", "cancelled", "startup_failure")
"""Conclusions of runs that `rerun` starts again; never "action_required": that is somebody's approval to give."""


@dataclasses.dataclass(frozen=True)
class OrderOutcome:
    """What is to be done.  action: "gpu", "rerun", "accept", "refused" or "nothing".

    said: one line for the pull request, without foreign text but in code.  sha: the commit, 40 hex digits.
    lines: what is to be committed to the file of decisions.  pool: where to measure, "" for every pool.
    """

    action: str
    said: str = ""
    pull_request: int = 0
    sha: str = ""
    by: str = ""
    lines: str = ""
    pool: str = ""

    @property
    def reaction(self) -> str:
        """GitHub's name of the emoji."""
        return "-1" if self.action == "refused" else "+1"


def decide(asked: OrderComment | None, github: GitHub) -> OrderOutcome:
    """What a comment asks for and whether it is granted; changes nothing.  Raises GitHubError."""
    if asked is None:
        return OrderOutcome("nothing")
    try:
        order = parse(asked.body)
        if order is None:
            return OrderOutcome("nothing", pull_request=asked.pull_request)
        _check_repository(asked, github)
        _check_person(asked.login, github)
        return {"gpu": _gpu, "rerun": _rerun, "accept": _accept}[order.verb](order, asked, github)
    except OrderError as error:
        return OrderOutcome("refused", f"{error}.", asked.pull_request, by=asked.login)


def _check_repository(asked: OrderComment, github: GitHub) -> None:
    if asked.repository.lower() != github.repository.lower():
        raise OrderError("this is an event of another repository")


def _check_person(login: str, github: GitHub) -> None:
    """OrderComment of GitHub now: the event only says what the author was to the repository."""
    path = f"collaborators/{urllib.parse.quote(login, safe='')}/permission"
    answer = github.get(path, none_for=(404,)) or {}
    if answer.get("permission") not in MAY:
        raise OrderError("`/ridgeline` is for people with write access to this repository")


def _gpu(order: Order, asked: OrderComment, github: GitHub) -> OrderOutcome:
    pull = _open_pull(asked, github)
    sha, fork = _head(pull), _from_elsewhere(pull, github)
    if not sha.startswith(order.what):
        raise OrderError(f"the head of this pull request is `{sha[:8]}`, not `{order.what[:8]}`: read it, then name it")
    if fork and len(order.what) < 40:
        raise OrderError(
            "for a commit of a fork write all 40 digits: another commit with the same first ones is easy to make"
        )
    said = f"Measuring `{sha}` on {f'`{order.pool}`' if order.pool else 'every pool'}."
    return OrderOutcome("gpu", said, asked.pull_request, sha, asked.login, pool=order.pool)


def _rerun(order: Order, asked: OrderComment, github: GitHub) -> OrderOutcome:
    sha = _head(_open_pull(asked, github))
    if not failed_runs(github, sha):
        raise OrderError(
            f"there is nothing to run again for `{sha[:8]}`: every run of it passed, is running, or waits for approval"
        )
    return OrderOutcome("rerun", f"Running again what failed for `{sha}`.", asked.pull_request, sha, asked.login)


def _accept(order: Order, asked: OrderComment, github: GitHub) -> OrderOutcome:
    sha = _head(_open_pull(asked, github))
    today = datetime.datetime.now(datetime.UTC).date()
    lines = InAdvance(order.what, asked.pull_request, today, asked.login, order.reason, asked.url).dumps()
    said = "Accepted once these lines are committed to `ci/events.toml`, in this pull request or another:"
    return OrderOutcome("accept", said, asked.pull_request, sha, asked.login, lines)


def _open_pull(asked: OrderComment, github: GitHub) -> Any:
    pull = github.get(f"pulls/{asked.pull_request}")
    if pull.get("state") != "open":
        raise OrderError("this pull request is closed")
    return pull


def _head(pull: Any) -> str:
    sha = str(pull["head"]["sha"])
    if not re.fullmatch(r"[0-9a-f]{40}", sha):
        raise GitHubError("the head of the pull request is not a commit hash of 40 hex digits")
    return sha


def _from_elsewhere(pull: Any, github: GitHub) -> bool:
    home = (pull["head"].get("repo") or {}).get("full_name") or ""
    return bool(str(home).lower() != github.repository.lower())


def failed_runs(github: GitHub, sha: str) -> list[int]:
    """The workflow runs about a commit that did not pass and are over.

    Those that measured it on GPUs ran at a commit of the default branch: they are known by their name, which only
    people with write access can give a run that is started by hand or by `ridgeline start`.
    """
    own = github.items(f"actions/runs?head_sha={sha}", "workflow_runs")
    started = itertools.islice(github.items("actions/runs?event=workflow_dispatch", "workflow_runs"), NEWEST)
    measured = (run for run in started if run.get("display_title") == GPU_RUN.format(sha))
    over = (run for run in (*own, *measured) if run.get("status") == "completed" and run.get("conclusion") in AGAIN)
    return sorted({int(run["id"]) for run in over})


def carry_out(outcome: OrderOutcome, github: GitHub) -> None:
    """Run again what failed; all else is for later steps of the workflow, which have other rights."""
    if outcome.action == "rerun":
        for run in failed_runs(github, outcome.sha):
            github.post(f"actions/runs/{run}/rerun-failed-jobs", repeatable=True)


def reply(outcome: OrderOutcome, asked: OrderComment, github: GitHub) -> None:
    """A reaction on the comment and one line below it; a second run of the job changes nothing."""
    github.post(f"issues/comments/{asked.comment}/reactions", {"content": outcome.reaction}, repeatable=True)
    marker = ANSWER.format(asked.comment)
    block = f"\n\n```toml\n{outcome.lines}```" if outcome.lines else ""
    Comments(github).keep_body(asked.pull_request, marker, f"{marker}\n{outcome.said}{block}")
