"""The history as values: a series' steps, and events, which are steps that belong together."""

from __future__ import annotations

import dataclasses
import enum
from typing import Any, NamedTuple

from ci.stats.types import Step


class Direction(enum.StrEnum):
    """Which way a step goes: of times, up is slower; of speeds, down is."""

    SLOWER = "slower"
    FASTER = "faster"


class EventKind(enum.StrEnum):
    """What moved."""

    KERNEL = "kernel"
    """Ours, against a baseline that stood still, or alone where there is none."""
    LIBRARY = "library"
    """The vendor's library, while ours stood still."""
    MACHINE = "machine"
    """Ours and the vendor's together: the machine, its driver or its clocks."""
    CODE = "code"
    """What the compiler emits; exact, so every change counts."""


class EventState(enum.StrEnum):
    """Where an event stands.  The first two need somebody."""

    OPEN = "open"
    ACKNOWLEDGED = "acknowledged"
    ACCEPTED = "accepted"
    """The new level is the one to hold from now on."""
    RECOVERED = "recovered"
    """The old level came back by itself, within few commits."""
    FIXED = "fixed"
    """The old level came back at a later commit."""


class SeriesKey(NamedTuple):
    """One line of the history; across environments, because a new compiler is one cause of a step."""

    machine: str
    kernel: str
    backend: str
    case: str


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
class Moved:
    """A series that takes part in an event; judged_by: "ratio" to the baseline of the same trial, "seconds", "code",
    or "peers": other devices at the same time (ci.history.health)."""

    key: SeriesKey
    step: Step
    direction: Direction
    judged_by: str
    first_bad: str
    last_good: str


@dataclasses.dataclass(frozen=True)
class Cause:
    """What also changed in the commit range.  kind: triton, torch, driver, runtime, definition, code, machine, ..."""

    kind: str
    text: str


@dataclasses.dataclass(frozen=True)
class HistoryEvent:
    """Steps of one machine at one place of the history, in one direction: one thing to look at.

    id: the same for the same step however much history follows.  ratio: the geometric mean over the series that moved,
    new time / old time, with the widest 99 % interval among them; p_value: the surest of them.
    between: commits of the range that were not measured.
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

    def as_json(self) -> dict[str, Any]:
        """Plain values, under the same names."""
        return dataclasses.asdict(self)
