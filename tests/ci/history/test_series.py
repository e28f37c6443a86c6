"""The frame as arrays, against a slow reading row by row; and the path of a machine."""

from __future__ import annotations

import random

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ci.history import series
from ci.history.types import CommitFacts, CommitOrder, SeriesKey, read_commits
from tests.ci.history.made import Line, commit, frame, pair
from tests.kit import Repo

row = st.tuples(
    st.sampled_from("ab"),  # machine
    st.sampled_from(["gemm", "bias"]),
    st.sampled_from(["triton", "blas"]),
    st.integers(0, 5),  # commit
    st.sampled_from(["e1", "e2"]),
    st.sampled_from(["1", "2"]),  # definition
    st.sampled_from([1e-3, 2e-3, 3e-3, float("nan")]),
)


def slowly(whole, place):
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
        stretch = []
        for where, (_, index) in sorted(chosen.items()):
            if stretch and whole.loc[index, "yardstick"] != whole.loc[stretch[-1][1], "yardstick"]:
                found.append((SeriesKey(*key), stretch))
                stretch = []
            stretch.append((where, index))
        found.append((SeriesKey(*key), stretch))
    return [_judged(whole, key, stretch) for key, stretch in found]


def _judged(whole, key, stretch):
    rows = [whole.loc[index] for _, index in stretch]
    ratios = [np.nan if one.baseline else 1 / one.baseline_ratio for one in rows]
    by_ratio = sum(np.isfinite(ratios)) > len(rows) / 2
    values = ratios if by_ratio else [one.seconds for one in rows]
    kept = [(where, value) for (where, _), value in zip(stretch, values, strict=True) if np.isfinite(value)]
    return key, [where for where, _ in kept], [value for _, value in kept], by_ratio


@pytest.mark.slow
@settings(max_examples=60, deadline=None)
@given(st.lists(row, min_size=1, max_size=40, unique_by=lambda one: one[:5]))
def test_arrays_are_what_loops_find(rows):
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


def test_the_paired_ratio_counts_where_there_is_one():
    whole = frame(pair(1, 6))
    whole["paired_ratio"], whole["paired_with"] = np.nan, ""
    ours = whole["backend"] == "triton"
    whole.loc[ours & (whole["commit"] != commit(0)), ["paired_ratio", "paired_with"]] = [0.5, "other"]
    tracks = series.tracks(whole, {commit(number): number for number in range(6)})
    track = next(n for n, key in enumerate(tracks.keys) if key.backend == "triton")
    assert tracks.values[tracks.span(track)][1:].tolist() == [2.0] * 5
    assert tracks.values[tracks.span(track)][0] == pytest.approx(1, abs=0.02)
    assert tracks.vendor(track) == "other"


def test_commits_without_a_place_are_no_points():
    tracks = series.tracks(frame([Line("gemm", "c", [1e-3] * 4)]), {commit(1): 0, commit(3): 1})
    assert tracks.place.tolist() == [0, 1]


# Commits from git: who, what, which pull request, in which order, and how many lie between.


@pytest.fixture
def repo(tmp_path):
    return Repo(tmp_path)


@pytest.mark.parametrize(
    ("subject", "number"),
    [
        ("Faster tiles (#123)", 123),
        ("Merge pull request #77 from a/b", 77),
        ("Revert (#5) for now", None),
        ("fixes #9", None),
        ("", None),
    ],
)
def test_author_subject_and_pull_request(repo, subject, number):
    name = repo.commit(subject, author="Ä. <b>Author</b>")
    (facts,) = read_commits(repo.folder).values()
    assert (facts.hash, facts.subject, facts.pull_request) == (name, subject, number)
    assert facts.date_ms == 1_793_534_400_000


def test_hostile_subjects_stay_in_their_commit(repo):
    subjects = ["a\x1eb", "\u202e%H%x00", "x" * 5000, "", "last"]
    names = [repo.commit(subject) for subject in subjects]
    found = read_commits(repo.folder)
    assert list(found) == names
    assert [one.subject[:9] for one in found.values()] == [subject[:9] for subject in subjects]
    assert max(len(one.subject) for one in found.values()) == 300


def test_one_call_knows_branches_and_skips_what_git_does_not_know(repo):
    first = repo.commit("first", 1)
    repo.git("checkout", "-q", "-b", "side")
    side = repo.commit("side", 2)
    repo.git("checkout", "-q", "main")
    main = repo.commit("main", 3)
    assert list(read_commits(repo.folder)) == [first, main]
    assert list(read_commits(repo.folder, [side, "f" * 40, "nonsense", "--all"])) == [first, side, main]


def test_no_repository_no_facts(tmp_path):
    assert read_commits(tmp_path) == {}
    assert read_commits(tmp_path / "nowhere") == {}
    Repo(tmp_path)
    assert read_commits(tmp_path) == {}


def test_between_is_what_git_counts(repo):
    random.seed(3)
    for number in range(12):
        repo.commit(f"main {number}", 1 + number)
        if number % 4 == 1:
            repo.git("checkout", "-q", "-b", f"side{number}", "HEAD~1" if number > 1 else "HEAD")
            repo.commit(f"side {number}", 1 + number)
            repo.git("checkout", "-q", "main")
            repo.git("merge", "-q", "--no-ff", "-m", f"Merge {number}", f"side{number}")
    known = read_commits(repo.folder)
    order = CommitOrder({}, known)
    for _ in range(30):
        good, bad = random.sample(list(known), 2)
        counted = int(repo.git("rev-list", "--count", f"{good}..{bad}"))
        assert order.between(good, bad) == max(counted - 1, 0)


def test_the_order_is_gits_before_dates():
    known = {name: CommitFacts(name, date) for name, date in (("a", 10), ("b", 5), ("c", 30))}  # b: a clock set back
    order = CommitOrder({"c": 1, "b": 2, "a": 3, "x": 12, "y": 40, "z": 0}, known)
    assert order.names == ("z", "a", "b", "x", "c", "y")
    assert order.unknown == ("z", "x", "y")
    assert order.facts("x") == CommitFacts("x", 12)
    assert order.between("a", "y") == 3
    assert CommitOrder({"q": 2, "p": 1}, {}).names == ("p", "q")
    assert CommitOrder({"q": 2, "p": 1}, {}).unknown == ()
