"""`ridgeline records add`: trial files, measured anywhere, into asv records; `compact`: their samples out of git."""

from __future__ import annotations

import dataclasses
import json
from pathlib import Path

import click

from ci.bars import Bars
from ci.commands.common.outcome import print_recorded
from ci.git import push
from ci.options import ANY, DRY_RUN, JSON, PASS, RESULTS, USAGE, err_console, flag, option, print_json, verb
from ci.records import store
from ci.records.ledger import machine_folders
from ci.records.samples import CountingPlace, SamplesPlace, configured, published
from ci.report.words import plain
from ci.trials.file import Problem, RecordError

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
    moved = _compact(results, dry_run)
    click.echo(json.dumps(dataclasses.asdict(moved), indent=1) if as_json else str(moved))
    for problem in moved.problems:
        click.echo(f"left out: {plain(problem, 2000)}", err=True)
    _push(results, push_to if not dry_run else None, "Move samples out of the records")
    return USAGE if moved.problems else PASS


@dataclasses.dataclass(frozen=True)
class MovedSamples:
    """What was moved: records, and the bytes of all of them before and after.  place: where the samples are.

    parts, samples_bytes: how many files of samples there would be, and their bytes; None where they were written.
    """

    place: str
    records: int
    before: int
    after: int
    problems: list[Problem]
    parts: int | None = None
    samples_bytes: int | None = None

    def __str__(self) -> str:
        verb = "would be" if self.parts is not None else "are"
        said = f"{self.records} records: {self.before:,} bytes {verb} {self.after:,}; samples {verb} at {self.place}"
        return said if self.parts is None else f"{said}: {self.parts} files, {self.samples_bytes:,} bytes"


def _compact(results: Path, dry_run: bool) -> MovedSamples:
    """Move all samples that still are in the notes.  What an interruption leaves is done by running it again."""
    place = configured(results)
    if place is None:
        raise RecordError(
            "there is no place for samples; name one in pyproject.toml and run it again: "
            '[tool.ridgeline] samples = "branch:ridgeline-samples", a folder, or a URI such as s3://bucket/prefix'
        )
    counting = CountingPlace(place.name)
    chosen: SamplesPlace = counting if dry_run else place
    machines = [folder.name for folder in machine_folders(results)]
    records = [record for machine in machines for record in store.places(results, machine, "")]
    with Bars(err_console(), *Bars.get_default_columns()) as bars:
        shown = bars.track(records, description="moving samples of records")
        done = [store.compact(results, record, chosen, dry_run) for record in shown]
    return MovedSamples(
        place.name,
        len(done),
        sum(one.before for one in done),
        sum(one.after for one in done),
        [problem for one in done for problem in one.problems],
        *((len(counting.parts), sum(counting.parts.values())) if dry_run else ()),
    )


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
