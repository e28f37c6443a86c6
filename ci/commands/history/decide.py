"""`ridgeline ack`, `accept` and `reopen`: what people decide about events, into a file that is reviewed."""

from __future__ import annotations

import datetime
import functools
from pathlib import Path

import click

from ci.commands.history import listing
from ci.commands.history.events import SOURCES
from ci.history import reading, triage
from ci.history.types import EventState, HistoryEvent
from ci.options import DRY_RUN, PASS, err_console, example
from ci.report.words import plain

ID = click.argument("event_id", metavar="ID")
OWNER = functools.partial(click.option, "--owner", metavar="NAME", help="Who looks after it.")
REASON = functools.partial(click.option, "--reason", metavar="TEXT", help="Why; a sentence for whoever reads the file.")
LINK = click.option("--link", metavar="URL", help="Where it is dealt with.")


@click.command(epilog=example('ridgeline ack 3f2a --owner "A. Author" --reason "looking into the tile shape"'))
@ID
@OWNER(required=True)
@REASON()
@LINK
@SOURCES
@DRY_RUN
def ack(
    event_id: str,
    owner: str,
    reason: str | None,
    link: str | None,
    results: Path,
    code: Path,
    triage_file: Path,
    dry_run: bool,
) -> int:
    """Acknowledge an event: somebody looks after it, and it stays until its series recover.

    ID: as `ridgeline events` shows it, or its first digits."""
    told = {"owner": owner, "reason": reason, "link": link}
    return _decide(event_id, EventState.ACKNOWLEDGED, told, (results, code, triage_file), dry_run)


@click.command(epilog=example('ridgeline accept 3f2a --reason "the check for overflow is worth 2 %"'))
@ID
@REASON(required=True)
@OWNER()
@LINK
@SOURCES
@DRY_RUN
def accept(
    event_id: str,
    reason: str,
    owner: str | None,
    link: str | None,
    results: Path,
    code: Path,
    triage_file: Path,
    dry_run: bool,
) -> int:
    """Accept an event: the new level of its series is the one to hold from now on."""
    told = {"owner": owner, "reason": reason, "link": link}
    return _decide(event_id, EventState.ACCEPTED, told, (results, code, triage_file), dry_run)


@click.command(epilog=example("ridgeline reopen 3f2a"))
@ID
@REASON()
@SOURCES
@DRY_RUN
def reopen(event_id: str, reason: str | None, results: Path, code: Path, triage_file: Path, dry_run: bool) -> int:
    """Reopen an event: it needs somebody again, whatever was decided and whatever its series did."""
    return _decide(event_id, EventState.OPEN, {"reason": reason}, (results, code, triage_file), dry_run)


def _decide(
    event_id: str, state: EventState, told: dict[str, str | None], sources: tuple[Path, Path, Path], dry_run: bool
) -> int:
    results, code, file = sources
    decisions = triage.load(file)
    with err_console().status("reading the history"):
        history = reading.history(results, code, decisions)
    found = {event.id: event for event in history.events}
    name = triage.chosen(event_id, [*found, *decisions.entries])
    entry = _entry(name, found.get(name), decisions.entries.get(name), state, told)
    changed = decisions.with_entry(entry)
    if not dry_run:
        triage.save(changed, file)
    said = "would write" if dry_run else "wrote"
    subject = listing.what(found[name]) if name in found else "of which no record is left"
    click.echo(f"{state}: {name} {plain(subject)}; {said} {file}, which is to be committed")
    return PASS


def _entry(
    name: str,
    event: HistoryEvent | None,
    earlier: triage.TriageEntry | None,
    state: EventState,
    told: dict[str, str | None],
) -> triage.TriageEntry:
    """The decision; what was said before stays unless it is said anew, but of a reopened event."""
    kept = {} if earlier is None else {key: getattr(earlier, key) for key in triage.TEXTS}
    if state is EventState.OPEN:
        kept = {key: text for key, text in kept.items() if key not in ("owner", "reason", "link")}
    if event is not None:
        kept |= {"kind": str(event.kind), "direction": str(event.direction), "machine": event.machine}
        kept["first_bad"] = event.first_bad.hash
    texts = kept | {key: text[: triage.LONGEST] for key, text in told.items() if text is not None}
    return triage.TriageEntry(name, state, datetime.datetime.now(datetime.UTC).date(), **texts)
