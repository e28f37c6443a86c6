"""Comparing two records: definitions on the Python side, and the page's formulas against a slow oracle."""

from __future__ import annotations

import dataclasses
import json
import math
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from ci.records.ledger import Explanation, RecordedCause
from dashboards import lanes, sources
from dashboards.lanes import by_series
from dashboards.overview import MOVED_ALONE, MOVED_BESIDE_BASELINE, paired_block
from dashboards.views import newest
from tests.dashboards import node, synthetic

ROOT = Path(__file__).parents[2]
LIMITS = {"beside": MOVED_BESIDE_BASELINE, "alone": MOVED_ALONE}


def compare_data(rows: Any) -> dict[str, Any]:
    """Of all rows of a lane."""
    return newest.compare_data(rows, sources.counts_of(rows))


def in_node(expression: str, value: Any) -> Any:
    """A JavaScript expression of `input` and R.comparison, computed without a browser."""
    return node.computed("views/comparison.js", "Ridgeline.comparison", expression, value)


def compared(pairs: list[Any]) -> list[dict[str, Any]]:
    sides = [[side and {"definition": ["k", "c"], "baseline": None, **side} for side in pair] for pair in pairs]
    found: list[dict[str, Any]] = in_node(
        "input.pairs.map(([a, b]) => R.compared(a, b, input.limits))", {"pairs": sides, "limits": LIMITS}
    )
    return found


def time(us: float, width: float = 0.001, **more: Any) -> dict[str, Any]:
    """A time with an interval of +-width."""
    return {"status": "ok", "us": us, "low": us * (1 - width), "high": us * (1 + width), **more}


def any_time(rng: np.random.Generator) -> dict[str, Any]:
    baseline = time(100 * rng.uniform(0.95, 1.05), 0.002)
    return time(100 * rng.uniform(0.8, 1.2), rng.uniform(0.001, 0.03), baseline=baseline)


def test_a_change_is_what_a_slow_oracle_says() -> None:
    rng = np.random.default_rng(5)
    pairs = [[any_time(rng), any_time(rng)] for _ in range(300)]
    verdicts = set()
    for (a, b), found in zip(pairs, compared(pairs), strict=True):
        ratio = (a["us"] / a["baseline"]["us"]) / (
            b["us"] / b["baseline"]["us"]
        )  # b's speed / a's, beside the baseline
        times = (a, b, a["baseline"], b["baseline"])
        around = math.sqrt(sum((math.log(t["high"] / t["low"]) / 2) ** 2 for t in times) + math.log(1.02) ** 2)
        assert found["change"] == pytest.approx(math.log(ratio))
        assert found["reach"] == pytest.approx(around)
        sure = abs(math.log(ratio)) > around
        alone = a["us"] / b["us"]
        too = (alone > 1.02 and ratio > 1) or (alone < 1 / 1.02 and ratio < 1)
        verdict = ("faster" if ratio > 1 else "slower") if sure and too else "same"
        assert found["verdict"] == verdict
        assert found["least"] == pytest.approx(max(0, abs(math.log(ratio)) - around) if too else 0)
        verdicts.add((verdict, sure))
    assert verdicts == {("faster", True), ("slower", True), ("same", False), ("same", True)}


def test_ratios_of_common_rounds_come_before_separate_times() -> None:
    """By a slow oracle: two paired ratios, their own intervals, and the drift between runs."""
    rng = np.random.default_rng(7)
    pairs = []
    for _ in range(100):
        sides = [any_time(rng), any_time(rng)]
        for side in sides:
            ratio, width = rng.uniform(0.9, 1.1), rng.uniform(1e-4, 5e-3)
            side["paired"] = {"with": "blas", "ratio": ratio, "low": ratio / (1 + width), "high": ratio * (1 + width)}
        pairs.append(sides)
    for (a, b), found in zip(pairs, compared(pairs), strict=True):
        p, q = a["paired"], b["paired"]
        around = sum((math.log(one["high"] / one["low"]) / 2) ** 2 for one in (p, q)) + math.log(1.02) ** 2
        assert found["change"] == pytest.approx(math.log(q["ratio"] / p["ratio"]))
        assert found["reach"] == pytest.approx(math.sqrt(around))
        assert (found["kind"], found["with"]) == ("paired", "blas")


def test_the_kind_of_a_comparison_is_said() -> None:
    beside = {**time(50), "name": "blas"}
    ratio = {"ratio": 2.0, "low": 1.99, "high": 2.01}
    one = time(100, baseline=beside, paired={"with": "blas", **ratio})
    others = [one, time(100, baseline=beside, paired={"with": "aiter", **ratio}), time(100, baseline=beside), time(100)]
    found = [(row["kind"], row["with"]) for row in compared([[one, other] for other in others])]
    assert found == [("paired", "blas"), ("separate", "blas"), ("separate", "blas"), ("alone", None)]


@pytest.mark.parametrize(
    ("a", "b", "verdict"),
    [
        (time(100), time(94), "same"),  # alone, runs drift by up to 7 %
        (time(100), time(90), "faster"),
        (time(100), time(112), "slower"),
        (time(100), time(112, 0.2), "same"),
        (time(100, baseline=time(50)), time(112, baseline=time(56)), "same"),  # the machine, not the kernel
        (time(100, baseline=time(50)), time(105, baseline=time(50)), "slower"),
        (time(100, baseline=time(50)), time(100, baseline=time(45)), "same"),  # the library moved alone
        (time(100) | {"low": None}, time(200), "unsure"),
        (time(100, definition=["k", "c"]), time(50, definition=["k", "d"]), "not comparable"),
        (time(100, definition=["k", ""]), time(50, definition=["l", "d"]), "not comparable"),
        (time(100, definition=["k", "c"]), time(50, definition=["l", "c"]), "faster"),
        (time(100), {"status": "hang", "us": None}, "broken"),
        ({"status": "wrong", "us": None}, time(100), "mended"),
        (time(100), None, "only before"),
        (None, time(100), "only after"),
        (time(100), {"status": "unsupported", "us": None}, "only before"),
        (None, {"status": "crash", "us": None}, "no time"),
        ({"status": "skipped", "us": None}, {"status": "unsupported", "us": None}, "not run"),
    ],
)
def test_every_way_in_which_two_sides_can_stand(a: Any, b: Any, verdict: str) -> None:
    assert compared([[a, b]])[0]["verdict"] == verdict


