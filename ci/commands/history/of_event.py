"""What an event of the history asks of a search: its range of commits, and the series that moved most."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import click

from ci.bisect.types import BisectError
from ci.commands.history.listing import what as named
from ci.git.repository import Repository
from ci.history import reading, triage
from ci.history.types import EventKind, HistoryEvent
from ci.options import err_console


@dataclasses.dataclass(frozen=True)
class AskedOfEvent:
    """The ends of a search, its filters by the names of the options, and the size of the step as a ratio."""

    ends: tuple[str, str]
    filters: dict[str, Any]
    ratio: float


def asked_of_event(prefix: str, results: Path, ends: Sequence[str], given: dict[str, Any]) -> AskedOfEvent:
    """What the event asks for; filters that were given stay.  Raises TriageError, BisectError, GitError."""
    if ends:
        raise click.UsageError(f"--event names the ends itself; leave out {' '.join(ends)}")
    with err_console().status("reading the history"):
        found = {one.id: one for one in reading.history(results, None, triage.load()).events}
    event = found[triage.chosen(prefix, found)]
    if event.kind is not EventKind.KERNEL:
        said = f"the event {event.id} is one of the kind {event.kind}, which no commit of a kernel explains"
        raise BisectError(f"{said}; events of the kind kernel can be searched: ridgeline events --kind kernel")
    if not event.last_good.hash:
        raise BisectError(f"the event {event.id} has no good commit before it; name one: ridgeline bisect GOOD BAD")
    repository = Repository(Path.cwd())
    good, bad = (repository.resolve(one.hash).hash for one in (event.last_good, event.first_bad))
    err_console().print(f"{named(event)}: between {good[:8]} and {bad[:8]}", markup=False)
    return AskedOfEvent((good, bad), _filters(event, given), event.ratio)


def _filters(event: HistoryEvent, given: dict[str, Any]) -> dict[str, Any]:
    """The series that moved most: kernel, case and backend, in any tier; what was given comes first."""
    key = max(event.moved, key=lambda one: abs(one.step.ratio - 1)).key
    wanted = {"kernels": (key.kernel,), "cases": (f"{key.kernel}/{key.case}",), "backends": (key.backend,)}
    return {**{name: given[name] or value for name, value in wanted.items()}, "tier": "nightly"}
