"""`ridgeline records compact`: the samples of records that have them leave git."""

from __future__ import annotations

import dataclasses
from pathlib import Path

from ci.bars import Bars
from ci.options import err_console
from ci.records import store
from ci.records.ledger import machine_folders
from ci.records.samples import CountingPlace, SamplesPlace, configured
from ci.trials.file import Problem, RecordError


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


def compact(results: Path, dry_run: bool) -> MovedSamples:
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
