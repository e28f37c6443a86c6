"""The long frame as arrays: one sort, then slices.  Nothing here loops over the rows of a series."""

from __future__ import annotations

import dataclasses
import enum
import functools
import itertools
import zlib
from collections.abc import Iterator, Mapping, Sequence
from typing import NamedTuple

import numpy as np
import numpy.typing as npt
import pandas as pd

from ci.stats.types import FloatArray, Step

# The words that a series' steps are told in; :mod:`ci.history.types` has them and those of events.


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
    CONFIGURATION = "configuration"
    """The knobs in use, against others that a sweep measured beside them: they were the best, and are no longer."""


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
class Moved:
    """A series that takes part in an event.

    judged_by: "ratio" to the baseline of the same trial, "seconds", "code", "peers": other devices at the same time, or
    "pairs": trials in which both commits ran, with the numbers of their verdict (`ridgeline gate`).
    """

    key: SeriesKey
    step: Step
    direction: Direction
    judged_by: str
    first_bad: str
    last_good: str


IntArray = npt.NDArray[np.int64]
BoolArray = npt.NDArray[np.bool_]
Codes = npt.NDArray[np.signedinteger]

KEY = ("machine", "kernel", "backend", "case")


@dataclasses.dataclass(frozen=True, eq=False)
class Tracks:
    """The stretches of all series: a series is cut where its benchmark definition changed, its sides do not compare.

    Of track t, `values[starts[t]:starts[t + 1]]` are its points in the order of history; so are the other arrays.
    values: what is judged, up is slower: our time / the baseline's of the same trial where `by_ratio[t]`, else seconds.
    seconds: ours.  place: index of the point's commit in the order of history.  row: its row of `frame`.
    Shapes: (points,), (tracks,).
    """

    keys: Sequence[SeriesKey]
    starts: IntArray
    values: FloatArray
    seconds: FloatArray
    place: Codes
    row: Codes
    by_ratio: BoolArray
    is_baseline: BoolArray
    frame: pd.DataFrame

    def span(self, track: int) -> slice:
        """Where a track's points are in the arrays."""
        return slice(int(self.starts[track]), int(self.starts[track + 1]))

    def vendor(self, track: int) -> str:
        """The backend that the newest time of a track was divided by; "" where it was by none."""
        return self._vendors[track]

    @functools.cached_property
    def _vendors(self) -> Sequence[str]:
        rows = self.row[self.starts[1:] - 1]
        names = [name for name in ("paired_ratio", "paired_with", "baseline_name") if name in self.frame]
        newest = self.frame[names].iloc[rows]
        paired = np.isfinite(_numbers(newest, "paired_ratio"))
        columns = (_texts(newest, "paired_with"), _texts(newest, "baseline_name"))
        return [one if use else other for use, one, other in zip(paired, *columns, strict=True)]

    def arrays(self) -> list[FloatArray]:
        """What is judged of every track."""
        return [self.values[a:b] for a, b in itertools.pairwise(self.starts.tolist())]

    @functools.cached_property
    def of_key(self) -> Mapping[SeriesKey, Sequence[int]]:
        """The tracks of each series, oldest first."""
        found: dict[SeriesKey, list[int]] = {}
        for track, key in enumerate(self.keys):
            found.setdefault(key, []).append(track)
        return found

    @functools.cached_property
    def of_machine(self) -> Mapping[str, IntArray]:
        """The tracks of each machine."""
        machines = pd.Series([key.machine for key in self.keys], dtype=object)
        return {str(name): np.asarray(where) for name, where in machines.groupby(machines, sort=True).indices.items()}

    @functools.cached_property
    def places_of(self) -> Mapping[str, IntArray]:
        """The places of the commits that each machine recorded, rising."""
        return {machine: self._places(where) for machine, where in self.of_machine.items()}

    def _places(self, where: IntArray) -> IntArray:
        there = np.zeros(int(self.place.max(initial=-1)) + 1, bool)
        for tracks in np.split(where, np.flatnonzero(np.diff(where) > 1) + 1):
            there[self.place[self.starts[tracks[0]] : self.starts[tracks[-1] + 1]]] = True
        return np.flatnonzero(there)


