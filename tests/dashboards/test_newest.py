"""The newest numbers that stand together, and who is best among them."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest

from ci.records import derived, store
from dashboards import lanes
from dashboards.lanes import earlier, timed, together
from dashboards.views import beside
from dashboards.views.newest import BACKENDS, newest_data, roofline_data, shape_of, standings
from tests.ci import made_trials as made
from tests.dashboards import made_site, synthetic

MI300X = "mi300x-8-0f3a9c1e"


def lively(commits: int = 20) -> pd.DataFrame:
    """The tidy rows of one lane."""
    frame = synthetic.lively(commits)
    return lanes.tidy(frame[frame["machine"] == MI300X])


def slow_together(rows: pd.DataFrame) -> set[int]:
    """Rows of each case at the newest place with two timed backends, else one, else none; case by case."""
    kept: set[int] = set()
    for _, part in rows.groupby(["kernel", "case"]):
        places = [place for _, place in part.groupby(["commit", "env"], sort=False)]
        best = max(range(len(places)), key=lambda n: (min(int(timed(places[n]).sum()), 2), n))
        kept |= set(places[best].index)
    return kept


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(4))
def test_numbers_stand_together_only_if_they_come_from_one_place(seed: int) -> None:
    rows = lively().sample(frac=0.5, random_state=seed).sort_index()
    assert set(together(rows).index) == slow_together(rows)


def test_nothing_stands_together_where_there_is_nothing() -> None:
    assert together(lively(2).iloc[:0]).empty
    assert newest_data(lively(2).iloc[:0]) == {"cases": []}


@pytest.mark.parametrize(("days", "wanted"), [(0, 3), (1, 2), (20, 1), (21, 0), (900, 0)])
def test_a_trail_starts_at_the_newest_record_that_is_old_enough_else_at_the_oldest(days: int, wanted: int) -> None:
    rows = synthetic.one_case(4)
    age = dict(zip(rows["commit"].unique(), [60, 20, 2, 0], strict=True))
    rows["date"] = rows["date"].max() - pd.to_timedelta(rows["commit"].map(age), unit="D")
    order = rows["commit"].unique()
    assert set(earlier(rows, days)["commit"]) == {order[wanted]}


def test_a_trail_does_not_cross_a_change_of_the_benchmark_definition() -> None:
    rows = synthetic.one_case(3)
    first, last = rows["commit"].iloc[0], rows["commit"].iloc[-1]
    both = roofline_data(together(rows), earlier(rows, 30))
    assert {(one["backend"], one["commit"]) for one in both["before"]} == {("blas", first), ("triton", first)}
    oldest = rows[rows["commit"] == first].set_index("backend")["seconds"]
    assert all(one["us"] == pytest.approx(1e6 * oldest[one["backend"]]) for one in both["before"])
    rows.loc[(rows["commit"] == last) & (rows["backend"] == "triton"), "yardstick"] = "b" * 16
    assert [one["backend"] for one in roofline_data(together(rows), earlier(rows, 30))["before"]] == ["blas"]


def test_the_roofs_are_those_of_one_device_and_absent_where_it_is_not_known() -> None:
    rows = synthetic.one_case(2)
    roofs = roofline_data(rows, rows)["roofs"]
    assert roofs == {"device": "MI300X", "hbm": 5.3e12, "peaks": {"fp16": 1307.4e12}}
    unknown = rows.assign(market_name="", device="", arch="gfx000")
    assert roofline_data(unknown, unknown)["roofs"] is None


# ---- who is best -----------------------------------------------------------------------------------------------------


def of(names: list[str], seconds: list[float], half: float, **paired: Any) -> dict[str, np.ndarray]:
    nothing = [np.nan] * len(names)
    return {
        "seconds": np.array(seconds),
        "half": np.full(len(names), half),
        "backend": np.array(names, object),
        "paired_with": np.array(paired.get("beside", [""] * len(names)), object),
        "ratio": np.array(paired.get("ratio", nothing), float),
        "ratio_half": np.array(paired.get("ratio_half", nothing), float),
    }


def test_backends_within_the_interval_are_tied_and_one_is_best() -> None:
    assert standings(of(["a"], [np.nan], 0.1))[1] == [""], "without any time nobody is best"
    shares, standing = standings(of(["a", "b", "c", "d"], [1.0, 1.012, 1.02, np.nan], 0.01))
    assert standing == ["best", "tied", "", ""]  # 0.01 and 0.01 together: 0.0141
    np.testing.assert_allclose(shares, [1, 1 / 1.012, 1 / 1.02, np.nan])


def test_rounds_beside_the_same_baseline_tell_apart_what_times_alone_cannot() -> None:
    names, seconds = ["blas", "triton", "gluon"], [1.00, 1.05, 1.0005]
    assert standings(of(names, seconds, 0.2))[1] == ["best", "tied", "tied"]
    beside = {
        "beside": ["", "blas", "blas"],
        "ratio": [np.nan, *np.log([1 / 1.05, 1 / 1.0005])],
        "ratio_half": [np.nan, 0.001, 0.001],
    }
    assert standings(of(names, seconds, 0.2, **beside))[1] == ["best", "", "tied"]


# ---- files -----------------------------------------------------------------------------------------------------------


def test_the_newest_numbers_are_those_of_the_records() -> None:
    frame = lanes.tidy(synthetic.lively(12))
    site = made_site.site_of(frame)
    files = made_site.data_of(BACKENDS, site)
    assert sorted(files) == sorted(f"{lane.slug}/newest" for lane in site.lanes)
    count = 0
    for lane in site.lanes:
        rows = lane.frame.set_index(["kernel", "case", "backend", "commit"])
        for case in json.loads(json.dumps(files[f"{lane.slug}/newest"], allow_nan=False))["cases"]:
            for arm in case["arms"]:
                truth = rows.loc[(case["kernel"], case["case"], arm["backend"], case["commit"])]
                assert (arm["status"], arm["baseline"]) == (truth["status"], truth["baseline"])
                if arm["us"] is None:
                    assert truth["status"] != "ok"
                    continue
                assert arm["us"] == pytest.approx(truth["seconds"] * 1e6, rel=1e-5)
                assert arm["value"] == pytest.approx(truth[case["rate"]], rel=1e-5)
                count += 1
    assert count > 50


def test_csv_and_json_beside_a_page_have_the_same_rows_and_no_formula() -> None:
    rows = [{"case": "=1+1", "us": 1.5, "baseline": True}, {"case": 'a,"b"', "us": None, "baseline": False}]
    files = dict(beside("m/x", rows))
    assert json.loads(files["data/m/x.json"]) == rows
    assert files["data/m/x.csv"].decode() == 'case,us,baseline\n\'=1+1,1.5,true\n"a,""b""",,false\n'
    assert dict(beside("m/x", [])) == {}
    whole = made_site.files_of(BACKENDS, made_site.site_of(lanes.tidy(synthetic.history(2))))
    assert {path.rpartition(".")[2] for path in whole} == {"json", "csv"}


def test_the_dimensions_of_a_case_reach_the_page(tmp_path: Path) -> None:
    results = tmp_path / "results"
    line = made.trial({name: {"head/triton": made.ok()} for name in ("m16", "m64")})
    store.record([made.write(tmp_path / "trials.jsonl", line)], results)
    site = made_site.site_of(lanes.tidy(derived.derive(store.load(results))))
    cases = newest_data(site.newest[made.MACHINE["name"]])["cases"]
    assert {case["case"]: case["shape"] for case in cases} == {"m16": {"M": 16}, "m64": {"M": 16}}
    assert shape_of('{"M": NaN, "N": 1e999, "routing": "mild"}') == {"routing": "mild"}
    assert shape_of("") == {}
