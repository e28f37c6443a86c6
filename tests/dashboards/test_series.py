"""From frames to the values that pages draw: rates, breaks, steps and gaps."""

from __future__ import annotations

from decimal import Decimal
from typing import Any

import numpy as np
import pandas as pd
import pytest
from hypothesis import given
from hypothesis import strategies as st

from dashboards import series
from tests.dashboards import synthetic

MI300X = "mi300x-8-0f3a9c1e"


def one_case(commits: int = 6, **changes: Any) -> pd.DataFrame:
    """One GEMM case by triton and its baseline on one machine, tidy; columns set to lists by `changes` for triton."""
    frame = synthetic.history(commits, synthetic.CASES[:1], machines=[MI300X], backends=("triton",))
    for column, values in changes.items():
        frame.loc[frame["backend"] == "triton", column] = values
    return series.tidy(frame)


def with_times(triton: list[float], blas: list[float] | None, spread: float = 0.001) -> pd.DataFrame:
    """Histories with exactly these seconds."""
    frame = synthetic.history(len(triton), synthetic.CASES[:1], machines=[MI300X], backends=("triton",))
    for backend, times in (("triton", triton), ("blas", blas or triton)):
        rows = frame["backend"] == backend
        frame.loc[rows, "seconds"] = times
        frame.loc[rows, "seconds_low"] = np.array(times) * (1 - spread)
        frame.loc[rows, "seconds_high"] = np.array(times) * (1 + spread)
    if blas is None:
        frame = frame[frame["backend"] == "triton"]
    return series.tidy(synthetic.derive.derive(frame))


def step_of(frame: pd.DataFrame) -> dict[str, Any] | None:
    return next(row for row in series.overview_data(frame)["rows"] if row["backend"] == "triton")["step"]


# ---- names and numbers ----------------------------------------------------------------------------------------------


@given(st.text(max_size=60))
def test_a_slug_is_a_plain_file_name(name: str) -> None:
    slug = series.slug(name)
    assert slug
    assert set(slug) <= set("abcdefghijklmnopqrstuvwxyz0123456789_.-")
    assert not slug.startswith(".")
    assert len(slug) <= 80


def test_slugs_of_different_names_differ() -> None:
    names = ["a/b", "a b", "A b", "a-b", "../a-b", "", "é", "ë", "GEMM", "gemm"]
    assert len({series.slug(name) for name in names}) == len(names)
    assert series.slug("gemm_all_scatter") == "gemm_all_scatter"


@given(st.lists(st.floats(allow_nan=True, allow_infinity=True, width=64), max_size=20), st.integers(3, 9))
def test_significant_digits_agree_with_the_formatter(values: list[float], digits: int) -> None:
    values = [v for v in values if not np.isfinite(v) or v == 0 or 1e-12 < abs(v) < 1e15]
    for value, got in zip(values, series.significant(values, digits), strict=True):
        if not np.isfinite(value):
            assert got is None
        else:
            assert got == pytest.approx(float(f"{value:.{digits - 1}e}"), rel=10.0 ** (1 - digits))
            assert len(Decimal(repr(got)).normalize().as_tuple().digits) <= digits


def test_significant_digits_are_short_in_the_file() -> None:
    assert [repr(v) for v in series.significant([12.3456789, 0.000123456789, 123456789.0, 0.0])] == [
        "12.3457", "0.000123457", "123457000.0", "0.0"]  # fmt: skip


def test_natural_order() -> None:
    assert sorted(["m512", "m64", "m1024_k2", "m1024_k10", "a"], key=series.natural) == [
        "a", "m64", "m512", "m1024_k2", "m1024_k10"]  # fmt: skip


@pytest.mark.parametrize(
    ("flops", "hbm", "link", "rate"),
    [
        (0, 1e6, 1e6, "busbw"),
        (0, 1e6, 0, "gbs"),
        (1e6, 1e6, 0, "gbs"),
        (1e9, 1e6, 0, "tflops"),
        (1e9, 1e6, 1e6, "tflops"),
        (1e9, 0, 0, "tflops"),
        (np.nan, np.nan, np.nan, "time"),
        (0, 0, 0, "time"),
    ],
)
def test_a_case_is_quoted_in_the_unit_of_the_field(flops: float, hbm: float, link: float, rate: str) -> None:
    rows = pd.DataFrame({"flops": [flops], "hbm_bytes": [hbm], "link_bytes": [link]})
    assert series.headline_rate(rows) == rate


# ---- places ---------------------------------------------------------------------------------------------------------


def test_an_environment_that_changes_once_stays_in_one_place() -> None:
    found = series.places(series.tidy(synthetic.lively(30)))
    assert [place.env for place in found] == [None, None]


def test_commits_measured_under_two_environments_make_two_places() -> None:
    frame = one_case()
    both = pd.concat([frame, frame.assign(env="py3.12-torch2.13.0-triton3.8.0")])
    found = series.places(series.tidy(both))
    assert [place.env for place in found] == ["py3.12-torch2.11.0-triton3.6.0", "py3.12-torch2.13.0-triton3.8.0"]
    assert len({place.slug for place in found}) == 2


