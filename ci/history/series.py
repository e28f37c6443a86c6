"""The long frame as arrays: one sort, then slices.  Nothing here loops over the rows of a series."""

from __future__ import annotations

import dataclasses
import functools
from collections.abc import Mapping, Sequence

import numpy as np
import numpy.typing as npt
import pandas as pd

from ci.history.types import SeriesKey
from ci.stats.types import FloatArray

IntArray = npt.NDArray[np.int64]
BoolArray = npt.NDArray[np.bool_]

KEY = ("machine", "kernel", "backend", "case")


@dataclasses.dataclass(frozen=True, eq=False)
class Tracks:
    """The stretches of all series: a series is cut where its benchmark definition changed, its sides do not compare.

    Of track t, `values[starts[t]:starts[t + 1]]` are its points in the order of history; so are the other arrays.
    values: what is judged, up is slower: our time / the baseline's of the same trial where `by_ratio[t]`, else seconds.
    seconds: ours.  place: index of the point's commit in the order of history.  row: its row of the frame.
    vendor: the backends our time was divided by.  Shapes: (points,), (tracks,).
    """

    keys: Sequence[SeriesKey]
    starts: IntArray
    values: FloatArray
    seconds: FloatArray
    place: IntArray
    row: IntArray
    vendor: npt.NDArray[np.object_]
    by_ratio: BoolArray
    is_baseline: BoolArray

    def span(self, track: int) -> slice:
        """Where a track's points are in the arrays."""
        return slice(int(self.starts[track]), int(self.starts[track + 1]))

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

    place: index of every commit in the order of history.  Rows without a time are no points.  Of a commit that a
    machine recorded in several environments the one that the machine had first counts: a history that swung between
    two compilers would have a step at each swing.
    """
    seconds = frame["seconds"].to_numpy(np.float64)
    rows = np.flatnonzero(np.isfinite(seconds) & (seconds > 0) & (frame["commit"].isin(place.keys())).to_numpy())
    used = frame.iloc[rows]
    series, where = _codes(used, KEY), used["commit"].map(place).to_numpy().astype(np.int64)
    order = _sorted(series, where, _first_seen(used, where))
    rows, series, where = rows[order], series[order], where[order]
    first = np.ones(len(rows), bool)
    first[1:] = (series[1:] != series[:-1]) | (where[1:] != where[:-1])
    return _cut(frame, rows[first], series[first], where[first])


def _cut(frame: pd.DataFrame, rows: IntArray, series: IntArray, place: IntArray) -> Tracks:
    """Sorted points, one per series and commit, as tracks."""
    seconds, relative = frame["seconds"].to_numpy(np.float64)[rows], _relative(frame)[rows]
    definition = pd.factorize(frame["yardstick"])[0][rows]
    begin = np.ones(len(rows), bool)
    begin[1:] = (series[1:] != series[:-1]) | (definition[1:] != definition[:-1])
    track = np.cumsum(begin) - 1
    share = np.bincount(track, np.isfinite(relative)) / np.maximum(np.bincount(track), 1)
    by_ratio = share > 0.5
    values = np.where(by_ratio[track], relative, seconds) if len(rows) else seconds
    kept = np.isfinite(values)
    counts = np.bincount(track[kept], minlength=len(share)).astype(np.int64)
    head = frame.iloc[rows[begin]]
    return Tracks(
        keys=[SeriesKey(*names) for names in zip(*(head[name].astype(str) for name in KEY), strict=True)],
        starts=np.concatenate([[0], np.cumsum(counts)]).astype(np.int64),
        values=values[kept],
        seconds=seconds[kept],
        place=place[kept],
        row=rows[kept],
        vendor=_vendor(frame)[rows[kept]],
        by_ratio=by_ratio,
        is_baseline=head["baseline"].to_numpy(bool),
    )


def _relative(frame: pd.DataFrame) -> FloatArray:
    """Our time / the baseline's: of the paired rounds of one trial where there are such, else of pooled times; or NaN.

    A baseline has nothing to be divided by: beside itself it always takes as long as itself.
    """
    ratio = np.where(_is_paired(frame), _numbers(frame, "paired_ratio"), _numbers(frame, "baseline_ratio"))
    useful = np.isfinite(ratio) & (ratio > 0) & ~frame["baseline"].to_numpy(bool)
    return np.where(useful, 1 / np.where(useful, ratio, 1.0), np.nan)


def _vendor(frame: pd.DataFrame) -> npt.NDArray[np.object_]:
    """The backend that each row's time is divided by."""
    pooled, paired = (
        frame[name].astype(object).to_numpy() if name in frame else np.full(len(frame), "", object)
        for name in ("baseline_name", "paired_with")
    )
    return np.where(_is_paired(frame), paired, pooled)


def _is_paired(frame: pd.DataFrame) -> BoolArray:
    return np.isfinite(_numbers(frame, "paired_ratio"))


def _numbers(frame: pd.DataFrame, column: str) -> FloatArray:
    return frame[column].to_numpy(np.float64) if column in frame else np.full(len(frame), np.nan)


def _codes(frame: pd.DataFrame, columns: Sequence[str]) -> IntArray:
    """One number for each combination of values, in the order of first appearance."""
    code = np.zeros(len(frame), np.int64)
    for column in columns:
        codes, names = pd.factorize(frame[column])
        code = pd.factorize(code * max(len(names), 1) + codes)[0].astype(np.int64)
    return code


def _first_seen(frame: pd.DataFrame, place: IntArray) -> IntArray:
    """Rank of each row's environment on its machine: 0 for the one with the oldest commit there."""
    pair = _codes(frame, ("machine", "env"))
    seen = pd.DataFrame({"pair": pair, "place": place, "env": frame["env"].to_numpy()})
    firsts = seen.groupby("pair", sort=False).agg(place=("place", "min"), env=("env", "first"))
    ranked = firsts.sort_values(["place", "env"])
    rank = pd.Series(np.arange(len(ranked)), index=ranked.index)
    return rank.reindex(np.arange(len(firsts))).to_numpy(np.int64)[pair] if len(firsts) else pair


def _sorted(series: IntArray, place: IntArray, rank: IntArray) -> IntArray:
    """Indices by series, then place, then rank."""
    if not len(series):
        return series
    key = (series * (int(place.max()) + 1) + place) * (int(rank.max()) + 1) + rank
    return np.argsort(key, kind="stable").astype(np.int64)
