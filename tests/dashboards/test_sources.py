"""Rows of records as pages want them: in order, by series, in blocks that join, and what is carried on of them."""

from __future__ import annotations

import dataclasses
import json
import os
import re
import shutil
import signal
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from ci.history import health as apart
from ci.records import derived, store
from dashboards import build, history, lanes, overview, sources
from dashboards.history import made_apart
from dashboards.lanes import _NUMBERS, _TEXTS, DEFINITION, KEY, commits, natural, ranks, stretches
from dashboards.sources import Lane
from dashboards.values import CostRow, costs, count, different, headline, minute, plain, significant
from dashboards.views import SiteInput, compare
from dashboards.views.listed import VIEWS
from tests.dashboards import made_site, node, synthetic
from tests.dashboards import made_site as shown
from tests.dashboards.made_site import kernel_data
from tests.dashboards.test_build import received, site_of, whole


def compared(frame: pd.DataFrame) -> None:
    """Tidy rows, lanes and every kernel's page, by both ways."""
    fast, slow = lanes.tidy(frame), tidy(frame)
    pd.testing.assert_frame_equal(fast, slow, check_dtype=False, check_categorical=False)
    for lane, other in zip(sources.lanes_of(fast), slow_lanes(slow), strict=True):
        assert (lane.machine, lane.env) == (other.machine, other.env)
        parts = [part for _, part in other.frame.groupby("kernel", sort=True, observed=True)]
        for rows in parts:
            made = shown.kernel_data(rows)
            del made["rows"]
            assert made == shown.received(slow_kernel_data(rows))


@pytest.mark.slow
def test_a_lively_history() -> None:
    compared(synthetic.lively(60))


@pytest.mark.slow
def test_any_order_of_rows() -> None:
    compared(synthetic.lively(8).sample(frac=1, random_state=3))


@pytest.mark.slow
def test_commits_measured_under_two_environments() -> None:
    frame = synthetic.lively(5)
    compared(pd.concat([frame, frame[::2].assign(env="py3.13-torch2.14.0")]))


def test_categories_instead_of_texts() -> None:
    frame = synthetic.lively(5)
    texts = [column for column in frame if isinstance(frame[column].dtype, pd.StringDtype)]
    whole = lanes.tidy(frame.astype(dict.fromkeys(texts, "category")))
    assert isinstance(whole["case"].dtype, pd.CategoricalDtype)
    pd.testing.assert_frame_equal(whole.astype(frame[texts].dtypes.to_dict()), lanes.tidy(frame), check_dtype=False)
    for fast, slow in zip(sources.lanes_of(whole), sources.lanes_of(lanes.tidy(frame)), strict=True):
        assert shown.overview_data(fast.frame) == shown.overview_data(slow.frame)


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


