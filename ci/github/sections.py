"""The parts of one comment: a section for each pool, told apart by hidden markers.  Pure functions on its text.

A marker stands on a line of its own; foreign text never does (`ci.report.markdown`), so a report cannot forge one.
"""

from __future__ import annotations

import dataclasses
import re
from collections.abc import Iterable, Mapping

from ci.report.markdown import LIMIT, MARKER

TOPIC = re.compile(r"[\w.-]{0,60}")
"""What may name a section: a pool of `ci/runners.toml`, "" for the pull-request job itself."""
_MARKER = re.compile(r"^<!-- ridgeline:section:([\w.-]*) ([0-9a-f]{40}) -->$", re.MULTILINE)
_OPENS, _ENDS = re.compile(r"^<details>", re.MULTILINE), re.compile(r"^</details>$", re.MULTILINE)
"""At the beginning of a line, where foreign text never stands."""
MARKER_BYTES = 140
"""Of a section's marker and the lines about it: 60 for the topic, 40 for the commit, the rest fixed."""
CUT = "_More did not fit into this comment; the JSON report has everything._"


@dataclasses.dataclass(frozen=True)
class Section:
    """What one pool says of one commit (40 hex digits), as Markdown."""

    topic: str
    sha: str
    text: str

    @property
    def heading(self) -> str:
        """The first heading, which is the verdict."""
        return next((line[3:] for line in self.text.splitlines() if line.startswith("## ")), "")


def parsed(body: str) -> dict[str, Section]:
    """The sections of a comment by topic; text before the first marker is none."""
    parts = _MARKER.split(body.replace("\r\n", "\n"))[1:]
    found = (
        Section(topic, sha, text.strip("\n")) for topic, sha, text in zip(*(parts[i::3] for i in range(3)), strict=True)
    )
    return {section.topic: section for section in found}


def merged(bodies: Iterable[str], own: Section) -> str:
    """The comment with our section in it: all others stay, those of an earlier commit as one line.

    bodies: the comment that is there, and duplicates of it that are going to be deleted, oldest first.
    """
    known = {topic: section for body in bodies for topic, section in parsed(body).items()}
    known[own.topic] = own
    current = {topic: section if section.sha == own.sha else _earlier(section) for topic, section in known.items()}
    return dumps(current)


def dumps(sections: Mapping[str, Section], limit: int = LIMIT) -> str:
    """The text of the comment, at most `limit` bytes of UTF-8: a section that is longer than its share is cut.

    The share depends on the number of sections only, so that two writers cut alike and end with the same text.
    """
    share = (limit - len(MARKER)) // max(len(sections), 1) - MARKER_BYTES
    blocks = (
        f"<!-- ridgeline:section:{topic} {section.sha} -->\n{shortened(section.text.strip(), share)}"
        for topic, section in sorted(sections.items())
    )
    return "\n\n".join([MARKER, *blocks]) + "\n"


def _earlier(section: Section) -> Section:
    if section.text.startswith("_Of the earlier commit"):
        return section
    return dataclasses.replace(section, text=f"_Of the earlier commit {section.sha[:8]}:_ {section.heading}")


def shortened(text: str, limit: int) -> str:
    """At most `limit` bytes of UTF-8, by leaving out whole blocks before the last, and saying so."""
    *kept, last = blocks(text)
    if len(text.encode()) <= limit:
        return text
    while len(kept) > 1 and len("\n\n".join([*kept, CUT, last]).encode()) > limit:
        kept.pop()
    short = "\n\n".join([*kept, CUT, last])
    return short if len(short.encode()) <= limit else CUT


def blocks(text: str) -> list[str]:
    """Parts that can be left out without breaking the rest: paragraphs, tables, whole <details>."""
    found: list[str] = []
    depth = 0
    for part in text.split("\n\n"):
        if depth:
            found[-1] += f"\n\n{part}"
        else:
            found.append(part)
        depth += len(_OPENS.findall(part)) - len(_ENDS.findall(part))
    return found
