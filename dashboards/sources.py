"""Where the rows of a machine come from: read commit by commit out of the records, or held in a frame."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable, Mapping, Sequence
from typing import Protocol

import numpy as np
import pandas as pd

from ci.records import derived
from ci.records.frame import MachineRows, RecordPlace
from dashboards.columns import NO_DATE, Ints, TextColumn, columns, milliseconds
from dashboards.lanes import Lane, lane_slug, tidy


class RowSource(Protocol):
    """The rows of a machine.  places: its commits and environments that have any, oldest first."""

    @property
    def machine(self) -> str: ...
    @property
    def places(self) -> Sequence[RecordPlace]: ...
    def made_of(self, places: Iterable[RecordPlace]) -> str:
        """Digest of all that pages can show of the rows of some places; "" where nothing can be told without them."""

    def rows(self, places: Iterable[RecordPlace]) -> pd.DataFrame:
        """Tidy rows of some places."""


@dataclasses.dataclass(frozen=True, eq=False)
class ReadRows:
    """Out of the cache of the records.  The rows that were asked for last are remembered."""

    read: MachineRows
    _last: dict[tuple[RecordPlace, ...], pd.DataFrame] = dataclasses.field(default_factory=dict)

    @property
    def machine(self) -> str:
        return self.read.machine

    @property
    def places(self) -> Sequence[RecordPlace]:
        return self.read.places

    def made_of(self, places: Iterable[RecordPlace]) -> str:
        return self.read.made_of(places)

    def rows(self, places: Iterable[RecordPlace]) -> pd.DataFrame:
        return tidy(self.derived(places))

    def derived(self, places: Iterable[RecordPlace]) -> pd.DataFrame:
        """Rows of some places as they were recorded, with the columns of `ci.records.derived`."""
        wanted = tuple(places)
        if wanted not in self._last:
            self._last.clear()
            self._last[wanted] = derived.derive(self.read.rows(wanted))
        return self._last[wanted]

    def newest(self, commits: int) -> pd.DataFrame:
        """`derived` of the newest block of so many commits."""
        return self.derived(LaneSource(self, None, self.places).blocks(commits)[-1])


@dataclasses.dataclass(frozen=True, eq=False)
class HeldRows:
    """Out of tidy rows in memory; commits without a date come last.  at: the rows of each place."""

    machine: str
    held: pd.DataFrame
    places: Sequence[RecordPlace]
    at: Mapping[RecordPlace, Ints]

    @classmethod
    def of(cls, frame: pd.DataFrame) -> list[HeldRows]:
        """One for each machine of a tidy frame."""
        machine = TextColumn.of(frame["machine"])
        return [cls._of_machine(name, frame[machine.equal(name)]) for name in machine.present()]

    @classmethod
    def _of_machine(cls, machine: str, rows: pd.DataFrame) -> HeldRows:
        commit, env = (TextColumn.of(rows[name]) for name in ("commit", "env"))
        found, number = np.unique(commit.codes.astype(np.int64) * len(env.names) + env.codes, return_inverse=True)
        latest = np.full(len(found), np.iinfo(np.int64).min)
        np.maximum.at(latest, number, milliseconds(rows["date"]))
        pairs = zip(latest.tolist(), *(codes.tolist() for codes in np.divmod(found, len(env.names))), strict=True)
        places = [RecordPlace(date, commit.names[c], env.names[e]) for date, c, e in pairs]
        order, bounds = np.argsort(number, kind="stable"), np.cumsum(np.bincount(number))[:-1]
        return cls(machine, rows, sorted(places), dict(zip(places, np.split(order, bounds), strict=True)))

    def made_of(self, places: Iterable[RecordPlace]) -> str:
        return columns(self.rows(places)).digest()

    def rows(self, places: Iterable[RecordPlace]) -> pd.DataFrame:
        wanted = np.sort(np.concatenate([self.at[place] for place in places]))
        first, end = int(wanted[0]), int(wanted[-1]) + 1
        return self.held.iloc[first:end] if end - first == len(wanted) else self.held.iloc[wanted]


@dataclasses.dataclass(frozen=True, eq=False)
class LaneSource:
    """A machine, or one environment of a machine that measures commits under several, and where its rows stand."""

    rows: RowSource
    env: str | None
    places: Sequence[RecordPlace]

    @property
    def machine(self) -> str:
        return self.rows.machine

    @property
    def slug(self) -> str:
        """Folder of its data files."""
        return lane_slug(self.machine, self.env)

    def blocks(self, commits: int) -> list[list[RecordPlace]]:
        """The places of so many commits at a time, oldest first; the last block may have fewer."""
        latest: dict[str, int] = {}
        for place in self.places:
            latest[place.commit] = max(place.date_ms, latest.get(place.commit, place.date_ms))
        ordered = sorted(latest, key=lambda commit: (latest[commit], commit))
        number = {commit: n // commits for n, commit in enumerate(ordered)}
        found: list[list[RecordPlace]] = [[] for _ in range(-(-len(ordered) // commits))]
        for place in self.places:
            found[number[place.commit]].append(place)
        return found


def lane_sources(sources: Iterable[RowSource]) -> list[LaneSource]:
    """The lanes of some machines, the one with the longest history first (then by newest commit, then by name)."""
    found = [lane for source in sources for lane in _by_environment(source)]
    return sorted(found, key=lambda lane: (-_length(lane), -_newest(lane), lane.machine, lane.env or ""))


def lanes_of(frame: pd.DataFrame) -> list[Lane]:
    """The lanes of a tidy frame, in the same order."""
    return [Lane(one.machine, one.env, one.rows.rows(one.places)) for one in lane_sources(HeldRows.of(frame))]


def _length(lane: LaneSource) -> int:
    return len({place.commit for place in lane.places})


def _newest(lane: LaneSource) -> int:
    return max((place.date_ms for place in lane.places if place.date_ms != NO_DATE), default=np.iinfo(np.int64).min)


def _by_environment(source: RowSource) -> list[LaneSource]:
    """All rows if a machine changes its environment now and then, one lane per environment if commits have several."""
    if len({place.commit for place in source.places}) == len(source.places):
        return [LaneSource(source, None, source.places)]
    envs = sorted({place.env for place in source.places})
    return [LaneSource(source, env, [one for one in source.places if one.env == env]) for env in envs]
