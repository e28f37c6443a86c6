"""What all of a machine's series do together: its clocks, its heat, its driver.

The path of a machine is the log of a factor for each commit.  A point depends only on the points before it, so it stays
as it is when the history grows.  Series without a baseline in their trial are judged relative to this path.
"""

from __future__ import annotations

import dataclasses
import itertools
import zlib
from collections.abc import Mapping

import numpy as np

from ci.history.steps.series import IntArray, Tracks
from ci.stats.types import FloatArray

VOTERS = 5
"""Operators without which there is no path: of fewer, two that share code could outvote the rest.  A choice."""
CASES, OPERATORS = 4, 100
"""Cases of an operator and operators that vote at most: more would cost time and tell little.  The median of 100 is
eight times quieter than one of them."""
MEMORY, FEWEST = 100, 3
"""Points over which the level that a series is compared with follows it, and how many it needs before it votes.  Errors
of the path add up as 1 / MEMORY: 20 gave four times as many false steps in made histories (ci.study.history.planted,
2026-11-22)."""
TOGETHER = 512
"""Tracks at a time, so that what is worked on stays in a core's cache."""
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
            for some in np.array_split(where, len(where) // TOGETHER + 1):
                _divide(values, tracks, some, factor)
    return dataclasses.replace(tracks, values=values)


def _divide(values: FloatArray, tracks: Tracks, some: IntArray, factor: FloatArray) -> None:
    """Divide, in place, the values of tracks that are judged by seconds; factor: by place."""
    first, last = int(some[0]), int(some[-1]) + 1
    mine = np.zeros(last - first, bool)
    mine[some - first] = ~tracks.by_ratio[some]
    span = slice(int(tracks.starts[first]), int(tracks.starts[last]))
    there = np.repeat(mine, np.diff(tracks.starts[first : last + 1]))
    np.divide(values[span], factor[tracks.place[span]], out=values[span], where=there)


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
        each = _medians(moved[np.isfinite(moved).any(axis=1)])
        return (float(np.median(each)), len(each)) if len(each) >= VOTERS else None

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


def _medians(rows: FloatArray) -> FloatArray:
    """Of the finite values of each row, of which there is one at least."""
    ranked, count = np.sort(rows, axis=1), np.isfinite(rows).sum(axis=1)[:, None]
    low, high = (np.take_along_axis(ranked, at, axis=1)[:, 0] for at in ((count - 1) // 2, count // 2))
    return np.asarray((low + high) / 2)