def tracks(frame: pd.DataFrame, place: Mapping[str, int]) -> Tracks:
    """The tracks of a derived frame (ci.records.store.load, ci.records.derived.derive).

    place: index of every commit in the order of history.  Rows without a time are left out.  Where a
    machine recorded a commit in several environments, the one that it had first counts: a history that alternated
    between two compilers would have a step at each change.
    """
    seconds, where = _numbers(frame, "seconds"), _places(frame, place)
    timed = (seconds > 0) & (seconds < np.inf) & (where >= 0)
    rows = np.arange(len(frame), dtype=np.int32) if timed.all() else np.flatnonzero(timed).astype(np.int32)
    return _cut(frame, *_ordered(frame, rows, where))


def _places(frame: pd.DataFrame, place: Mapping[str, int]) -> Codes:
    """The place of each row's commit, -1 for one that has none."""
    found, names = coded(frame["commit"])
    known = np.array([*(place.get(str(name), -1) for name in names), -1], np.int32)
    return np.asarray(known[found])


def _ordered(frame: pd.DataFrame, rows: Codes, where: Codes) -> tuple[Codes, IntArray, Codes]:
    """(rows, one for each series and place, by series, then place; points of each series; place of each row)."""
    width = int(where.max(initial=0)) + 1
    cell = codes(frame, KEY)[rows] * np.int64(width) + where[rows]
    order = np.argsort(cell, kind="stable")
    first = runs(cell[order])
    if len(first) < len(order):
        order = np.lexsort((_first_seen(frame, rows, where[rows]), cell))
    order = order[first]
    counts = np.unique(cell[order] // width, return_counts=True)[1]
    return rows[order], counts, cell[order] % width


def _cut(frame: pd.DataFrame, rows: Codes, counts: IntArray, place: Codes) -> Tracks:
    """Sorted points, one per series and commit, as tracks.  counts: points of each series."""
    begin = np.zeros(len(rows), bool)
    begin[np.cumsum(counts) - counts] = True
    definition, several = coded(frame["yardstick"])
    if len(several) > 1 or definition.min(initial=0) < 0:
        definition = definition[rows]
        begin[1:] |= definition[1:] != definition[:-1]
    first = np.flatnonzero(begin)
    counts = np.diff(first, append=len(rows))
    seconds, values = _numbers(frame, "seconds")[rows], _relative(frame, rows)
    measured = np.add.reduceat(np.isfinite(values), first, dtype=np.int64) if len(rows) else counts
    by_ratio = measured > 0.5 * counts
    np.copyto(values, seconds, where=np.repeat(~by_ratio, counts))
    head = frame[[*KEY, "baseline"]].iloc[rows[first]]
    if not (kept := np.isfinite(values)).all():
        counts = np.add.reduceat(kept, first, dtype=np.int64)
        values, seconds, place, rows = values[kept], seconds[kept], place[kept], rows[kept]
    return Tracks(
        keys=[SeriesKey(*names) for names in zip(*(_texts(head, name) for name in KEY), strict=True)],
        starts=np.concatenate([[0], np.cumsum(counts)]).astype(np.int64),
        values=values,
        seconds=seconds,
        place=place,
        row=rows,
        by_ratio=by_ratio,
        is_baseline=head["baseline"].to_numpy(bool),
        frame=frame,
    )


def _relative(frame: pd.DataFrame, rows: Codes) -> FloatArray:
    """Our time / the baseline's: of the paired rounds of one trial where there are such, else of pooled times; or NaN.

    A baseline has nothing to be divided by: beside itself it always takes as long as itself.
    """
    ratio = _numbers(frame, "baseline_ratio")[rows]
    paired = _numbers(frame, "paired_ratio")[rows]
    np.copyto(ratio, paired, where=np.isfinite(paired))
    ratio[~((ratio > 0) & (ratio < np.inf)) | frame["baseline"].to_numpy(bool)[rows]] = np.nan
    return 1 / ratio


def _numbers(frame: pd.DataFrame, column: str) -> FloatArray:
    """A column, read-only; NaN where the frame has none."""
    return frame[column].to_numpy(np.float64) if column in frame else np.broadcast_to(np.nan, len(frame))


def _texts(frame: pd.DataFrame, column: str) -> list[str]:
    if column not in frame:
        return [""] * len(frame)
    found, names = coded(frame[column])
    texts = [*map(str, names), "nan"]
    return [texts[number] for number in found.tolist()]


def coded(column: pd.Series) -> tuple[Codes, Sequence[object]]:
    """(a number for each value of a column, what the numbers stand for); -1 for a missing value."""
    if isinstance(column.dtype, pd.CategoricalDtype):
        return column.array.codes, column.cat.categories.tolist()
    found, names = pd.factorize(column)
    return found, list(names)


def codes(frame: pd.DataFrame, columns: Sequence[str]) -> IntArray:
    """One number for each combination of values, from 0 without gaps, in the order of the values."""
    code = np.zeros(len(frame), np.int64)
    for column in columns:
        numbers, names = coded(frame[column])
        if len(names) > 1 or numbers.min(initial=0) < 0:
            code, _ = pd.factorize(code * (len(names) + 1) + numbers + 1, sort=True)
    return code


def runs(code: Codes) -> IntArray:
    """Where numbers begin that differ from the one before: of a frame in the order of dates there are few."""
    begin = np.ones(len(code), bool)
    np.not_equal(code[1:], code[:-1], out=begin[1:])
    return np.flatnonzero(begin)


def _first_seen(frame: pd.DataFrame, rows: Codes, place: Codes) -> IntArray:
    """Rank of each row's environment on its machine: 0 for the one with the oldest commit there."""
    pair = codes(frame, ("machine", "env"))[rows]
    _, one, pair = np.unique(pair, return_index=True, return_inverse=True)
    oldest = np.full(len(one), np.iinfo(np.int64).max)
    np.minimum.at(oldest, pair, place)
    names = frame["env"].iloc[rows[one]].astype(str).tolist()
    rank = np.empty(len(one), np.int64)
    rank[sorted(range(len(one)), key=lambda number: (oldest[number], names[number]))] = np.arange(len(one))
    return np.asarray(rank[pair])


# Machines that go by another name now: joined where somebody said so, suggested where it looks so.


HARDWARE = ("kind", "arch", "device", "market_name", "count", "compute_units", "memory_bytes")
"""What two names of one machine have in common.  The chip id may differ: a device may have been exchanged."""


def root(machine: str, renamed: Mapping[str, str]) -> str:
    """The oldest name of a machine: ids of events are made of it.  renamed: new name -> old name."""
    seen = {machine}
    while (older := renamed.get(machine)) is not None and older not in seen:
        machine = older
        seen.add(machine)
    return machine


def joined(frame: pd.DataFrame, renamed: Mapping[str, str]) -> pd.DataFrame:
    """The frame with each machine under its newest name."""
    if not renamed:
        return frame
    newest = {root(name, renamed): name for name in renamed if name not in renamed.values()}
    names = frame["machine"].astype(str)
    return frame.assign(machine=names.map({name: newest.get(root(name, renamed), name) for name in names.unique()}))


def suggestions(frame: pd.DataFrame) -> Iterator[str]:
    """A sentence for each machine that begins where another one of the same hardware ended.

    The frame stands in the order of dates.
    """
    columns = [name for name in HARDWARE if name in frame]
    if not columns:
        return
    known = frame[["machine", "date", *columns]]
    spans = [known.drop_duplicates("machine", keep=end).set_index("machine") for end in ("first", "last")]
    for old, new in itertools.permutations(spans[0].index, 2):
        ended, began = spans[1].loc[old], spans[0].loc[new]
        if ended["date"] < began["date"] and all(_same(ended[name], began[name]) for name in columns):
            yield (
                f"{new} has the hardware of {old}, which was last seen before {new} began: if it is the same machine,"
                f' join their histories with [renamed] "{new}" = "{old}" in the file of decisions'
            )


def _same(one: object, other: object) -> bool:
    return one == other or (pd.isna(one) and pd.isna(other))  # type: ignore[call-overload]


# Series that are measured no more: their case was removed or renamed, or their backend was.


@dataclasses.dataclass(frozen=True, eq=False)
class MeasuredPlaces:
    """Where series and their operators were recorded.  place: index of each commit in the order of history."""

    tracks: Tracks
    place: Mapping[str, int]

    def gone(self, key: SeriesKey) -> int:
        """The place of the first record of a series' operator without the series; -1 while it is measured.

        A case that is not measured with every record of its operator (nightly, or with gaps) is gone when it has been
        missing for longer than ever before.  One that has no time there, but an error or a skip, is not gone.
        """
        operator = self._places(self._operators[key.machine, key.kernel])
        timed = self._places(self.tracks.of_key[key])
        if _first_without(operator, timed) < 0:
            return -1
        return _first_without(operator, np.union1d(timed, self._untimed(key)))

    def _places(self, tracks: Sequence[int]) -> IntArray:
        """Where one of the tracks has a point, rising."""
        places = [self.tracks.place[self.tracks.span(track)] for track in tracks]
        return np.unique(np.concatenate(places)).astype(np.int64)

    @functools.cached_property
    def _operators(self) -> Mapping[tuple[str, str], list[int]]:
        """The tracks of each operator of a machine."""
        found: dict[tuple[str, str], list[int]] = {}
        for track, key in enumerate(self.tracks.keys):
            found.setdefault((key.machine, key.kernel), []).append(track)
        return found

    def _untimed(self, key: SeriesKey) -> IntArray:
        """Places of a series' rows that have no time."""
        own = np.logical_and.reduce([self._rows[name] == text for name, text in zip(KEY, key, strict=True)])
        commits = self._rows.loc[own, "commit"].unique()
        return np.array([self.place[commit] for commit in commits if commit in self.place], np.int64)

    @functools.cached_property
    def _rows(self) -> pd.DataFrame:
        """The rows of the frame without a time."""
        seconds = self.tracks.frame["seconds"]
        return self.tracks.frame.loc[~((seconds > 0) & (seconds < np.inf)), [*KEY, "commit"]]


def _first_without(operator: IntArray, mine: IntArray) -> int:
    """The first of the operator's places after the last of a series', if more of them have passed than ever before."""
    rank = np.searchsorted(operator, mine)
    missed = int(np.diff(rank).max(initial=1)) - 1
    after = operator[operator > mine[-1]]
    return int(after[0]) if len(after) > missed else -1


# What all of a machine's series do together: its clocks, its heat, its driver.
#
# The path of a machine is the log of a factor for each commit. A point depends only on the points before it, so it
# stays as it is when the history grows. Series without a baseline in their trial are judged relative to this path.


VOTERS = 5
"""Operators without which there is no path: of fewer, two that share code could outvote the rest.  A choice."""
CASES, OPERATORS = 4, 100
"""Cases of an operator and operators that vote at most: more would cost time and tell little.  The median of 100 is
eight times quieter than one of them."""
MEMORY, FEWEST = 100, 3
"""Points over which the level that a series is compared with follows it, and how many it needs before it votes.  Errors
of the path add up as 1 / MEMORY: 20 gave four times as many false steps in made histories (tests.study.history.planted,
2026-11-22)."""
CLIP = 2.0
"""Mean absolute deviations to which a point counts for the level: a step moves it slowly, an outlier hardly."""
AGREE = 0.01
"""Difference (log) of the votes of libraries and of ours up to which both are taken for noisy views of the same move:
the noise of both is below 0.2 %, new compilers and libraries move the median operator by more or do not matter."""


@dataclasses.dataclass(frozen=True, eq=False)
class MachinePath:
    """places: of the machine's commits, rising; path: log of the factor at each; shapes (commits,).

    votes: operators that made it at each commit.
    """

    places: IntArray
    path: FloatArray
    votes: IntArray

    def at(self, places: IntArray) -> FloatArray:
        """The path at places that are among the machine's."""
        return np.asarray(self.path[np.searchsorted(self.places, places)])


def paths(tracks: Tracks) -> dict[str, MachinePath]:
    """The path of each machine; all zeros where too few operators are measured."""
    return {machine: _path(tracks, where) for machine, where in tracks.of_machine.items()}


def beside(tracks: Tracks, found: Mapping[str, MachinePath]) -> Tracks:
    """The same tracks, with what is judged by seconds divided by its machine's path."""
    values = tracks.values.copy()
    for machine, where in tracks.of_machine.items():
        if np.any(found[machine].path):
            factor = np.ones(int(tracks.place.max()) + 1)
            factor[found[machine].places] = np.exp(found[machine].path)
            mine = np.zeros(len(tracks.keys), bool)
            mine[where] = ~tracks.by_ratio[where]
            there = np.repeat(mine, np.diff(tracks.starts))
            values[there] /= factor[tracks.place[there]]
    return dataclasses.replace(tracks, values=values)


def _path(tracks: Tracks, where: IntArray) -> MachinePath:
    places = tracks.places_of[tracks.keys[int(where[0])].machine]
    groups = [_operators(tracks, where, baseline) for baseline in (True, False)]
    tables = [_Votes.of(tracks, group, places) for group in groups if len(group) >= VOTERS]
    path, votes = np.zeros(len(places)), np.zeros(len(places), np.int64)
    for at in range(len(places)):
        path[at] = path[at - 1] if at else 0.0
        found = [vote for table in tables if (vote := table.vote(at)) is not None]
        if found:
            path[at], votes[at] = _smaller([moved for moved, _ in found]), min(count for _, count in found)
        for table in tables:
            table.remember(at, path[at])
    return MachinePath(places, path, votes)


def _smaller(moves: list[float]) -> float:
    """What the libraries and ours have in common: the machine moves both, a new library or compiler moves one."""
    if max(moves) - min(moves) <= AGREE:
        return sum(moves) / len(moves)
    return 0.0 if min(moves) < 0 < max(moves) else min(moves, key=abs)


def _operators(tracks: Tracks, where: IntArray, baseline: bool) -> list[list[int]]:
    """Tracks that vote, by operator: of up to CASES series all their stretches."""
    found: dict[str, list[int]] = {}
    for track in where[tracks.is_baseline[where] == baseline].tolist():
        found.setdefault(tracks.keys[track].kernel, []).append(track)
    drawn = sorted(found, key=lambda name: (zlib.crc32(name.encode("utf-8", "replace")), name))[:OPERATORS]
    return [_voting(tracks, found[kernel]) for kernel in drawn]


def _voting(tracks: Tracks, listed: list[int]) -> list[int]:
    """All stretches of up to CASES series."""
    ordered = sorted(listed, key=lambda track: (tracks.keys[track], track))
    by_key = [list(same) for _, same in itertools.groupby(ordered, key=lambda track: tracks.keys[track])]
    return [track for same in by_key[:CASES] for track in same]


@dataclasses.dataclass(eq=False)
class _Votes:
    """Voting tracks.  logs: of their seconds by commit, shape (commits, operators, tracks of an operator at most).

    level, scatter, seen: of each track without the path: where it stands, mean absolute deviation, points; shapes
    (operators, tracks).
    """

    logs: FloatArray
    level: FloatArray
    scatter: FloatArray
    seen: IntArray

    @classmethod
    def of(cls, tracks: Tracks, groups: list[list[int]], places: IntArray) -> _Votes:
        shape = len(groups), max(map(len, groups))
        logs = np.full((len(places), *shape), np.nan)
        for row, group in enumerate(groups):
            for column, track in enumerate(group):
                span = tracks.span(track)
                logs[np.searchsorted(places, tracks.place[span]), row, column] = np.log(tracks.seconds[span])
        return cls(logs, np.zeros(shape), np.zeros(shape), np.zeros(shape, np.int64))

    def vote(self, at: int) -> tuple[float, int] | None:
        """The move of the median operator against its own level, and how many operators voted; None if too few."""
        moved = np.where(self.seen >= FEWEST, self.logs[at] - self.level, np.nan)
        ranked, count = np.sort(moved, axis=1), np.isfinite(moved).sum(axis=1)  # NaN comes last
        voting = np.flatnonzero(count)
        if len(voting) < VOTERS:
            return None
        each = (ranked[voting, (count[voting] - 1) // 2] + ranked[voting, count[voting] // 2]) / 2
        return float(np.median(each)), len(voting)

    def remember(self, at: int, path: float) -> None:
        """Let the levels follow the points of a commit, without the path."""
        there = np.isfinite(self.logs[at])
        point, seen = self.logs[at][there] - path, self.seen[there]
        away = np.where(seen == 0, 0.0, point - self.level[there])
        gain = 1 / np.minimum(seen + 1, MEMORY)
        reach = np.where(seen < FEWEST, np.inf, CLIP * self.scatter[there])
        self.level[there] = np.where(seen == 0, point, self.level[there] + gain * np.clip(away, -reach, reach))
        self.scatter[there] += gain * (np.abs(away) - self.scatter[there])
        self.seen[there] += 1
