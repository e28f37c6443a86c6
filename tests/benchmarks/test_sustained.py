"""Trials in bursts on real processes: what is written, in which order arms are timed, and what becomes of faults."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from benchmarks import plan, trial_file
from benchmarks.coordinator.checkouts import Checkout
from benchmarks.coordinator.trial import measure
from benchmarks.plan import Protocol, Selection
from benchmarks.shapes import Unfit
from tests.benchmarks.test_sampling_plan import CPU, H200, declaration

SWEPT = (Path(__file__).parent / "sweeping/swept.py").read_text()
BURSTS = Protocol(rounds=4, trials=1, deadline_s=30.0, cache="hot", regime="sustained", burst_s=0.01)


def line_of(checkouts, kernel="steady", case="small", backends=()):
    [line] = measure([kernel], checkouts, BURSTS, None, Selection("sweep", (case,), backends))
    trial_file.check(json.loads(json.dumps(line, allow_nan=False)))
    return line


@pytest.mark.slow
def test_a_sustained_trial_has_one_time_per_burst_and_says_its_regime(toy_tree, toy_log):
    line = line_of([Checkout("head", toy_tree("head")), Checkout("base", toy_tree("base"))])
    assert line["protocol"] | {"threads": 1} == {
        "rounds": 4,
        "cache": "hot",
        "seed": 0,
        "schedule_seed": 0,
        "regime": "sustained",
        "burst_s": 0.01,
        "threads": 1,
    }
    case = line["cases"]["small"]
    for key in ("head/ours", "base/ours", "head/library", "base/library"):
        assert case["arms"][key]["status"] == "ok"
        assert len(case["arms"][key]["seconds"]) == 4
    assert 0 < line["busy_share"] <= 1
    line["protocol"]["regime"] = "bursty"
    with pytest.raises(Unfit, match="protocol.regime.*bursty.*spaced, sustained"):
        trial_file.check(line)


def test_the_definition_names_the_regime_only_where_it_is_not_spaced():
    spaced = {"cache": "hot", "seed": 0, "timing": 1}  # as before there was another regime: old digests stay
    assert Protocol(cache="hot").definition_terms() == spaced
    assert BURSTS.definition_terms() == spaced | {"regime": "sustained", "burst_s": 0.01}


@pytest.mark.slow
def test_a_fault_in_a_burst_costs_its_own_arm_only(toy_tree):
    line = line_of([Checkout("head", toy_tree("tree"))], "faults", "one", ("good", "wrong", "falls", "functional"))
    arms = {key.removeprefix("head/"): arm["status"] for key, arm in line["cases"]["one"]["arms"].items()}
    assert arms["good"] == arms["functional"] == "ok"
    assert (arms["wrong"], arms["falls"]) == ("wrong", "crash")


@pytest.mark.slow
def test_ranks_of_a_collective_make_equally_many_calls_and_the_slowest_counts(toy_tree):
    line = line_of([Checkout("head", toy_tree("tree"))], "pairs", "two", ("library",))
    timed = [a for case in line["cases"].values() for a in case["arms"].values() if a["status"] == "ok"]
    assert timed
    assert all(len(arm["rank_s"]) == 2 and len(arm["skew_s"]) == 4 for arm in timed)


@pytest.mark.parametrize(
    ("cost", "machine", "world", "regime", "method", "several"),
    [
        ({"flops": 10**9, "hbm_bytes": 10**7}, H200, 1, "sustained", "graph", True),
        (
            {"flops": 10**12, "hbm_bytes": 10**8},
            H200,
            1,
            "sustained",
            "graph",
            True,
        ),  # by events where calls are spaced
        ({"flops": 10**12, "hbm_bytes": 10**8}, H200, 1, "spaced", "events", False),
        ({"flops": 0, "hbm_bytes": 10**9, "link_bytes": 10**9}, H200, 2, "sustained", "graph", False),
        ({"flops": 10**6, "hbm_bytes": 10**6}, CPU, 1, "sustained", "clock", False),
        ({"flops": 10**12, "hbm_bytes": 6 * 10**9}, H200, 1, "sustained", "graph", True),
    ],
)
def test_long_calls_are_in_a_graph_too_and_rotate_where_there_is_room(cost, machine, world, regime, method, several):
    declared = declaration({"world": world})
    declared["costs"] = dict.fromkeys(declared["costs"], cost)
    count = {"count": max(world, machine["count"])}
    [case] = plan.plan_kernel({"head": declared}, machine | count, Selection(cases=("c0",)), "cold", regime)
    assert (case.method, case.copies > 1) == (method, several)


def test_without_room_for_copies_a_sustained_case_stays_in_its_graph():
    declared = declaration({})
    declared["costs"] = {name: {"flops": 10**13, "hbm_bytes": 25 * 10**9} for name in declared["costs"]}
    [case] = plan.plan_kernel({"head": declared}, H200, Selection(), "cold", "sustained")
    assert (case.method, case.copies) == ("graph", 1)
