"""The lines of a sweep as one row per point."""

from __future__ import annotations

import math
from pathlib import Path

import pytest

from benchmarks.points import Point
from ci.sweeps import measured
from ci.sweeps.measured import SweepError
from tests.ci.made_trials import MACHINE, trial, write
from tests.ci.sweeps.made_sweeps import line

FAST, SLOW = {"num_warps": 8}, {"num_warps": 2}


def _row(found: measured.Measured, knobs: dict[str, int], case: str = "m16"):
    own = found.frame[found.frame["point"] == Point(case, "triton", knobs).id]
    assert len(own) == 1
    return own.iloc[0]


def test_a_point_is_a_ratio_to_its_anchor_though_the_level_drifts(tmp_path: Path) -> None:
    file = write(tmp_path / "s.jsonl", line([(FAST, 0.9), (SLOW, 1.3)], plain={"blas": 0.8}))
    found = measured.read([file])
    assert found.frame["operator"].unique().tolist() == ["gemm"]
    fast, slow = _row(found, FAST), _row(found, SLOW)
    assert fast["ratio"] == pytest.approx(0.9, rel=0.004)
    assert slow["ratio"] == pytest.approx(1.3, rel=0.004)
    assert fast["low"] < 0.9 < fast["high"]
    assert fast["high"] - fast["low"] < 0.03
    assert fast["knobs"] == FAST
    assert fast["anchor"] == "triton"
    assert fast["rounds"] == 8
    assert fast["trials"] == 1
    anchor = found.frame[found.frame["is_anchor"]].iloc[0]
    assert (anchor["ratio"], anchor["low"], anchor["high"]) == (1.0, 1.0, 1.0)
    assert found.frame[found.frame["backend"] == "blas"]["ratio"].item() == pytest.approx(0.8, rel=0.004)
    assert found.of_case("gemm", "m16")["backend"].iloc[0] == "blas"


def test_more_trials_narrow_the_interval_and_count_together(tmp_path: Path) -> None:
    one = [line([(FAST, 0.9), (SLOW, 1.3)])]
    more = [line([(FAST, 0.9)], rung=rung, rounds=40) for rung in (1, 2, 3)]
    alone, all_ = (measured.read([write(tmp_path / f"{len(s)}.jsonl", *s)]) for s in (one, one + more))
    before, after = _row(alone, FAST), _row(all_, FAST)
    assert after["trials"] == 4
    assert after["rounds"] == 128
    assert after["rung"] == 3
    assert after["high"] - after["low"] < before["high"] - before["low"]
    assert after["sd"] < before["sd"]
    assert after["low"] < 0.9 < after["high"]


def test_a_point_that_failed_once_has_no_time_and_says_why(tmp_path: Path) -> None:
    lines = [line([(FAST, 0.5), (SLOW, "hang")]), line([(FAST, "wrong")], rung=1)]
    found = measured.read([write(tmp_path / "s.jsonl", *lines)])
    assert _row(found, FAST)["status"] == "wrong"
    assert math.isnan(_row(found, FAST)["ratio"])
    assert _row(found, SLOW)["status"] == "hang"
    assert _row(found, SLOW)["why"] == "one sentence"


def test_an_anchor_that_failed_leaves_times_without_ratios(tmp_path: Path) -> None:
    broken = line([(FAST, 0.9)])
    broken["cases"]["m16"]["arms"]["head/triton"] = {"status": "wrong", "why": "norm 2", "detail": ""}
    row = _row(measured.read([write(tmp_path / "s.jsonl", broken)]), FAST)
    assert row["status"] == "ok"
    assert row["seconds"] > 0
    assert math.isnan(row["ratio"])


def test_a_point_timed_under_another_name_says_which(tmp_path: Path) -> None:
    twin = line([(FAST, 0.9), (SLOW, 0.9)])
    arms, ids = twin["cases"]["m16"]["arms"], [Point("m16", "triton", knobs).label for knobs in (FAST, SLOW)]
    arms[f"head/{ids[1]}"] = {**arms[f"head/{ids[0]}"], "same_as": f"head/{ids[0]}"}
    found = measured.read([write(tmp_path / "s.jsonl", twin, line([(FAST, 0.9)], rung=1, rounds=40))])
    assert _row(found, SLOW)["trials"] == 2, "what is known of the one is known of the other"
    assert _row(found, SLOW)["config"]["num_warps"] == 2
    assert _row(found, SLOW)["equal_to"] == ids[0]
    assert _row(found, SLOW)["ratio"] == _row(found, FAST)["ratio"]


def test_regimes_are_rows_of_their_own(tmp_path: Path) -> None:
    lines = [line([(FAST, 0.9)]), line([(FAST, 1.1)], batch=1, regime="sustained")]
    found = measured.read([write(tmp_path / "s.jsonl", *lines)]).frame
    assert sorted(found[found["point"] != ""]["regime"]) == ["spaced", "sustained"]


def test_lines_of_two_machines_are_two_sweeps_and_no_line_is_an_error(tmp_path: Path) -> None:
    other = line([(FAST, 0.9)], batch=1, machine={**MACHINE, "name": "h200x1-00000000"})
    file = write(tmp_path / "s.jsonl", line([(FAST, 0.9)]), other)
    assert len(measured.read_all([file])) == 2
    with pytest.raises(SweepError, match=r"2 origins.*h200x2.*h200x1"):
        measured.read([file])
    with pytest.raises(SweepError, match="no line of a sweep"):
        measured.read([write(tmp_path / "t.jsonl", trial())])


def test_a_line_twice_counts_once(tmp_path: Path) -> None:
    one = line([(FAST, 0.9)])
    found = measured.read([write(tmp_path / "a.jsonl", one), write(tmp_path / "b.jsonl", one)])
    assert _row(found, FAST)["trials"] == 1
    assert _row(found, FAST)["rounds"] == 8
