"""What a sweep decides about an entry: never more than is beyond doubt, and never for a case that was not measured."""

from __future__ import annotations

import datetime
import math
import random
import tomllib
from pathlib import Path
from types import SimpleNamespace

import pytest

from ci.git.repository import Commit, LocalCheckout
from ci.sweeps import tuning
from ci.sweeps.catalogue import Catalogue
from ci.sweeps.measured import SweepError
from ci.sweeps.pruning import Pruned
from ci.sweeps.tuning import Action, LogTime, decide, mean_ratio, timed_case
from kernels._shared.tuning import PROVENANCE, read_tuned
from tests.ci.sweeps.made_sweeps import FAST, OTHER, RULE, SLOW, TABLE, case, sweep

FLOOR = 0.003


def decision(tmp_path, ratios, cases=None, trials=3, entry=None):
    """Of the entry that the cases share."""
    cases = cases or [case(name, entry) for name in ratios]
    found = sweep(tmp_path, ratios, trials, entry)
    return decide(cases, [timed_case(one, found.frame) for one in cases], FLOOR)


def test_a_winner_is_written_where_it_beats_the_rule_beyond_doubt(tmp_path):
    made = decision(tmp_path, {"m16_fp16": [(FAST, 0.9), (SLOW, 1.3), (OTHER, 0.95)]})
    assert made.action is Action.NEW
    assert made.entry == {"warps": 8, "stages": 2}
    assert made.against_rule.ratio == pytest.approx(0.9, abs=0.01)
    assert made.against_rule.high < 1 - FLOOR
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
    made = decide(cases, [timed_case(cases[0], found.frame)], FLOOR)
    assert (made.action, made.entry) == (Action.MOVED, OTHER)
    assert "wrong" in made.why


def test_elements_are_counted_as_in_an_entry(tmp_path):
    half, whole = (case(name, scale={"rows": scale}) for name, scale in (("m16_fp16", 1.0), ("m16_fp32", 2.0)))
    assert half.identity({"rows": 16}) == whole.identity({"rows": 8})
    assert whole.as_entry({**RULE, "rows": 4}) == {**RULE, "rows": 8}
    assert case().as_entry({**RULE, "store": "", "rows": 8}) == RULE


def test_a_ratio_of_two_points_is_as_wide_as_both_together():
    """Against the obvious way: many draws of both."""
    random.seed(3)
    one, other = LogTime(-0.1, 0.02, 3), LogTime(0.05, 0.03, 3)
    draws = sorted(random.gauss(one.log, one.half / 2) - random.gauss(other.log, other.half / 2) for _ in range(20000))
    found = mean_ratio([one], [other])
    assert found.ratio == pytest.approx(math.exp(-0.15))
    assert math.log(found.high) == pytest.approx(draws[round(0.977 * len(draws))], abs=0.003)
    assert mean_ratio([one], [one]).high == 1.0
    assert mean_ratio([one] * 4, [other] * 4).high < found.high


# tuned.toml: entries come and go, and every other line stays as it was written.


ROOT = Path(__file__).parents[3]
COMMITTED = sorted(ROOT.glob("kernels/*/tuned.toml"))


@pytest.mark.parametrize("path", COMMITTED, ids=lambda path: path.parent.name)
def test_a_committed_table_without_decisions_stays_to_the_byte(path):
    assert tuning.rewritten(path.read_text(), path, [], SimpleNamespace()) == path.read_text()
    assert tuning.PROVENANCE == PROVENANCE


def written(tmp_path):
    """A new entry, one that moved and one that goes."""
    file = tmp_path / "tuned.toml"
    file.write_text(TABLE)
    cases = [case("m64_fp16", FAST, file), case("m128_fp16", None, file), case("m128_bf16", None, file)]
    cases += [case("m256_fp16", SLOW, file)]
    moved = sweep(tmp_path, {"m64_fp16": [(RULE, 1.1), (OTHER, 0.95), (SLOW, 1.3)]}, entry=FAST)
    new = sweep(tmp_path, {name: [(FAST, 0.9), (OTHER, 0.95)] for name in ("m128_fp16", "m128_bf16")})
    gone = sweep(tmp_path, {"m256_fp16": [(RULE, 0.8)]}, entry=SLOW)
    decided, text = [], file.read_text()
    for measured in (moved, new, gone):
        own = tuning.decisions(cases, measured)
        text = tuning.rewritten(text, file, own, measured)
        decided += own
    return text, decided


def test_a_written_table(tmp_path, golden):
    text, decided = written(tmp_path)
    assert [one.action for one in decided] == [Action.MOVED, Action.NEW, Action.REMOVED]
    golden("tuned/written.toml", text)
    table = tomllib.loads(text)["sm_90"]
    assert {key: {name: own[name] for name in own if name != PROVENANCE} for key, own in table.items()} == {
        "m64": OTHER,
        "m128": FAST,
    }
    assert table["m128"][PROVENANCE]["cases"] == ["m128_fp16", "m128_bf16"]
    assert table["m128"][PROVENANCE]["date"] == datetime.date(2026, 11, 20)
    assert "# Somebody's word on m64." in text


def test_the_knobs_that_a_launch_reads_do_not_know_what_confirmed_them(tmp_path):
    text, _ = written(tmp_path)
    (tmp_path / "tuned.toml").write_text(text)
    assert read_tuned(str(tmp_path / "config.py")) == {"sm_90": {"m64": OTHER, "m128": FAST}}


def test_a_broken_table_is_named_with_the_next_step(tmp_path):
    with pytest.raises(SweepError, match=r"tuned.toml is not TOML: .*; repair it, or remove it for a new one"):
        tuning.rewritten("[sm_90.m64\n", tmp_path / "tuned.toml", [], SimpleNamespace())


# What is measured for a table.


def test_a_verification_measures_every_entry_and_its_rule_in_every_trial(monkeypatch, tmp_path):
    """A search drops what is slow early; an entry that was dropped would be confirmed by few trials."""
    monkeypatch.setattr(tuning, "prune", lambda catalogue, points, *_: Pruned(points))
    checkout, one = LocalCheckout("head", tmp_path, Commit("c" * 40, 0, "")), case("m16_fp16", FAST)
    bench = Catalogue("gemm", "cpu", None, ())
    verified, searched = (tuning.tuning_sweep(bench, [one], checkout, None, None, verify) for verify in (True, False))
    assert (verified.rungs.halving, searched.rungs.halving) == (False, True)
    assert [point.label for point in verified.pruned.to_measure["m16_fp16"]] == [one.point(one.by_rule).label]
    assert {point.label for point in searched.pruned.to_measure["m16_fp16"]} >= {
        one.point(OTHER).label,
        one.point(RULE).label,
    }
    assert searched.rungs.stay == {("m16_fp16", one.point(RULE).label)}
