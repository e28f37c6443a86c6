"""What a sweep decides about an entry: never more than is beyond doubt, and never for a case that was not measured."""

from __future__ import annotations

import math
import random

import pytest

from ci.sweeps.rungs import LogTime, over_cases, versus
from ci.sweeps.tuned.choose import Action, EntryDecision, decide, timed
from tests.ci.sweeps.tuned.made_tables import FAST, OTHER, RULE, SLOW, case, sweep

FLOOR = 0.003


def decision(tmp_path, ratios, cases=None, trials=3, entry=None) -> EntryDecision:
    """Of the entry that the cases share."""
    cases = cases or [case(name, entry) for name in ratios]
    found = sweep(tmp_path, ratios, trials, entry)
    return decide(cases, {one.case: timed(one, found.frame) for one in cases}, FLOOR)


def test_a_winner_is_written_where_it_beats_the_rule_beyond_doubt(tmp_path):
    made = decision(tmp_path, {"m16_fp16": [(FAST, 0.9), (SLOW, 1.3), (OTHER, 0.95)]})
    assert made.action is Action.NEW
    assert made.entry == {"warps": 8, "stages": 2}
    assert made.against_rule.ratio == pytest.approx(0.9, abs=0.01)
    assert made.against_rule.high < 1 - FLOOR
    assert [one.knobs["stages"] for one in made.runners_up] == [4, 2]
    assert made.runners_up[0].behind == pytest.approx(0.95 / 0.9, abs=0.01)
    assert made.trials == 3


@pytest.mark.parametrize("ratio", [0.9995, 1.0, 1.01])
def test_nothing_is_written_where_the_rule_is_as_good(tmp_path, ratio):
    made = decision(tmp_path, {"m16_fp16": [(FAST, ratio), (SLOW, 1.3)]})
    assert (made.action, made.entry) == (Action.BY_RULE, None)


def test_an_entry_must_win_in_every_case_that_shares_it(tmp_path):
    both = {"m16_fp16": [(FAST, 0.9), (OTHER, 0.97)], "m16_bf16": [(FAST, 1.05), (OTHER, 0.97)]}
    made = decision(tmp_path, both)
    assert (made.action, made.entry) == (Action.NEW, OTHER)
    none = {"m16_fp16": [(FAST, 0.9)], "m16_bf16": [(FAST, 1.05)]}
    assert decision(tmp_path, none).action is Action.BY_RULE


def test_a_case_that_was_not_measured_leaves_its_entry_as_it_is(tmp_path):
    cases = [case("m16_fp16"), case("m16_bf16")]
    made = decision(tmp_path, {"m16_fp16": [(FAST, 0.9)]}, cases)
    assert (made.action, made.entry) == (Action.OPEN, None)
    assert "m16_bf16" in made.why


def test_one_trial_is_not_enough(tmp_path):
    made = decision(tmp_path, {"m16_fp16": [(FAST, 0.9)]}, trials=1)
    assert made.action is Action.OPEN
    assert "one trial" in made.why


@pytest.mark.parametrize("status", ["wrong", "hang", "crash"])
def test_knobs_that_failed_once_never_win(tmp_path, status):
    made = decision(tmp_path, {"m16_fp16": [(FAST, status), (OTHER, 0.95)]})
    assert (made.action, made.entry) == (Action.NEW, OTHER)
    assert decision(tmp_path, {"m16_fp16": [(FAST, status)]}).action is Action.BY_RULE


def test_a_rule_without_a_time_decides_nothing(tmp_path):
    made = decision(tmp_path, {"m16_fp16": [(RULE, "crash"), (OTHER, 0.9)]}, entry=FAST)
    assert made.action is Action.OPEN
    assert "crash" in made.why


def test_an_entry_that_still_wins_is_confirmed(tmp_path):
    made = decision(tmp_path, {"m16_fp16": [(RULE, 1.1), (OTHER, 1.05), (SLOW, 1.3)]}, entry=FAST)
    assert (made.action, made.entry) == (Action.CONFIRMED, FAST)
    assert made.against_rule.ratio == pytest.approx(1 / 1.1, abs=0.01)


def test_a_hair_of_a_better_point_does_not_oust_an_entry(tmp_path):
    made = decision(tmp_path, {"m16_fp16": [(RULE, 1.1), (OTHER, 0.998)]}, entry=FAST)
    assert (made.action, made.entry) == (Action.CONFIRMED, FAST)


def test_the_best_configuration_moves(tmp_path):
    made = decision(tmp_path, {"m16_fp16": [(RULE, 1.1), (OTHER, 0.95)]}, entry=FAST)
    assert (made.action, made.entry) == (Action.MOVED, OTHER)
    assert made.moved_by.ratio == pytest.approx(0.95, abs=0.01)


@pytest.mark.parametrize("rule", [0.9, 1.0])
def test_an_entry_that_no_longer_beats_the_rule_goes(tmp_path, rule):
    made = decision(tmp_path, {"m16_fp16": [(RULE, rule), (OTHER, 1.2)]}, entry=FAST)
    assert (made.action, made.entry) == (Action.REMOVED, None)


def test_an_entry_that_is_the_rule_by_now_goes(tmp_path):
    made = decision(tmp_path, {"m16_fp16": [(FAST, 0.9)]}, entry=RULE)
    assert made.action is Action.REMOVED
    assert "same knobs" in made.why


def test_an_entry_that_fails_goes_or_moves(tmp_path):
    cases = [case("m16_fp16", FAST)]
    found = sweep(tmp_path, {"m16_fp16": [(FAST, "wrong"), (OTHER, 0.9)]})  # the anchor is the rule
    made = decide(cases, {"m16_fp16": timed(cases[0], found.frame)}, FLOOR)
    assert (made.action, made.entry) == (Action.MOVED, OTHER)
    assert "wrong" in made.why


def test_elements_are_counted_as_in_an_entry(tmp_path):
    half, whole = (case(name, scale={"rows": scale}) for name, scale in (("m16_fp16", 1.0), ("m16_fp32", 2.0)))
    assert half.identity({"rows": 16}) == whole.identity({"rows": 8})
    assert whole.as_entry({**RULE, "rows": 4}) == {**RULE, "rows": 8}
    assert whole.launched({**RULE, "rows": 16})["rows"] == 8
    assert case().as_entry({**RULE, "store": "", "rows": 8}) == RULE


def test_a_ratio_of_two_points_is_as_wide_as_both_together():
    """Against the obvious way: many draws of both."""
    random.seed(3)
    one, other = LogTime(-0.1, 0.02, 3), LogTime(0.05, 0.03, 3)
    draws = sorted(random.gauss(one.log, one.half / 2) - random.gauss(other.log, other.half / 2) for _ in range(20000))
    found = versus(one, other)
    assert found.ratio == pytest.approx(math.exp(-0.15))
    assert math.log(found.high) == pytest.approx(draws[round(0.977 * len(draws))], abs=0.003)
    assert versus(one, one).high == 1.0
    assert over_cases([(one, other)] * 4).high < found.high
