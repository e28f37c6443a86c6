"""What a sweep decides about an entry: never more than is beyond doubt, and never for a case that was not measured."""

from __future__ import annotations

import dataclasses
import datetime
import math
import random
import tomllib
from pathlib import Path
from types import SimpleNamespace

import pytest

from ci.sweeps import tables, tuning
from ci.sweeps import tuning as report
from ci.sweeps.choose import Action, EntryDecision, RunnerUp, decide, timed
from ci.sweeps.measured import SweepError
from ci.sweeps.rungs import LogTime, Versus, over_cases, versus
from ci.sweeps.tables import Confirmed, TableEntry, TunedText, entries
from ci.sweeps.tuning import code_of_rivals, due, rivals, within
from kernels._shared.tuning import PROVENANCE, read_tuned
from tests.ci.sweeps.made_sweeps import DEFAULTS, FAST, OTHER, RULE, SLOW, TABLE, case, sweep

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


# tuned.toml: entries come and go, what confirmed them is read back, and every other line stays as it was written.


ROOT = Path(__file__).parents[3]
COMMITTED = sorted(ROOT.glob("kernels/*/tuned.toml"))


@pytest.mark.parametrize("path", COMMITTED, ids=lambda path: path.parent.name)
def test_a_committed_table_stays_to_the_byte_and_entries_come_back_where_they_were(path):
    before = path.read_text()
    text = TunedText.of(before, str(path))
    assert str(text) == before
    heads = [block.names for block in text.blocks if block.names and block.names[-1] != tables.NAME]
    for names in heads[:: max(1, len(heads) // 5)]:
        knobs = tomllib.loads(before)
        for name in names:
            knobs = knobs[name]
        confirmed = knobs.pop(tables.NAME, {})
        keys = [head[-1] for head in heads if head[:-1] == names[:-1]]
        assert str(text.with_entry(names, knobs, confirmed, keys)) == before
        assert str(TunedText.of(str(text.without(names)), "it").with_entry(names, knobs, confirmed, keys)) == before


CONFIRMED = Confirmed(
    datetime.date(2026, 11, 22),
    "NVIDIA H200",
    "h200x1-537ca5d2",
    {"triton": "3.6.0", "torch": "2.11.0", "driver": "570.1"},
    ("m64_fp16", "m64_bf16"),
    3,
    Versus(0.9, 0.89, 0.91),
    (RunnerUp({**DEFAULTS, **OTHER}, 1.02), RunnerUp({**DEFAULTS, **RULE}, 1.11)),
    "0123456789abcdef",
)


def test_what_confirmed_an_entry_is_read_back_as_it_was_written():
    launched = {**DEFAULTS, **FAST}
    table = tables.as_table(CONFIRMED, launched)
    text = str(TunedText.of(TABLE, "it").with_entry(("sm_90", "m64"), FAST, table))
    read = tomllib.loads(text)["sm_90"]["m64"][tables.NAME]
    assert tables.parse(read, launched, "it") == CONFIRMED
    assert tables.NAME == PROVENANCE


def test_the_knobs_of_a_table_are_the_same_with_and_without_what_confirmed_them(tmp_path):
    table = tables.as_table(CONFIRMED, {**DEFAULTS, **FAST})
    found = []
    for confirmed in ({}, table):
        text = TunedText.of(TABLE, "it").with_entry(("sm_90", "m64"), FAST, confirmed)
        (tmp_path / "tuned.toml").write_text(str(text))
        found.append(read_tuned(str(tmp_path / "config.py")))
    assert found[0] == found[1] == {"sm_90": {"m64": FAST, "m256": SLOW}}


def written(tmp_path: Path) -> tuple[str, list]:
    """A new entry between two, one that moved and one that goes."""
    file = tmp_path / "tuned.toml"
    file.write_text(TABLE)
    cases = [case("m64_fp16", FAST, file), case("m128_fp16", None, file), case("m128_bf16", None, file)]
    cases += [case("m256_fp16", SLOW, file)]
    moved = sweep(tmp_path, {"m64_fp16": [(RULE, 1.1), (OTHER, 0.95), (SLOW, 1.3)]}, entry=FAST)
    new = sweep(tmp_path, {name: [(FAST, 0.9), (OTHER, 0.95)] for name in ("m128_fp16", "m128_bf16")})
    gone = sweep(tmp_path, {"m256_fp16": [(RULE, 0.8)]}, entry=SLOW)
    made, text = [], file.read_text()
    for measured in (moved, new, gone):
        found = tuning.decisions(cases, measured)
        code = {(one.case, "triton", one.identity(knobs)): f"{one.case} {knobs}" for one in cases
                for knobs in (RULE, FAST, SLOW, OTHER)}  # fmt: skip
        confirmed = tuning.confirmations(found, measured, code)
        [(_, text)] = tuning.new_texts(cases, found, confirmed).values()
        file.write_text(text)
        made += found
    return text, made


def test_a_written_table(tmp_path, golden):
    text, made = written(tmp_path)
    assert [one.action for one in made] == [Action.MOVED, Action.NEW, Action.REMOVED]
    golden("tuned/written.toml", text)
    assert tomllib.loads(text)["sm_90"].keys() == {"m64", "m128"}
    assert "# Somebody's word on m64." in text


def test_entries_are_those_of_the_file_with_what_confirmed_them(tmp_path):
    text, _ = written(tmp_path)
    file = tmp_path / "tuned.toml"
    cases = [case("m64_fp16", OTHER, file), case("m128_fp16", FAST, file), case("m128_bf16", FAST, file)]
    cases += [case("m256_fp16", None, file)]
    [first, second] = entries(cases)
    assert (first.place.key, second.place.key) == ("m64", "m128")
    assert first.confirmed.date == datetime.date(2026, 11, 20)
    assert [one.case for one in second.cases] == ["m128_fp16", "m128_bf16"]
    assert second.confirmed.cases == ("m128_fp16", "m128_bf16")
    assert [one.knobs["stages"] for one in second.confirmed.runners_up] == [4]
    assert "sm_90.m64.confirmed" in text


@pytest.mark.parametrize(
    ("broken", "says"),
    [
        ('[sm_90.m64]\nwarps = 8\n[sm_90.m64.confirmed]\ndevice = "x"\n', "no 'ratio'"),
        ("[sm_90.m64]\nwarps = 8\n[sm_90.m64.confirmed]\nratio = 1\nlow = 1\nhigh = 1\ndate = 3\n", "date = 3"),
        ("[sm_90.m64\n", "cannot be read"),
    ],
)
def test_a_broken_table_is_named_with_the_next_step(tmp_path, broken, says):
    file = tmp_path / "tuned.toml"
    file.write_text(broken)
    with pytest.raises(SweepError, match="tuned.toml") as error:
        entries([case("m64_fp16", FAST, file)])
    assert says in str(error.value)
    assert "remove this table" in str(error.value) or "repair it" in str(error.value)


def test_lines_are_added_to_a_trial_file_once(tmp_path):
    lines, out = tmp_path / "own.jsonl", tmp_path / "new" / "all.jsonl"
    report.added(lines, out)
    assert out.read_text() == ""
    lines.write_text("one\ntwo\n")
    report.added(lines, out)
    report.added(lines, out)
    assert out.read_text() == "one\ntwo\n"


def test_a_version_that_is_not_known_is_left_out():
    bare = dataclasses.replace(CONFIRMED, versions={"triton": "3.8.0"}, runners_up=(), code="")
    table = tables.as_table(bare, FAST)
    assert {"torch", "driver", "runners_up", "code"} & set(table) == set()
    assert tables.parse(table, FAST, "it") == bare


# Which entries need GPU time: those whose code is not what was confirmed, the oldest first.


def entry(name: str, day: int | None, code: str = "") -> TableEntry:
    """An entry for two cases, confirmed on a day of November, or never."""
    cases = tuple(case(f"{name}_{dtype}", FAST) for dtype in ("fp16", "bf16"))
    runners = (RunnerUp({**DEFAULTS, **OTHER}, 1.02),)
    date = datetime.date(2026, 11, day or 1)
    confirmed = Confirmed(date, "H200", "h200", {}, (), 3, Versus(0.9, 0.89, 0.91), runners, code)
    return TableEntry(cases[0].place, cases, confirmed if day else None)


def code(*entries: TableEntry, of: str = "") -> dict[tuple[str, str, str], str]:
    """Code objects of all knobs; of: what all are marked with."""
    every = [one for each in entries for one in each.cases]
    return {(one.case, "triton", one.identity(knobs)): f"{one.case}{knobs}{of}" for one in every
            for knobs in (RULE, FAST, SLOW, OTHER)}  # fmt: skip


def confirmed(name: str, day: int) -> TableEntry:
    """An entry that was confirmed with the code of now."""
    made = entry(name, day)
    digest = code_of_rivals(rivals(made), code(made))
    return dataclasses.replace(made, confirmed=dataclasses.replace(made.confirmed, code=digest))


def test_an_entry_is_measured_with_its_rule_and_runners_up():
    one = rivals(entry("m16", 5))
    assert [{k: v for k, v in knobs.items() if k in RULE} for knobs in one.knobs] == [FAST, RULE, OTHER]


def test_candidates_stand_for_the_runners_up_of_an_entry_that_nobody_confirmed():
    one = rivals(entry("m16", None))
    assert [{k: v for k, v in knobs.items() if k in RULE} for knobs in one.knobs] == [FAST, RULE, SLOW, OTHER]


def test_only_code_that_changed_anywhere_is_measured_again():
    same = confirmed("m16", 5)
    known = code(same)
    assert [one.entry for one in due([same], known, None).unchanged] == [same]
    for name, contender in [(one, knobs) for one in same.cases for knobs in (FAST, RULE, OTHER)]:
        changed = (name.case, "triton", name.identity(contender))
        assert len(due([same], {**known, changed: "new"}, None).stale) == 1, changed
    of_no_contender = (same.cases[0].case, "triton", same.cases[0].identity(SLOW))
    assert due([same], {**known, of_no_contender: "new"}, None).stale == ()
    assert len(due([same], {}, None).stale) == 1
    assert len(due([entry("m16", 5, code="")], code(same), None).stale) == 1


def test_the_oldest_come_first_and_as_many_as_the_budget_allows():
    every = [entry("m16", 9), entry("m32", 3), entry("m64", None), entry("m128", 3)]
    stale = due(every, {}, None).stale
    assert [one.entry.place.key for one in stale] == ["m64", "m128", "m32", "m16"]

    def minutes(some):
        return 1.0 + 0.5 * len(some)

    keys = [[one.entry.place.key for one in part] for part in within(stale, minutes, 2.1)]
    assert keys == [["m64", "m128"], ["m32", "m16"]]
    assert [len(part) for part in within(stale, minutes, None)] == [4, 0]
    assert [len(part) for part in within(stale, minutes, 0.1)] == [1, 3]
    assert within((), minutes, 1.0) == ((), ())


def test_an_entry_of_more_ranks_than_there_are_gpus_waits_for_them(capsys):
    """Two GPUs: that of four ranks is neither measured nor forgotten."""
    four = entry("m32", 3)
    four = dataclasses.replace(four, cases=tuple(dataclasses.replace(one, world=4) for one in four.cases))
    found = due([entry("m16", 9), four], {}, 2)
    assert [[one.entry.place.key for one in part] for part in (found.stale, found.elsewhere)] == [["m16"], ["m32"]]
    assert due([four], {}, 4).elsewhere == ()
    report.say_due("gemm", found, (), 1.0)
    told = capsys.readouterr().err
    assert "sm_90.m32: waits for 4 GPUs, confirmed on 2026-11-03" in told
    assert "gemm: 2 entries, 0 need no GPU time, 1 to verify in about 1.0 GPU minutes, 1 wait" in told


def test_a_verification_measures_every_entry_in_every_trial():
    """A search drops what is slow early; an entry that was dropped would be confirmed by few trials."""
    bench = SimpleNamespace(catalogue=SimpleNamespace(operator="gemm", kind="cpu"))
    assert [tuning.Bench.rungs(bench, verifying).halving for verifying in (True, False)] == [False, True]


def test_every_point_but_the_anchor_is_measured_once_and_other_backends_as_they_are():
    one = case()
    other = dataclasses.replace(one, backend="gluon")
    points, anchors = tuning.Bench.points(SimpleNamespace(), [(one, [FAST, SLOW, FAST]), (other, [])])
    assert anchors == {one.case: one.backend}
    labels = [one.point(FAST).label, one.point(SLOW).label, other.backend]
    assert [point.label for point in points[one.case]] == labels
