"""Series that are measured no more: their case was removed or renamed, or their backend was."""

from __future__ import annotations

import dataclasses
import functools
from collections.abc import Mapping, Sequence

import numpy as np

from ci.history.steps.series import KEY, Codes, IntArray, Tracks, coded
from ci.history.steps.words import SeriesKey


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
        there = np.ones(len(self._rows), bool)
        for name, text in zip(KEY, key, strict=True):
            codes, names = self._columns[name]
            there &= np.isin(codes, [number for number, one in enumerate(names) if str(one) == text])
        codes, names = self._columns["commit"]
        commits = (str(names[code]) for code in np.unique(codes[there]).tolist())
        return np.array([self.place[commit] for commit in commits if commit in self.place], np.int64)

    @functools.cached_property
    def _rows(self) -> IntArray:
        """The rows of the frame without a time."""
        seconds = self.tracks.frame["seconds"].to_numpy(np.float64)
        return np.flatnonzero(~((seconds > 0) & (seconds < np.inf)))

    @functools.cached_property
    def _columns(self) -> Mapping[str, tuple[Codes, list[object]]]:
        """Of those rows: the series and commit, as numbers and what they stand for."""
        columns = {name: coded(self.tracks.frame[name].iloc[self._rows]) for name in (*KEY, "commit")}
        return {name: (codes, list(names)) for name, (codes, names) in columns.items()}


def _first_without(operator: IntArray, mine: IntArray) -> int:
    """The first of the operator's places after the last of a series', if more of them have passed than ever before."""
    rank = np.searchsorted(operator, mine)
    missed = int(np.diff(rank).max(initial=1)) - 1
    after = operator[operator > mine[-1]]
    return int(after[0]) if len(after) > missed else -1
