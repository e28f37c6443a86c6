"""What people decided about events: a text file of the repository, one table per event, reviewed like code."""

from __future__ import annotations

import dataclasses
import datetime
import difflib
import re
import tomllib
from collections.abc import Collection, Iterable, Mapping
from pathlib import Path
from typing import Annotated, Literal

from benchmarks.shapes import Unfit, built, form, one_of, that
from ci.history.types import EventState, HistoryEvent
from ci.whole_files import replace

DEFAULT_FILE = Path("ci/events.toml")

HEADER = """\
# What we decided about events of the history (`ridgeline events`).  Written by its verbs `ack` and `accept`, reviewed
# like code; one table per event, sorted by id, so that two branches merge.  A table that is removed reopens its event.
"""

LONGEST = 2000
"""Characters of a text."""

Text = Annotated[
    str, that(lambda v: isinstance(v, str) and len(v) <= LONGEST, f"a text of at most {LONGEST} characters")
]
Day = Annotated[datetime.date, that(lambda v: type(v) is datetime.date, "a day, such as 2026-11-22")]


class TriageError(Exception):
    """The file or a call is not right; the text names the value, what is allowed and the next step."""


@dataclasses.dataclass(frozen=True)
class TriageEntry:
    """A decision; that the old level is back is read off the records.  acknowledged: open, with an owner.

    kind, direction, machine, kernel, first_bad: where its event is, so that it is found if it moves.  Files of before
    2026-11-28 have no kernel, and two kinds whose events no longer exist.
    """

    id: Annotated[str, form(re.compile("[0-9a-f]{10}"), "10 hex digits; `ridgeline events` lists them")]
    state: Annotated[str, one_of("open", "acknowledged", "accepted")]
    date: Day
    kind: Literal["", "kernel", "library", "code", "machine", "configuration"] = ""
    direction: Literal["", "slower", "faster"] = ""
    machine: Text = ""
    kernel: Text = ""
    first_bad: Text = ""
    owner: Text = ""
    reason: Text = ""
    link: Text = ""


@dataclasses.dataclass(frozen=True)
class Triage:
    """All decisions by event."""

    entries: Mapping[str, TriageEntry] = dataclasses.field(default_factory=dict)

    def applied(self, event: HistoryEvent, near: Collection[str] = ()) -> HistoryEvent:
        """The event with what people decided about it.

        An entry is found by the event's id, or by its machine and direction at one of the recorded commits `near` its
        first bad one: a detector that has seen more places a step better.  The event then keeps the id of its entry.
        """
        entry = self.entries.get(event.id) or self._at_place(event, near)
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

    def with_entry(self, entry: TriageEntry) -> Triage:
        """The same with one decision made or replaced."""
        return dataclasses.replace(self, entries={**self.entries, entry.id: entry})


@dataclasses.dataclass(frozen=True)
class TriageFile:
    """The tables of the file."""

    event: Mapping[str, TriageEntry] = dataclasses.field(default_factory=dict)


def load(path: Path = DEFAULT_FILE) -> Triage:
    """The decisions in the file, none where there is no file.  Raises TriageError if it cannot be read."""
    if not path.exists():
        return Triage()
    try:
        data = tomllib.loads(path.read_text(encoding="utf-8"))
        if isinstance(entries := data.get("event"), dict):
            data["event"] = {name: {"id": name, **entry} for name, entry in entries.items()}
        file = built(TriageFile, data, closed=True)
    except OSError as error:
        raise TriageError(f"{path}: cannot be read: {error.strerror or error}") from None
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        conflict = "; settle the merge conflict in it" if b"<<<<<<<" in path.read_bytes() else ""
        raise TriageError(f"{path}: not TOML: {error}{conflict}") from None
    except (Unfit, TypeError) as error:
        raise TriageError(f"{path}: {error}") from None
    return Triage(file.event)


def save(triage: Triage, path: Path) -> None:
    """Write the file, sorted: the same decisions give the same bytes."""
    import tomlkit  # who only reads decisions needs none of it

    entries = {
        name: {key: value for key, value in dataclasses.asdict(triage.entries[name]).items() if value and key != "id"}
        for name in sorted(triage.entries)
    }
    text = "\n".join([HEADER, tomlkit.dumps({"event": entries})] if entries else [HEADER])
    replace(path, text.encode("utf-8", "replace").decode())  # half a character, which no file can hold, as a ?


def chosen(prefix: str, known: Iterable[str]) -> str:
    """The one id that starts with `prefix`.  Raises TriageError, with the nearest ids, if none or several do."""
    names = sorted(set(known))
    fitting = [name for name in names if prefix and name.startswith(prefix.lower())]
    if len(fitting) == 1:
        return fitting[0]
    if fitting:
        raise TriageError(
            f"{prefix!r} is the start of {len(fitting)} events: {', '.join(fitting[:5])}; give more of it"
        )
    near = difflib.get_close_matches(prefix.lower(), names, n=3, cutoff=0.4)
    hint = f"the nearest: {', '.join(near)}; " if near else ""
    raise TriageError(f"no event has the id {prefix!r}; {hint}`ridgeline events` lists them")
