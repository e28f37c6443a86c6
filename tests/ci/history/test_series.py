"""The frame as arrays, against a slow reading row by row; and the path of a machine."""

from __future__ import annotations

import numpy as np
import pandas as pd
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ci.history import series
from ci.history.types import SeriesKey
from tests.ci.history.made import Line, commit, frame, pair

row = st.tuples(
    st.sampled_from("ab"),  # machine
    st.sampled_from(["gemm", "bias"]),
    st.sampled_from(["triton", "blas"]),
    st.integers(0, 5),  # commit
    st.sampled_from(["e1", "e2"]),
    st.sampled_from(["1", "2"]),  # definition
    st.sampled_from([1e-3, 2e-3, 3e-3, float("nan")]),
)


def slowly(whole: pd.DataFrame, place: dict[str, int]) -> list[tuple[SeriesKey, list[int], list[float], bool]]:
    """Tracks by loops: key, places, values, whether they are ratios."""
    timed = whole[whole["seconds"] > 0]
    first = timed.assign(place=timed["commit"].map(place)).groupby(["machine", "env"])["place"].min()
    found = []
    for key, rows in timed.groupby(list(series.KEY)):
        chosen = {}
        for index, one in rows.iterrows():
            rank = (first[one.machine, one.env], one.env)
            where = place[one.commit]
            if where not in chosen or rank < chosen[where][0]:
                chosen[where] = (rank, index)
        stretch: list[tuple[int, int]] = []
        for where, (_, index) in sorted(chosen.items()):
            if stretch and whole.loc[index, "yardstick"] != whole.loc[stretch[-1][1], "yardstick"]:
                found.append((SeriesKey(*key), stretch))
                stretch = []
            stretch.append((where, index))
        found.append((SeriesKey(*key), stretch))
    return [_judged(whole, key, stretch) for key, stretch in found]


def _judged(whole: pd.DataFrame, key: SeriesKey, stretch: list[tuple[int, int]]):
    rows = [whole.loc[index] for _, index in stretch]
    ratios = [np.nan if one.baseline else 1 / one.baseline_ratio for one in rows]
    by_ratio = sum(np.isfinite(ratios)) > len(rows) / 2
    values = ratios if by_ratio else [one.seconds for one in rows]
    kept = [(where, value) for (where, _), value in zip(stretch, values, strict=True) if np.isfinite(value)]
    return key, [where for where, _ in kept], [value for _, value in kept], by_ratio


@pytest.mark.slow
@settings(max_examples=60, deadline=None)
@given(st.lists(row, min_size=1, max_size=40, unique_by=lambda one: one[:5]))
def test_arrays_are_what_loops_find(rows) -> None:
    lines = [
        Line(kernel, "c", [seconds], backend, machine, backend == "blas", [at], env, version)
        for machine, kernel, backend, at, env, version, seconds in rows
    ]
    whole = frame(lines)
    place = {commit(number): number for number in range(6)}
    tracks = series.tracks(whole, place)
    found = [
        (
            key,
            tracks.place[tracks.span(n)].tolist(),
            pytest.approx(tracks.values[tracks.span(n)].tolist()),
            bool(tracks.by_ratio[n]),
        )
        for n, key in enumerate(tracks.keys)
    ]
    expected = slowly(whole, place)
    assert sorted(expected, key=lambda one: (one[0], one[1][:1])) == sorted(found, key=lambda one: (one[0], one[1][:1]))


def test_the_paired_ratio_counts_where_there_is_one() -> None:
    whole = frame(pair(1, 6))
    whole["paired_ratio"], whole["paired_with"] = np.nan, ""
    ours = whole["backend"] == "triton"
    whole.loc[ours & (whole["commit"] != commit(0)), ["paired_ratio", "paired_with"]] = [0.5, "other"]
    tracks = series.tracks(whole, {commit(number): number for number in range(6)})
    track = next(n for n, key in enumerate(tracks.keys) if key.backend == "triton")
    assert tracks.values[tracks.span(track)][1:].tolist() == [2.0] * 5
    assert tracks.values[tracks.span(track)][0] == pytest.approx(1, abs=0.02)
    assert tracks.vendor(track) == "other"


def test_commits_without_a_place_are_no_points() -> None:
    tracks = series.tracks(frame([Line("gemm", "c", [1e-3] * 4)]), {commit(1): 0, commit(3): 1})
    assert tracks.place.tolist() == [0, 1]


def test_where_an_operator_was_measured_and_how_long_a_series_was_missing() -> None:
    lines = [*pair(1, 10), *pair(5, 4, case="seldom", at=(0, 2, 3, 8))]
    tracks = series.tracks(frame(lines), {commit(number): number for number in range(10)})
    assert tracks.operator_places("h200x1-00000001", "gemm").tolist() == list(range(10))
    gaps = {key.case: tracks.longest_gap(n) for n, key in enumerate(tracks.keys) if key.backend == "triton"}
    assert gaps == {"small": 0, "seldom": 4}
