"""The events of the history: the page of all of them, and the file of them for other programs."""

from __future__ import annotations

import contextlib
import datetime
import json
import math
import re
from collections.abc import Iterator
from typing import Any
from urllib.parse import quote

from ci.history import words
from ci.history.types import Direction, HistoryEvent, Moved
from ci.report.words import interval, percent
from dashboards import table
from dashboards.files import case_address
from dashboards.frame import Site
from dashboards.table import BACKEND, CASE, OPERATOR, Column, Piece, Table

# ---- words ----------------------------------------------------------------------------------------------------------

SIGN = {Direction.SLOWER: "▲", Direction.FASTER: "▼"}
"""Of the time: slower is up."""


def address(event: str) -> str:
    """Of an event on the page of all of them, from the root of the site."""
    return f"events.html#event={quote(event, safe='')}"


def moved_words(one: Moved) -> str:
    """A step of a series."""
    step = one.step
    size = f"{percent(step.ratio)} {interval(step.ratio_low, step.ratio_high)}"
    return f"{SIGN[one.direction]} {one.key.backend} {one.direction}: {size} since {one.first_bad[:8]}"


def narrowing(event: HistoryEvent) -> Piece | None:
    """The command that measures what lies between, where many commits may be to blame."""
    why = f"{event.between} commits between were not measured. To narrow it, on {event.machine}:"
    return table.command(command, why) if (command := words.narrowing(event)) else None


# ---- the page -------------------------------------------------------------------------------------------------------


def events_page(site: Site) -> dict[str, Any]:
    """What is open first; then what was accepted or ended."""
    events = words.in_order_of_need(site.history.events)
    still = [one for one in events if words.is_open(one)]
    ended = [one for one in events if not words.is_open(one)]
    pieces: list[Piece] = [table.heading(f"Open: {len(still)}"), *map(event_fold, still)]
    if not still:
        pieces.append(table.text("Nothing is open.", "verdict good"))
    if ended:
        pieces += [table.heading(f"Accepted or back: {len(ended)}"), *map(event_fold, ended)]
    past = site.history
    looked = f"Looked at {past.series:,} series with {past.points:,} points of {len(past.commits)} commits."
    pieces.append(table.text(" ".join([looked, *past.notes]), "small"))
    return {
        "title": "Events",
        "filter": True,
        "pieces": [*pieces, {"kind": "links", "text": "The same as", "links": [["JSON", "events.json"]]}],
    }


def event_fold(event: HistoryEvent) -> Piece:
    """Two lines that unfold to all that is known of an event."""
    look = f"event {event.direction} {'open' if words.is_open(event) else 'ended'}"
    lines = [f"{SIGN[event.direction]} {words.headline(event)}", f"{words.since(event)}; {words.standing(event)}"]
    return table.fold(lines, list(_unfolded(event)), look, event.id)


def _unfolded(event: HistoryEvent) -> Iterator[Piece]:
    good, bad = event.last_good, event.first_bad
    request = [("pull request", f"#{bad.pull_request}")] if bad.pull_request is not None else []
    yield table.facts(
        [
            ("event", event.id),
            ("first bad", f"{bad.hash[:8]} {day(bad.date_ms)}"),
            *request,
            ("last good", f"{good.hash[:8]} {good.subject}" if good.hash else "none"),
            ("commits between", str(event.between)),
            ("owner", event.owner or "nobody"),
        ]
    )
    if event.reason or event.link:
        yield table.text(f"{event.reason} {event.link}".strip())
    for cause in event.causes:
        yield table.text(f"Also changed, {cause.kind}: {cause.text}")
    for one in event.explanations:
        yield table.text(f"Why ({one.state}): {one.sentence}")
    if one := narrowing(event):
        yield one
    if event.moved:
        key = event.moved[0].key
        ends = f"{good.hash[:8]} {bad.hash[:8]}"
        chosen = f"--kernel {key.kernel} --case {key.case} --backend {key.backend} --tier nightly"
        yield table.command(f"ridgeline ab {ends} {chosen}", "Measure both again, in turn:")
        yield table.command(f'ridgeline events ack {event.id} --owner "$USER" --reason "looking into it"', "Take it:")
        if good.hash and any(cause.kind == "code" for cause in event.causes):
            yield table.command(f"ridgeline isa {ends}", "See the code change:")
    yield _moved_table(event).piece()


def _moved_table(event: HistoryEvent) -> Table:
    columns = [OPERATOR, CASE, BACKEND]
    columns += [Column("change", "longer by", "change"), Column("judged_by", "judged by")]
    rows = []
    for one in sorted(event.moved, key=lambda one: (-abs(math.log(one.step.ratio)), one.key)):
        case = re.sub(r" \[.*\]$", "", one.key.case)
        link = case_address(one.key.kernel, event.machine, case)
        change = [end - 1 for end in (one.step.ratio, one.step.ratio_low, one.step.ratio_high)]
        rows.append([one.key.kernel, [one.key.case, link], one.key.backend, change, one.judged_by])
    return Table(f"event-{event.id}", "series that moved", columns, rows)


def files(site: Site) -> dict[str, bytes]:
    """events.json: `HistoryEvent.as_json`, as `ridgeline events --json` prints them, newest first."""
    newest_first = sorted(site.history.events, key=lambda event: (-event.first_bad.date_ms, event.id))
    document = {"events": [event.as_json() for event in newest_first]}
    return {"events.json": json.dumps(document, indent=1, allow_nan=False).encode("ascii") + b"\n"}


def day(date_ms: int) -> str:
    """A date in UTC, "2026-11-28"; "" for a clock set to nonsense."""
    zero = datetime.datetime(1970, 1, 1, tzinfo=datetime.UTC)
    with contextlib.suppress(OverflowError):
        return f"{zero + datetime.timedelta(milliseconds=date_ms):%Y-%m-%d}"
    return ""
