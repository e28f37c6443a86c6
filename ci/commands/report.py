"""`ridgeline report`: render a report file, or put it on its pull request."""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path

import click

from ci.github import comment
from ci.options import DRY_RUN, example, out_console, pairs
from ci.report import json_report, markdown, terminal


@click.command(epilog=example("ridgeline report .ridgeline/report.json --format markdown"))
@click.argument("file", type=click.Path(path_type=Path))
@click.option(
    "--format",
    "style",
    type=click.Choice(["terminal", "markdown", "json"]),
    default="terminal",
    show_default=True,
    help="How to render it.",
)
@click.option(
    "--post",
    metavar="SHA",
    help="Put it on the open pull request whose head is this commit (needs GITHUB_TOKEN and GITHUB_REPOSITORY).",
)
@click.option("--topic", metavar="NAME", help="With --post: one comment per topic, such as a machine.")
@click.option(
    "--link", "links", multiple=True, metavar="LABEL=URL", help="A link to show under the report (repeatable)."
)
@DRY_RUN
def report(file: Path, style: str, post: str | None, topic: str | None, links: tuple[str, ...], dry_run: bool) -> int:
    """Render a report file that `check` or `gate` wrote, or post it as the pull request's comment."""
    if post:
        return _posted(file, post, topic or "", pairs("--link", links), dry_run)
    found = json_report.read(file)
    if style == "markdown":
        click.echo(markdown.render(found), nl=False)
    elif style == "json":
        click.echo(json_report.dumps(found), nl=False)
    else:
        terminal.show(found, out_console())
    return found.verdict.exit_code


def _posted(file: Path, commit: str, topic: str, links: Mapping[str, str], dry_run: bool) -> int:
    done = comment.post_report(file, commit, _github(), links, topic, dry_run=dry_run)
    where = f" on pull request #{done.pull_request}" if done.pull_request else ": no open pull request"
    click.echo(f"{done.action}{where}")
    return 0


def _github() -> comment.GitHub:
    missing = [name for name in ("GITHUB_REPOSITORY", "GITHUB_TOKEN") if not os.environ.get(name)]
    if missing:
        raise comment.GitHubError(f"{' and '.join(missing)} not set; a workflow's step sets them through `env:`")
    api = os.environ.get("GITHUB_API_URL", comment.API)
    return comment.GitHub(os.environ["GITHUB_REPOSITORY"], os.environ["GITHUB_TOKEN"], api)