def test_the_machine_with_the_newest_commit_comes_first() -> None:
    frame = synthetic.history(5)
    newest = frame["commit"].drop_duplicates().iloc[-1]
    frame = frame[~((frame["machine"] == "h200x2-1a2b3c4d") & (frame["commit"] == newest))]
    assert series.places(series.tidy(frame))[0].machine == MI300X


def test_history_is_in_the_order_of_commit_dates_whatever_the_order_of_rows() -> None:
    frame = synthetic.history(12)
    shuffled = frame.sample(frac=1, random_state=3)
    pd.testing.assert_frame_equal(series.tidy(shuffled), series.tidy(frame))


# ---- series ---------------------------------------------------------------------------------------------------------


def test_numerators_give_back_every_rate() -> None:
    """Oracle: the columns of ci.records.derived themselves, point by point."""
    frame = series.tidy(synthetic.history(8))
    for place in series.places(frame):
        for kernel, rows in place.frame.groupby("kernel"):
            data = series.kernel_data(rows)
            for line in data["series"]:
                truth = rows[
                    (rows["case"] == data["cases"][line["case"]]["name"]) & (rows["backend"] == line["backend"])
                ]
                assert len(line["numerators"]) == 1, kernel
                for rate in series.RATES:
                    numerator = line["numerators"][0][1].get(rate)
                    got = [np.nan if numerator is None else numerator / us for us in line["us"]]
                    np.testing.assert_allclose(got, truth[rate], rtol=1e-5)


def test_a_new_cost_starts_new_numerators() -> None:
    frame = one_case(6, hbm_bytes=[10**8] * 3 + [2 * 10**8] * 3)
    frame = series.tidy(synthetic.derive.derive(frame))
    triton = series.kernel_data(frame)["series"][1]
    starts = [start for start, _ in triton["numerators"]]
    assert starts == [0, 3]
    assert triton["numerators"][1][1]["gbs"] == pytest.approx(2 * triton["numerators"][0][1]["gbs"])


@pytest.mark.parametrize(
    ("kernel", "case", "breaks"),
    [
        ("aabb", ["", "", "", ""], [2]),
        ("aaaa", ["x", "x", "x", "x"], []),
        ("abab", ["x", "x", "x", "x"], []),  # the case's own yardstick decides
        ("aaaa", ["x", "y", "y", "z"], [1, 3]),
        ("aaaa", ["x", "", "", "x"], []),  # a record without notes knows only that of the kernel
        ("aabb", ["x", "", "", "x"], [2]),
    ],
)
def test_a_new_yardstick_breaks_the_line(kernel: str, case: list[str], breaks: list[int]) -> None:
    frame = one_case(4, yardstick=list(kernel), case_yardstick=case)
    assert series.kernel_data(frame)["series"][1]["breaks"] == breaks


def test_what_was_not_measured_is_a_hole_with_its_reason() -> None:
    frame = synthetic.history(5, synthetic.CASES[:1], machines=[MI300X], backends=("triton",))
    third = frame["commit"].drop_duplicates().iloc[2]
    spoilt = synthetic.spoil(frame, (frame["commit"] == third) & (frame["backend"] == "triton"), "wrong", "off by one")
    data = series.kernel_data(series.tidy(spoilt))
    triton = data["series"][1]
    assert [us is None for us in triton["us"]] == [False, False, True, False, False]
    assert {i: (status, data["whys"][why]) for i, (status, why) in triton["bad"].items()} == {
        "2": ("wrong", "off by one")
    }


def test_a_number_that_is_none_never_reaches_the_page() -> None:
    frame = one_case(4, seconds=[1e-3, np.inf, -np.inf, np.nan], seconds_low=np.nan)
    triton = series.kernel_data(frame)["series"][1]
    assert triton["us"] == [1000.0, None, None, None]
    assert triton["low"] == [None] * 4


def test_two_rows_of_one_arm_leave_the_later() -> None:
    frame = one_case(3)
    assert len(series.tidy(pd.concat([frame, frame]))) == len(frame)


# ---- the overview ---------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("triton", "blas", "moved"),
    [
        ([1.0, 1.05], [1.0, 1.0], "slower"),
        ([1.05, 1.0], [1.0, 1.0], "faster"),
        ([1.0, 1.05], [1.0, 1.05], None),  # the whole machine got slower
        ([1.0, 1.0], [1.0, 1.05], None),  # only the baseline moved
        ([1.0, 1.015], [1.0, 1.0], None),  # below the floor
        ([1.0, 1.05], None, None),  # without a baseline the floor is higher
        ([1.0, 1.10], None, "slower"),
    ],
)
def test_a_step_is_marked_only_if_the_kernel_moved(
    triton: list[float], blas: list[float] | None, moved: str | None
) -> None:
    step = step_of(with_times([t * 1e-3 for t in triton], [t * 1e-3 for t in blas] if blas else None))
    assert step is not None
    assert step["moved"] == moved
    assert step["speed"] == pytest.approx(triton[0] / triton[1] - 1, abs=1e-4)


