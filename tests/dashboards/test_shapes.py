"""Sweeps as heat maps of configurations: which settings were timed, and which one the records run."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest

from ci.records import derived, store
from dashboards import lanes
from dashboards.views import SiteInput
from dashboards.views.newest import SHAPES, configurations, newest_data, shape_of, sweeps
from tests.ci import made_trials as made

MACHINE = made.MACHINE["name"]


def run_with(ms: float, **knobs: Any) -> dict[str, Any]:
    return {**made.ok([ms * 1e-3] * 8), "knobs": knobs}


def line(number: int, **cases: Any) -> dict[str, Any]:
    arms = {name: {"head/triton": arm, "head/blas": made.ok()} for name, arm in cases.items()}
    return made.trial(arms, number=number)


LINES = [
    line(0, m16=run_with(1.0, tile=64, warps=4), m64=run_with(4.0, tile=64, warps=4)),
    line(1, m16=run_with(2.0, tile=128, warps=4), m64=run_with(3.0, tile=128, warps=4)),
    line(2, m16=run_with(1.2, tile=64, warps=4)),
]


def test_times_of_a_sweep_are_medians_over_its_trials() -> None:
    (sweep,) = sweeps(made.parsed(one) for one in LINES)
    assert (sweep.kernel, sweep.backend) == ("gemm", "triton"), "blas has no knobs that differ"
    data = configurations(sweep, {"m16": json.dumps({"tile": 64, "warps": 4})})
    assert data["configs"] == [{"tile": 64}, {"tile": 128}], "the warps are the same in all of them"
    assert data["cases"] == ["m16", "m64"]
    np.testing.assert_allclose(data["us"], [[1100, 2000], [4000, 3000]])
    assert data["chosen"] == [0, None]
    assert data["running"] == [{"tile": 64}, None]


def test_a_setting_that_the_sweep_lacks_is_told_but_not_ringed() -> None:
    (sweep,) = sweeps(made.parsed(one) for one in LINES)
    data = configurations(sweep, {"m64": json.dumps({"tile": 256, "warps": 8})})
    assert data["chosen"] == [None, None]
    assert data["running"] == [None, {"tile": 256, "warps": 8}]
    assert data["configs"][0] == {"tile": 64, "warps": 4}, "against that setting the warps differ"


def test_one_setting_or_wrong_results_are_no_sweep() -> None:
    assert sweeps([made.parsed(LINES[0]), made.parsed(LINES[2])]) == []
    wrong = line(3, m16={**made.failed("wrong"), "knobs": {"tile": 1}})
    assert sweeps([made.parsed(LINES[0]), made.parsed(wrong)]) == []


@pytest.fixture(scope="module")
def recorded(tmp_path_factory: pytest.TempPathFactory) -> SiteInput:
    """A record, and a sweep of its operator beside it."""
    folder = tmp_path_factory.mktemp("records")
    results = folder / "results"
    store.record([made.write(folder / "trials.jsonl", LINES[1])], results)
    (results / "sweeps").mkdir()
    made.write(results / "sweeps" / "gemm.jsonl", *LINES)
    frame = lanes.tidy(derived.derive(store.load(results)))
    return SiteInput(frame, None, lambda *place: store.notes(results, *place), results)


def test_the_setting_of_the_records_is_ringed(recorded: SiteInput) -> None:
    ((path, (data,)),) = SHAPES.data(recorded)
    assert path == f"{MACHINE}/configurations"
    assert data["chosen"] == [1, 1]


def test_the_dimensions_of_a_case_reach_the_page(recorded: SiteInput) -> None:
    cases = newest_data(recorded.newest[MACHINE])["cases"]
    assert {case["case"]: case["shape"] for case in cases} == {"m16": {"M": 16}, "m64": {"M": 16}}
    assert shape_of('{"M": NaN, "N": 1e999, "routing": "mild"}') == {"routing": "mild"}
    assert shape_of("") == {}


def test_without_a_results_folder_there_are_no_sweeps(recorded: SiteInput) -> None:
    assert dict(SHAPES.data(SiteInput(recorded.frame))) == {f"{MACHINE}/configurations": []}
    assert dict(SHAPES.data(SiteInput(pd.DataFrame()))) == {}


def test_the_curves_of_this_repository_are_a_sweep() -> None:
    root = Path(__file__).parents[2] / "results"
    frame = lanes.tidy(derived.derive(store.load(root, machine="h200x4-b112377d")))
    ((_, found),) = SHAPES.data(SiteInput(frame, results_dir=root))
    assert {one["backend"] for one in found} >= {"triton", "gluon"}
    assert all(len(one["configs"]) > 2 and np.isfinite(np.array(one["us"], float)).all() for one in found)
