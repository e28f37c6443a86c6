"""The newest numbers, their steps, and what has no number."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import pandas as pd
import pytest

from ci.records import derived
from ci.trials.trial import Declaration, DeclaredCase
from dashboards import lanes, overview
from tests.dashboards import made_site, synthetic
from tests.dashboards.made_site import kernel_data, overview_data

MI300X = "mi300x-8-0f3a9c1e"


def step_of(frame: pd.DataFrame) -> dict[str, Any] | None:
    return next(row for row in overview_data(frame)["rows"] if row["backend"] == "triton")["step"]


@pytest.mark.parametrize(
    ("triton", "blas", "moved"),
    [
        ([1.0, 1.05], [1.0, 1.0], "slower"),
        ([1.05, 1.0], [1.0, 1.0], "faster"),
        ([1.0, 1.05], [1.0, 1.05], None),  # the whole machine got slower
        ([1.0, 1.0], [1.0, 1.05], None),  # only the baseline moved
        ([1.0, 1.015], [1.0, 1.0], None),  # too little to be marked
        ([1.0, 1.05], None, None),  # without a baseline the limit is higher
        ([1.0, 1.10], None, "slower"),
    ],
)
def test_a_step_is_marked_only_if_the_kernel_moved(
    triton: list[float], blas: list[float] | None, moved: str | None
) -> None:
    step = step_of(synthetic.with_times([t * 1e-3 for t in triton], [t * 1e-3 for t in blas] if blas else None))
    assert step is not None
    assert step["moved"] == moved
    assert step["speed"] == pytest.approx(triton[0] / triton[1] - 1, abs=1e-4)


def test_without_an_earlier_number_or_apart_intervals_no_step_is_marked() -> None:
    within = step_of(synthetic.with_times([1e-3, 1.05e-3], [1e-3, 1e-3], spread=0.04))
    assert within is not None
    assert within["moved"] is None
    assert step_of(synthetic.one_case(1)) is None


def test_there_is_no_step_over_a_new_benchmark_definition() -> None:
    frame = synthetic.one_case(3, yardstick=["a", "a", "b"])
    step = step_of(frame)
    assert step == {"redefined": True, "from": frame["commit"].drop_duplicates().iloc[1]}


def test_the_step_is_from_the_last_good_record() -> None:
    frame = synthetic.with_times([1e-3, 5e-3, 2e-3], [1e-3] * 3)
    middle = frame["commit"].drop_duplicates().iloc[1]
    frame = lanes.tidy(synthetic.spoil(frame, (frame["commit"] == middle) & ~frame["baseline"], "hang", "no answer"))
    step = step_of(frame)
    assert step is not None
    assert step["speed"] == pytest.approx(-0.5)


def test_the_sparkline_holds_only_what_can_be_compared() -> None:
    rows = overview_data(synthetic.one_case(6, yardstick=list("aabbbb")))["rows"]
    assert len(rows[0]["spark"]) == 4


def test_the_newest_good_value_stays_visible_beside_a_fault() -> None:
    frame = synthetic.one_case(3)
    last = frame["commit"].iloc[-1]
    frame = lanes.tidy(synthetic.spoil(frame, (frame["commit"] == last) & ~frame["baseline"], "crash", "signal 11"))
    data = overview_data(frame)
    row = data["rows"][0]
    assert (row["status"], row["why"], row["at"], row["good_at"]) == ("crash", "signal 11", 2, 1)
    assert row["value"] > 0
    assert [(gap["backend"], gap["status"]) for gap in data["absent"]] == [("triton", "crash")]
    first = frame["commit"].iloc[0]
    repaired = synthetic.spoil(synthetic.one_case(3), synthetic.one_case(3)["commit"] == first, "crash", "signal 11")
    assert overview_data(lanes.tidy(repaired))["absent"] == []


def test_the_ratio_names_the_fastest_baseline() -> None:
    frame = synthetic.one_case(2)
    slow = frame[frame["baseline"]].assign(backend="slowlib", seconds=1.0)
    frame = lanes.tidy(derived.derive(pd.concat([frame, slow], ignore_index=True)))
    assert overview_data(frame)["rows"][0]["baseline_name"] == "blas"


def test_a_case_without_a_baseline_has_no_ratio() -> None:
    row = overview_data(synthetic.with_times([1e-3, 1e-3], None))["rows"][0]
    assert (row["ratio"], row["baseline_name"]) == (None, None)


def test_headlines_are_the_pull_request_tier_else_the_first_case() -> None:
    cases = [
        synthetic.gemm("big", 8192, 8192, 8192, "nightly"),
        synthetic.gemm("small", 64, 64, 64, "pr"),
        synthetic.stream("rms_norm", "a", 1 << 20, "nightly"),
        synthetic.stream("rms_norm", "b", 1 << 20, "nightly"),
    ]
    rows = overview_data(lanes.tidy(synthetic.history(2, cases, machines=[MI300X])))["rows"]
    assert {(row["kernel"], row["case"]) for row in rows if row["headline"]} == {("gemm", "small"), ("rms_norm", "a")}


@pytest.mark.parametrize("status", ["unsupported", "skipped"])
def test_what_was_never_tried_here_is_not_a_headline(status: str) -> None:
    def here(*spoilt: tuple[str, str]) -> set[tuple[str, str]]:
        cases = [synthetic.gemm(name, 64, 64, 64, "pr") for name in ("m16", "m64")]
        frame = synthetic.history(2, cases, machines=[MI300X])
        for case, backend in spoilt:
            select = (frame["case"] == case) & (frame["backend"] == backend)
            frame = synthetic.spoil(frame, select, status, "for 8 ranks")
        rows = overview_data(lanes.tidy(frame))["rows"]
        return {(row["case"], row["backend"]) for row in rows if row["here"] and row["headline"]}

    everything = {(case, backend) for case in ("m16", "m64") for backend in ("gluon", "triton")}
    assert here() == everything
    assert here(("m16", "gluon")) == everything - {("m16", "gluon")}
    assert here(("m16", "gluon"), ("m64", "gluon")) == {("m16", "triton"), ("m64", "triton")}
    assert here(*everything) == set(), "its kernel is one line with a count"


def test_what_fails_here_is_a_headline_and_so_is_what_was_measured_once() -> None:
    frame = synthetic.one_case(3)
    last = frame["commit"].iloc[-1]
    for select, status in ((~frame["baseline"], "wrong"), ((frame["commit"] == last) & ~frame["baseline"], "skipped")):
        rows = overview_data(lanes.tidy(synthetic.spoil(frame, select, status, "why")))["rows"]
        assert [(row["here"], row["headline"]) for row in rows] == [(True, True)]


def test_the_newest_commit_is_said_with_the_numbers_it_is_true_of() -> None:
    frame = synthetic.history(3, synthetic.CASES[:2], machines=[MI300X])
    last = frame["commit"].drop_duplicates().iloc[-1]
    older = frame[~((frame["commit"] == last) & (frame["case"] == "llm_down_m64"))]
    assert overview_data(lanes.tidy(older))["newest"] == {"at": 2, "measured": 2, "of": 4}


def test_vendor_libraries_are_named_by_kernel() -> None:
    frame = synthetic.history(2, synthetic.CASES[:6], machines=[MI300X])
    assert overview_data(lanes.tidy(frame))["baselines"] == [
        ["gemm", ["blas"]], ["gemm_all_scatter", ["blas"]], ["rms_norm", ["torch"]]]  # fmt: skip


def test_the_files_for_other_programs_have_every_arm_and_the_same_columns() -> None:
    frame = synthetic.lively(12)
    rows = overview.newest(made_site.lanes_of(lanes.tidy(frame))[0].series)
    assert len(rows) == frame[frame["machine"] == rows_machine(frame)].groupby(["kernel", "case", "backend"]).ngroups
    assert {tuple(row) for row in rows} == {tuple(", ".join(overview.COLUMNS).split(", "))}, "as data/README.txt says"
    gemm = next(row for row in rows if (row["case"], row["backend"]) == ("llm_up_m4096", "triton"))
    truth = frame[(frame["machine"] == rows_machine(frame)) & (frame["case"] == "llm_up_m4096")]
    truth = truth[truth["backend"] == "triton"].sort_values("date").iloc[-1]
    assert (gemm["commit"], gemm["unit"], gemm["vendor"]) == (truth["commit"], "TFLOPS", False)
    assert gemm["value"] == pytest.approx(truth["tflops"], rel=1e-5)
    assert gemm["microseconds_low"] == pytest.approx(truth["seconds_low"] * 1e6, rel=1e-5)
    never = next(row for row in rows if (row["kernel"], row["backend"]) == ("softmax", "gluon"))
    assert (never["status"], never["microseconds"], never["value"]) == ("unsupported", None, None)


def rows_machine(frame: pd.DataFrame) -> str:
    """The machine of the first lane."""
    return made_site.lanes_of(lanes.tidy(frame))[0].machine


def test_a_case_with_only_baselines_shows_them() -> None:
    frame = synthetic.one_case(2)
    rows = overview_data(frame[frame["baseline"]])["rows"]
    assert [(row["backend"], row["baseline"]) for row in rows] == [("blas", True)]


def test_the_picture_of_the_history_is_the_longest_headline_of_each_kernel_and_its_baseline() -> None:
    cases = [synthetic.gemm(name, 64, 64, 64, "pr") for name in ("m64", "m16")]
    cases.append(synthetic.gather(1 << 20))
    frame = synthetic.history(4, cases, machines=[MI300X], backends=("triton",))
    first = frame["commit"].iloc[0]
    frame = lanes.tidy(frame[(frame["commit"] != first) | (frame["case"] != "m64")])
    drawn = {(one["unit"], line["kernel"]): line for one in overview_data(frame)["history"] for line in one["lines"]}
    own = [line for one in overview_data(frame)["history"] for line in one["lines"] if not line["baseline"]]
    assert {(line["kernel"], line["case"], len(line["values"])) for line in own} >= {("gemm", "m16", 4)}
    assert all(line["at"] == [0, 1, 2, 3] for line in drawn.values())
    assert {line["baseline"] for line in drawn.values()} == {True}, "the library is drawn last"
    (gemm,) = (line for line in own if line["kernel"] == "gemm")
    recorded = frame[(frame["kernel"] == "gemm") & (frame["case"] == "m16") & ~frame["baseline"]]["baseline_ratio"]
    assert list(gemm["ratios"]) == pytest.approx(recorded.tolist(), rel=1e-3)
    assert len({unit for unit, _ in drawn}) == 2


def test_the_picture_of_the_history_is_of_the_backend_that_is_declared_first() -> None:
    cases = [synthetic.gemm(name, 64, 64, 64, "pr") for name in ("m64", "m16")]
    frame = synthetic.history(3, cases, machines=[MI300X], backends=("autotune", "triton"))
    rows = overview.LaneSeries.of(lanes.tidy(frame))

    def shown(*backends: str) -> str:
        (unit,) = overview.overview_data(rows, declared=lambda *_: declaring("m16", backends=backends))["history"]
        (own,) = (line["backend"] for line in unit["lines"] if not line["baseline"])
        return own

    assert shown("torch", "triton", "autotune") == "triton", "there is no torch on a GPU"
    assert shown("autotune", "triton") == "autotune"
    assert shown("torch") in ("triton", "autotune"), "where the declaration has none of them, the fastest"


def declaring(*cases: str, backends: Sequence[str] = ("triton",)) -> Declaration:
    return Declaration("gemm", tuple(backends), (), {name: DeclaredCase(name) for name in cases}, "y")


def test_on_a_cpu_nothing_is_marked_and_no_library_is_compared_with() -> None:
    frame = synthetic.with_times([1e-3, 2e-3], [1e-3, 1e-3])
    data = overview.overview_data(overview.LaneSeries.of(frame), cpu=True)
    assert (data["cpu"], [row["step"]["moved"] for row in data["rows"]]) == (True, [None])
    assert step_of(frame)["moved"] == "slower"
    assert [lane.cpu for lane in made_site.lanes_of(frame.assign(kind="cpu"))] == [True]
    assert [lane.cpu for lane in made_site.lanes_of(frame.assign(kind="gpu"))] == [False]


def test_a_case_that_is_declared_no_more_leaves_the_newest_numbers() -> None:
    cases = [synthetic.gemm(name, 64, 64, 64, "pr") for name in ("m16", "m64")]
    frame = synthetic.history(3, cases, machines=[MI300X])
    last = frame["commit"].drop_duplicates().iloc[-1]
    rows = overview.LaneSeries.of(lanes.tidy(frame[(frame["commit"] != last) | (frame["case"] != "m64")]))
    asked = []

    def declared(kernel: str, commit: str, env: str) -> Declaration:
        asked.append((kernel, commit))
        return declaring("m16")

    data = overview.overview_data(rows, declared=declared)
    assert set(asked) == {("gemm", last)}
    assert {row["case"] for row in data["rows"] if row["gone"]} == {"m64"}
    assert not [row for row in data["rows"] if row["gone"] and (row["here"] or row["headline"])]
    assert data["newest"]["measured"] == data["newest"]["of"] > 0
    nightly = overview.overview_data(rows, declared=lambda *_: declaring("m16", "m64"))
    assert not [row for row in nightly["rows"] if row["gone"]]


def test_the_longest_history_comes_first() -> None:
    made = [synthetic.history(count, machines=[MI300X]) for count in (2, 5)]
    short, long = (frame.assign(machine=name) for frame, name in zip(made, ("short", "long"), strict=True))
    short["date"] += pd.Timedelta(days=900)
    assert [lane.machine for lane in made_site.lanes_of(lanes.tidy(pd.concat([short, long])))] == ["long", "short"]


# The data of a kernel's page: holes, reasons and costs.


def test_a_new_cost_starts_where_it_was_measured_first() -> None:
    frame = synthetic.one_case(6, hbm_bytes=[10**8] * 3 + [2 * 10**8] * 3)
    data = kernel_data(lanes.tidy(derived.derive(frame)))
    baseline, triton = data["series"]
    costs = data["cases"][0]["costs"]
    assert [start for start, _ in triton["cost"]] == [0, 3]
    assert [costs[number]["hbm_bytes"] for _, number in triton["cost"]] == [10**8, 2 * 10**8]
    assert [start for start, _ in baseline["cost"]] == [0]
    assert costs[baseline["cost"][0][1]] == {
        "flops": 2 * 64 * 4096 * 14336,
        "hbm_bytes": 2 * (64 * 14336 + 14336 * 4096 + 64 * 4096),
        "world": 1,
        "roofline_seconds": 2 * (64 * 14336 + 14336 * 4096 + 64 * 4096) / 5.3e12,
    }


def test_the_cost_that_a_case_shows_is_the_newest_that_is_stated() -> None:
    frame = synthetic.one_case(4)
    frame = frame[~frame["baseline"]].assign(flops=[1e12, 1e12, 1e12, np.nan], hbm_bytes=[1e8, 2e8, 1e8, np.nan])
    frame = lanes.tidy(derived.derive(frame))
    data = kernel_data(frame)
    costs = data["cases"][0]["costs"]
    assert [cost.get("hbm_bytes") for cost in costs] == [None, 2e8, 1e8]
    assert data["series"][0]["cost"] == [[0, 2], [1, 1], [2, 2], [3, 0]]
    assert data["cases"][0]["rate"] == "tflops", "a record without notes does not change the unit"


def test_what_was_not_measured_is_a_hole_with_its_reason() -> None:
    frame = synthetic.history(5, synthetic.CASES[:1], machines=[MI300X], backends=("triton",))
    third = frame["commit"].drop_duplicates().iloc[2]
    spoilt = synthetic.spoil(frame, (frame["commit"] == third) & (frame["backend"] == "triton"), "wrong", "off by one")
    data = kernel_data(lanes.tidy(spoilt))
    triton = data["series"][1]
    assert [us is None for us in triton["us"]] == [False, False, True, False, False]
    assert {i: (status, data["whys"][why]) for i, (status, why) in triton["bad"].items()} == {
        "2": ("wrong", "off by one")
    }
