"""The long frame as arrays: one sort, then slices.  Nothing here loops over the rows of a series."""

from __future__ import annotations

import dataclasses
import functools
from collections.abc import Mapping, Sequence

import numpy as np
import numpy.typing as npt
import pandas as pd

from ci.history.steps.words import SeriesKey
from ci.stats.types import FloatArray

IntArray = npt.NDArray[np.int64]
BoolArray = npt.NDArray[np.bool_]

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
    place: IntArray
    row: IntArray
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
        return np.split(self.values, self.starts[1:-1]) if len(self.keys) else []

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


def tracks(frame: pd.DataFrame, place: Mapping[str, int]) -> Tracks:
    """The tracks of a derived frame (ci.records.store.load, ci.records.derived.derive).

    place: index of every commit in the order of history.  Rows without a time are left out.  Where a
    machine recorded a commit in several environments, the one that it had first counts: a history that alternated
    between two compilers would have a step at each change.
    """
    seconds = _numbers(frame, "seconds")
    where = _places(frame, place)
    rows = np.flatnonzero(np.isfinite(seconds) & (seconds > 0) & (where >= 0))
    series, where = codes(frame, KEY)[rows], where[rows]
    order = _sorted(series, where)
    if np.any(_same(series[order], where[order])):
        order = order[np.argsort(_first_seen(frame, rows[order], where[order]), kind="stable")]
        order = order[_sorted(series[order], where[order])]
    rows, series, where = rows[order], series[order], where[order]
    first = ~_same(series, where)
    return _cut(frame, rows[first], series[first], where[first])


def _places(frame: pd.DataFrame, place: Mapping[str, int]) -> IntArray:
    """The place of each row's commit, -1 for one that has none."""
    codes, names = pd.factorize(frame["commit"])
    known = np.array([place.get(str(name), -1) for name in names], np.int64)
    return known[codes] if len(known) else codes.astype(np.int64)


def _same(*columns: IntArray) -> BoolArray:
    """Whether a row is the same as the one before in all columns."""
    same = np.ones(len(columns[0]), bool)
    same[:1] = False
    for column in columns:
        same[1:] &= column[1:] == column[:-1]
    return same


def _cut(frame: pd.DataFrame, rows: IntArray, series: IntArray, place: IntArray) -> Tracks:
    """Sorted points, one per series and commit, as tracks."""
    seconds, relative = _numbers(frame, "seconds")[rows], _relative(frame)[rows]
    begin = ~_same(series, pd.factorize(frame["yardstick"])[0].astype(np.int64)[rows])
    track = np.cumsum(begin) - 1
    share = np.bincount(track, np.isfinite(relative)) / np.maximum(np.bincount(track), 1)
    by_ratio = share > 0.5
    values = np.where(by_ratio[track], relative, seconds) if len(rows) else seconds
    kept = np.isfinite(values)
    counts = np.bincount(track[kept], minlength=len(share)).astype(np.int64)
    head = frame[[*KEY, "baseline"]].iloc[rows[begin]]
    return Tracks(
        keys=[SeriesKey(*names) for names in zip(*(head[name].astype(str) for name in KEY), strict=True)],
        starts=np.concatenate([[0], np.cumsum(counts)]).astype(np.int64),
        values=values[kept],
        seconds=seconds[kept],
        place=place[kept],
        row=rows[kept],
        by_ratio=by_ratio,
        is_baseline=head["baseline"].to_numpy(bool),
        frame=frame,
    )


def _relative(frame: pd.DataFrame) -> FloatArray:
    """Our time / the baseline's: of the paired rounds of one trial where there are such, else of pooled times; or NaN.

    A baseline has nothing to be divided by: beside itself it always takes as long as itself.
    """
    paired, pooled = _numbers(frame, "paired_ratio"), _numbers(frame, "baseline_ratio")
    ratio = np.where(np.isfinite(paired), paired, pooled)
    ratio[~(ratio > 0) | frame["baseline"].to_numpy(bool)] = np.nan
    return 1 / ratio


def _numbers(frame: pd.DataFrame, column: str) -> FloatArray:
    return frame[column].to_numpy(np.float64) if column in frame else np.full(len(frame), np.nan)


def _texts(frame: pd.DataFrame, column: str) -> list[str]:
    return [str(text) for text in frame[column]] if column in frame else [""] * len(frame)


def codes(frame: pd.DataFrame, columns: Sequence[str]) -> IntArray:
    """One number for each combination of values."""
    code = np.zeros(len(frame), np.int64)
    for column in columns:
        found, names = pd.factorize(frame[column])
        code = code * max(len(names), 1) + found
        if len(names) * int(code.max(initial=0)) > np.iinfo(np.int32).max:
            code = pd.factorize(code)[0].astype(np.int64)
    return code


def _first_seen(frame: pd.DataFrame, rows: IntArray, place: IntArray) -> IntArray:
    """Rank of each row's environment on its machine: 0 for the one with the oldest commit there."""
    pair = codes(frame, ("machine", "env"))[rows]
    seen = pd.DataFrame({"pair": pair, "place": place, "env": frame["env"].astype(str).to_numpy()[rows]})
    firsts = seen.groupby("pair", sort=False).agg(place=("place", "min"), env=("env", "first"))
    ranked = firsts.sort_values(["place", "env"])
    return pd.Series(np.arange(len(ranked)), index=ranked.index).reindex(pair).to_numpy(np.int64)


def _sorted(series: IntArray, place: IntArray) -> IntArray:
    """Indices by series, then place."""
    key = series * (int(place.max(initial=0)) + 1) + place
    return np.argsort(key, kind="stable").astype(np.int64)
