"""`ridgeline plot`: the pages' charts as pictures, the same bytes each time; errors say what there is."""

from __future__ import annotations

import math

import pytest

from dashboards import charts, figures
from dashboards.frame import Commit
from tests.dashboards import made_history, synthetic
from tests.dashboards.made_history import MI300X

ASKED = {
    "history": ["--kernel", "gemm", "--case", "llm_up_m4096"],
    "shapes": ["--kernel", "all_gather"],
    "roofline": [],
}


@pytest.fixture(scope="module")
def site():
    frame = synthetic.lively(60)
    return made_history.site_of(frame, made_history.lively(frame))


@pytest.fixture(autouse=True)
def records(site, monkeypatch):
    monkeypatch.setattr(figures, "read", lambda results: site)


@pytest.mark.parametrize("kind", ASKED)
def test_the_same_records_give_the_same_bytes(kind, tmp_path):
    paths = [tmp_path / f"{n}.svg" for n in range(2)]
    for path in paths:
        assert figures.main([kind, *ASKED[kind], "--machine", MI300X, "--out", str(path)]) == 0
    assert paths[0].read_bytes() == paths[1].read_bytes()
    assert b"<svg" in paths[0].read_bytes()
    assert sorted(tmp_path.iterdir()) == sorted(paths)


@pytest.mark.parametrize(
    ("asked", "said"),
    [
        (["history", "--kernel", "gemm"], "a figure 'history' needs --case"),
        (["shapes", "--kernel", "gone", "--machine", MI300X], f"there are no records of gone on {MI300X}; there is: "),
        (
            ["history", "--kernel", "gemm", "--machine", MI300X, "--case", "x"],
            "gemm has no timed case 'x'; it has: llm_down_m64",
        ),
    ],
)
def test_an_error_says_what_there_is(asked, said, tmp_path, capsys):
    assert figures.main([*asked, "--out", str(tmp_path / "x.svg")]) == 3
    assert said in capsys.readouterr().err
    assert list(tmp_path.iterdir()) == []


def test_a_panel_has_the_lines_points_and_intervals_of_its_option():
    look = {"color": "--series-1", "dash": [7, 4]}
    line = charts.line(
        "triton", [1.0, math.nan, 2.0], look, hollow=[2], low=[0.9, math.nan, math.nan], high=[1.1, math.nan, math.nan]
    )
    step = charts.points("steps", [[2, 2.0]], "--bad", symbol="triangle", symbolRotate=180)
    option = charts.over_commits([0, 1, 2], [line, charts.level("triton", [1.5] * 3, "--series-1"), step], "×", "ratio")
    figure = figures.figure_of(charts.chart("a case", {"ratio": option}), [Commit(text * 40, "") for text in "abc"])
    [axes] = figure.axes
    joined, few, level, mark = (drawn for drawn in axes.lines if len(drawn.get_xdata()))
    assert joined.get_xydata().tolist() == [[0, 1.0], [2, 2.0]]
    assert few.get_xydata().tolist() == [[2, 2.0]]
    assert level.get_ydata().tolist() == [1.5] * 3
    assert (mark.get_color(), mark.get_marker()) == (figures.COLOURS["--bad"], "v")
    assert [text.get_text() for text in axes.get_xticklabels()] == ["a" * 8, "b" * 8, "c" * 8]
    assert [text.get_text() for text in axes.get_legend().get_texts()] == ["triton", "steps"]
