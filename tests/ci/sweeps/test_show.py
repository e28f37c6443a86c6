"""A sweep for people and for programs."""

from __future__ import annotations

import csv
import io
import json
from pathlib import Path

import pytest
from rich.console import Console

from benchmarks.points import Point
from ci.sweeps import show
from ci.sweeps.measured import Measured, read
from ci.sweeps.pruning import Dropped, Pruned
from ci.sweeps.rungs import Rungs
from tests.ci.made_trials import write
from tests.ci.sweeps.made_sweeps import line

TRUTH = {2: 1.30, 4: 1.05, 8: 0.90, 16: 0.93}


@pytest.fixture
def measured(tmp_path: Path) -> Measured:
    first = line(
        [({"num_warps": w}, t) for w, t in TRUTH.items()] + [({"num_warps": 32}, "crash")], plain={"blas": 0.8}
    )
    later = [line([({"num_warps": 8}, TRUTH[8])], rung=rung, rounds=40) for rung in (1, 2)]
    return read([write(tmp_path / "s.jsonl", first, *later)])


def test_the_winner_is_of_the_last_rung_and_of_the_anchors_backend(measured: Measured) -> None:
    dropped = Dropped(Point("m16", "triton", {"num_warps": 64}), "cannot load", "2048 threads")
    [one] = show.rankings(measured, Pruned({}, dropped=(dropped,)))
    assert one.winner.knobs == "num_warps=8"
    assert one.beats_anchor
    assert one.runner_up.is_anchor, "points of earlier rungs are known too badly"
    assert [row.name for row in one.ranked][:2] == ["blas", "triton num_warps=8"]
    assert one.unusable == {"crash": 1, "cannot load": 1}


def test_a_default_that_is_best_is_said(tmp_path: Path) -> None:
    only = read([write(tmp_path / "s.jsonl", line([({"num_warps": 2}, 1.3)]))])
    [one] = show.rankings(only)
    assert one.winner.is_anchor
    assert not one.beats_anchor
    assert show.told(one) == ["the default of triton is the best of 2 points"]


def test_what_fails_is_never_the_winner(tmp_path: Path) -> None:
    lines = [line([({"num_warps": 8}, 0.5), ({"num_warps": 2}, "wrong")]), line([({"num_warps": 8}, "wrong")], rung=1)]
    [one] = show.rankings(read([write(tmp_path / "s.jsonl", *lines)]))
    assert one.winner.is_anchor
    assert one.unusable == {"wrong": 2}


def test_the_table_has_the_best_points_and_what_became_of_the_others(measured: Measured) -> None:
    out = io.StringIO()
    show.terminal(show.rankings(measured), Console(file=out, width=120))
    text = out.getvalue()
    assert "triton num_warps=8 (winner)" in text
    assert "triton (anchor)" in text
    assert "winner: triton num_warps=8, -10." in text
    assert "beyond its interval" in text
    assert "without a time of their own: 1 crash" in text


def test_the_document_stands_alone(measured: Measured) -> None:
    text = show.markdown(measured, show.rankings(measured), Rungs())
    assert "Measured on h200x2-1a2b3c4d" in text
    assert "at most 5 %" in text
    rows = [row for row in text.splitlines() if row.startswith("|")]
    assert len({row.count("|") for row in rows}) == 1
    assert "| triton num_warps=8 (winner) |" in text


def test_the_csv_has_every_point_with_its_knobs(measured: Measured) -> None:
    rows = list(csv.DictReader(io.StringIO(show.csv(measured))))
    assert len(rows) == 1 + 1 + 5
    best = next(row for row in rows if json.loads(row["knobs"]) == {"num_warps": 8})
    assert float(best["ratio"]) == pytest.approx(0.9, rel=0.01)
    assert best["knob.num_warps"] == "8"
    assert [row["status"] for row in rows].count("crash") == 1


def test_the_json_says_winner_runner_up_and_what_is_left(measured: Measured) -> None:
    found = json.loads(json.dumps(show.document(measured, show.rankings(measured), 3, "the budget")))
    assert (found["complete"], found["left"], found["why"]) == (False, 3, "the budget")
    [case] = found["cases"]
    assert case["winner"]["knobs"] == "num_warps=8"
    assert case["winner"]["low"] < 0.9 < case["winner"]["high"]
    assert case["beats_anchor"] is True


def test_the_figure_has_what_its_kind_asks_for(measured: Measured) -> None:
    spec, data = show.figure(measured, show.rankings(measured), "gemm")
    assert (spec["kind"], spec["anchor"], spec["by"]) == ("sweep", "triton", "case")
    assert all(spec["foot"][key] for key in ("machine", "versions", "commit"))
    rows = list(csv.DictReader(io.StringIO(data)))
    assert {"point", "ratio", "low", "high", "status", "case"} <= set(rows[0])
    assert [row["status"] for row in rows].count("crash") == 1


def test_points_as_good_as_the_winner_are_counted(tmp_path: Path) -> None:
    alike = [({"num_warps": 8}, 0.9), ({"num_warps": 4}, 0.9005), ({"num_warps": 2}, 1.2)]
    lines = [line(alike, noise=1e-4, drift=1e-4)]
    [one] = show.rankings(read([write(tmp_path / "s.jsonl", *lines)]))
    assert len(show.finalists(one)) == 2
    assert "1 more within 1 % of it" in show.told(one)[0]


def test_rungs_without_halving_say_so() -> None:
    assert "Every point was measured in every rung" in show.chances(Rungs((40,), halving=False))
