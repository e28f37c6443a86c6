"""`ridgeline report`: render a report file, or put it on its pull request and its commit."""

from __future__ import annotations

import click

from ci.github import comment
from ci.github.client import of_environment
from ci.github.comment import pull_requests
from ci.options import ANY, DRY_RUN, PASS, USAGE, Given, flag, option, out_console, pairs, several, verb
from ci.report import json_report, markdown, terminal
from ci.report.json_report import ReportError
from ci.report.model import Report


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
