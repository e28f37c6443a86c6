"""The events of the history: the page of all of them, their feed and their files."""

from __future__ import annotations

import datetime
import json
import math
import re
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any
from urllib.parse import quote

import jinja2

from ci.history import words
from ci.history.types import CommitFacts, Direction, HistoryEvent, Moved
from ci.report.words import interval, percent
from dashboards import table
from dashboards.files import slug
from dashboards.frame import Site
from dashboards.table import Column, Piece, Table

COLUMNS = (
    *("id", "state", "kind", "direction", "machine", "kernels", "cases", "ratio", "ratio_low", "ratio_high", "p_value"),
    *("first_bad", "first_bad_date", "author", "subject", "pull_request", "last_good", "between", "owner", "reason"),
    *("link", "causes", "ended_at"),
)
"""Columns of events.csv; ratio is new time / old time, dates are UTC days."""


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
    links = [["JSON", "events.json"], ["CSV", "events.csv"], ["Atom feed", "feed.xml"]]
    return {
        "title": "Events",
        "filter": True,
        "pieces": [*pieces, {"kind": "links", "text": "The same as", "links": links}],
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
            ("first bad", f"{bad.hash[:8]} {stamp(bad.date_ms)[:10]}"),
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
    columns = [Column("kernel", "operator"), Column("case", "case", "case"), Column("backend", "backend")]
    columns += [Column("change", "longer by", "change"), Column("judged_by", "judged by")]
    rows = []
    for one in sorted(event.moved, key=lambda one: (-abs(math.log(one.step.ratio)), one.key)):
        case = re.sub(r" \[.*\]$", "", one.key.case)
        link = f"kernels/{slug(one.key.kernel)}.html#machine={quote(event.machine)}&case={quote(case)}"
        change = [end - 1 for end in (one.step.ratio, one.step.ratio_low, one.step.ratio_high)]
        rows.append([one.key.kernel, [one.key.case, link], one.key.backend, change, one.judged_by])
    return Table(f"event-{event.id}", "series that moved", columns, rows)


# ---- files for other programs ---------------------------------------------------------------------------------------


def files(site: Site) -> dict[str, bytes]:
    """events.json (`HistoryEvent.as_json`, as `ridgeline events --json` prints them), events.csv and feed.xml."""
    found = sorted(site.history.events, key=lambda event: (-event.first_bad.date_ms, event.id))
    whole = {"events": [event.as_json() for event in found]}
    rows = [list(_fields(event).values()) for event in found]
    listed = Table("events", "events", [Column(name, name) for name in COLUMNS], rows)
    return {
        "events.json": json.dumps(whole, indent=1, allow_nan=False).encode("ascii") + b"\n",
        "events.csv": listed.csv(),
        "feed.xml": atom(found),
    }


def _fields(event: HistoryEvent) -> dict[str, Any]:
    """A row of events.csv; several names or causes in one field are divided by "; "."""
    known = {
        **{name: getattr(event, name, None) for name in COLUMNS},
        "state": str(event.state),
        "kind": str(event.kind),
        "direction": str(event.direction),
        "kernels": "; ".join(dict.fromkeys(moved.key.kernel for moved in event.moved)),
        "cases": "; ".join(dict.fromkeys(moved.key.case for moved in event.moved)),
        "first_bad": event.first_bad.hash,
        "first_bad_date": stamp(event.first_bad.date_ms)[:10],
        "author": event.first_bad.author,
        "subject": event.first_bad.subject,
        "pull_request": event.first_bad.pull_request,
        "last_good": event.last_good.hash,
        "causes": "; ".join(f"{cause.kind}: {cause.text}" for cause in event.causes),
        "ended_at": event.ended_at.hash if event.ended_at else None,
    }
    return {name: known[name] for name in COLUMNS}


TEMPLATE = Path(__file__).parent / "templates" / "feed.xml"

ENTRIES = 200
"""Newest events in the feed (Atom, RFC 4287).  A reader keeps what it has seen; events.json has all."""

NO_CHARACTER = re.compile("[^\t\n\r\u0020-\ud7ff\ue000-\ufffd\U00010000-\U0010ffff]")
"""What XML 1.0 (section 2.2) has no way to write: control characters and halves of surrogate pairs."""


def atom(events: Sequence[HistoryEvent], limit: int = ENTRIES) -> bytes:
    """The feed of events that come newest first; valid without any event too.

    An entry keeps its id; its date is that of the commit at which the event began, or ended.
    """
    entries = [
        {
            "title": f"{words.headline(event)}, {event.state}",
            "id": quote(event.id, safe=""),
            "updated": stamp(_changed(event).date_ms),
            "published": stamp(event.first_bad.date_ms),
            "terms": [str(term) for term in (event.kind, event.direction, event.state)],
            "sentences": [
                words.since(event),
                words.standing(event),
                *(f"{cause.kind}: {cause.text}" for cause in event.causes),
            ],
        }
        for event in events[:limit]
    ]
    template = jinja2.Template(TEMPLATE.read_text(), autoescape=True, trim_blocks=True, keep_trailing_newline=True)
    updated = stamp(max((_changed(event).date_ms for event in events), default=0))
    return NO_CHARACTER.sub("\ufffd", template.render(updated=updated, entries=entries)).encode()


def _changed(event: HistoryEvent) -> CommitFacts:
    return event.ended_at or event.first_bad


def stamp(date_ms: int) -> str:
    """A date as RFC 3339 writes it, in UTC."""
    zero = datetime.datetime(1970, 1, 1, tzinfo=datetime.UTC)
    try:
        date = zero + datetime.timedelta(milliseconds=max(0, date_ms))
    except OverflowError:  # a clock set to nonsense
        date = zero
    return date.strftime("%Y-%m-%dT%H:%M:%SZ")
