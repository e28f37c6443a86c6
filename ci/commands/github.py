"""What goes through GitHub: `/ridgeline ...` on a pull request, one commit on the GPU pools, a wait for a machine."""

from __future__ import annotations

import dataclasses
import json
import os

import click

from ci.github import comment, orders
from ci.github.client import of_environment
from ci.github.comment import pull_requests
from ci.github.orders import read_event
from ci.options import (
    ANY,
    DRY_RUN,
    JSON,
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


@verb('ridgeline ci command --event "$GITHUB_EVENT_PATH" --json')
@option("--event", "The event of a new comment (`issue_comment`), as GITHUB_EVENT_PATH names it.", ANY, required=True)
@JSON
@DRY_RUN
def command(given: Given) -> int:
    """Answer `/ridgeline gpu SHA [POOL]` from people with write access.

    Needs GITHUB_TOKEN and GITHUB_REPOSITORY.  What is to be done is printed, and set as the step's outputs `action`,
    `sha`, `pool` and `pull_request`; `action` is "refused" or "nothing" where nothing is.
    """
    comment, github = read_event(given.event), of_environment()
    outcome = orders.decide(comment, github)
    if comment and outcome.action != "nothing" and not given.dry_run:
        orders.post_answer(outcome, comment, github)
    would = "would do: " if given.dry_run else ""
    line = f"{would}{outcome.action}: {outcome.answer}"
    if outcome.action == "nothing":
        line = "nothing: no `/ridgeline` in the first line of a new comment on a pull request"
    click.echo(json.dumps(dataclasses.asdict(outcome)) if given.as_json else line)
    # For later steps; words, hex digits and numbers only, so that no line can bring another.
    path = "" if given.dry_run else os.environ.get("GITHUB_OUTPUT", "")
    if path:
        with open(path, "a", encoding="utf-8") as file:
            file.write(f"action={outcome.action}\nsha={outcome.sha}\npool={outcome.pool}\n")
            file.write(f"pull_request={outcome.pull_request or ''}\n")
    return PASS


# ---- ci start --------------------------------------------------------------------------------------------------------


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
    sha, chosen = given.sha, {"pool": given.pool, "gpus": given.gpus}
    where = " ".join(filter(None, (given.pool or "every pool", given.gpus and f"with {given.gpus} GPUs")))
    if given.dry_run:
        click.echo(f"would move the ref {orders.REF} to the default branch and start {orders.WORKFLOW} there: {where}")
        return PASS
    trusted = orders.start(of_environment(), sha, chosen)
    click.echo(f"started {orders.WORKFLOW} of {trusted[:8]} for {sha[:8]}: {where}")
    return PASS


@verb('ridgeline ci wait --run 1 --job "mi300x-8 / Measure" --minutes 30')
@option("--run ID", "The run (default: GITHUB_RUN_ID).", click.IntRange(1), envvar="GITHUB_RUN_ID", required=True)
@option("--job NAME", "The job of that run.", required=True)
@option("--minutes", "How long at most.", Finite(0, 1440), default=30.0)
def wait(given: Given) -> int:
    """Wait until a machine takes a job; exit code 2 if none comes in time.

    Needs GITHUB_TOKEN (actions: read) and GITHUB_REPOSITORY.
    """
    taken = orders.machine_took_job(of_environment(), given.run, given.job, given.minutes)
    late = f"absent: no machine took {given.job!r} within {given.minutes:g} minutes"
    click.echo(f"a machine took {given.job!r}" if taken else late)
    return PASS if taken else NO_VERDICT


# `ridgeline report`: render a report file, or put it on its pull request and its commit.


@verb("ridgeline report .ridgeline/report.json --format markdown")
@click.argument("file", type=ANY)
@option(
    "--format -> style", "How to render it.", click.Choice(["terminal", "markdown", "html", "json"]), default="terminal"
)
@option(
    "--post SHA",
    "Put it on this commit as a check run, and into the comment of every open pull request whose head it is "
    "(needs GITHUB_TOKEN and GITHUB_REPOSITORY).",
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
    summarize(loaded, "", given.summary and not given.dry_run)
    if given.style == "markdown":
        click.echo(markdown.render(loaded), nl=False)
    elif given.style == "html":
        click.echo(markdown.html_page(loaded), nl=False)
    elif given.style == "json":
        click.echo(json_report.dumps(loaded), nl=False)
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
    if given.dry_run:
        numbers = ", ".join(f"#{number}" for number in pull_requests(github, given.post))
        click.echo(f"would post {loaded.verdict} on {numbers or 'no open pull request'}")
        return code
    summarize(loaded, given.pool, given.summary)
    posted = comment.post(loaded, given.post, given.pool, github)
    for number, action in posted.items():
        click.echo(f"{action} on pull request #{number}")
    if not posted:
        click.echo("nothing: no open pull request")
    return code


def summarize(loaded: Report, pool: str, wanted: bool) -> None:
    if wanted and not comment.add_summary(loaded, pool):
        raise ReportError("--summary: GITHUB_STEP_SUMMARY is not set; leave the option out outside a workflow")