def test_a_step_within_the_intervals_is_not_marked() -> None:
    step = step_of(with_times([1e-3, 1.05e-3], [1e-3, 1e-3], spread=0.04))
    assert step is not None
    assert step["moved"] is None


def test_there_is_no_step_over_a_new_yardstick() -> None:
    frame = one_case(3, yardstick=["a", "a", "b"])
    step = step_of(frame)
    assert step == {"yardstick": True, "from": frame["commit"].drop_duplicates().iloc[1]}


def test_the_step_is_from_the_last_good_record() -> None:
    frame = with_times([1e-3, 5e-3, 2e-3], [1e-3] * 3)
    middle = frame["commit"].drop_duplicates().iloc[1]
    frame = series.tidy(synthetic.spoil(frame, (frame["commit"] == middle) & ~frame["baseline"], "hang", "no answer"))
    step = step_of(frame)
    assert step is not None
    assert step["speed"] == pytest.approx(-0.5)


def test_a_single_commit_has_no_step() -> None:
    assert step_of(one_case(1)) is None


def test_the_sparkline_holds_only_what_can_be_compared() -> None:
    rows = series.overview_data(one_case(6, yardstick=list("aabbbb")))["rows"]
    assert len(rows[0]["spark"]) == 4


def test_the_newest_good_value_stays_visible_beside_a_fault() -> None:
    frame = one_case(3)
    last = frame["commit"].iloc[-1]
    frame = series.tidy(synthetic.spoil(frame, (frame["commit"] == last) & ~frame["baseline"], "crash", "signal 11"))
    data = series.overview_data(frame)
    row = data["rows"][0]
    assert (row["status"], row["why"], row["at"], row["good_at"]) == ("crash", "signal 11", 2, 1)
    assert row["value"] > 0
    assert [(gap["backend"], gap["status"]) for gap in data["absent"]] == [("triton", "crash")]


def test_a_fault_that_was_mended_is_not_listed() -> None:
    frame = one_case(3)
    first = frame["commit"].iloc[0]
    frame = series.tidy(synthetic.spoil(frame, frame["commit"] == first, "crash", "signal 11"))
    assert series.overview_data(frame)["absent"] == []


def test_the_ratio_names_its_baseline() -> None:
    frame = one_case(2)
    slow = frame[frame["baseline"]].assign(backend="slowlib", seconds=1.0)
    frame = series.tidy(synthetic.derive.derive(pd.concat([frame, slow], ignore_index=True)))
    assert series.overview_data(frame)["rows"][0]["rival"] == "blas"


def test_a_case_without_a_baseline_has_no_ratio() -> None:
    row = series.overview_data(with_times([1e-3, 1e-3], None))["rows"][0]
    assert (row["ratio"], row["rival"]) == (None, None)


def test_headlines_are_the_pull_request_tier_else_the_first_case() -> None:
    cases = [
        synthetic.gemm("big", 8192, 8192, 8192, "nightly"),
        synthetic.gemm("small", 64, 64, 64, "pr"),
        synthetic.stream("rms_norm", "a", 1 << 20, "nightly"),
        synthetic.stream("rms_norm", "b", 1 << 20, "nightly"),
    ]
    rows = series.overview_data(series.tidy(synthetic.history(2, cases, machines=[MI300X])))["rows"]
    assert {(row["kernel"], row["case"]) for row in rows if row["headline"]} == {("gemm", "small"), ("rms_norm", "a")}


def test_a_backend_without_any_supported_case_is_not_of_this_machine() -> None:
    def here(*spoilt: tuple[str, str]) -> set[tuple[str, bool, bool]]:
        cases = [synthetic.gemm(name, 64, 64, 64, "pr") for name in ("m16", "m64")]
        frame = synthetic.history(2, cases, machines=[MI300X])
        for case, backend in spoilt:
            frame = synthetic.spoil(
                frame, (frame["case"] == case) & (frame["backend"] == backend), "unsupported", "for CPUs"
            )
        rows = series.overview_data(series.tidy(frame))["rows"]
        return {(row["backend"], row["here"], row["headline"]) for row in rows}

    assert here(("m16", "gluon")) == {("gluon", True, True), ("triton", True, True)}
    assert here(("m16", "gluon"), ("m64", "gluon")) == {("gluon", False, False), ("triton", True, True)}
    nowhere = [(case, backend) for case in ("m16", "m64") for backend in ("gluon", "triton")]
    assert here(*nowhere) == {("gluon", True, True), ("triton", True, True)}, "a kernel never vanishes"


def test_a_case_with_only_baselines_shows_them() -> None:
    frame = one_case(2)
    rows = series.overview_data(frame[frame["baseline"]])["rows"]
    assert [(row["backend"], row["baseline"]) for row in rows] == [("blas", True)]
