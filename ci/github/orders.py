"""`/ridgeline ...` in a comment on a pull request, read as what it is: a line that anybody can write.

Only the first line of a new comment of a person counts.  What it may do is decided by `decide`.
"""

from __future__ import annotations

import dataclasses
import json
import re
import time
import urllib.parse
from collections.abc import Callable, Mapping
from pathlib import Path

from benchmarks.shapes import Unfit, record, that, whole
from ci.calling import INSTALLED
from ci.github.client import GitHub, GitHubError
from ci.github.comment import write_comment

LARGEST = 5_000_000
"""Bytes of an event; a comment has at most 65,536 characters."""
ORDER = re.compile(r"/ridgeline\s+gpu\s+(?P<sha>[0-9a-fA-F]{8,40})(?:\s+(?P<pool>[a-z0-9-]{1,40}))?")
USAGE = "`/ridgeline gpu SHA [POOL]`: SHA has 8 to 40 hex digits, those of the commit that you have read"


class OrderError(Exception):
    """An event or a line is not what it should be; a sentence, without foreign text."""


@dataclasses.dataclass(frozen=True)
class Order:
    """What somebody asks for: to measure a commit.  sha: its first hex digits.  pool: of `ci/runners.toml`, "": all."""

    sha: str
    pool: str = ""


@dataclasses.dataclass(frozen=True)
class OrderComment:
    """A new comment on a pull request, as the platform tells of it."""

    repository: str
    pull_request: int
    id: int
    login: str
    body: str
    url: str = ""


_TEXT = that(lambda value: isinstance(value, str), "a text")
EVENT = record(
    {
        "action": _TEXT,
        "repository": record({"full_name": _TEXT}, {}),
        "issue": record({"number": whole(1)}, {}),
        "comment": record(
            {"id": whole(1), "body": _TEXT, "html_url": _TEXT, "user": record({"login": _TEXT, "type": _TEXT}, {})}, {}
        ),
    },
    {},
)
"""What is read of an event; GitHub's own have much more."""


def read_event(path: Path) -> OrderComment | None:
    """The comment of an `issue_comment` event; None for what is no new comment of a person on a pull request.

    Raises OrderError for a file that is no such event, OSError if it cannot be read.
    """
    with path.open("rb") as file:
        data = file.read(LARGEST + 1)
    if len(data) > LARGEST:
        raise OrderError(f"{path}: larger than {LARGEST} bytes, which no comment is")
    try:
        event = json.loads(data)
    except (ValueError, RecursionError):
        raise OrderError(f"{path}: not JSON; give the file that GITHUB_EVENT_PATH names") from None
    try:
        EVENT(event, str(path))
    except Unfit as error:
        raise OrderError(f"{error}; an event of `issue_comment` is expected") from None
    issue, comment = event["issue"], event["comment"]
    login, person = comment["user"]["login"], comment["user"]["type"] != "Bot"
    if not (person and event["action"] == "created" and isinstance(issue.get("pull_request"), dict)):
        return None
    if not re.fullmatch(r"[A-Za-z0-9](?:[A-Za-z0-9_-]{0,99})", login):
        raise OrderError(f"{path}: comment.user.login is not the name of a person")
    where = event["repository"]["full_name"], issue["number"], comment["id"]
    return OrderComment(*where, login, comment["body"], comment["html_url"])


def parse(body: str) -> Order | None:
    """The order in a comment's first line; None where there is none.  Raises OrderError for one that is not right."""
    first = next(iter(body.strip().splitlines()), "")
    if not re.match(r"/ridgeline(?!\S)", first):
        return None
    order = ORDER.fullmatch(first.strip())
    if not order:
        raise OrderError(f"allowed is {USAGE}")
    return Order(order["sha"].lower(), order["pool"] or "")


# Starting a GPU run on the ref that is made for it, and asking whether a machine took one of its jobs.
#
# `REF` is moved to the newest commit of the default branch before each start, so the workflow files and the tools are
# those of the default branch, and the measured commit is an input. The run's rights to caches and environments are
# those of this ref: nothing that measured code writes there is read by a run of the default branch.


REF = "ridgeline/gpu"
WORKFLOW = "ridgeline_gpu.yml" if INSTALLED else "gpu.yml"
"""Of a repository that has Ridgeline installed, as `ridgeline init` calls it; and our own."""

ASK_EVERY_S = 30.0
"""Seconds between two questions: 60 calls in half an hour, of the 1,000 that a job's token has an hour (REST API,
2026-11)."""


