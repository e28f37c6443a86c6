"""Which numbers stand in one line, in which order, and where the line is broken."""

from __future__ import annotations

import pandas as pd
import pytest
from hypothesis import given
from hypothesis import strategies as st

from dashboards import lanes, sources
from tests.dashboards import synthetic
from tests.dashboards.shown import kernel_data

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
