"""`ridgeline records add`: trial files, measured anywhere, into asv records; `compact`: their samples out of git."""

from __future__ import annotations

import dataclasses
import json
from pathlib import Path

import click

from ci.commands.common.outcome import print_recorded
from ci.git import push
from ci.options import ANY, DRY_RUN, JSON, PASS, RESULTS, USAGE, flag, option, print_json, verb
from ci.records import store
from ci.records.samples import published
from ci.report.words import plain

PUSH = option("--push BRANCH -> push_to", "Commit the records and push them to this branch.")


@verb("ridgeline records add trials.jsonl")
@click.argument("files", nargs=-1, type=ANY)
@flag("--compact", "", hidden=True)  # `records compact` of old
@PUSH
@RESULTS
@JSON
@DRY_RUN
def record(
    files: tuple[Path, ...], compact: bool, push_to: str | None, results: Path, as_json: bool, dry_run: bool
) -> int:
    """Turn trial files, measured anywhere, into asv records and notes; recording again changes nothing.

    Where pyproject.toml names a place for samples, they go there, and what they come to stays in the notes.
    """
    if compact == bool(files):
        raise click.UsageError("name trial files; `ridgeline records compact` moves the samples of those recorded")
    if compact:
        return _compacted(results, push_to, as_json, dry_run)
    done = store.record(files, results, dry_run=dry_run)
    if as_json:
        print_json(_document(done))
    else:
        print_recorded(done, dry_run)
    _push(results, push_to if not dry_run else None, "Record measurements")
    return USAGE if done.problems else PASS


@verb("ridgeline records compact --dry-run")
@PUSH
@RESULTS
@JSON
@DRY_RUN
def compact(push_to: str | None, results: Path, as_json: bool, dry_run: bool) -> int:
    """Move the samples of all records to the place of [tool.ridgeline] samples in pyproject.toml; what they come to
    stays in the notes."""
    return _compacted(results, push_to, as_json, dry_run)


def _compacted(results: Path, push_to: str | None, as_json: bool, dry_run: bool) -> int:
    from ci.commands.records import compact

    moved = compact.compact(results, dry_run)
    click.echo(json.dumps(dataclasses.asdict(moved), indent=1) if as_json else str(moved))
    for problem in moved.problems:
        click.echo(f"left out: {plain(problem, 2000)}", err=True)
    _push(results, push_to if not dry_run else None, "Move samples out of the records")
    return USAGE if moved.problems else PASS


def _push(results: Path, branch: str | None, message: str) -> None:
    """The samples first: a record never refers to samples that nobody else has."""
    if branch is None:
        return
    if said := published(results):
        click.echo(said)
    click.echo(push.pushed(results, branch, message))


def _document(done: store.Recorded) -> dict[str, object]:
    return {
        "added": done.added,
        "known": done.known,
        "paths": [str(path) for path in done.paths],
        "problems": [dataclasses.asdict(problem) for problem in done.problems],
    }
