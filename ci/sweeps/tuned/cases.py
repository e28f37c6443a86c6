"""What can be tuned: a case, a backend with a table, its rule, its entry and its candidates."""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path

from ci.trials.trial import Json

Value = str | int | float | bool
"""Of a knob."""

Knobs = Mapping[str, Value]

Table = Json
"""An object of JSON, or a table of TOML, before it is a type of ours."""

Identity = str
"""What says whether two sets of knobs are the same entry: canonical JSON of all knobs, counted as in an entry."""


@dataclasses.dataclass(frozen=True, order=True)
class TablePlace:
    """Where an entry lies.  table: the tables around it, the last one is the architecture; key: its name there."""

    file: Path
    table: tuple[str, ...]
    key: str

    @property
    def arch(self) -> str:
        """The architecture."""
        return self.table[-1]

    @property
    def path(self) -> tuple[str, ...]:
        """The tables and the key."""
        return (*self.table, self.key)

    def __str__(self) -> str:
        return ".".join(self.path)


@dataclasses.dataclass(frozen=True, eq=False)
class TunedCase:
    """A case of a backend that has a table (`python -m benchmarks candidates`).

    entry: the knobs of the table, {} where it has none.  rule: the knobs without it.  defaults: of the backend.
    scale: by knob, what the value of a launch is multiplied by in an entry.  candidates: what a sweep tries, every knob
    given, the present choice first.
    """

    operator: str
    case: str
    backend: str
    place: TablePlace
    entry: Knobs
    rule: Knobs
    defaults: Knobs = dataclasses.field(default_factory=dict)
    scale: Mapping[str, float] = dataclasses.field(default_factory=dict)
    candidates: tuple[Knobs, ...] = ()

    def identity(self, knobs: Knobs) -> Identity:
        """The identity of the knobs of a launch; those that are not given have their defaults."""
        return _canonical(self._as_written({**self.defaults, **knobs}))

    def as_entry(self, knobs: Knobs) -> dict[str, Value]:
        """The knobs of a launch as an entry: those that the rule or the present entry has, or that are no default."""
        told = {name: self._value(knobs, name) for name in (*self.rule, *self.entry, *knobs)}
        kept = {n: v for n, v in told.items() if n in self.rule or n in self.entry or v != self.defaults.get(n)}
        return self._as_written(kept)

    def launched(self, entry: Knobs) -> dict[str, Value]:
        """The knobs of the launch that an entry stands for, every one given."""
        counted = {name: max(1, int(float(entry[name]) / by)) for name, by in self.scale.items() if name in entry}
        return {**self.defaults, **entry, **counted}

    @property
    def chosen(self) -> dict[str, Value]:
        """The knobs of a launch as things stand, every one given."""
        return self.launched(self.entry) if self.entry else {**self.defaults, **self.rule}

    def _value(self, knobs: Knobs, name: str) -> Value:
        return knobs[name] if name in knobs else self.defaults[name] if name in self.defaults else self.rule[name]

    def _as_written(self, knobs: Knobs) -> dict[str, Value]:
        counted = {name: int(float(knobs[name]) * by) for name, by in self.scale.items() if name in knobs}
        return {**knobs, **counted}


def _canonical(knobs: Knobs) -> Identity:
    return json.dumps(dict(knobs), sort_keys=True, separators=(",", ":"))


def by_place(cases: Iterable[TunedCase]) -> dict[TablePlace, list[TunedCase]]:
    """The cases of each entry, or of each place for one, in the order of the declaration."""
    found: dict[TablePlace, list[TunedCase]] = {}
    for one in cases:
        found.setdefault(one.place, []).append(one)
    return found


def sharing(cases: Sequence[TunedCase], chosen: Iterable[TunedCase]) -> list[TunedCase]:
    """All cases of the places that some cases have: an entry is for all of them."""
    places = {one.place for one in chosen}
    return [one for one in cases if one.place in places]
