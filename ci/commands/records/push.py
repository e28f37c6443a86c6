"""`ridgeline records push`: records that are written, committed and pushed to a branch that others push to as well."""

from __future__ import annotations

from pathlib import Path

import click

from ci.git import push as pushing
from ci.options import DRY_RUN, FOLDER_THERE, PASS, verb
from ci.records.samples import published

WHAT = {"results_isa": "Record machine code"}


@verb("ridgeline records push results main --dry-run")
@click.argument("folder", type=FOLDER_THERE)
@click.argument("branch")
@DRY_RUN
def push(folder: Path, branch: str, dry_run: bool) -> int:
    """Commit what is new in a folder of records, and nothing else, and push it to a branch.

    Samples that are in a branch of their own (pyproject.toml, [tool.ridgeline] samples) are pushed first.
    GITHUB_TOKEN is shown to GITHUB_SERVER_URL only.
    """
    if dry_run:
        click.echo(f"would commit what is new in {folder} and push it to {branch}")
        return PASS
    if said := published(folder):
        click.echo(said)
    click.echo(pushing.pushed(folder, branch, WHAT.get(folder.name, "Record measurements")))
    return PASS
