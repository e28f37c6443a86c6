"""What goes through GitHub: `/ridgeline ...` on a pull request, one commit on the GPU pools, a wait for a machine, and
the report of a measurement as a comment."""

from __future__ import annotations

import dataclasses
import json
import os
import re
import time
import urllib.parse
from collections.abc import Callable, Mapping
from pathlib import Path

import click

from ci import INSTALLED
from ci.github import comment
from ci.github.client import GitHub, of_environment
from ci.github.comment import pull_requests, write_comment
from ci.options import (
    ANY,
    DRY_RUN,
    NO_VERDICT,
    PASS,
    USAGE,
    Finite,
    Given,
    flag,
    full_hash,
    option,
    out_console,
    pairs,
    several,
    verb,
)
from ci.report import json_report, markdown, terminal
from ci.report.json_report import ReportError
from ci.report.model import Report

# ---- /ridgeline in the first line of a comment, which anybody can write ----------------------------------------------

ORDER = re.compile(r"/ridgeline\s+gpu\s+(?P<sha>[0-9a-fA-F]{8,40})(?:\s+(?P<pool>[a-z0-9-]{1,40}))?")
ALLOWED = "`/ridgeline gpu SHA [POOL]`: SHA has 8 to 40 hex digits, those of the commit that you have read"
MAY = ("admin", "maintain", "write")
"""Permissions that count (docs.github.com, "Get repository permissions for a user", 2026-11-22)."""
ANSWER = "<!-- ridgeline:answer:{} -->"


class OrderError(Exception):
    """An event or a line is not what it should be; a sentence, without foreign text."""


@dataclasses.dataclass(frozen=True)
class OrderComment:
    """A new comment of a person on a pull request, as the platform tells of it."""

    pull_request: int
    id: int
    login: str
    body: str


@dataclasses.dataclass(frozen=True)
class OrderOutcome:
    """What is to be done.  action: "gpu", "refused" or "nothing".

    answer: one line for the pull request, without foreign text but in code.  sha: the commit, 40 hex digits.
    pool: where to measure, "" for every pool.
    """

    action: str
    answer: str = ""
    sha: str = ""
    pool: str = ""


def read_event(path: Path) -> OrderComment | None:
    """The comment of an `issue_comment` event; None for what is not a new one of a person on a pull request.

    Raises OrderError for a file that is not such an event, OSError if it cannot be read.
    """
    try:
        event = json.loads(path.read_bytes())
        issue, new, user = event["issue"], event["comment"], event["comment"]["user"]
        if event["action"] != "created" or user["type"] == "Bot" or "pull_request" not in issue:
            return None
        return OrderComment(issue["number"], new["id"], user["login"], new["body"])
    except (ValueError, KeyError, TypeError) as error:
        why = f"{type(error).__name__}: {error}"
        raise OrderError(f"{path} is not an event of `issue_comment` ({why}); GITHUB_EVENT_PATH names one") from None


def parse(body: str) -> tuple[str, str] | None:
    """(first hex digits of a commit, pool or "") of the order in a comment's first line; None where there is none.

    Raises OrderError for one that is not right.
    """
    first = next(iter(body.strip().splitlines()), "").strip()
    if not re.match(r"/ridgeline(?!\S)", first):
        return None
    order = ORDER.fullmatch(first)
    if not order:
        raise OrderError(f"allowed is {ALLOWED}")
    return order["sha"].lower(), order["pool"] or ""


def decide(asked: OrderComment | None, github: GitHub) -> OrderOutcome:
    """What a comment asks for and whether it is granted; changes nothing.  Raises GitHubError."""
    try:
        order = parse(asked.body) if asked else None
        if not (asked and order):
            return OrderOutcome("nothing")
        sha, pool = order
        head = granted_head(asked, sha, github)
        where = f"`{pool}`" if pool else "every pool"
        return OrderOutcome("gpu", f"Measuring `{head}` on {where}.", head, pool)
    except OrderError as error:
        return OrderOutcome("refused", f"{error}.")


