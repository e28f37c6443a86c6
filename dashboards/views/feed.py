"""The Atom feed of the events (RFC 4287), for a feed reader or a chat: one entry per event.

An entry keeps its id; its date is that of the commit at which the event began, or ended.
"""

from __future__ import annotations

import datetime
import re
from collections.abc import Sequence
from urllib.parse import quote
from xml.etree import ElementTree

from ci.history.types import CommitFacts, HistoryEvent

ATOM = "http://www.w3.org/2005/Atom"
FEED_ID = "urn:ridgeline:events"
ENTRIES = 200
"""Newest events in the feed.  A reader keeps what it has seen; events.json has all."""

NO_CHARACTER = re.compile("[^\t\n\r\u0020-\ud7ff\ue000-\ufffd\U00010000-\U0010ffff]")
"""What XML 1.0 (section 2.2) has no way to write: control characters and halves of surrogate pairs."""


def atom(events: Sequence[HistoryEvent], limit: int = ENTRIES) -> bytes:
    """The feed of events that come newest first; valid without any event too."""
    ElementTree.register_namespace("", ATOM)
    feed = ElementTree.Element(f"{{{ATOM}}}feed")
    _text(feed, "title", "Ridgeline: events of the history")
    _text(feed, "id", FEED_ID)
    _text(feed, "updated", stamp(max((_changed(event).date_ms for event in events), default=0)))
    _text(ElementTree.SubElement(feed, f"{{{ATOM}}}author"), "name", "Ridgeline")
    _link(feed, "self", "feed.xml")
    _link(feed, "alternate", "events.html")
    for event in events[:limit]:
        _entry(feed, event)
    ElementTree.indent(feed, " ")
    return ElementTree.tostring(feed, encoding="utf-8", xml_declaration=True) + b"\n"


def _entry(feed: ElementTree.Element, event: HistoryEvent) -> None:
    entry = ElementTree.SubElement(feed, f"{{{ATOM}}}entry")
    _text(entry, "title", title(event))
    _text(entry, "id", f"urn:ridgeline:event:{quote(event.id, safe='')}")
    _text(entry, "updated", stamp(_changed(event).date_ms))
    _text(entry, "published", stamp(event.first_bad.date_ms))
    _link(entry, "alternate", f"events.html#event={quote(event.id, safe='')}")
    for term in (event.kind, event.direction, event.state):
        ElementTree.SubElement(entry, f"{{{ATOM}}}category", term=str(term))
    _text(entry, "content", "\n".join(_sentences(event)), type="text")


def _text(parent: ElementTree.Element, tag: str, text: str, **attributes: str) -> None:
    ElementTree.SubElement(parent, f"{{{ATOM}}}{tag}", attributes).text = NO_CHARACTER.sub("\ufffd", text)


def _link(parent: ElementTree.Element, rel: str, href: str) -> None:
    ElementTree.SubElement(parent, f"{{{ATOM}}}link", rel=rel, href=href)


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


# ---- words -----------------------------------------------------------------------------------------------------------


CALLED = {"code": "machine code changed", "configuration": "best configuration moved"}
"""What an event is called, where it is not its size and direction."""


def title(event: HistoryEvent) -> str:
    """One line: "gemm 8.1 % slower on h200x1: 3 shapes since 0123abcd, open"."""
    kernels = list(dict.fromkeys(moved.key.kernel for moved in event.moved))
    who = kernels[0] if len(kernels) == 1 else f"{len(kernels)} operators"
    shapes = len({(moved.key.kernel, moved.key.case) for moved in event.moved})
    what = CALLED.get(str(event.kind), f"{size(event.ratio)} {event.direction}")
    since = f"{shapes} shape{'s' * (shapes != 1)} since {event.first_bad.hash[:8]}"
    return f"{who} {what} on {event.machine}: {since}, {event.state}"


def size(ratio: float) -> str:
    """1.081 -> "8.1 %": how much longer, or by how much shorter, the new time is."""
    return f"{abs(100 * (ratio - 1)):.1f} %"


def _sentences(event: HistoryEvent) -> list[str]:
    begun, good = event.first_bad, event.last_good
    number = f" (pull request {begun.pull_request})" if begun.pull_request is not None else ""
    lines = [
        f"First seen at {begun.hash[:8]} {begun.subject}{number} by {begun.author or 'an unknown author'}.",
        f"Last good: {good.hash[:8]} {good.subject}; {event.between} commits between were not measured.",
    ]
    if event.kind != "code":
        lines.append(f"New time / old time: {event.ratio:.4f}, {event.ratio_low:.4f} to {event.ratio_high:.4f} (99 %).")
    lines += [f"Likely cause: {cause.kind}: {cause.text}" for cause in event.causes]
    owner = f"Owner: {event.owner}. {event.reason} {event.link}".strip()
    return [*lines, owner] if event.owner else lines
