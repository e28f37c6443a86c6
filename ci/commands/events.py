"""Events on a terminal: what stands first, the surest and largest of each kind before the others."""

from __future__ import annotations

import dataclasses
import datetime
import functools
import json
import os
from collections.abc import Sequence
from typing import Any

import click
from rich.console import Console
from rich.text import Text

from ci.bars import ProgressBars
from ci.history import reading, triage, words
from ci.history.analysis import History
from ci.history.types import Direction, HistoryEvent
from ci.options import (
    DRY_RUN,
    FILE,
    JSON,
    NO_VERDICT,
    PASS,
    REGRESSION,
    RESULTS,
    Given,
    err_console,
    flag,
    is_missing,
    of_project,
    option,
    out_console,
    project_folder,
    several,
    together,
    verb,
)
from ci.report.words import plain, plural
from ci.trials.file import RecordError

CAUSES = 2
"""Causes that are shown; --json has all."""

STYLE = {Direction.SLOWER: "red", Direction.FASTER: "green"}


def needs_somebody(event: HistoryEvent) -> bool:
    """Whether it is a regression that nobody has acknowledged."""
    return words.is_regression(event) and not event.owner


def show(events: Sequence[HistoryEvent], history: History, console: Console) -> None:
    """One line that says what stands, the events, what was looked at."""
    count = sum(map(words.is_regression, events))
    console.print(Text(f"{plural(count, 'regression')} open", "bold red" if count else "bold green"))
    for event in words.in_order_of_need(events):
        console.print(block(event), soft_wrap=True)
    looked_at = f"looked at {history.series} series with {plural(history.points, 'point')}"
    console.print(f"{looked_at} of {plural(len(history.commits), 'commit')}")
    for note in history.notes:
        console.print(Text(plain(note, 400), "yellow"))


def block(event: HistoryEvent) -> Text:
    """What moved and by how much; since when; what became of it and why it may be; how to narrow a wide range."""
    style = STYLE[event.direction] if words.is_open(event) else "dim"
    indent = "\n" + " " * (len(event.id) + 2)
    why = words.causes(event, CAUSES)
    lines = [words.since(event), words.standing(event) + (f"; {why}" if why else "")]
    if command := words.narrowing(event):
        lines.append(f"{event.between} commits between were not measured; on {event.machine}: {command}")
    return Text.assemble(f"{event.id}  ", (words.headline(event), style), *(f"{indent}{line}" for line in lines))


# `ridgeline events`: what changed over the history of records, since when, why, and who looks after it.


CODE = project_folder("--code", "code", "results_isa", "Folder of recorded machine code.")
TRIAGE = option(
    "--triage -> triage_file",
    "File of the decisions about events.",
    FILE,
    default=of_project("events"),
    show_default=str(triage.DEFAULT_FILE),
)
SOURCES = together(RESULTS, CODE, TRIAGE)
"""Where the history is read from."""


@verb("ridgeline events list --open --machine h200x1-537ca5d2")
@flag("--open -> only_open", "Only what is open.")
@several("--machine NAME -> machines", "Only this machine (repeatable).")
@flag("--summary", "Also add them to the summary of the workflow's step.")
@SOURCES
@JSON
def events(given: Given) -> int:
    """Events of the history: which operators became slower or faster, since which commit, and why.

    Exits with 1 if an open regression that nobody has acknowledged is among them.
    """
    results = given.results
    if is_missing(results):
        said = f"{results} is not there, so nothing is known of any regression"
        raise RecordError(f"{said}: `ridgeline run` records there, --results names another folder")
    history, _ = _history(given)
    machines = {event.machine for event in history.events}
    for name in sorted({*given.machines} - machines):
        click.echo(f"{name!r} has no event; machines that have: {', '.join(sorted(machines)) or 'none'}", err=True)
    chosen = [
        event
        for event in history.events
        if (not given.only_open or words.is_open(event)) and (not given.machines or event.machine in given.machines)
    ]
    if given.as_json:
        click.echo(json.dumps(document(chosen, history), indent=1, allow_nan=False))
    else:
        show(chosen, history, out_console())
    if given.summary:
        _add_to_summary(chosen, history)
    if any(map(needs_somebody, chosen)):
        return REGRESSION
    return NO_VERDICT if history.unread else PASS