def granted_head(asked: OrderComment, sha: str, github: GitHub) -> str:
    """The head of the pull request, if its first digits are `sha` and the author may have it measured.  OrderError.

    Who may is asked of GitHub now: the event only says what the author was to the repository.
    """
    path = f"collaborators/{urllib.parse.quote(asked.login, safe='')}/permission"
    if (github.get(path, none_for=(404,)) or {}).get("permission") not in MAY:
        raise OrderError("`/ridgeline` is for people with write access to this repository")
    pull = github.get(f"pulls/{asked.pull_request}")
    head, home = str(pull["head"]["sha"]), (pull["head"]["repo"] or {}).get("full_name", "")
    if pull["state"] != "open":
        raise OrderError("this pull request is closed")
    if not head.startswith(sha):
        raise OrderError(f"the head of this pull request is `{head[:8]}`, not `{sha[:8]}`: read it, then name it")
    if home.lower() != github.repository.lower() and len(sha) < 40:
        raise OrderError(
            "for a commit of a fork write all 40 digits: another commit with the same first ones is easy to make"
        )
    return head


@verb('ridgeline ci command --event "$GITHUB_EVENT_PATH"')
@option("--event", "The event of a new comment (`issue_comment`), as GITHUB_EVENT_PATH names it.", ANY, required=True)
@DRY_RUN
def command(given: Given) -> int:
    """Answer `/ridgeline gpu SHA [POOL]` from people with write access.

    Needs GITHUB_TOKEN and GITHUB_REPOSITORY.  What is to be done is printed as JSON, and set as the step's outputs
    `action`, `sha` and `pool`; `action` is "refused" or "nothing" where nothing is.
    """
    asked, github = read_event(given.event), of_environment()
    outcome = decide(asked, github)
    click.echo(json.dumps(dataclasses.asdict(outcome)))
    if given.dry_run:
        return PASS
    if asked and outcome.action != "nothing":
        # A reaction on the comment and one line below it; a second run of the job changes nothing.
        reaction = {"content": "-1" if outcome.action == "refused" else "+1"}
        github.post(f"issues/comments/{asked.id}/reactions", reaction, repeatable=True)
        marker = ANSWER.format(asked.id)
        write_comment(github, asked.pull_request, marker, f"{marker}\n{outcome.answer}")
    if path := os.environ.get("GITHUB_OUTPUT"):
        with open(path, "a", encoding="utf-8") as file:  # words and hex digits, so that no line can bring another
            file.write(f"action={outcome.action}\nsha={outcome.sha}\npool={outcome.pool}\n")
    return PASS


# ---- one commit on the GPU pools, and a wait for a machine -----------------------------------------------------------
#
# `REF` is moved to the newest commit of the default branch before each start, so the workflow files and the tools are
# those of the default branch, and the measured commit is an input.  The run's rights to caches and environments are
# those of this ref: nothing that measured code writes there is read by a run of the default branch.

REF = "ridgeline/gpu"
WORKFLOW = "ridgeline_gpu.yml" if INSTALLED else "gpu.yml"
"""Of a repository that has Ridgeline installed, as `ridgeline init` calls it; and our own."""

ASK_EVERY_S = 30.0
"""Seconds between two questions: 60 calls in half an hour, of the 1,000 that a job's token has an hour (REST API,
2026-11)."""

EXAMPLE_SHA = "344de583" + "0" * 32


@verb(f"ridgeline ci start {EXAMPLE_SHA} --pool mi300x --dry-run")
@click.argument("sha", callback=full_hash)
@option("--pool NAME", "Only this pool (default: all).", default="")
@option("--gpus N", "Only legs of N GPUs (default: all).", default="")
@DRY_RUN
def start(given: Given) -> int:
    """Start the GPU workflow for exactly this commit, with the default branch's workflow files.

    Needs GITHUB_TOKEN (actions and contents: write) and GITHUB_REPOSITORY.
    """
    inputs = {key: value for key in ("sha", "pool", "gpus") if (value := getattr(given, key))}
    if given.dry_run:
        click.echo(f"would move the ref {REF} to the default branch and start {WORKFLOW} there: {inputs}")
        return PASS
    github = of_environment()
    trusted = github.get(f"git/ref/heads/{github.get('')['default_branch']}")["object"]["sha"]
    github.put_branch(REF, trusted)
    github.post(f"actions/workflows/{WORKFLOW}/dispatches", {"ref": REF, "inputs": inputs})
    click.echo(f"started {WORKFLOW} of {trusted[:8]}: {inputs}")
    return PASS


