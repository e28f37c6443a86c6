"""The history as values: a series' steps, and events, which are steps that belong together."""

from __future__ import annotations

import dataclasses
import enum
import functools
import hashlib
import math
import re
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from benchmarks.shapes import finite
from ci.git.command import GitError, git
from ci.records.ledger import Explanation
from ci.stats import Step


class Direction(enum.StrEnum):
    """Which way a step goes: of times, up is slower; of speeds, down is."""

    SLOWER = "slower"
    FASTER = "faster"


class EventKind(enum.StrEnum):
    """What moved."""

    KERNEL = "kernel"
    """Ours: its own seconds moved more than the library's."""
    LIBRARY = "library"
    """The vendor's library, in the denominator of the ratio."""


class EventState(enum.StrEnum):
    """Where an event stands.  An open one needs somebody; who has acknowledged it is its owner."""

    OPEN = "open"
    ACCEPTED = "accepted"
    """The new level is the one to hold from now on."""
    BACK = "back"
    """The old level came back."""


class SeriesKey(NamedTuple):
    """One line of the history; across environments, because a new compiler is one cause of a step."""

    machine: str
    kernel: str
    backend: str
    case: str

    @property
    def name(self) -> str:
        """As a report names the case: "gemm/triton/m64"."""
        return f"{self.kernel}/{self.backend}/{self.case}"


@dataclasses.dataclass(frozen=True)
class Moved:
    """A series that takes part in an event.

    judged_by: "ratio" to the library of the same trial; or "pairs": trials in which both commits ran, with the numbers
    of their verdict (`ridgeline gate`).
    """

    key: SeriesKey
    step: Step
    direction: Direction
    judged_by: str
    first_bad: str
    last_good: str


@dataclasses.dataclass(frozen=True)
class SeriesStep:
    """A step of a track.  good, bad: places in the order of history of the points before and at it.

    kind, direction: whose doing it is, and which way that went; step: of what moved, new time / old time.
    returned: place at which the old level came back, -1 while it has not.
    """

    kind: EventKind
    direction: Direction
    key: SeriesKey
    track: int
    step: Step
    judged_by: str
    good: int
    bad: int
    returned: int = -1

    def moved(self, names: Sequence[str]) -> Moved:
        """The step in the words of the history.  names: of the commits, by place."""
        return Moved(self.key, self.step, self.direction, self.judged_by, names[self.bad], names[self.good])


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
        """JSON values, under the same names; of commits without their parents, which only walks over history need."""
        plain = dataclasses.asdict(self)
        for name in ("first_bad", "last_good", "ended_at"):
            if plain[name]:
                del plain[name]["parents"]
        told: dict[str, Any] = finite(plain)
        return told


def event_id(machine: str, kernel: str, kind: EventKind, direction: Direction, first_bad: str) -> str:
    """A digest of where an event is and which way it goes.  Ten hex digits: among 10,000 events two share one with a
    probability of 5e-5."""
    text = "\0".join((machine, kernel, kind, direction, first_bad))
    return hashlib.sha256(text.encode("utf-8", "replace")).hexdigest()[:10]


def size_of(steps: Sequence[Step]) -> dict[str, Any]:
    """The fields of an event that say how large steps are together."""
    return {
        "ratio": math.exp(math.fsum(math.log(step.ratio) for step in steps) / len(steps)),
        "ratio_low": min(step.ratio_low for step in steps),
        "ratio_high": max(step.ratio_high for step in steps),
        "p_value": min(step.p_value for step in steps),
    }


# The commits of a history as a person knows them, from one call of git, and the order they stand in.


LONGEST_TEXT = 300
"""Characters of an author or subject that are kept: git allows any length, a line of a page does not."""

_FIELDS = ("%H", "%ct", "%P", "%an", "%s")
_PULL_REQUEST = re.compile(r"\(#(\d{1,9})\)\s*$|^Merge pull request #(\d{1,9})\b")
"""How GitHub names the pull request of a squashed or merged commit in its subject."""


def read_commits(folder: Path, hashes: Iterable[str] = ()) -> dict[str, CommitFacts]:
    """Every commit that HEAD or one of `hashes` comes from, parents before children; {} without git or a repository.

    Commits that git does not know (history was rewritten, or the clone is shallow) are left out.
    """
    wanted = [commit for commit in dict.fromkeys(hashes) if re.fullmatch(r"[0-9a-f]{40}", commit)]
    form = f"--format={'%x00'.join(_FIELDS)}"
    options = ("-z", "--date-order", "--reverse", "--ignore-missing", form, "--stdin")
    try:
        text = git(folder, "log", *options, stdin="\n".join(["HEAD", *wanted, ""]))
    except GitError:
        return {}
    parts = text.rstrip("\0").split("\0") if text else []
    parts += [""] * (-len(parts) % len(_FIELDS))  # the newest commit may have no subject
    facts = (_facts(*parts[start : start + len(_FIELDS)]) for start in range(0, len(parts), len(_FIELDS)))
    return {one.hash: one for one in facts}


def _facts(commit: str, date: str, parents: str, author: str, subject: str) -> CommitFacts:
    found = _PULL_REQUEST.search(subject)
    number = int(found[1] or found[2]) if found else None
    shown = (author[:LONGEST_TEXT], subject[:LONGEST_TEXT])
    return CommitFacts(commit, int(date) * 1000, *shown, number, tuple(parents.split()))


@dataclasses.dataclass(frozen=True, eq=False)
class CommitOrder:
    """Recorded commits in the order of history.  dates_ms: of the records; known: see :func:`read_commits`."""

    dates_ms: Mapping[str, int]
    known: Mapping[str, CommitFacts]

    @functools.cached_property
    def names(self) -> tuple[str, ...]:
        """Recorded commits, oldest first: in git's order where git knows them, others among these by their date.

        A clock that was set back moves nothing that git knows: a commit counts as made no earlier than the one before.
        """
        ours = [commit for commit in self.known if commit in self.dates_ms]
        made = np.maximum.accumulate(np.array([self.known[commit].date_ms for commit in ours], np.int64))
        placed = [(int(date), 0, place, commit) for place, (date, commit) in enumerate(zip(made, ours, strict=True))]
        placed += [(date, 1, 0, commit) for commit, date in self.dates_ms.items() if commit not in self.known]
        return tuple(commit for *_, commit in sorted(placed))

    @functools.cached_property
    def place(self) -> Mapping[str, int]:
        """Index of each recorded commit in `names`."""
        return {commit: place for place, commit in enumerate(self.names)}

    @functools.cached_property
    def unknown(self) -> tuple[str, ...]:
        """Recorded commits that git does not know, though it knows others."""
        return tuple(name for name in self.names if name not in self.known) if self.known else ()

    def facts(self, commit: str) -> CommitFacts:
        """What is known of a commit: at least its hash and the date of its records."""
        return self.known.get(commit) or CommitFacts(commit, self.dates_ms.get(commit, 0))

    def between(self, good: str, bad: str) -> int:
        """Commits of good..bad (as git has it) apart from `bad`; recorded ones only where git does not know both."""
        if good not in self.known or bad not in self.known:
            return max(self.place.get(bad, 0) - self.place.get(good, 0) - 1, 0)
        return max(len(self._ancestors(bad) - self._ancestors(good)) - 1, 0)

    def _ancestors(self, commit: str) -> set[str]:
        """A commit and all that it comes from, as far as git knows them."""
        ancestors, unseen = set[str](), [commit]
        while unseen:
            name = unseen.pop()
            if name in self.known and name not in ancestors:
                ancestors.add(name)
                unseen += self.known[name].parents
        return ancestors
