"""Rows of records as pages want them: in order, by series, in blocks that join, and what is carried on of them."""

from __future__ import annotations

import dataclasses
import itertools
import json
import os
import re
import signal
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from ci.records import derived
from dashboards import build, lanes, overview, sources
from dashboards.build import VIEWS
from dashboards.lanes import _NUMBERS, _TEXTS, DEFINITION, KEY, commits, natural
from dashboards.sources import made_apart
from dashboards.values import costs, count, plain
from dashboards.views import SiteInput
from dashboards.views import newest as views
from tests.dashboards import made_site, node, synthetic
from tests.dashboards.test_build import received


def compared(frame: pd.DataFrame) -> None:
    """Tidy rows by both ways, and every kernel's page read back."""
    rows = lanes.tidy(frame)
    pd.testing.assert_frame_equal(lanes.as_texts(rows), lanes.as_texts(tidy(frame)), check_dtype=False)
    for lane in made_site.lanes_of(rows):
        for _, part in lane.frame.groupby("kernel", observed=True):
            data, part = made_site.kernel_data(part), lanes.as_texts(part)
            order = list(commits(part)["commit"])
            assert [commit for commit, *_ in data["commits"]] == order
            assert [one["name"] for one in data["cases"]] == sorted({*part["case"]}, key=natural)
            assert decoded(data) == expected(part)
            found = {(data["cases"][one["case"]]["name"], one["backend"]): one["breaks"] for one in data["series"]}
            for arm, those in part.groupby(["case", "backend"], observed=True):
                assert found[arm] == breaks(those, those["commit"].map(order.index).to_numpy())


Told = dict[tuple[str, str, str], tuple[Any, ...]]
"""By case, backend and commit: the numbers with the cost, or how it ended and why."""


def decoded(data: dict[str, Any]) -> Told:
    """What the data of a kernel's page say, as a reader finds it."""
    found: Told = {}
    for series in data["series"]:
        info, count = data["cases"][series["case"]], len(data["commits"])
        samples, trials, cost = (spread(series[name], count) for name in ("samples", "trials", "cost"))
        lines = [series.get(name, [None] * count) for name in ("us", "low", "high", "ratio")]
        for i, (commit, *_) in enumerate(data["commits"]):
            key = info["name"], series["backend"], commit
            if str(i) in series["bad"]:
                status, why = series["bad"][str(i)]
                found[key] = status, data["whys"][why]
            elif series["us"][i] is not None:
                found[key] = *(line[i] for line in lines), samples[i], trials[i], info["costs"][cost[i]]
    return found


def spread(changes: list[list[Any]], count: int) -> list[Any]:
    """The values of [[first index, value], ...]."""
    held = dict(map(tuple, changes))
    first: list[Any] = [held.get(0)]
    return list(itertools.accumulate([*first, *range(1, count)], lambda before, i: held.get(i, before)))


def expected(rows: pd.DataFrame) -> Told:
    """The same by the rows."""
    found: Told = {}
    for row, cost in zip(rows.to_dict("records"), costs(rows), strict=True):
        key = row["case"], row["backend"], row["commit"]
        times = [1e6 * row[name] for name in ("seconds", "seconds_low", "seconds_high")]
        numbers = [*times, np.nan if row["baseline"] else row["baseline_ratio"]]
        if row["status"] != "ok":
            found[key] = row["status"], row["why"]
        elif np.isfinite(row["seconds"]):
            said = (pytest.approx(one, rel=1e-4) if np.isfinite(one) else None for one in numbers)
            found[key] = *said, count(row["samples"]), count(row["trials"]), cost.known()
    return found


@pytest.mark.slow
def test_a_lively_history() -> None:
    compared(synthetic.lively(60).sample(frac=1, random_state=3))


@pytest.mark.slow
def test_commits_measured_under_two_environments() -> None:
    frame = synthetic.lively(5)
    both = pd.concat([frame, frame[::2].assign(env="py3.13-torch2.14.0")])
    compared(both)
    texts = [column for column in frame if isinstance(frame[column].dtype, pd.StringDtype)]
    compared(both.astype(dict.fromkeys(texts, "category")))


STATUS = st.sampled_from(["ok", "ok", "ok", "wrong", "unsupported", "skipped"])
DIGEST = st.sampled_from(["", "a", "b"])
SECONDS = st.sampled_from([1e-3, 1.01e-3, 2e-3, np.nan, np.inf])
ROW = st.tuples(st.integers(0, 4), st.sampled_from(["triton", "gluon", "blas"]), STATUS, DIGEST, DIGEST, SECONDS)
COST = st.tuples(st.sampled_from([0.0, 1e9, np.nan]), st.sampled_from([0.0, 1e6, 2e6]))