def machine_took_job(github: GitHub, run: int, job: str, minutes: float) -> bool:
    """Wait until a machine takes a job of a run, or has ended it; False if none came in so many minutes.

    A job that does not exist yet may still come: GitHub makes the jobs of a called workflow one after the other.
    """
    end = time.monotonic() + 60 * minutes
    while True:
        states = {
            listed["status"]
            for listed in github.items(f"actions/runs/{run}/jobs", "jobs")
            if f" / {listed['name']}".endswith(f" / {job}")  # that of a called workflow has its callers' before it
        }
        if states & {"in_progress", "completed"}:
            return True
        if (left_s := end - time.monotonic()) <= 0:
            return False
        time.sleep(min(ASK_EVERY_S, left_s))


@verb('ridgeline ci wait --run 1 --job "mi300x-8 / Measure" --minutes 30')
@option("--run ID", "The run (default: GITHUB_RUN_ID).", click.IntRange(1), envvar="GITHUB_RUN_ID", required=True)
@option("--job NAME", "The job of that run.", required=True)
@option("--minutes", "How long at most.", Finite(0, 1440), default=30.0)
def wait(given: Given) -> int:
    """Wait until a machine takes a job; exit code 2 if none comes in time.

    Needs GITHUB_TOKEN (actions: read) and GITHUB_REPOSITORY.
    """
    taken = machine_took_job(of_environment(), given.run, given.job, given.minutes)
    late = f"absent: no machine took {given.job!r} within {given.minutes:g} minutes"
    click.echo(f"a machine took {given.job!r}" if taken else late)
    return PASS if taken else NO_VERDICT


# ---- a report file, rendered, or put on its pull request and its commit ----------------------------------------------

RENDERED: Mapping[str, Callable[[Report], str]] = {
    "markdown": markdown.render,
    "html": markdown.html_page,
    "json": json_report.dumps,
}
"""Text of a report by format."""


@verb("ridgeline report .ridgeline/report.json --format markdown")
@click.argument("file", type=ANY)
@option("--format -> style", "How to render it.", click.Choice(["terminal", *RENDERED]), default="terminal")
@option(
    "--post SHA",
    "Put it on this commit as a check run, and into the comment of every open pull request whose head it is "
    "(needs GITHUB_TOKEN and GITHUB_REPOSITORY).",
    callback=full_hash,
)
@option("--pool NAME", "With --post: the pool that measured it.", default="")
@option("--missing WHY", 'With --post: what to say where FILE is not there, such as "absent: no runner took the job".')
@flag("--summary", "Also add it to the summary of the workflow's step.")
@several("--link LABEL=URL -> links", "A link to show under the report (repeatable).")
@DRY_RUN
def report(given: Given) -> int:
    """Render a report file that `check` or `gate` wrote, or post it on its commit and pull request."""
    if not given.post and (given.pool or given.missing):
        raise click.UsageError("--pool and --missing go with --post SHA")
    if given.post:
        return post_report(given)
    loaded = json_report.read(given.file)
    if given.summary and not given.dry_run:
        comment.add_summary(loaded)
    if given.style in RENDERED:
        click.echo(RENDERED[given.style](loaded), nl=False)
    else:
        terminal.show(loaded, out_console())
    return loaded.verdict.exit_code


def post_report(given: Given) -> int:
    """Post it; with --missing a file that is refused is a report of its own, which says why."""
    links, missing, code = pairs("--link", given.links), given.missing or "", PASS
    try:
        loaded = comment.read_report(given.file, links, missing)
    except ReportError as error:
        if not missing:
            raise
        click.echo(f"Error: {error}", err=True)
        why = str(error).removeprefix(f"{given.file}: ")  # people on the pull request know no path of this machine
        loaded, code = comment.unmeasured(f"the report is refused: {why}", links), USAGE
    github = of_environment()
    numbers = pull_requests(github, given.post)
    if not given.dry_run:
        if given.summary:
            comment.add_summary(loaded, given.pool)
        comment.post(loaded, given.post, given.pool, numbers, github)
    where = ", ".join(f"#{number}" for number in numbers) or "no open pull request"
    click.echo(f"{'would post' if given.dry_run else 'posted'} {loaded.verdict} on {where}")
    return code
