"""Rules from points: the best cut of a range is found, and what each rule loses is what it loses."""

from __future__ import annotations

import itertools
import math

import numpy as np
import pandas as pd
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ci.sweeps.studies import guidance
from ci.sweeps.studies.guidance import best_cuts, losing, rules, sentence


def cost(losses, cuts, price):
    return sum(min(sum(row[c] for row in losses[a:b]) for c in range(len(losses[0]))) + price for a, b in cuts)


def every_cut(count):
    """All ways to divide `count` rows into neighbouring ranges."""
    for inner in itertools.product((False, True), repeat=count - 1):
        edges = [0, *(i + 1 for i, cut in enumerate(inner) if cut), count]
        yield list(itertools.pairwise(edges))


@settings(max_examples=60, deadline=None)
@given(
    st.integers(1, 7).flatmap(
        lambda rows: st.lists(st.lists(st.floats(0, 1), min_size=3, max_size=3), min_size=rows, max_size=rows)
    ),
    st.floats(0.001, 0.5),
)
def test_no_other_cut_costs_less(losses, price):
    found = best_cuts(np.array(losses), price)
    assert [start for start, _ in found[1:]] == [end for _, end in found[:-1]]
    assert (found[0][0], found[-1][1]) == (0, len(losses))
    oracle = min(cost(losses, cuts, price) for cuts in every_cut(len(losses)))
    assert cost(losses, found, price) == pytest.approx(oracle)


def times_of(best_of):
    """Cases m1..m1024 x two weights; the named tile is best, the others take 10 % and 30 % longer."""
    tiles = ("16x64x128", "64x64x128", "128x256x64")
    rows = {}
    for power in range(11):
        for k in (4096, 14336):
            best = best_of(2**power)
            others = [tile for tile in tiles if tile != best]
            rows[f"k{k}_m{2**power}"] = {best: 1.0, others[0]: 1.1, others[1]: 1.3}
    frame = pd.DataFrame(rows).T
    return frame, pd.Series({name: float(name.rpartition("m")[2]) for name in frame.index})


def test_a_known_answer_is_found():
    times, m = times_of(lambda m: "16x64x128" if m <= 16 else "64x64x128" if m <= 128 else "128x256x64")
    found = rules(times, m)
    assert [(one.low, one.high, one.choice) for one in found] == [
        (1, 16, "16x64x128"), (32, 128, "64x64x128"), (256, 1024, "128x256x64")
    ]  # fmt: skip
    assert [one.mean_loss for one in found] == [pytest.approx(0.0)] * 3
    assert sum(one.cases for one in found) == len(times)


def test_a_rule_that_saves_too_little_is_not_made():
    times, m = times_of(lambda m: "64x64x128")
    times.loc["k4096_m8", "16x64x128"] = 0.999
    (rule,) = rules(times, m)
    assert (rule.choice, rule.worst_case) == ("64x64x128", "k4096_m8")
    assert rule.worst_loss == pytest.approx(1 / 0.999 - 1)
    assert rule.mean_loss == pytest.approx(math.exp(math.log(1 / 0.999) / 22) - 1)


def test_a_loss_is_against_the_best_point_of_the_case():
    times = pd.DataFrame({"a": [1.0, 1.0], "b": [1.05, 0.8]}, index=["one", "two"])
    (rule,) = rules(times, pd.Series({"one": 64.0, "two": 64.0}))
    assert rule.choice == "b"
    assert rule.worst_loss == pytest.approx(0.05)
    assert (rule.low, rule.high, rule.cases) == (64.0, 64.0, 2)


def test_what_was_not_measured_is_said_and_never_preferred():
    times = pd.DataFrame({"a": [1.0, 1.0, 1.0], "b": [math.nan, math.nan, 0.95]}, index=["x", "y", "z"])
    (rule,) = rules(times, pd.Series({"x": 1.0, "y": 1.0, "z": 1.0}))
    assert (rule.choice, rule.absent) == ("a", 0)
    only = pd.DataFrame({"a": [1.0, math.nan], "b": [math.nan, 1.0]}, index=["x", "y"])
    (rule,) = rules(only, pd.Series({"x": 1.0, "y": 1.0}))
    assert (rule.absent, rule.mean_loss) == (1, pytest.approx(0.0))
    assert "1 of 2 cases lack it" in losing(rule)
    assert rules(pd.DataFrame({"a": [math.nan]}, index=["x"]), pd.Series({"x": 1.0})) == []


def test_rules_are_sentences():
    times, m = times_of(lambda m: "16x64x128" if m <= 16 else "64x64x128")
    guide = guidance.GUIDES["tile_by_m"]
    assert [sentence(guide, one) for one in rules(times, m)] == ["M 1 to 16: 16x64x128", "M 32 to 1024: 64x64x128"]
    assert losing(rules(times, m)[0]) == "loses 0.0% in the mean, 0.0% at worst (k4096_m1); 10 cases"
