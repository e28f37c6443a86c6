"""tuned.toml: entries come and go, what confirmed them is read back, and every other line stays as it was written."""

from __future__ import annotations

import dataclasses
import datetime
import tomllib
from pathlib import Path

import pytest

from ci.sweeps.measured import SweepError
from ci.sweeps.rungs import Versus
from ci.sweeps.tuned import tables, tuning
from ci.sweeps.tuned import tuning as report
from ci.sweeps.tuned.choose import Action, RunnerUp
from ci.sweeps.tuned.tables import Confirmed, TunedText, entries
from kernels._shared.tuning import PROVENANCE, read_tuned
from tests.ci.sweeps.tuned.made_tables import DEFAULTS, FAST, OTHER, RULE, SLOW, TABLE, case, sweep

ROOT = Path(__file__).parents[4]
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


def test_a_table_that_is_written_twice_is_the_same(tmp_path):
    (tmp_path / "one").mkdir()
    (tmp_path / "two").mkdir()
    assert written(tmp_path / "one")[0] == written(tmp_path / "two")[0]


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


def test_a_difference_shows_what_changes():
    text = TunedText.of(TABLE, "it").without(("sm_90", "m256"))
    shown = tables.difference(Path("tuned.toml"), TABLE, str(text))
    assert "-[sm_90.m256]" in shown
    assert tables.difference(Path("tuned.toml"), TABLE, TABLE) == ""


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
