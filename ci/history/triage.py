"""What people decided about events: a text file of the repository, one table per event, reviewed like code."""

from __future__ import annotations

import dataclasses
import datetime
import difflib
import json
import re
import tomllib
from collections.abc import Collection, Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

from benchmarks.shapes import Unfit, form, items, one_of, record, table, that, whole
from ci.history.types import CommitFacts, Direction, EventState, HistoryEvent
from ci.whole_files import replace

DEFAULT_FILE = Path("ci/events.toml")

HEADER = """\
# What we decided about events of the history (`ridgeline events`).  Written by its verbs `ack`, `accept` and `reopen`,
# reviewed like code; one table per event, sorted by id, so that two branches merge.  [[accepted]]: slow-downs that were
# accepted on their pull request (`/ridgeline accept CASE REASON`).
"""

STATES = ("open", "acknowledged", "accepted")
"""What a person may decide; that the old level is back is read off the records.  acknowledged: open, with an owner."""

KINDS = ("kernel", "library", "code", "machine", "configuration")
"""What an entry may name; files of before 2026-11-28 have the last two, whose events no longer exist."""

TEXTS = ("kind", "direction", "machine", "kernel", "first_bad", "owner", "reason", "link")
LONGEST = 2000
"""Characters of a text."""

_ID = re.compile(r"[0-9a-f]{10}")


class TriageError(Exception):
    """The file or a call is not right; the text names the value, what is allowed and the next step."""


@dataclasses.dataclass(frozen=True)
class TriageEntry:
    """A decision.  kind, direction, machine, kernel, first_bad: where its event is, so that it is found if it moves.

    kernel: "" in files of before 2026-11-28.
    """

    id: str
    state: str
    date: datetime.date
    kind: str = ""
    direction: str = ""
    machine: str = ""
    kernel: str = ""
    first_bad: str = ""
    owner: str = ""
    reason: str = ""
    link: str = ""


@dataclasses.dataclass(frozen=True)
class InAdvance:
    """A slow-down of one case that was accepted on its pull request, before there was an event of it.

    case: as a report names it, "gemm/triton/qkv_m64".  by: who accepted it.
    """

    case: str
    pull_request: int
    date: datetime.date
    by: str
    reason: str
    link: str = ""

    def dumps(self) -> str:
        """Its lines in the file."""
        texts = [f"{name} = {_quoted(getattr(self, name))}" for name in ("by", "reason", "link") if getattr(self, name)]
        place = [
            f"case = {_quoted(self.case)}",
            f"pull_request = {self.pull_request}",
            f"date = {self.date.isoformat()}",
        ]
        return "\n".join(["[[accepted]]", *place, *texts, ""])


@dataclasses.dataclass(frozen=True)
class Triage:
    """All decisions by event, machines that were renamed (new name -> old name), what was accepted in advance."""

    entries: Mapping[str, TriageEntry] = dataclasses.field(default_factory=dict)
    renamed: Mapping[str, str] = dataclasses.field(default_factory=dict)
    advance: tuple[InAdvance, ...] = ()

    def applied(
        self, event: HistoryEvent, commits: Iterable[CommitFacts] = (), near: Collection[str] = ()
    ) -> HistoryEvent:
        """The event with what people decided: about it, or on a pull request of its commits before there was one.

        An entry is found by the event's id, or by its machine and direction at one of the recorded commits `near` its
        first bad one: a detector that has seen more places a step better.  The event then keeps the id of its entry.
        """
        entry = self.entries.get(event.id) or self._at_place(event, near) or self._in_advance(event, commits)
        if entry is None:
            return event
        texts = {name: getattr(entry, name) for name in ("owner", "reason", "link") if getattr(entry, name)}
        state = EventState.ACCEPTED if entry.state == "accepted" else EventState.OPEN
        if entry.state == "acknowledged" and event.state is not EventState.OPEN:
            state = event.state
        ended = event.ended_at if state is EventState.BACK else None
        return dataclasses.replace(event, id=entry.id, state=state, ended_at=ended, **texts)

    def _at_place(self, event: HistoryEvent, near: Collection[str]) -> TriageEntry | None:
        what = (event.machine, event.kind, event.direction)
        alike = [entry for entry in self.entries.values() if (entry.machine, entry.kind, entry.direction) == what]
        kernels = {moved.key.kernel for moved in event.moved}
        return next((e for e in alike if e.first_bad in near and (not e.kernel or e.kernel in kernels)), None)

    def _in_advance(self, event: HistoryEvent, commits: Iterable[CommitFacts]) -> TriageEntry | None:
        """The decision on a slow-down by one of these commits' pull requests, if each of its cases was accepted."""
        if event.direction is not Direction.SLOWER or not self.advance:
            return None
        pull_requests = {commit.pull_request for commit in commits}
        accepted = {decision.case: decision for decision in self.advance if decision.pull_request in pull_requests}
        cases = {moved.key.name for moved in event.moved}
        if not cases <= accepted.keys():
            return None
        first = accepted[min(cases)]
        return TriageEntry(event.id, "accepted", first.date, owner=first.by, reason=first.reason, link=first.link)

    def with_entry(self, entry: TriageEntry) -> Triage:
        """The same with one decision made or replaced."""
        return dataclasses.replace(self, entries={**self.entries, entry.id: entry})

    def without(self, event_id: str) -> Triage:
        """The same with a decision taken back."""
        return dataclasses.replace(self, entries={k: v for k, v in self.entries.items() if k != event_id})