Odd = tuple[tuple[int, str, str, str, str, float], tuple[float, float], str]


def odd_history(rows: list[Odd], commits: int = 5) -> pd.DataFrame:
    """Rows of one machine: (place of the commit, backend, status, definitions, seconds), (flops, bytes), case."""
    base = synthetic.history(commits, synthetic.CASES[:1], machines=["mi300x-8-0f3a9c1e"], backends=("triton",))
    hashes = base["commit"].drop_duplicates().tolist()
    found = base.iloc[[0] * len(rows)].reset_index(drop=True)
    found["commit"] = [hashes[row[0]] for row, _, _ in rows]
    found["date"] = [base["date"][row[0]] for row, _, _ in rows]
    for n, column in enumerate(("backend", "status", "yardstick", "case_yardstick", "seconds"), start=1):
        found[column] = [row[n] for row, _, _ in rows]
    found["baseline"] = found["backend"] == "blas"
    found["why"] = found["status"].where(found["status"] != "ok", "")
    found["baseline_ratio"] = found["seconds"] * 700
    found["flops"], found["hbm_bytes"] = [cost[0] for _, cost, _ in rows], [cost[1] for _, cost, _ in rows]
    found["case"] = [case for _, _, case in rows]
    return found


@pytest.mark.slow
@settings(max_examples=60, deadline=None)
@given(st.lists(st.tuples(ROW, COST, st.sampled_from(["m2", "m16"])), min_size=1, max_size=30))
def test_odd_histories(rows: list[Odd]) -> None:
    compared(odd_history(rows))


# ---- the parts ------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("text", "wanted"), [("a\ud800b", "a\ufffdb"), ("a\0b", "a\ufffdb"), ("é\u202e😀", "é\u202e😀")]
)
def test_what_utf8_and_html_cannot_carry_is_replaced(text: str, wanted: str) -> None:
    assert plain(text) == wanted


# Rows and breaks in the slow and obvious way: the fast way must equal it.


def tidy(frame: pd.DataFrame) -> pd.DataFrame:
    """The frame in the order of history: one row per lane, commit and arm; no nulls in texts, no infinities."""
    frame = frame.copy()
    for column in _TEXTS:
        frame[column] = frame[column].astype(object).where(frame[column].notna(), "").map(str)
    frame[_NUMBERS] = frame[_NUMBERS].astype(float).replace([np.inf, -np.inf], np.nan)
    frame["date"] = pd.to_datetime(frame["date"], utc=True)
    frame["baseline"] = frame["baseline"].fillna(False).astype(bool)
    frame = frame.sort_values(["machine", "date", "commit", "env", *KEY], kind="stable")
    return frame.drop_duplicates(["machine", "commit", "env", *KEY], keep="last").reset_index(drop=True)


def breaks(rows: pd.DataFrame, at: np.ndarray) -> list[int]:
    """Commits from which on another definition holds: of the case, or of the kernel where one side lacks notes."""
    found, before = [], None
    for i, *now in zip(at.tolist(), *(rows[column] for column in DEFINITION), strict=True):
        if now[0] == "":
            continue
        which = 1 if before and before[1] and now[1] else 0
        if before and before[which] != now[which]:
            found.append(i)
        before = now
    return found


# The history in blocks of commits says what one block of all commits would; what lasts of it says what is newest.


@pytest.fixture
def small_blocks(monkeypatch: pytest.MonkeyPatch) -> None:
    """Three commits to a block."""
    monkeypatch.setattr(sources, "BLOCK", 3)
    monkeypatch.setattr(views, "BLOCK", 3)


def joined(files: dict[str, bytes]) -> dict[tuple[str, str], Any]:
    """By lane and kernel, what the page makes of the head and the blocks."""
    found = {}
    for path in files:
        if head := re.fullmatch(r"data/([^/]+)/kernel-([^/]+)\.json", path):
            said = json.loads(files[path])
            found[head[1], said["kernel"]] = [said, [received(files, block) for block in said["blocks"]]]
    pages = node.computed("timeline.js", "Ridgeline", "input.map(one => R.joined(...one))", list(found.values()))
    return dict(zip(found, pages, strict=True))


def all_at_once(frame: pd.DataFrame) -> dict[tuple[str, str], Any]:
    """The same by one block of all commits."""
    return {
        (lane.slug, str(kernel)): made_site.kernel_data(rows)
        for lane in made_site.lanes_of(lanes.tidy(frame))
        for kernel, rows in lane.frame.groupby("kernel", sort=True, observed=True)
    }


