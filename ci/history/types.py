"""The history as values: a series' steps, and events, which are steps that belong together."""

from __future__ import annotations

import dataclasses
import hashlib
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from ci.history.steps.series import Direction, EventKind, EventState, Moved, SeriesKey
from ci.records.ledger import Explanation

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

    @classmethod
    def of(cls, commit: str, date_ms: int, known: Mapping[str, CommitFacts]) -> CommitFacts:
        """What git knows of a commit: at least its hash and the date of its records."""
        return known.get(commit) or cls(commit, date_ms)


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


# Ids of events: the same however much history follows, and where a detector places a step by one commit elsewhere.


LENGTH = 10
"""Hex digits of an id: among 10,000 events two share one with a probability of 5e-5."""

REACH = 2
"""Recorded commits by which the place of a known event may move: the tolerance of detection."""


@dataclasses.dataclass(frozen=True, order=True)
class EventPlace:
    """What an id is made of.  part: of machine code the operator, else ""."""

    machine: str
    kind: EventKind
    direction: Direction
    first_bad: str
    part: str = ""

    @property
    def id(self) -> str:
        """The id of an event that was first seen here."""
        text = "\0".join((self.machine, self.kind, self.direction, self.first_bad, self.part))
        return hashlib.sha256(text.encode("utf-8", "replace")).hexdigest()[:LENGTH]


def ids(
    places: Sequence[EventPlace], known: Mapping[str, EventPlace], order: Mapping[str, Mapping[str, int]]
) -> list[str]:
    """The id of each place: of what is known by an id the nearest within REACH, each once; else a new one.

    order: by machine, the index of each commit it recorded.
    """
    by_what: dict[tuple[str, ...], list[tuple[int, str]]] = {}
    for name, place in known.items():
        if (where := order.get(place.machine, {}).get(place.first_bad)) is not None:
            by_what.setdefault(_what(place), []).append((where, name))
    pairs = sorted(
        (abs(order[place.machine][place.first_bad] - where), number, name)
        for number, place in enumerate(places)
        for where, name in by_what.get(_what(place), ())
    )
    return _assigned(places, (pair for pair in pairs if pair[0] <= REACH))


def _assigned(places: Sequence[EventPlace], pairs: Iterable[tuple[int, int, str]]) -> list[str]:
    given: dict[int, str] = {}
    used: set[str] = set()
    for _, number, name in pairs:
        if number not in given and name not in used:
            given[number] = name
            used.add(name)
    return [given.get(number) or _free(place, used) for number, place in enumerate(places)]


def _free(place: EventPlace, used: set[str]) -> str:
    """The place's id; the next one where another event has it: two that are told apart now were first seen as one."""
    tries = (dataclasses.replace(place, part=f"{place.part}{more}") for more in ("", *map(str, range(2, 1000))))
    name = next(one.id for one in tries if one.id not in used)
    used.add(name)
    return name


def _what(place: EventPlace) -> tuple[str, ...]:
    return place.machine, place.kind, place.direction, place.part