def _history(given: Given) -> tuple[History, triage.Triage]:
    """The history by SOURCES, and what people have decided about it."""
    decisions = triage.load(given.triage_file)
    with ProgressBars(err_console(), "reading the history"):
        return reading.history(given.results, given.code, decisions), decisions


def _add_to_summary(chosen: Sequence[HistoryEvent], history: History) -> None:
    """Append the events, as a terminal shows them, to the summary of the workflow's step."""
    place = os.environ.get("GITHUB_STEP_SUMMARY")
    if not place:
        raise click.UsageError("--summary: GITHUB_STEP_SUMMARY is not set; leave the option out outside a workflow")
    with open(place, "a", encoding="utf-8") as file:
        file.write("```\n")
        show(chosen, history, Console(file=file, width=160))
        file.write("```\n")


def document(chosen: Sequence[HistoryEvent], history: History) -> dict[str, object]:
    """What --json prints."""
    looked = {"series": history.series, "points": history.points, "commits": len(history.commits)}
    return {"events": [event.as_json() for event in chosen], "notes": list(history.notes), "looked_at": looked}


# `ridgeline events ack` and `accept`: what people decide about events, into a file that is reviewed.  Without its table
# there an event is as nobody has decided about it.


ID = click.argument("event_id", metavar="ID")
OWNER = functools.partial(option, "--owner NAME", "Who looks after it.")
REASON = functools.partial(option, "--reason TEXT", "Why; a sentence for whoever reads the file.")
LINK = option("--link URL", "Where it is dealt with.")


@verb('ridgeline events ack 3f2a --owner "A. Author" --reason "looking into the tile shape"')
@ID
@OWNER(required=True)
@REASON()
@LINK
@SOURCES
@DRY_RUN
def ack(given: Given) -> int:
    """Acknowledge an event: somebody looks after it; it is open until its series are back.

    ID: as `ridgeline events` shows it, or its first digits."""
    return _decide(given, "acknowledged")


@verb('ridgeline events accept 3f2a --reason "the check for overflow is worth 2 %"')
@ID
@REASON(required=True)
@OWNER()
@LINK
@SOURCES
@DRY_RUN
def accept(given: Given) -> int:
    """Accept an event: the new level of its series is the one to hold from now on."""
    return _decide(given, "accepted")


def _decide(given: Given, state: str) -> int:
    """Write a decision: what was said before stays unless it is said anew."""
    history, decisions = _history(given)
    found = {event.id: event for event in history.events}
    name = triage.chosen(given.event_id, [*found, *decisions.entries])
    event, today = found.get(name), datetime.datetime.now(datetime.UTC).date()
    texts = {key: getattr(given, key) for key in ("owner", "reason", "link")}
    new: dict[str, Any] = {key: text[: triage.LONGEST] for key, text in texts.items() if text is not None}
    if event:
        new |= {"kind": str(event.kind), "direction": str(event.direction), "machine": event.machine}
        new |= {"kernel": event.moved[0].key.kernel, "first_bad": event.first_bad.hash}
    earlier = decisions.entries.get(name, triage.TriageEntry(name, state, today))
    entry = dataclasses.replace(earlier, state=state, date=today, **new)
    changed = decisions.with_entry(entry)
    if not given.dry_run:
        triage.save(changed, given.triage_file)
    said = "would write" if given.dry_run else "wrote"
    subject = words.headline(event) if event else "of which no record is left"
    click.echo(f"{state}: {name} {subject}; {said} {given.triage_file}, which is to be committed")
    return PASS
