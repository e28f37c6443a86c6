"""`ridgeline report`: render a report file, or put it on its pull request and its commit."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

import click

from ci.github import comment
from ci.github.client import of_environment
from ci.github.comment import PostTarget, pull_requests
from ci.options import ANY, DRY_RUN, PASS, USAGE, flag, option, out_console, pairs, several, verb
from ci.report import json_report, markdown, terminal
from ci.report.json_report import ReportError
from ci.report.model import Report


@verb("ridgeline report .ridgeline/report.json --format markdown")
@click.argument("file", type=ANY)
@option("--format -> style", "How to render it.", click.Choice(["terminal", "markdown", "json"]), default="terminal")
@option(
    "--post SHA",
    "Put it on every open pull request whose head is this commit (needs GITHUB_TOKEN and GITHUB_REPOSITORY).",
)
@option("--topic NAME", "With --post: the section of the comment, such as a pool.")
@option("--check NAME", "With --post: also a check run of this name on the commit.")
@option("--missing WHY", 'With --post: what to say where FILE is not there, such as "absent: no runner took the job".')
@flag("--summary", "Also add it to the summary of the workflow's step.")
@several("--link LABEL=URL -> links", "A link to show under the report (repeatable).")
@DRY_RUN
def report(
    file: Path,
    style: str,
    post: str | None,
    topic: str | None,
    check: str | None,
    missing: str | None,
    summary: bool,
    links: tuple[str, ...],
    dry_run: bool,
) -> int:
    """Render a report file that `check` or `gate` wrote, or post it as the pull request's comment."""
    if not post and (topic or check or missing):
        raise click.UsageError("--topic, --check and --missing go with --post SHA")
    if post:
        target = PostTarget(post, topic or "", check or "")
        return _posted(file, target, pairs("--link", links), missing or "", summary, dry_run)
    found = json_report.read(file)
    _summarised(found, "", summary and not dry_run)
    if style == "markdown":
        click.echo(markdown.render(found), nl=False)
    elif style == "json":
        click.echo(json_report.dumps(found), nl=False)
    else:
        terminal.show(found, out_console())
    return found.verdict.exit_code


def _posted(
    file: Path, target: PostTarget, links: Mapping[str, str], missing: str, summary: bool, dry_run: bool
) -> int:
    found, code = _read(file, links, missing)
    github = of_environment()
    if dry_run:
        numbers = ", ".join(f"#{number}" for number in pull_requests(github, target.sha))
        click.echo(f"would post {found.verdict} on {numbers or 'no open pull request'}")
        return code
    _summarised(found, target.topic, summary)
    posted = comment.post(found, target, github, Path.cwd())
    for done in posted:
        click.echo(f"{done.action} on pull request #{done.pull_request}")
    if not posted:
        click.echo("nothing: no open pull request")
    return code


def _read(file: Path, links: Mapping[str, str], missing: str) -> tuple[Report, int]:
    """The report and the exit code: a file that is refused is told on the pull request too, where that is wanted."""
    try:
        return comment.read_report(file, links, missing), PASS
    except ReportError as error:
        if not missing:
            raise
        click.echo(f"Error: {error}", err=True)
        why = str(error).removeprefix(f"{file}: ")  # people on the pull request know no path of this machine
        return comment.unmeasured(f"the report is refused: {why}", links), USAGE


def _summarised(found: Report, topic: str, wanted: bool) -> None:
    if wanted and not comment.add_summary(found, topic):
        raise ReportError("--summary: GITHUB_STEP_SUMMARY is not set; leave the option out outside a workflow")