def test_geometric_means_are_over_all_comparable_pairs_by_group() -> None:
    rows = [{"kernel": "a", **one} for one in compared([[time(100), time(50)], [time(100), time(200)]])]
    rows += [{"kernel": "b", **one} for one in compared([[time(100), time(25)], [time(100), None]])]
    found = in_node("R.means(input, row => row.kernel)", rows)
    assert [(one["name"], one["pairs"], one["faster"], one["slower"]) for one in found] == [
        ("a", 2, 1, 1),
        ("b", 1, 1, 0),
    ]
    assert [math.exp(one["alone"]) for one in found] == pytest.approx([1, 4])
    assert [one["beside"] for one in found] == [None, None]


# ---- definitions -----------------------------------------------------------------------------------------------------


def told(data: dict[str, Any], kernel: str, case: str, place: int) -> list[str] | None:
    """The definition at a commit as the page reads it."""
    changes = next(changes for k, c, changes in data["definitions"] if (k, c) == (kernel, case))
    held = [number for start, number in changes if start <= place]
    return data["digests"][held[-1]] if held else None


def test_the_definition_of_every_row_is_told() -> None:
    frame = synthetic.lively(30)
    rows = lanes.tidy(frame[frame["machine"] == "mi300x-8-0f3a9c1e"])
    rows.loc[rows["case"] == "h8192_t4096", "case_yardstick"] = "c" * 16
    order = rows["commit"].drop_duplicates().tolist()
    back = (rows["kernel"] == "gemm") & rows["commit"].isin(order[-3:])
    rows.loc[back, "yardstick"] = "a" * 16  # an older definition comes back
    data = json.loads(json.dumps(compare_data(rows)))
    assert [commit for commit, *_ in data["commits"]] == order
    for kernel, case, commit, whole, own in rows[
        ["kernel", "case", "commit", "yardstick", "case_yardstick"]
    ].itertuples(index=False):
        assert told(data, kernel, case, order.index(commit)) == [whole, own]
    assert len(data["digests"]) == 3
    gemm = next(changes for kernel, case, changes in data["definitions"] if (kernel, case) == ("gemm", "llm_down_m64"))
    assert len(gemm) == 3


def test_the_usual_pair_shares_the_most_series() -> None:
    rows = synthetic.one_case(5)
    order = rows["commit"].unique()
    assert compare_data(rows)["usual"] == [3, 4]
    assert compare_data(rows[(rows["commit"] != order[3]) | (rows["backend"] == "triton")])["usual"] == [2, 4]
    assert compare_data(rows[rows["commit"] == order[0]])["usual"] is None
    anew = rows.assign(yardstick=np.where(rows["commit"] == order[4], "b" * 16, rows["yardstick"]))
    assert compare_data(anew)["usual"] == [2, 3], "what is defined anew is not comparable"
    assert compare_data(anew.assign(case_yardstick="c" * 16))["usual"] == [3, 4], "the case was not"
    assert [count for *_, count, _ in compare_data(rows)["commits"]] == [2] * 5


def test_what_was_shown_about_two_commits_of_the_machine_is_told() -> None:
    rows = synthetic.one_case(2)
    one = RecordedCause("m", "b" * 40, "a" * 40, Explanation(("gemm/triton/m64",), "gemm/triton/m64", "proven", "why"))
    found = newest.compare_data(rows, sources.counts_of(rows), [one])["causes"]
    assert found == [["b" * 40, "a" * 40, dataclasses.asdict(one.explanation)]]
    assert "causes" not in compare_data(rows)


def test_a_lane_without_definitions_or_rows_has_none() -> None:
    rows = synthetic.one_case(2).assign(yardstick="")
    assert compare_data(rows)["definitions"] == []
    empty = compare_data(rows.iloc[:0])
    assert empty == {"commits": [], "usual": None, "digests": [], "definitions": []}


def test_a_block_tells_what_was_timed_in_the_same_rounds() -> None:
    rows = synthetic.one_case(3).assign(paired_with="", paired_ratio=np.nan, paired_low=np.nan, paired_high=np.nan)
    triton = (rows["backend"] == "triton").to_numpy()
    rows.loc[triton, ["paired_ratio", "paired_low", "paired_high"]] = [[1.5, 1.4, 1.6], [np.nan] * 3, [1.7, 1.6, 1.8]]
    rows.loc[triton, "paired_with"] = ["blas", "", "blas"]
    order = rows["commit"].unique().tolist()
    points = [[0, 0, 1.5, 1.4, 1.6], [2, 0, 1.7, 1.6, 1.8]]
    dated = [(commit, "", "") for commit in order]
    made = paired_block(by_series(rows), dated)
    assert made == {"commits": order, "baselines": ["blas"], "series": [["gemm", "llm_down_m64", "triton", points]]}
    for without in (rows[~triton], synthetic.one_case(3)):
        assert paired_block(by_series(without), dated)["series"] == []
