"""`ridgeline record`: trial files, measured anywhere, into asv records."""

from __future__ import annotations

import dataclasses
import json
from pathlib import Path

import click

from ci.commands.common.outcome import print_recorded
from ci.git import push
from ci.options import DRY_RUN, JSON, PASS, RESULTS, USAGE, example
from ci.records import store


@click.command(epilog=example("ridgeline record trials.jsonl"))
@click.argument("files", nargs=-1, required=True, type=click.Path(path_type=Path))
@click.option("--push", "push_to", metavar="BRANCH", help="Commit the records and push them to this branch.")
@RESULTS
@JSON
@DRY_RUN
def record(files: tuple[Path, ...], push_to: str | None, results: Path, as_json: bool, dry_run: bool) -> int:
    """Turn trial files, measured anywhere, into asv records and notes; twice is the same as once."""
    done = store.record(files, results, dry_run=dry_run)
    if as_json:
        click.echo(json.dumps(_document(done), indent=1))
    else:
        print_recorded(done, dry_run)
    if push_to and not dry_run:
        click.echo(push.pushed(results, push_to, "Record measurements"))
    return USAGE if done.problems else PASS


def _document(done: store.Recorded) -> dict[str, object]:
    return {
        "added": done.added,
        "known": done.known,
        "paths": [str(path) for path in done.paths],
        "problems": [dataclasses.asdict(problem) for problem in done.problems],
    }
