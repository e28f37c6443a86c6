"""Bursts: their order and when a device has settled, on a made one; trials of them on real processes."""

from __future__ import annotations

import itertools
import json
import random
import statistics
from collections import Counter

import pytest

from benchmarks import plan, trial_file
from benchmarks.coordinator.checkouts import Checkout
from benchmarks.coordinator.samples import SETTLING_BURSTS, BurstRounds, balanced
from benchmarks.coordinator.trial import measure
from benchmarks.plan import Protocol, Selection
from benchmarks.shapes import Unfit
from tests.benchmarks.test_sampling_plan import H200, declaration


def spread(counts, keys):
    return max(counts[key] for key in keys) - min(counts[key] for key in keys)


def neighbours(rounds):
    """By how much the most frequent follower and place exceed the rarest, counted one by one."""
    flat = [arm for those in rounds for arm in those]
    arms = sorted(set(flat))
    follows = Counter((a, b) for a, b in zip(flat, flat[1:], strict=False) if a != b)
    places = Counter((arm, those.index(arm)) for those in rounds for arm in those)
    pairs = list(itertools.permutations(arms, 2))
    return spread(follows, pairs), spread(places, list(itertools.product(arms, range(len(arms)))))


@pytest.mark.parametrize("arms", [2, 3, 4, 5, 6])
@pytest.mark.parametrize("seed", range(2))
def test_every_round_has_every_arm_and_neighbours_and_places_balance(arms, seed):
    names = list("abcdef"[:arms])
    rounds = balanced(names, 12, random.Random(seed))
    assert [sorted(those) for those in rounds] == [names] * 12
    follows, places = neighbours(rounds)
    assert follows <= 3
    assert places <= 3
    if arms == 2:
        assert (follows, places) == (0, 0)


# Rounds of bursts on a made device, whose clock follows the power of what ran in the last 200 ms.


class MadeDevice:
    """A device whose calls take longer the warmer it is; heat follows with a time constant of 200 ms.

    cold_s: seconds of a call of each arm on a cold device.  hot: share by which it is slower at its settled power.
    """

    def __init__(self, cold_s, hot):
        self.cold_s, self.hot, self.heat, self.now_s = cold_s, hot, 0.0, 0.0
        self.asked = []

    def burst(self, arm, launches):
        self.asked.append((arm, launches))
        halves, spent = [], 0.0
        for _ in range(2):
            call_s = self.cold_s[arm] * (1 + self.hot * self.heat)
            half_s = launches / 2 * call_s
            self.heat = min(1.0, self.heat + half_s / 0.2)
            halves.append(call_s)
            spent += half_s
        self.now_s += spent
        return [{"seconds": halves[1], "busy_s": spent, "starved": 0, "parts": 32}]


def bursts(device, burst_s=0.3):
    return BurstRounds(device.burst, burst_s, random.Random(0))


def test_a_calibrated_burst_is_as_long_as_asked_however_wrong_the_first_guess():
    device = MadeDevice({"a": 1e-5, "b": 2e-3}, hot=0.0)
    timed = bursts(device)
    timed.calibrate("a", 5e-3)  # 500 times too long
    timed.calibrate("b", 2e-3)
    before = device.now_s
    bursts_taken = len(list(timed.take(["a", "b"], 3)))
    assert 0.3 <= (device.now_s - before) / bursts_taken <= 0.36


def test_the_device_is_settled_when_two_bursts_agree_and_every_round_is_then_hot():
    device = MadeDevice({"a": 1e-3, "b": 1.5e-3}, hot=0.2)
    timed = bursts(device)
    for arm in "ab":
        timed.calibrate(arm, 1e-3)
    assert timed.settle("a", 0.005) == ""
    assert len(device.asked) <= 2 + 4
    taken = list(timed.take(["a", "b"], 8))
    median = {arm: statistics.median(max(one.by_rank) for one in taken if one.arm == arm) for arm in "ab"}
    assert median == {"a": pytest.approx(1.2e-3), "b": pytest.approx(1.8e-3)}


def test_a_device_that_never_settles_is_said():
    class Wandering(MadeDevice):
        def burst(self, arm, launches):
            self.cold_s[arm] *= 1.02
            return super().burst(arm, launches)

    device = Wandering({"a": 1e-3}, hot=0.0)
    timed = bursts(device)
    timed.calibrate("a", 1e-3)
    before = len(device.asked)
    assert "did not settle: after 10 bursts of 0.3 s" in timed.settle("a", 0.005)
    assert len(device.asked) - before == SETTLING_BURSTS


# Trials in bursts on real processes: what is written, in which order arms are timed, and what becomes of faults.


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
    line["protocol"]["regime"] = "bursty"
    with pytest.raises(Unfit, match="protocol.regime.*bursty.*spaced, sustained"):
        trial_file.check(line)


def test_the_definition_names_the_regime_only_where_it_is_not_spaced():
    spaced = {"cache": "hot", "seed": 0, "timing": 1}  # as before there was another regime: old digests stay
    assert Protocol(cache="hot").definition_terms() == spaced
    assert BURSTS.definition_terms() == spaced | {"regime": "sustained", "burst_s": 0.01}


@pytest.mark.slow
def test_ranks_of_a_collective_make_equally_many_calls_and_the_slowest_counts(toy_tree):
    line = line_of([Checkout("head", toy_tree("tree"))], "pairs", "two", ("library",))
    timed = [a for case in line["cases"].values() for a in case["arms"].values() if a["status"] == "ok"]
    assert timed
    assert all(len(arm["rank_s"]) == 2 and len(arm["skew_s"]) == 4 for arm in timed)


@pytest.mark.parametrize(
    ("cost", "machine", "world", "regime", "method", "several"),
    [
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
        ({"flops": 10**12, "hbm_bytes": 6 * 10**9}, H200, 1, "sustained", "graph", True),
    ],
)
def test_long_calls_are_in_a_graph_too_and_rotate_where_there_is_room(cost, machine, world, regime, method, several):
    declared = declaration({"world": world})
    declared["costs"] = dict.fromkeys(declared["costs"], cost)
    count = {"count": max(world, machine["count"])}
    [case] = plan.plan_kernel({"head": declared}, machine | count, Selection(cases=("c0",)), "cold", regime)
    assert (case.method, case.copies > 1) == (method, several)
