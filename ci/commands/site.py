"""`ridgeline site`: build the dashboard, and serve it on request."""

from __future__ import annotations

import os
from collections.abc import Sequence
from pathlib import Path

import click

from ci.harness import MeasureError, follow, options, program, run_here
from ci.options import ANY, DRY_RUN, RESULTS, err_console, folder, option, several, verb
from ci.report import json_report


@verb("ridgeline site --out site")
@folder("--out", "site", "Folder to build.")
@option("--repo-url URL", "Where commits link to (default: the repository of the workflow run).")
@option("--serve PORT", "Serve it on this machine's PORT until Ctrl-C.", click.IntRange(1, 65535))
@several(
    "--report FILE -> reports",
    "A report of `check`, `ab` or `gate`: a page of its own (repeatable, one per machine).",
    ANY,
)
@RESULTS
@DRY_RUN
def site(
    out: Path, repo_url: str | None, serve: int | None, reports: tuple[Path, ...], results: Path, dry_run: bool
) -> int:
    """Build the dashboard from the records: a folder that works offline."""
    for path in reports:
        json_report.read(path)  # a stranger's file is checked before anything is built of it
    if dry_run:
        click.echo(f"would build {out} from {results}")
        return 0
    build_site(out, results, repo_url, reports)
    click.echo(out / "index.html")
    if serve is not None:
        click.echo(f"http://127.0.0.1:{serve}/ until Ctrl-C", err=True)
        run_here("http.server", str(serve), "--bind", "127.0.0.1", "--directory", str(out.resolve()))
    return 0


def build_site(out: Path, results: Path, repo_url: str | None = None, reports: Sequence[Path] = ()) -> None:
    """Build it in a process of its own: judging needs no plotting library."""
    argv = program("dashboards") + options(results=results.resolve(), out=out.resolve())
    argv += options(repo_url=repo_url or _repo_url(), report=[path.resolve() for path in reports])
    ended = follow(argv, err_console(), "building the site", stdout=False)
    if ended.code:
        raise MeasureError(f"the site was not built ({ended.how}); what was there is as before")


def _repo_url() -> str | None:
    server, name = os.environ.get("GITHUB_SERVER_URL"), os.environ.get("GITHUB_REPOSITORY")
    return f"{server}/{name}" if server and name else None
