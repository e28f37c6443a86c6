"""What the states of both sides make of a case, before any time is looked at: one table for every verb.

`ab`, `check`, `gate`, reports and the page ask it of arms that were run, `isa` of code that was compiled.  No cell is
better than what was seen: a head that is right passes only beside a base that was as right, or that declares nothing.
.github/ARCHITECTURE.md has the table, as `markdown` writes it.
"""

from __future__ import annotations

import enum
from collections.abc import Iterator

from benchmarks.trial_file import FAILED, Status, not_looked_at
from ci.judging.types import Verdict


class Open(enum.StrEnum):
    """What the states of both sides leave open."""

    TIMES = "by its times"
    CODE = "by its code"
    NOTHING = "not looked at"


def verdict_of_states(base: Status, head: Status) -> Verdict | Open:
    """The verdict on a case, or what decides it.

    NOTHING: neither side can do it here, so that there is no case.
    """
    no_result = (*FAILED, Status.UNIMPORTED)
    if not_looked_at(base, head):
        return Open.NOTHING
    if head in no_result:
        return Verdict.CANNOT_TELL if base in no_result else Verdict.BROKEN
    if head is Status.MISSING:
        return Verdict.CANNOT_TELL if base is Status.UNIMPORTED else Verdict.GONE
    if head is Status.UNSUPPORTED and base in (Status.OK, Status.UNTIMED):
        return Verdict.BROKEN
    if head in (Status.UNSUPPORTED, Status.SKIPPED):
        return Verdict.CANNOT_TELL
    if base is Status.MISSING:
        return Verdict.NEW
    if base is head:
        return Open.TIMES if head is Status.OK else Open.CODE
    return Verdict.CANNOT_TELL


STATES = {
    Status.UNIMPORTED: "does not import",
    Status.MISSING: "imports, does not declare it",
    Status.UNSUPPORTED: "declares it, not supported here",
    Status.SKIPPED: "declares it, not tried",
    Status.ERROR: "does not compile, raises, crashes or hangs",
    Status.WRONG: "executes, is wrong",
    Status.UNTIMED: "is right, not timed",
    Status.OK: "is right, timed",
}
"""How far a side came, from the least to the most.  A crash and a hang are decided as an error is."""


def markdown() -> Iterator[str]:
    """The table in lines of Markdown: base by rows, head by columns."""
    yield "| base \\ head | " + " | ".join(STATES.values()) + " |"
    yield "|---" * (len(STATES) + 1) + "|"
    for base, name in STATES.items():
        yield f"| **{name}** | " + " | ".join(verdict_of_states(base, head) for head in STATES) + " |"
