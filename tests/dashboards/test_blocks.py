"""The history in blocks of commits says what one block of all commits would; what lasts of it says what is newest."""

from __future__ import annotations

import json
import re
import shutil
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ci.records import derived, store
from dashboards import build, lanes, overview, sources
from dashboards.views import SiteInput, compare
from dashboards.views.listed import VIEWS
from tests.dashboards import large_records, made_site, node, shown, synthetic
from tests.dashboards.test_build import received, site_of
from tests.dashboards.test_columns import COST, ROW, odd_history
from tests.dashboards.test_draft import whole


@pytest.fixture
def small_blocks(monkeypatch: pytest.MonkeyPatch) -> None:
    """Three commits to a block."""
    monkeypatch.setattr(sources, "BLOCK", 3)
    monkeypatch.setattr(compare, "BLOCK", 3)


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
        (lane.slug, str(kernel)): shown.kernel_data(rows)
        for lane in sources.lanes_of(lanes.tidy(frame))
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
@pytest.mark.usefixtures("small_blocks")
def test_odd_histories_join_too(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(build, "VIEWS", ())
    rng = np.random.default_rng(3)
    for _ in range(8):
        frame = odd_history([_odd_row(rng) for _ in range(60)], commits=12)
        assert joined(made_site.site_files(frame)) == all_at_once(frame)


def _odd_row(rng: np.random.Generator) -> Any:
    def one(*values: Any) -> Any:
        return values[rng.integers(len(values))]

    status = one("ok", "ok", "ok", "wrong", "unsupported")
    row = (int(rng.integers(12)), one("triton", "gluon", "blas"), status, one("", "a", "b"), one("", "a", "b"))
    cost = (one(0.0, 1e9, np.nan), one(0.0, 1e6, 2e6))
    return (*row, one(1e-3, 1.01e-3, 2e-3, np.nan)), cost, one("m2", "m16")


# ---- what lasts -----------------------------------------------------------------------------------------------------


def newest(site: SiteInput) -> dict[str, Any]:
    """All data that do not lie in blocks, as a browser gets them."""
    found: dict[str, Any] = {f"overview {name}": shown.received(data) for name, data in site.overviews.items()}
    for view in VIEWS:
        found |= {path: shown.received(value) for path, value in view.data(site)} | dict(view.files(site))
    return found


def slowly(frame: pd.DataFrame, commits: int) -> SiteInput:
    """Of what lasts of so many commits at a time, and of what of that lasts with the next."""
    frame = lanes.tidy(frame)
    found = []
    for lane in sources.lanes_of(frame):
        order = list(dict.fromkeys(lane.frame["commit"]))
        kept = lane.frame.head(0)
        for start in range(0, len(order), commits):
            rows = lane.frame[lane.frame["commit"].isin(order[start : start + commits])]
            kept = sources.lasting(sources.stacked([kept, rows]))
        found.append(sources.Lane(lane.machine, lane.env, kept, lane.counts))
    return SiteInput(sources.stacked([lane.frame for lane in found]), known=tuple(found), peers=lambda: frame)


@pytest.mark.slow
@pytest.mark.parametrize("commits", [1, 7, 70])
def test_what_lasts_says_what_all_rows_say(commits: int) -> None:
    frame = synthetic.lively(70)
    frame["driver"] = np.where(frame["commit"] > "8", "570.1", "560.2")
    assert newest(slowly(frame, commits)) == newest(SiteInput(lanes.tidy(frame)))


@pytest.mark.slow
@settings(max_examples=20, deadline=None)
@given(st.lists(st.tuples(ROW, COST, st.sampled_from(["m2", "m16"])), min_size=1, max_size=30), st.integers(1, 4))
def test_what_lasts_of_odd_histories(rows: list[Any], commits: int) -> None:
    frame = odd_history(rows)
    assert newest(slowly(frame, commits)) == newest(SiteInput(lanes.tidy(frame)))


def test_what_lasts_does_not_grow_with_the_history() -> None:
    frame = lanes.tidy(synthetic.history(300, synthetic.CASES[:1], machines=["mi300x-8-0f3a9c1e"]))
    assert len(sources.lasting(frame)) < 2 * overview.SPARK_POINTS * 3 + 300  # three series, and a row of each commit


# ---- from records ---------------------------------------------------------------------------------------------------


@pytest.fixture
def growing(tmp_path: Path) -> Path:
    """A folder of records of eight commits."""
    large_records.add(synthetic.large(6, 8), tmp_path / "results")
    return tmp_path


def one_more(results: Path, commits: int) -> None:
    frame = synthetic.large(6, commits)
    large_records.add(frame[frame["commit"] == frame["commit"].iloc[-1]].reset_index(drop=True), results)


@pytest.mark.slow
@pytest.mark.usefixtures("small_blocks")
def test_a_site_that_grew_has_the_bytes_of_one_built_afresh(growing: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    results, made = growing / "results", []
    make = build.kernel_block
    monkeypatch.setattr(build, "kernel_block", lambda rows, dated: made.append(len(rows["at"])) or make(rows, dated))
    for commits in range(9, 12):
        build.build(results, growing / "site")
        one_more(results, commits)
        made.clear()
        build.build(results, growing / "site")
        assert made == [6 * ((commits - 1) % 3 + 1)], "the newest block alone"
        shutil.rmtree(results / build.PAST)
        build.build(results, growing / f"afresh-{commits}")
        assert whole(growing / "site") == whole(growing / f"afresh-{commits}")
    assert site_of(whole(growing / "site"))["problems"] == []


@pytest.mark.usefixtures("small_blocks")
def test_the_rows_that_pages_show_are_those_of_the_records(growing: Path) -> None:
    files = whole(build.build(growing / "results", growing / "site"))
    assert joined(files) == all_at_once(derived.derive(store.load(growing / "results")))


@pytest.mark.slow
@pytest.mark.usefixtures("small_blocks")
@pytest.mark.parametrize("damage", [b"", b"ARROW1\0\0", None])
def test_a_file_of_the_past_that_cannot_be_used_only_costs_time(growing: Path, damage: bytes | None) -> None:
    results = growing / "results"
    build.build(results, growing / "site")
    good = whole(growing / "site")
    kept = list((results / build.PAST).iterdir())
    assert len(kept) == 2, "of the pages and of the history"
    for file in kept:
        file.write_bytes(file.read_bytes()[:-100] if damage is None else damage)
    build.build(results, growing / "site")
    assert whole(growing / "site") == good


@pytest.mark.slow
@pytest.mark.usefixtures("small_blocks")
def test_a_record_that_changed_long_ago_changes_its_block(growing: Path) -> None:
    results = growing / "results"
    build.build(results, growing / "site")
    before = whole(growing / "site")
    old = synthetic.large(6, 8)
    old = old[old["commit"] == old["commit"].iloc[0]].reset_index(drop=True).assign(seconds=1e-3)
    name = next((results / "mi300x-8-0f3a9c1e").glob("00000000-*.json"))
    name.unlink()
    build.build(results, growing / "site")
    assert whole(growing / "site") != before
    large_records.add(old, results)
    build.build(results, growing / "site")
    shutil.rmtree(results / build.PAST)
    assert whole(growing / "site") == whole(build.build(results, growing / "afresh"))
    first = {path for path in before if "/1/" in path}
    assert all(whole(growing / "site")[path] == before[path] for path in first), "the other blocks are as they were"


def test_what_lasts_is_read_as_it_was_written(tmp_path: Path) -> None:
    frame = lanes.tidy(derived.derive(synthetic.large(6, 4)))
    counts = sources.counts_of(frame)
    sources.save(tmp_path / "a" / "lane.arrow", "two", frame, counts)
    assert sources.load(tmp_path / "a" / "lane.arrow", ["", "one", "other"]) == (0, None, {})
    count, rows, told = sources.load(tmp_path / "a" / "lane.arrow", ["", "one", "two"])
    assert (count, told) == (2, counts)
    pd.testing.assert_frame_equal(rows, frame)
