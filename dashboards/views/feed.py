"""The Atom feed of the events (RFC 4287), for a feed reader or a chat: one entry per event.

An entry keeps its id; its date is that of the commit at which the event began, or ended.
"""

from __future__ import annotations

import datetime
import re
from collections.abc import Sequence
from pathlib import Path
from urllib.parse import quote

import jinja2

from ci.history.types import CommitFacts, HistoryEvent

TEMPLATE = Path(__file__).parent.parent / "templates" / "feed.xml"
ENTRIES = 200
"""Newest events in the feed.  A reader keeps what it has seen; events.json has all."""

NO_CHARACTER = re.compile("[^\t\n\r\u0020-\ud7ff\ue000-\ufffd\U00010000-\U0010ffff]")
"""What XML 1.0 (section 2.2) has no way to write: control characters and halves of surrogate pairs."""


def atom(events: Sequence[HistoryEvent], limit: int = ENTRIES) -> bytes:
    """The feed of events that come newest first; valid without any event too."""
    entries = [
        {
            "title": title(event),
            "id": quote(event.id, safe=""),
            "updated": stamp(_changed(event).date_ms),
            "published": stamp(event.first_bad.date_ms),
            "terms": [str(term) for term in (event.kind, event.direction, event.state)],
            "sentences": _sentences(event),
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
