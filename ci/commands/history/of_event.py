"""What an event of the history asks of a search: its range of commits, and the series that moved most."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from pathlib import Path

import click

from ci.bisect.types import BisectError
from ci.commands.history import listing
from ci.git.repository import Repository
from ci.harness import MeasurePlan
from ci.history import reading, triage
from ci.history.types import EventKind, HistoryEvent
from ci.options import err_console


@dataclasses.dataclass(frozen=True)
class AskedOfEvent:
    """The ends of a search, what is measured, and the size of the step as a ratio."""

    ends: tuple[str, str]
    plan: MeasurePlan
    ratio: float


def asked_of_event(prefix: str, results: Path, ends: Sequence[str], plan: MeasurePlan) -> AskedOfEvent:
    """What the event asks for; what the plan names already stays.  Raises TriageError, BisectError, GitError."""
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
    err_console().print(f"{listing.what(event)}: between {good[:8]} and {bad[:8]}", markup=False)
    return AskedOfEvent((good, bad), _of_series(event, plan), event.ratio)


def _of_series(event: HistoryEvent, plan: MeasurePlan) -> MeasurePlan:
    """The plan for the series that moved most, in any tier, where it names no kernel, case or backend itself."""
    key = max(event.moved, key=lambda one: abs(one.step.ratio - 1)).key
    return dataclasses.replace(
        plan,
        tier="nightly",
        kernels=plan.kernels or (key.kernel,),
        cases=plan.cases or (f"{key.kernel}/{key.case}",),
        backends=plan.backends or (key.backend,),
    )