def load(path: Path = DEFAULT_FILE) -> Triage:
    """The decisions in the file, none where there is no file.  Raises TriageError if it cannot be read."""
    if not path.exists():
        return Triage()
    try:
        data = tomllib.loads(path.read_text(encoding="utf-8"))
    except OSError as error:
        raise TriageError(f"{path}: cannot be read: {error.strerror or error}") from None
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        conflict = "; settle the merge conflict in it" if b"<<<<<<<" in path.read_bytes() else ""
        raise TriageError(f"{path}: not TOML: {error}{conflict}") from None
    return _parsed(data, str(path))


def save(triage: Triage, path: Path) -> None:
    """Write the file, sorted: the same decisions give the same bytes."""
    replace(path, dumps(triage))


def dumps(triage: Triage) -> str:
    """The text of the file."""
    blocks = [HEADER]
    if triage.renamed:
        names = (f"{_quoted(new)} = {_quoted(old)}" for new, old in sorted(triage.renamed.items()))
        blocks.append("\n".join(["[renamed]", *names, ""]))
    blocks += [_block(triage.entries[name]) for name in sorted(triage.entries)]
    return "\n".join(
        [*blocks, *(one.dumps() for one in sorted(triage.advance, key=lambda one: (one.pull_request, one.case)))]
    )


def chosen(prefix: str, known: Iterable[str]) -> str:
    """The one id that starts with `prefix`.  Raises TriageError, with the nearest ids, if none or several do."""
    names = sorted(set(known))
    fitting = [name for name in names if prefix and name.startswith(prefix.lower())]
    if len(fitting) == 1:
        return fitting[0]
    if fitting:
        raise TriageError(f"{prefix!r} is the start of {len(fitting)} events: {_listed(fitting)}; give more of its id")
    near = difflib.get_close_matches(prefix.lower(), names, n=3, cutoff=0.4)
    hint = f"the nearest: {_listed(near)}; " if near else ""
    raise TriageError(f"no event has the id {prefix!r}; {hint}`ridgeline events` lists them")


def _listed(names: Sequence[str]) -> str:
    return ", ".join(names[:5]) + (", ..." if len(names) > 5 else "")


def _block(entry: TriageEntry) -> str:
    lines = [f"[event.{entry.id}]", f"state = {_quoted(entry.state)}", f"date = {entry.date.isoformat()}"]
    lines += [f"{name} = {_quoted(getattr(entry, name))}" for name in TEXTS if getattr(entry, name)]
    return "\n".join([*lines, ""])


def _quoted(text: str) -> str:
    """A basic string of TOML: JSON's escapes are a part of TOML's, apart from those for half a character."""
    whole = text.encode("utf-8", "replace").decode("utf-8")
    return json.dumps(whole, ensure_ascii=False).replace("\x7f", "\\u007F")


_TEXT = that(lambda v: isinstance(v, str) and len(v) <= LONGEST, f"a text of at most {LONGEST} characters")
_DAY = that(lambda v: type(v) is datetime.date, "a day, such as 2026-11-22")
_ENTRY = record(
    {"state": one_of(*STATES), "date": _DAY},
    {**dict.fromkeys(TEXTS, _TEXT), "kind": one_of(*KINDS), "direction": one_of(*Direction)},
    closed=True,
)
_IN_ADVANCE = record(
    {**dict.fromkeys(("case", "by", "reason"), _TEXT), "pull_request": whole(1), "date": _DAY},
    {"link": _TEXT},
    closed=True,
)
FILE = record(
    {},
    {
        "event": table(form(_ID, "10 hex digits; `ridgeline events` lists them"), _ENTRY),
        "renamed": table(_TEXT, that(lambda v: isinstance(v, str) and v, '"new name" = "old name"')),
        "accepted": items(_IN_ADVANCE),
    },
    closed=True,
)
"""What the file may hold."""


def _parsed(data: Mapping[str, Any], source: str) -> Triage:
    renamed = data.get("renamed", {})
    try:
        FILE(data, "")
        if same := [new for new, old in renamed.items() if new == old]:
            raise Unfit(f"renamed.{same[0]}", same[0], '"new name" = "old name"')
    except Unfit as error:
        raise TriageError(f"{source}: {error}") from None
    entries = {name: TriageEntry(name, **entry) for name, entry in data.get("event", {}).items()}
    return Triage(entries, renamed, tuple(InAdvance(**one) for one in data.get("accepted", [])))
