"""Backends side by side: means, wins and regret of made rows against a slow oracle, and of the recorded H200 nights."""

from __future__ import annotations

import dataclasses
import math
import statistics
from pathlib import Path

import pytest

from benchmarks.studies import study
from benchmarks.studies.types import Compared
from ci.sweeps.studies import figures, folder
from ci.sweeps.studies.figures import RESHAPES
from tests.ci.sweeps.studies.made_rows import frame

STUDY = study("grouped_gemm")
SPEEDS = {
    ("grouped_gemm_forward", "dsv3_down_b8_m2048_mild"): {"loop": 4.0, "triton": 5.0, "autotune": 4.5},
    ("grouped_gemm_forward", "lfm2_down_b4_m2048_balanced"): {"loop": 2.0, "triton": 1.0, "autotune": 2.0},
    ("grouped_gemm_wgrad", "lfm2_down_b4_m2048_balanced"): {"loop": 3.0, "triton": 6.0},
}


def rows():
    made = []
    for (operator, case), speeds in SPEEDS.items():
        dims = {"G": 8, "M": 2048, "N": 1, "K": 1, "routing": case.split("_")[-1]}
        row = {"operator": operator, "kernel": operator, "case": case, "dims": dims, "flops": 10**12}
        made += [{**row, "backend": name, "seconds": 1 / speed} for name, speed in speeds.items()]
    return frame(*made)


def geometric(values):
    return math.exp(statistics.fmean(map(math.log, values)))


def test_means_wins_and_regret():
    found = figures.compared(rows(), STUDY.compared)
    ratios = [5 / 4, 1 / 2, 2.0]
    ours = found.columns["triton"]
    assert ours.geometric_mean == pytest.approx(geometric(ratios))
    assert ours.ratio_of_means == pytest.approx((5 + 1 + 6) / (4 + 2 + 3))
    assert (ours.wins, ours.rows) == (2, 3)
    assert found.columns["autotune"].ties == 1
    [regret] = found.regrets
    assert regret.against.geometric_mean == pytest.approx(geometric([4.5 / 5, 1.0]))
    assert regret.candidates == ("loop", "triton"), "what was not measured is no candidate"


def test_groups_are_those_of_operation_model_and_routing():
    said = figures.sentences(STUDY, rows())
    [wgrad] = [one for one in said if one.startswith("wgrad: triton")]
    assert "2.000 of loop" in wgrad
    assert "wins 1 of 1" in wgrad
    assert {one.split(":")[0] for one in said[:-1]} == {"all", "forward", "wgrad", "dsv3", "lfm2", "mild", "balanced"}
    assert said[-1].startswith("autotune against the best of its candidates (loop 1, triton 2): 0.949")


def test_the_figure_of_means_has_the_same_numbers():
    [drawn] = [one for one in STUDY.figures if one.reshape]
    made = RESHAPES[drawn.reshape].of(rows(), drawn).set_index(["rows_of", "backend"])["mean_ratio"]
    assert made["all", "triton"] == pytest.approx(geometric([5 / 4, 1 / 2, 2.0]))
    assert made["lfm2", "triton"] == pytest.approx(1.0)
    assert ("all", "loop") not in made.index


def test_without_the_baseline_nothing_is_compared():
    others = rows()
    others = others[others["backend"] != "loop"]
    assert figures.compared(others, STUDY.compared) is None
    assert figures.sentences(STUDY, others) == []
    assert figures.means(others, STUDY.compared).empty
    assert figures.sentences(dataclasses.replace(STUDY, compared=None), rows()) == []


def test_times_are_compared_the_other_way_round():
    wanted = Compared(("case", "operator"), "loop", value="us", score="lower")
    assert figures.compared(rows(), wanted).columns["triton"].geometric_mean == pytest.approx(geometric([1.25, 0.5, 2]))


def test_the_recorded_nights_of_an_h200():
    """48 cases of three products: what the table shows is what the records hold."""
    machines = folder.read(STUDY, [Path(__file__).parents[4] / "results"])
    [found] = [one for one in machines if one.machine.startswith("h200x1")]  # `make check` adds its machine
    table = figures.compared(found.frame, STUDY.compared)
    assert table.rows == 144
    timed = found.frame[found.frame["status"] == "ok"].pivot(
        index=["operator", "case"], columns="backend", values="seconds"
    )
    ratio = timed["loop"] / timed["triton"]
    assert table.columns["triton"].geometric_mean == pytest.approx(geometric(ratio))
    assert table.columns["triton"].wins == int((ratio > 1).sum())
    [regret] = table.regrets
    best = timed[list(regret.candidates)].min(axis=1)
    assert regret.against.worst == pytest.approx(float((best / timed["autotune"]).min()))
