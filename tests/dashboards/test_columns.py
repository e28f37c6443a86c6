"""The fast way to the data of the pages gives what the slow and obvious way gives, whatever the records hold."""

from __future__ import annotations

import numpy as np
import pandas as pd
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from dashboards import lanes, sources
from dashboards.lanes import ranks, stretches
from dashboards.values import plain
from tests.dashboards import shown, slow_pages, synthetic


def compare(frame: pd.DataFrame) -> None:
    """Tidy rows, lanes and every kernel's page, by both ways."""
    fast, slow = lanes.tidy(frame), slow_pages.tidy(frame)
    pd.testing.assert_frame_equal(fast, slow, check_dtype=False, check_categorical=False)
    for lane, other in zip(sources.lanes_of(fast), slow_pages.lanes(slow), strict=True):
        assert (lane.machine, lane.env) == (other.machine, other.env)
        parts = [part for _, part in other.frame.groupby("kernel", sort=True, observed=True)]
        for rows in parts:
            made = shown.kernel_data(rows)
            del made["rows"]
            assert made == shown.received(slow_pages.kernel_data(rows))


@pytest.mark.slow
def test_a_lively_history() -> None:
    compare(synthetic.lively(60))


@pytest.mark.slow
def test_any_order_of_rows() -> None:
    compare(synthetic.lively(8).sample(frac=1, random_state=3))


@pytest.mark.slow
def test_commits_measured_under_two_environments() -> None:
    frame = synthetic.lively(5)
    compare(pd.concat([frame, frame[::2].assign(env="py3.13-torch2.14.0")]))


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
    compare(odd_history(rows))


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