def test_ranks_order_as_tuples_even_where_their_product_overflows() -> None:
    rng = np.random.default_rng(5)
    keys = [rng.integers(0, 2**40, 200) // 2**39 * 2**39 for _ in range(3)] + [rng.integers(0, 3, 200)]
    order = np.argsort(ranks([(key, 2**40) for key in keys]), kind="stable").tolist()
    assert order == sorted(range(200), key=lambda i: tuple(key[i] for key in keys))


def test_stretches_are_neighbours_that_belong_together() -> None:
    first, last = stretches(np.array([1, 1, 2, 2, 2]), np.array([0, 0, 0, 1, 1]))
    assert (first.tolist(), last.tolist()) == ([0, 2, 3], [1, 2, 4])
    assert [len(ends) for ends in stretches(np.zeros(0, np.int64))] == [0, 0]


# The data of the pages made in the slow and obvious way, a slice of pandas per series: the fast way must equal it.


@dataclasses.dataclass(frozen=True)
class _Index:
    """Numbers that stand for texts and costs in the data; costs: by case."""

    commits: dict[str, int]
    whys: dict[str, int]
    cases: dict[str, int]
    costs: dict[str, dict[CostRow, int]]


def slow_kernel_data(frame: pd.DataFrame) -> dict[str, Any]:
    """All that the page of a kernel draws; static/kernel.js reads it.

    {"kernel", "commits": [[hash, "YYYY-MM-DD HH:MM", env index]], "envs": [...], "whys": [...],
     "cases": [{"name", "tier", "dtype", "world", "rate", "costs": [{field of CostRow: value}], newest last}],
     "series": [{"case", "backend", "baseline", "us", "low", "high", "ratio", "samples", "trials", "cost", "breaks",
                 "bad"}]}
    """
    order = commits(frame)
    envs = sorted(order["env"].unique())
    whys = sorted({*frame.loc[frame["status"] != "ok", "why"]})
    by_case = sorted(((str(name), rows) for name, rows in frame.groupby("case")), key=lambda pair: natural(pair[0]))
    by_arm = frame.groupby(["case", "backend"], sort=True)
    index = _Index(
        _numbered(order["commit"]),
        _numbered(whys),
        _numbered(name for name, _ in by_case),
        {name: _numbered(different(costs(rows))) for name, rows in by_case},
    )
    return {
        "kernel": str(frame["kernel"].iloc[0]),
        "envs": envs,
        "commits": [[c, minute(d), envs.index(e)] for c, d, e in order.itertuples(index=False)],
        "whys": whys,
        "cases": [_case(name, rows, index) for name, rows in by_case],
        "series": [_series(rows, index) for _, rows in by_arm],
    }


def _numbered(items: Any) -> dict[Any, int]:
    return {item: i for i, item in enumerate(items)}


def _case(name: str, rows: pd.DataFrame, index: _Index) -> dict[str, Any]:
    newest = rows.iloc[-1]
    return {
        "name": name,
        "tier": newest["tier"],
        "dtype": newest["dtype"],
        "world": count(newest["world"]),
        "rate": headline(rows),
        "costs": [_plain(cost) for cost in index.costs[name]],
    }


def _plain(cost: CostRow) -> dict[str, float]:
    """What is known of a cost, exactly; whole numbers without ".0"."""
    known = {name: value for name, value in cost._asdict().items() if value}
    return {name: int(value) if value.is_integer() else value for name, value in known.items()}


def _series(rows: pd.DataFrame, index: _Index) -> dict[str, Any]:
    newest, at = rows.iloc[-1], rows["commit"].map(index.commits).to_numpy()
    ok = (rows["status"] == "ok").to_numpy()
    good, bad = rows[ok], rows[~ok]

    def line(column: str, scale: float = 1.0, digits: int = 6) -> list[float | None]:
        values = np.full(len(index.commits), np.nan)
        values[at[ok]] = good[column].to_numpy(float) * scale
        return significant(values, digits)

    data = {
        "case": index.cases[newest["case"]],
        "backend": newest["backend"],
        "baseline": bool(newest["baseline"]),
        "us": line("seconds", 1e6),
        "low": line("seconds_low", 1e6),
        "high": line("seconds_high", 1e6),
        "samples": _changes(good["samples"], at[ok]),
        "trials": _changes(good["trials"], at[ok]),
        "cost": _changes([index.costs[newest["case"]][cost] for cost in costs(good)], at[ok]),
        "breaks": breaks(rows, at),
        "bad": {str(i): [s, index.whys[w]] for i, s, w in zip(at[~ok], bad["status"], bad["why"], strict=True)},
    }
    return data if data["baseline"] else data | {"ratio": line("baseline_ratio", digits=5)}


def _changes(values: Any, at: np.ndarray) -> list[list[int | None]]:
    """[[first index, value], ...]: a column of whole numbers that hardly changes, as its changes."""
    pairs = [[int(i), count(value)] for i, value in zip(at, values, strict=True)]
    return [pair for n, pair in enumerate(pairs) if n == 0 or pair[1] != pairs[n - 1][1]]


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


def slow_lanes(frame: pd.DataFrame) -> list[Lane]:
    """The lanes of a tidy frame, the one with the longest history first (then by newest commit, then by name)."""
    by_machine = frame.groupby("machine", sort=True)
    found = [Lane(str(machine), env, part) for machine, rows in by_machine for env, part in _by_environment(rows)]

    def order(lane: Lane) -> tuple[Any, ...]:
        return -len(set(lane.frame["commit"])), -lane.frame["date"].max().value, lane.machine, lane.env or ""

    return sorted(found, key=order)


def _by_environment(rows: pd.DataFrame) -> Iterable[tuple[str | None, pd.DataFrame]]:
    """All rows if a machine changes its environment now and then, one part per environment if commits have several."""
    per_commit = rows.groupby("commit")["env"].nunique()
    if per_commit.max() <= 1:
        return [(None, rows)]
    return [(str(env), part) for env, part in rows.groupby("env", sort=True)]


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
@settings(max_examples=8, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(st.lists(st.tuples(ROW, COST, st.sampled_from(["m2", "m16"])), min_size=20, max_size=40))
def test_odd_histories_join_too(small_blocks: None, monkeypatch: pytest.MonkeyPatch, rows: list[Odd]) -> None:
    monkeypatch.setattr(build, "VIEWS", ())
    frame = odd_history(rows)
    assert joined(made_site.site_files(frame)) == all_at_once(frame)


# ---- what lasts -----------------------------------------------------------------------------------------------------


def newest(site: SiteInput) -> dict[str, Any]:
    """All data that do not lie in blocks, as a browser gets them."""
    found: dict[str, Any] = {f"overview {name}": shown.received(data) for name, data in site.overviews.items()}
    for view in VIEWS:
        made = dict(view.make(site))
        found |= {path: one if isinstance(one, bytes) else shown.received(one) for path, one in made.items()}
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
    synthetic.add(synthetic.large(6, 8), tmp_path / "results")
    return tmp_path


def one_more(results: Path, commits: int) -> None:
    frame = synthetic.large(6, commits)
    synthetic.add(frame[frame["commit"] == frame["commit"].iloc[-1]].reset_index(drop=True), results)


@pytest.mark.slow
@pytest.mark.usefixtures("small_blocks")
def test_a_site_that_grew_has_the_bytes_of_one_built_afresh(growing: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    results, made = growing / "results", []
    make = build.kernel_block
    monkeypatch.setattr(build, "kernel_block", lambda rows, dated: made.append(len(rows["at"])) or make(rows, dated))
    for number in range(9, 12):
        build.build(results, growing / "site")
        one_more(results, number)
        made.clear()
        build.build(results, growing / "site")
        assert made == [6 * ((number - 1) % 3 + 1)], "the newest block alone"
        shutil.rmtree(results / build.PAST)
        build.build(results, growing / f"afresh-{number}")
        assert whole(growing / "site") == whole(growing / f"afresh-{number}")
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
    synthetic.add(old, results)
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


# The history that the site shows is that of all rows with all columns, whichever were kept.


ROOT = Path(__file__).parents[2]


def kept_rows(results: Path) -> pd.DataFrame:
    """As a build reads them."""
    found, _, kept = build.read(results)
    return sources.history_rows([one for one in found if isinstance(one, sources.ReadRows)], "", kept)


def all_rows(results: Path) -> pd.DataFrame:
    frame = derived.derive(store.load(results))
    frame.attrs.clear()
    return frame


@pytest.fixture(scope="module")
def recorded(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The records of this repository."""
    around = tmp_path_factory.mktemp("recorded")
    hidden = shutil.ignore_patterns(".cache", "samples")
    return Path(shutil.copytree(ROOT / "results", around / "results", ignore=hidden))


@pytest.mark.slow
def test_the_history_of_the_recorded_data_needs_no_other_columns(recorded: Path) -> None:
    rows, whole = kept_rows(recorded), all_rows(recorded)
    pd.testing.assert_frame_equal(rows, whole[list(rows)])
    found, wanted = (history.read(frame, recorded) for frame in (rows, whole))
    assert repr(found.events) == repr(wanted.events), "NaN equals nothing, so they are compared as texts"
    assert repr(found.steps) == repr(wanted.steps)
    pd.testing.assert_frame_equal(apart.peers(rows), apart.peers(whole)[list(rows)])


@pytest.mark.slow
def test_what_is_kept_grows_to_what_is_read_at_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sources, "BLOCK", 3)
    for number in range(2, 9):
        frame = synthetic.large(6, number)
        new = frame["commit"] == frame["commit"].iloc[-1]
        synthetic.add(frame[new].reset_index(drop=True), tmp_path / "results")
        rows = kept_rows(tmp_path / "results")
        pd.testing.assert_frame_equal(rows, all_rows(tmp_path / "results")[list(rows)])
    assert len(rows) == 6 * 7
    assert set(rows) <= set(sources.HISTORY_COLUMNS)


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


def test_kept_numbers_are_read_without_a_copy_and_nan_stays_nan(tmp_path: Path) -> None:
    rows = synthetic.large(6, 3)
    rows.loc[::4, "seconds"] = np.nan
    sources.save(tmp_path / "kept", "all", rows, {})
    count, past, _ = sources.load(tmp_path / "kept", ["", "all"])
    assert (count, past is not None) == (1, True)
    assert not past["seconds"].to_numpy().flags.writeable, "it is the file's own memory"
    np.testing.assert_array_equal(past["seconds"], rows["seconds"])
    assert past.astype(object).where(past.notna(), "").equals(rows.astype(object).where(rows.notna(), ""))


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
    found = sources.lanes_of(lanes.tidy(synthetic.lively(30)))
    assert [lane.env for lane in found] == [None, None]


def test_commits_measured_under_two_environments_make_two_lanes() -> None:
    frame = synthetic.one_case()
    both = pd.concat([frame, frame.assign(env="py3.12-torch2.13.0-triton3.8.0")])
    found = sources.lanes_of(lanes.tidy(both))
    assert [lane.env for lane in found] == ["py3.12-torch2.11.0-triton3.6.0", "py3.12-torch2.13.0-triton3.8.0"]
    assert len({lane.slug for lane in found}) == 2


def test_the_machine_with_the_newest_commit_comes_first() -> None:
    frame = synthetic.history(5)
    newest = frame["commit"].drop_duplicates().iloc[-1]
    frame = frame[~((frame["machine"] == "h200x2-1a2b3c4d") & (frame["commit"] == newest))]
    assert sources.lanes_of(lanes.tidy(frame))[0].machine == MI300X


def test_history_is_in_the_order_of_commit_dates_whatever_the_order_of_rows() -> None:
    frame = synthetic.history(12)
    shuffled = frame.sample(frac=1, random_state=3)
    pd.testing.assert_frame_equal(lanes.tidy(shuffled), lanes.tidy(frame))


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
    assert kernel_data(frame)["series"][1]["breaks"] == breaks


def test_two_rows_of_one_arm_leave_the_later() -> None:
    frame = synthetic.one_case(3)
    assert len(lanes.tidy(pd.concat([frame, frame]))) == len(frame)
