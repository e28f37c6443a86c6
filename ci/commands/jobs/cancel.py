"""`ridgeline jobs cancel`: end jobs."""

from __future__ import annotations

from pathlib import Path

import click

from ci import executors
from ci.commands.jobs.listing import QUEUE, show
from ci.options import DRY_RUN, JSON, PASS, verb


@verb("ridgeline jobs cancel --dry-run 20261122T143118.803013392-e716")
@click.argument("ids", nargs=-1, required=True)
@JSON
@DRY_RUN
@QUEUE
def cancel(ids: tuple[str, ...], as_json: bool, dry_run: bool, queue: Path | None) -> int:
    """End jobs with everything they started; what they have measured stays.  A job that has ended is left as it is."""
    if dry_run:
        click.echo(f"would cancel {', '.join(ids)}")
        return PASS
    executors.cancel(ids, root=queue)
    return show(executors.status(ids, root=queue), as_json)
