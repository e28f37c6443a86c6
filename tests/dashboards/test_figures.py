"""Figures for reports: the same records give the same file, and odd records do not stop them."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from matplotlib.figure import Figure

from dashboards.figures import cases
from dashboards.figures.studies import paper
from dashboards.figures.studies.picture import FigureError
from tests.dashboards import synthetic

MI300X = "mi300x-8-0f3a9c1e"


@pytest.mark.slow
@pytest.mark.parametrize("suffix", ["svg", "png", "pdf"])
def test_the_same_records_give_the_same_file(tmp_path: Path, suffix: str) -> None:
    frame = synthetic.lively(20)
    pictures = [
        cases.history(frame, MI300X, "gemm", "llm_up_m4096", tmp_path / f"{n}.{suffix}").read_bytes() for n in "ab"
    ]
    assert pictures[0] == pictures[1]


def test_a_history_shows_values_breaks_and_faults(tmp_path: Path, drawn: list[Figure]) -> None:
    frame = synthetic.lively(60)
    cases.history(frame, MI300X, "gemm", "llm_up_m4096", tmp_path / "h.png")
    axes = drawn[0].axes[0]
    assert axes.get_ylabel() == "TFLOPS"
    assert {"blas", "gluon", "triton", "benchmark definition changed"} <= set(axes.get_legend_handles_labels()[1])
    rows = frame[(frame["machine"] == MI300X) & (frame["case"] == "llm_up_m4096") & (frame["backend"] == "gluon")]
    stretches = [line.get_ydata() for line in axes.lines if line.get_label() == "gluon"]
    assert len(stretches) > 1
    joined = np.nanmax(np.vstack([np.asarray(y, float) for y in stretches]), axis=0)
    np.testing.assert_allclose(joined, rows["tflops"].to_numpy())
    (failed,) = (line for line in axes.lines if line.get_label() == "triton, not measured")
    assert len(failed.get_xdata()) == 4


def test_noise_does_not_fill_the_axis(tmp_path: Path, drawn: list[Figure]) -> None:
    frame = synthetic.history(5, synthetic.CASES[:1], backends=())
    frame["seconds"] = 1e-3 * (1 + 1e-5 * np.arange(len(frame)))
    frame["seconds_low"] = frame["seconds_high"] = frame["seconds"]
    cases.history(frame, MI300X, "gemm", "llm_down_m64", tmp_path / "h.png", rate="time")
    low, high = drawn[0].axes[0].get_ylim()
    assert (high - low) / high >= paper.LEAST_SPAN * 0.99


@pytest.mark.parametrize("commits", [1, 2])
def test_few_commits(tmp_path: Path, commits: int) -> None:
    assert cases.history(synthetic.history(commits), MI300X, "softmax", "v128k_t512", tmp_path / "h.svg").exists()


def test_commits_of_other_machines_are_no_place_of_a_history(tmp_path: Path) -> None:
    frame = synthetic.history(3)
    commits = [*frame["commit"].unique(), "f" * 40]  # as the records are read: one list of names for all machines
    frame["commit"] = frame["commit"].astype(pd.CategoricalDtype(commits))
    assert cases.history(frame, MI300X, "gemm", "llm_down_m64", tmp_path / "h.svg").exists()


def test_a_case_that_was_never_measured(tmp_path: Path, drawn: list[Figure]) -> None:
    frame = synthetic.history(3)
    frame = synthetic.spoil(frame, frame["case"] == "llm_down_m64", "unsupported", "needs more LDS")
    cases.history(frame, MI300X, "gemm", "llm_down_m64", tmp_path / "h.svg")
    assert all(np.isnan(np.asarray(line.get_ydata(), float)).all() for line in drawn[0].axes[0].lines)


def test_a_curve_shows_the_newest_records_by_payload(tmp_path: Path, drawn: list[Figure]) -> None:
    frame = synthetic.history(4)
    cases.curve(frame, MI300X, "all_gather", tmp_path / "c.svg")
    axes = drawn[0].axes[0]
    newest = frame[
        (frame["machine"] == MI300X) & (frame["kernel"] == "all_gather") & (frame["commit"] == frame["commit"].iloc[3])
    ]
    triton = newest[newest["backend"] == "triton"].sort_values("payload_bytes")
    line = next(line for line in axes.lines if line.get_label() == "triton")
    np.testing.assert_allclose(np.asarray(line.get_xdata(), float), triton["payload_bytes"])
    np.testing.assert_allclose(np.asarray(line.get_ydata(), float), triton["busbw"])
    assert (axes.get_xscale(), axes.get_ylim()[0]) == ("log", 0)


def test_what_cannot_be_drawn_says_what_there_is(tmp_path: Path) -> None:
    frame = synthetic.history(2)
    with pytest.raises(
        FigureError, match="no record has case 'm65'; there is: llm_down_m64, llm_up_m4096, square_8192"
    ):
        cases.history(frame, MI300X, "gemm", "m65", tmp_path / "h.svg")
    with pytest.raises(FigureError, match="curves are for collectives"):
        cases.curve(frame, MI300X, "gemm", tmp_path / "c.svg")
    with pytest.raises(FigureError, match="'tflop' is not known; choose one of tflops"):
        cases.history(frame, MI300X, "gemm", "llm_down_m64", tmp_path / "h.svg", rate="tflop")
    with pytest.raises(FigureError, match="there is: nothing"):
        cases.curve(frame.iloc[:0], MI300X, "gemm", tmp_path / "c.svg")
