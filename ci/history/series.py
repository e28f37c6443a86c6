"""The long frame as arrays: one sort, then slices.  Nothing here loops over the rows of a series."""

from __future__ import annotations

import dataclasses
import functools
from collections.abc import Iterable, Mapping, Sequence

import numpy as np
import numpy.typing as npt
import pandas as pd

from ci.history.types import SeriesKey
from ci.stats import FloatArray

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
        newest = self.frame.iloc[int(self.row[self.starts[track + 1] - 1])]
        name = newest.get("paired_with" if np.isfinite(newest.get("paired_ratio", np.nan)) else "baseline_name")
        return name if isinstance(name, str) else ""

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
        return {machine: self._places(where.tolist()) for machine, where in self.of_machine.items()}

    def operator_places(self, machine: str, kernel: str) -> IntArray:
        """The places of the commits in which an operator of a machine has a time, rising."""
        return self._places(track for track in self.of_machine[machine].tolist() if self.keys[track].kernel == kernel)

    def longest_gap(self, track: int) -> int:
        """The most commits of its operator that a track has missed between two of its points."""
        key = self.keys[track]
        rank = np.searchsorted(self.operator_places(key.machine, key.kernel), self.place[self.span(track)])
        return int(np.diff(rank).max(initial=1)) - 1

    def _places(self, tracks: Iterable[int]) -> IntArray:
        there = np.zeros(int(self.place.max(initial=-1)) + 1, bool)
        for track in tracks:
            there[self.place[self.span(track)]] = True
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
