"""The study of planted slow-downs, small: what it makes, finds and counts."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tests.study.history import planted
from tests.study.history.limit import limit
from tests.study.history.planted import PlantedPlan


@pytest.mark.slow
def test_a_small_study_finds_what_it_planted(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    size = ["--series", "120", "--commits", "120", "--planted", "12", "--sigma", "0.005"]
    assert planted.main([*size, "--kept", str(tmp_path)]) == 0
    decoder, printed, found = json.JSONDecoder(), capsys.readouterr().out, []
    while printed.strip():
        one, end = decoder.raw_decode(printed.lstrip())
        found.append(one)
        printed = printed.lstrip()[end:]
    assert [one["commits"] for one in found] == [120, 121]
    for one in found:
        assert one["found"] == one["planted"] == {"4%": 6, "8%": 6}
        assert one["alarmed"] <= 1
        assert one["rows"] == 180 * one["commits"]


def test_the_same_seed_plants_the_same() -> None:
    plan = PlantedPlan(series=20, commits=30, planted=4)
    one, other = planted.frame(plan), planted.frame(plan)
    assert one.equals(other)
    longer = planted.frame(PlantedPlan(series=20, commits=30, planted=4, more=1))
    first = longer[longer["commit"].isin(one["commit"].unique())]
    assert sorted(first["seconds"]) == sorted(one["seconds"])
    assert {mark.series for mark in planted.planted(plan)} <= set(range(20))


@pytest.mark.slow
def test_what_can_be_told_of_a_place_is_bounded() -> None:
    """Of nearly normal values, a place is exact in 98.6 % of steps of 5 sigma and 76 % of 2.5 sigma (simulated)."""
    exact = [limit(size, 1.0, 1000.0, 0.0, 0.0, 0) for size in (5.0, 2.5, 1.0)]
    assert exact[:2] == pytest.approx([0.986, 0.76], abs=0.03)
    assert exact == sorted(exact, reverse=True)
    assert limit(2.5, 1.0, 1000.0, 0.0, 0.0, 2) > exact[1] + 0.1
