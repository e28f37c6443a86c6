"""The history as values: a series' steps, and events, which are steps that belong together."""

from __future__ import annotations

import dataclasses
from typing import Any

from ci.history.steps.words import Direction, EventKind, EventState, Moved, SeriesKey
from ci.records.causes.explanation import Explanation

__all__ = ["Cause", "CommitFacts", "Direction", "EventKind", "EventState", "HistoryEvent", "Moved", "SeriesKey"]


@dataclasses.dataclass(frozen=True)
class CommitFacts:
    """A commit as a person knows it; of what git does not know here only the hash and the record's date are told.

    date_ms: committer date, milliseconds since 1970 UTC.  parents: full hashes, for walks over the history only.
    """

    hash: str
    date_ms: int
    author: str = ""
    subject: str = ""
    pull_request: int | None = None
    parents: tuple[str, ...] = ()


@dataclasses.dataclass(frozen=True)
class Cause:
    """What also changed in the commit range.  kind: triton, torch, driver, runtime, definition, code, machine, ..."""

    kind: str
    text: str


@dataclasses.dataclass(frozen=True)
class HistoryEvent:
    """Steps of one machine at one place of the history, in one direction: one thing to look at.

    id: the same for the same step however much history follows.  ratio: the geometric mean over the series that moved,
    new time / old time, with the hull of their 99 % intervals; p_value: the surest of them.
    between: commits of the range that were not measured.  explanations: what experiments have shown about it.
    """

    id: str
    kind: EventKind
    direction: Direction
    machine: str
    moved: tuple[Moved, ...]
    first_bad: CommitFacts
    last_good: CommitFacts
    between: int
    ratio: float
    ratio_low: float
    ratio_high: float
    p_value: float
    causes: tuple[Cause, ...] = ()
    state: EventState = EventState.OPEN
    owner: str = ""
    reason: str = ""
    link: str = ""
    ended_at: CommitFacts | None = None
    explanations: tuple[Explanation, ...] = ()

    def as_json(self) -> dict[str, Any]:
        """Plain values, under the same names; of commits without their parents, which only walks over history need."""
        plain = dataclasses.asdict(self)
        for name in ("first_bad", "last_good", "ended_at"):
            if plain[name]:
                del plain[name]["parents"]
        return plain