@pytest.mark.slow
def test_blocks_join_to_what_one_block_of_all_commits_says(small_blocks: None, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(build, "VIEWS", ())
    frame = synthetic.lively(25)
    two = pd.concat([frame, frame[::2].assign(env="py3.13-torch2.14.0")])
    for one in (frame, two):
        assert joined(made_site.site_files(one)) == all_at_once(one)


@pytest.mark.slow
@settings(max_examples=8, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(st.lists(st.tuples(ROW, COST, st.sampled_from(["m2", "m16"])), min_size=20, max_size=40))
def test_odd_histories_join_too(small_blocks: None, monkeypatch: pytest.MonkeyPatch, rows: list[Odd]) -> None:
    monkeypatch.setattr(build, "VIEWS", ())
    frame = odd_history(rows)
    assert joined(made_site.site_files(frame)) == all_at_once(frame)


# ---- what lasts -----------------------------------------------------------------------------------------------------


def newest(site: SiteInput) -> dict[str, Any]:
    """All data that do not lie in blocks, as a browser gets them."""
    found: dict[str, Any] = {f"overview {name}": made_site.received(data) for name, data in site.overviews.items()}
    for view in VIEWS:
        made = dict(view.make(site))
        found |= {path: one if isinstance(one, bytes) else made_site.received(one) for path, one in made.items()}
    return found


def slowly(frame: pd.DataFrame, commits: int) -> SiteInput:
    """Of what lasts of so many commits at a time, and of what of that lasts with the next."""
    frame = lanes.tidy(frame)
    found = []
    for lane in made_site.lanes_of(frame):
        order = list(dict.fromkeys(lane.frame["commit"]))
        kept = lane.frame.head(0)
        for start in range(0, len(order), commits):
            rows = lane.frame[lane.frame["commit"].isin(order[start : start + commits])]
            kept = sources.lasting(sources.stacked([kept, rows]))
        found.append(sources.Lane(lane.machine, lane.env, kept, lane.counts))
    kept = sources.stacked([lane.frame for lane in found])
    return dataclasses.replace(made_site.site_of(frame), lanes=found, frame=kept)


@pytest.mark.slow
@pytest.mark.parametrize("commits", [1, 7, 70])
def test_what_lasts_says_what_all_rows_say(commits: int) -> None:
    frame = synthetic.lively(70)
    frame["driver"] = np.where(frame["commit"] > "8", "570.1", "560.2")
    assert newest(slowly(frame, commits)) == newest(made_site.site_of(lanes.tidy(frame)))


@pytest.mark.slow
@settings(max_examples=20, deadline=None)
@given(st.lists(st.tuples(ROW, COST, st.sampled_from(["m2", "m16"])), min_size=1, max_size=30), st.integers(1, 4))
def test_what_lasts_of_odd_histories(rows: list[Any], commits: int) -> None:
    frame = odd_history(rows)
    assert newest(slowly(frame, commits)) == newest(made_site.site_of(lanes.tidy(frame)))


def test_what_lasts_does_not_grow_with_the_history() -> None:
    frame = lanes.tidy(synthetic.history(300, synthetic.CASES[:1], machines=["mi300x-8-0f3a9c1e"]))
    assert len(sources.lasting(frame)) < 2 * overview.SPARK_POINTS * 3 + 300  # three series, and a row of each commit


def test_what_lasts_is_read_as_it_was_written(tmp_path: Path) -> None:
    frame = lanes.tidy(derived.derive(synthetic.large(6, 4)))
    counts = sources.counts_of(frame)
    frame.loc[::4, "seconds"] = np.nan
    sources.save(tmp_path / "a" / "lane.arrow", "two", frame, counts)
    assert sources.load(tmp_path / "a" / "lane.arrow", ["", "one", "other"]) == (0, None, {})
    count, rows, told = sources.load(tmp_path / "a" / "lane.arrow", ["", "one", "two"])
    assert (count, told) == (2, counts)
    assert rows is not None
    assert not rows["seconds"].to_numpy().flags.writeable, "it is the file's own memory"
    pd.testing.assert_frame_equal(rows, frame)


# What is made in a process of its own is what would be made here, whatever becomes of that process.


HERE = os.getpid()


def test_a_value_is_made_once_and_elsewhere() -> None:
    made = made_apart(lambda: (os.getpid(), object()))
    assert made()[0] != HERE
    assert made() is made()


def test_on_one_core_it_is_made_here_when_it_is_asked_for(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "sched_getaffinity", lambda pid: {0})
    assert made_apart(os.getpid)() == HERE


def test_what_making_it_raised_is_raised_where_it_is_asked_for() -> None:
    def fails() -> None:
        raise build.SiteError("no site; give another folder")

    made = made_apart(fails)
    with pytest.raises(build.SiteError, match="give another folder"):
        made()


def test_a_killed_process_only_costs_time() -> None:
    def killed() -> int:
        if os.getpid() != HERE:
            os.kill(os.getpid(), signal.SIGKILL)
        return os.getpid()

    assert made_apart(killed)() == HERE


@pytest.mark.slow
def test_a_site_with_its_history_made_apart_is_the_same_site_with_one_more_commit_too(tmp_path: Path) -> None:
    """That of a folder whose first commits were there before, built beside; and that of all commits, built alone."""
    frame = synthetic.large(6, 70)
    frame.loc[(frame["backend"] == "triton") & (frame["date"] > frame["date"].iloc[240]), "seconds"] *= 1.3
    last = frame["commit"] == frame["commit"].iloc[-1]
    results = {name: tmp_path / name / "results" for name in ("grown", "whole")}
    synthetic.add(frame[~last].reset_index(drop=True), results["grown"])
    build.build(results["grown"], tmp_path / "site", meanwhile=made_apart)
    synthetic.add(frame[last].reset_index(drop=True), results["grown"])
    synthetic.add(frame, results["whole"])
    found = [files(build.build(results["grown"], tmp_path / "site", meanwhile=made_apart))]
    found.append(files(build.build(results["whole"], tmp_path / "alone")))
    assert found[0] == found[1]
    assert b"first_bad" in found[0]["data/views/events.js"], "there is an event to show"


def files(site: Path) -> dict[str, bytes]:
    return {path.relative_to(site).as_posix(): path.read_bytes() for path in site.rglob("*") if path.is_file()}


# Which numbers stand in one line, in which order, and where the line is broken.


MI300X = "mi300x-8-0f3a9c1e"


@given(st.text(max_size=60))
def test_a_slug_is_a_plain_file_name(name: str) -> None:
    slug = lanes.slug(name)
    assert slug
    assert set(slug) <= set("abcdefghijklmnopqrstuvwxyz0123456789_.-")
    assert not slug.startswith(".")
    assert len(slug) <= 80


def test_slugs_of_different_names_differ() -> None:
    names = ["a/b", "a b", "A b", "a-b", "../a-b", "", "é", "ë", "GEMM", "gemm"]
    assert len({lanes.slug(name) for name in names}) == len(names)
    assert lanes.slug("gemm_all_scatter") == "gemm_all_scatter"


def test_natural_order() -> None:
    assert sorted(["m512", "m64", "m1024_k2", "m1024_k10", "a"], key=lanes.natural) == [
        "a", "m64", "m512", "m1024_k2", "m1024_k10"]  # fmt: skip


def test_an_environment_that_changes_once_stays_in_one_lane() -> None:
    found = made_site.lanes_of(lanes.tidy(synthetic.lively(30)))
    assert [lane.env for lane in found] == [None, None]


def test_commits_measured_under_two_environments_make_two_lanes() -> None:
    frame = synthetic.one_case()
    both = pd.concat([frame, frame.assign(env="py3.12-torch2.13.0-triton3.8.0")])
    found = made_site.lanes_of(lanes.tidy(both))
    assert [lane.env for lane in found] == ["py3.12-torch2.11.0-triton3.6.0", "py3.12-torch2.13.0-triton3.8.0"]
    assert len({lane.slug for lane in found}) == 2


def test_the_machine_with_the_newest_commit_comes_first() -> None:
    frame = synthetic.history(5)
    newest = frame["commit"].drop_duplicates().iloc[-1]
    frame = frame[~((frame["machine"] == "h200x2-1a2b3c4d") & (frame["commit"] == newest))]
    assert made_site.lanes_of(lanes.tidy(frame))[0].machine == MI300X


@pytest.mark.parametrize(
    ("kernel", "case", "breaks"),
    [
        ("aabb", ["", "", "", ""], [2]),
        ("aaaa", ["x", "x", "x", "x"], []),
        ("abab", ["x", "x", "x", "x"], []),  # the definition of the case decides
        ("aaaa", ["x", "y", "y", "z"], [1, 3]),
        ("aaaa", ["x", "", "", "x"], []),  # a record without notes knows only that of the kernel
        ("aabb", ["x", "", "", "x"], [2]),
    ],
)
def test_a_new_definition_breaks_the_line(kernel: str, case: list[str], breaks: list[int]) -> None:
    frame = synthetic.one_case(4, yardstick=list(kernel), case_yardstick=case)
    assert made_site.kernel_data(frame)["series"][1]["breaks"] == breaks
