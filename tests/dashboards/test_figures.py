"""Figures for reports: the same records give the same file, and odd records do not stop them."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from matplotlib.figure import Figure

from ci.history.health import MachineHealth, SessionHealth
from ci.history.kept import CurvePoint
from ci.history.readings import DeviceHealth
from ci.history.types import Direction, Moved, SeriesKey
from ci.stats.types import Step
from dashboards.figures import __main__ as command
from dashboards.figures import cases, paper
from dashboards.figures.picture import FigureError
from tests.dashboards import synthetic

MI300X = "mi300x-8-0f3a9c1e"


@pytest.mark.slow
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


@pytest.mark.slow
def test_odd_histories_are_drawn(tmp_path: Path, drawn: list[Figure]) -> None:
    few = synthetic.history(3)
    never = synthetic.spoil(few, few["case"] == "llm_down_m64", "unsupported", "needs more LDS")
    commits = [*few["commit"].unique(), "f" * 40]  # as the records are read: one list of names for all machines
    others = few.assign(commit=few["commit"].astype(pd.CategoricalDtype(commits)))
    for n, frame in enumerate((never, synthetic.history(1), synthetic.history(2), others)):
        assert cases.history(frame, MI300X, "gemm", "llm_down_m64", tmp_path / f"{n}.svg").exists()
    assert all(np.isnan(np.asarray(line.get_ydata(), float)).all() for line in drawn[0].axes[0].lines)


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


# Figures of cases and machines: what is drawn equals the records, and odd names and empty records do not stop them.


def lines(figure: Figure) -> dict[str, np.ndarray]:
    """Heights (for a picture of dots: places) of every labelled line of the first axes."""
    return {str(line.get_label()): np.asarray(line.get_ydata(), float) for line in figure.axes[0].lines}


def test_backends_stand_beside_the_fastest_baseline(tmp_path: Path, drawn: list[Figure]) -> None:
    frame = synthetic.history(3)
    cases.backends(frame, MI300X, "gemm", tmp_path / "b.svg")
    rows = frame[(frame["machine"] == MI300X) & (frame["kernel"] == "gemm")].drop_duplicates(
        ["case", "backend"], keep="last"
    )
    best = rows[rows["baseline"]].groupby("case")["seconds"].min()
    (dots,) = (line for line in drawn[0].axes[0].lines if line.get_label() == "triton")
    mine = rows[rows["backend"] == "triton"].set_index("case")["seconds"]
    np.testing.assert_allclose(sorted(np.asarray(dots.get_xdata(), float)), sorted(best / mine))


def test_shapes_show_the_newest_speed_under_the_roof(tmp_path: Path, drawn: list[Figure]) -> None:
    frame = synthetic.history(3)
    cases.shapes(frame, MI300X, "gemm", tmp_path / "s.svg")
    rows = frame[(frame["machine"] == MI300X) & (frame["kernel"] == "gemm") & (frame["backend"] == "triton")]
    newest = rows.drop_duplicates("case", keep="last").sort_values("hbm_bytes")
    found = lines(drawn[0])
    np.testing.assert_allclose(found["triton"], newest["tflops"])
    assert (found["roofline"] >= found["triton"]).all()


@pytest.mark.slow
def test_the_roofline_is_never_below_a_case(tmp_path: Path, drawn: list[Figure]) -> None:
    cases.roofline(synthetic.history(2), MI300X, None, tmp_path / "r.svg")
    (axes,) = drawn[0].axes
    roof = next(line for line in axes.lines if str(line.get_label()).startswith("roof"))
    for line in axes.lines:
        if not str(line.get_label()).startswith("roof"):
            limit = np.interp(np.asarray(line.get_xdata(), float), *(np.asarray(v, float) for v in roof.get_data()))
            assert (np.asarray(line.get_ydata(), float) <= 1.02 * limit).all()


def test_scaling_joins_machines_of_several_ranks(tmp_path: Path, drawn: list[Figure]) -> None:
    two = synthetic.history(2, [synthetic.gather(1 << 24, world=2)])
    both = synthetic.pd.concat([two, synthetic.history(2, [synthetic.gather(1 << 24, world=8)])])
    cases.scaling(both, "all_gather", None, tmp_path / "s.svg")
    assert {len(heights) for heights in lines(drawn[0]).values()} == {2}
    with pytest.raises(FigureError, match="was measured with two numbers of ranks"):
        cases.scaling(two, "all_gather", None, tmp_path / "s.svg")


def point(backend: str, programs: int, case: str = "w4_64MB") -> CurvePoint:
    return CurvePoint(
        "m", "MI300X", "all_gather", case, 4, backend, backend == "rccl", programs, 2.0 * programs, "", ""
    )


def test_a_curve_over_cus_is_of_one_case(tmp_path: Path, drawn: list[Figure]) -> None:
    points = [point(backend, programs) for backend in ("triton", "rccl") for programs in (16, 4, 8)]
    cases.programs(points, None, None, tmp_path / "c.png")
    assert list(lines(drawn[0])["triton"]) == [8.0, 16.0, 32.0]
    with pytest.raises(FigureError, match="2 were chosen; there is: all_gather/w2, all_gather/w4_64MB"):
        cases.programs([*points, point("triton", 4, "w2")], None, None, tmp_path / "c.png")


def test_health_has_one_line_per_gpu(tmp_path: Path, drawn: list[Figure]) -> None:
    gpus = tuple(DeviceHealth(1900.0 - n, 700.0, 60.0, 0.0, None, None) for n in range(8))
    sessions = tuple(SessionHealth(n * 86_400_000, "c" * 40, f"s{n}", 3, gpus, 0.01 if n else None) for n in range(9))
    one = MachineHealth("m", "8 × MI300X", 9, 0.0, sessions, ())
    cases.health([one], None, tmp_path / "m.svg")
    assert [list(heights) for heights in lines(drawn[0]).values()] == [[1900.0 - n] * 9 for n in range(8)]
    with pytest.raises(FigureError, match="no notes are of machine 'x'; there is: m"):
        cases.health([one], "x", tmp_path / "m.svg")


def test_steps_are_marked_where_they_begin(tmp_path: Path, drawn: list[Figure]) -> None:
    frame = synthetic.history(20, synthetic.CASES[:1])
    rows = frame[frame["machine"] == MI300X]
    key = SeriesKey(MI300X, str(rows["kernel"].iloc[0]), "triton", str(rows["case"].iloc[0]))
    commit = list(dict.fromkeys(rows["commit"]))[12]
    moved = Moved(key, Step(12, 1.0, 1.04, 1.04, 1.03, 1.05, 1e-9), Direction.SLOWER, "ratio", commit, "")
    cases.history(frame, *key[:2], key.case, tmp_path / "h.svg", moved=[moved])
    (said,) = (line for line in drawn[0].axes[0].lines if "time" in str(line.get_label()))
    assert (said.get_label(), said.get_xdata()[0]) == ("triton: time +4.0%", 11.5)


def test_a_device_without_peaks_has_no_roofline(tmp_path: Path) -> None:
    frame = synthetic.history(2)
    frame["device"], frame["market_name"], frame["arch"] = "EPYC", "", "cpu"
    with pytest.raises(FigureError, match="EPYC has none"):
        cases.roofline(frame, MI300X, None, tmp_path / "r.svg")


@pytest.mark.slow
def test_hostile_names_are_drawn_as_text(tmp_path: Path) -> None:
    frame = synthetic.history(2)
    for column, name in (("case", "$x^2$ \u202e\x1b[31m"), ("backend", "\u200b $\\frac"), ("kernel", "<b>&")):
        frame[column] = frame[column].where(frame[column] != frame[column].iloc[0], name)
    kernel = str(frame["kernel"].iloc[0])
    for name, draw in (("b", cases.backends), ("s", cases.shapes), ("r", cases.roofline)):
        assert draw(frame, MI300X, kernel, tmp_path / f"{name}.svg").exists()


@pytest.mark.slow
def test_the_same_records_give_the_same_bytes(tmp_path: Path) -> None:
    frame = synthetic.history(2)
    for suffix in ("png", "svg", "pdf"):
        pictures = [cases.backends(frame, MI300X, "gemm", tmp_path / f"{n}.{suffix}").read_bytes() for n in "ab"]
        assert pictures[0] == pictures[1]


def test_the_program_draws_from_a_folder_and_says_what_is_missing(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert command.main(["cus", "--results", "results", "--out", str(tmp_path / "c.svg")]) == 0
    assert (tmp_path / "c.svg").read_bytes().startswith(b"<?xml")
    assert command.main(["shapes", "--results", str(tmp_path), "--out", str(tmp_path / "s.svg")]) == 3
    assert "needs --kernel" in capsys.readouterr().err
    assert command.main(["machine", "--results", str(tmp_path), "--out", str(tmp_path / "s.svg")]) == 3
    assert "there is: nothing" in capsys.readouterr().err