def start(github: GitHub, sha: str, inputs: Mapping[str, str]) -> str:
    """Start the GPU workflow for a commit; returns the commit of the default branch whose files it runs.

    sha: all 40 digits.  inputs: further ones of the workflow; empty ones are left out.  Raises GitHubError.
    """
    branch = github.get("")["default_branch"]
    trusted = str(github.get(f"git/ref/heads/{branch}")["object"]["sha"])
    github.put_branch(REF, trusted)
    given = {"sha": sha, **{name: value for name, value in inputs.items() if value}}
    github.post(f"actions/workflows/{WORKFLOW}/dispatches", {"ref": REF, "inputs": given})
    return trusted


def machine_took_job(
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
        states = {
            listed.get("status")
            for listed in github.items(f"actions/runs/{run}/jobs", "jobs")
            if f" / {listed.get('name')}".endswith(f" / {job}")  # that of a called workflow has its callers' before it
        }
        if states & {"in_progress", "completed"}:
            return True
        left = end - clock()
        if left <= 0:
            return False
        sleep(min(ASK_EVERY_S, left))


# What is done about `/ridgeline ...`: who may ask is asked of GitHub, what is measured is exactly what was named.


MAY = ("admin", "maintain", "write")
"""Permissions that count (docs.github.com, "Get repository permissions for a user", 2026-11-22)."""
ANSWER = "<!-- ridgeline:answer:{} -->"


@dataclasses.dataclass(frozen=True)
class OrderOutcome:
    """What is to be done.  action: "gpu", "refused" or "nothing".

    answer: one line for the pull request, without foreign text but in code.  sha: the commit, 40 hex digits.
    pool: where to measure, "" for every pool.
    """

    action: str
    answer: str = ""
    pull_request: int = 0
    sha: str = ""
    by: str = ""
    pool: str = ""

    @property
    def reaction(self) -> str:
        """GitHub's name of the emoji."""
        return "-1" if self.action == "refused" else "+1"


def decide(comment: OrderComment | None, github: GitHub) -> OrderOutcome:
    """What a comment asks for and whether it is granted; changes nothing.  Raises GitHubError."""
    if comment is None:
        return OrderOutcome("nothing")
    try:
        order = parse(comment.body)
        if order is None:
            return OrderOutcome("nothing", pull_request=comment.pull_request)
        if comment.repository.lower() != github.repository.lower():
            raise OrderError("this is an event of another repository")
        # Asks GitHub now: the event only says what the author was to the repository.
        path = f"collaborators/{urllib.parse.quote(comment.login, safe='')}/permission"
        permission = (github.get(path, none_for=(404,)) or {}).get("permission")
        if permission not in MAY:
            raise OrderError("`/ridgeline` is for people with write access to this repository")
        pull = github.get(f"pulls/{comment.pull_request}")
        if pull.get("state") != "open":
            raise OrderError("this pull request is closed")
        sha = str(pull["head"]["sha"])
        if not re.fullmatch(r"[0-9a-f]{40}", sha):
            raise GitHubError("the head of the pull request is not a commit hash of 40 hex digits")
        answer = _gpu_answer(order, sha, str((pull["head"].get("repo") or {}).get("full_name") or ""), github)
        return OrderOutcome("gpu", answer, comment.pull_request, sha, comment.login, order.pool)
    except OrderError as error:
        return OrderOutcome("refused", f"{error}.", comment.pull_request, by=comment.login)


def _gpu_answer(order: Order, sha: str, home: str, github: GitHub) -> str:
    """The answer to a measurement that is granted.  home: the repository that the head is in, "" if it is gone."""
    if not sha.startswith(order.sha):
        raise OrderError(f"the head of this pull request is `{sha[:8]}`, not `{order.sha[:8]}`: read it, then name it")
    if home.lower() != github.repository.lower() and len(order.sha) < 40:
        raise OrderError(
            "for a commit of a fork write all 40 digits: another commit with the same first ones is easy to make"
        )
    return f"Measuring `{sha}` on {f'`{order.pool}`' if order.pool else 'every pool'}."


def post_answer(outcome: OrderOutcome, comment: OrderComment, github: GitHub) -> None:
    """A reaction on the comment and one line below it; a second run of the job changes nothing."""
    github.post(f"issues/comments/{comment.id}/reactions", {"content": outcome.reaction}, repeatable=True)
    marker = ANSWER.format(comment.id)
    write_comment(github, comment.pull_request, marker, f"{marker}\n{outcome.answer}")
