"""Figures of studies: every kind says its units and where its numbers are from, and hard data do not stop it."""

from __future__ import annotations

import json
import math
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
from matplotlib.figure import Figure
from matplotlib.text import Text

from dashboards.figures import paper
from dashboards.figures import spec as columns
from dashboards.figures import studies as command
from dashboards.figures.kinds import KEYS, picture
from dashboards.figures.lines import foot
from dashboards.figures.picture import FigureError, Marks, Picture
from dashboards.figures.spec import parse
from tests.dashboards import made_studies

MADE = {**{name: make() for name, make in made_studies.MADE.items()}, **made_studies.hostile()}
DRAWN = ("curve", "three", "scaling", "heatmap", "roofline", "before_after", "bars", "long_sweep", "one_point")
"""Kinds and hard data that are drawn on paper here; all of them become pictures."""


def made(name: str, **changes: Any) -> Picture:
    said, data = MADE[name]
    return picture(parse({**said, **changes}, KEYS), data)


def drawn(name: str) -> Figure:
    said, data = MADE[name]
    spec = parse(said, KEYS)
    with paper.style():
        figure = paper.draw(spec, picture(spec, data))
        figure.draw_without_rendering()
    return figure


def of_name(found: Picture, name: str, panel: int = 0) -> Marks:
    return next(marks for marks in found.panels[panel].marks if marks.name == name)


@pytest.mark.parametrize("name", MADE)
def test_every_axis_with_numbers_says_what_they_are(name: str) -> None:
    for panel in made(name).panels:
        for axis in (panel.x, panel.y):
            assert axis.title or axis.names or panel.texts, panel
        assert panel.marks or panel.cells or panel.texts


@pytest.mark.parametrize("name", DRAWN)
def test_on_paper_nothing_is_cut_off_and_the_foot_says_where_the_numbers_are_from(name: str) -> None:
    figure = drawn(name)
    said = [text for text in figure.findobj(Text) if text.get_visible() and text.get_text().strip()]
    shown = "\n".join(text.get_text() for text in said)
    for fact in (*made_studies.FOOT.values(), "2026-11-22", "spaced"):
        assert fact in shown
    width, height = figure.get_size_inches()
    box = figure.get_tightbbox()
    assert min(box.x0, box.y0) >= -0.01, box
    assert box.x1 <= width + 0.01
    assert box.y1 <= height + 0.01


@pytest.mark.parametrize("name", ["curve", "panels", "scaling", "many_bars"])
def test_the_legend_covers_no_axis(name: str) -> None:
    figure = drawn(name)
    (legend,) = figure.legends
    top = legend.get_window_extent().y1
    assert all(top <= axes.get_tightbbox().y0 + 2 for axes in figure.axes if axes.axison)


def test_a_curve_joins_a_group_in_order_and_keeps_baselines_grey() -> None:
    found, (_, data) = made("curve"), MADE["curve"]
    triton = of_name(found, "triton")
    rows = data[data["backend"] == "triton"]
    np.testing.assert_allclose(triton.x, rows["M"])
    np.testing.assert_allclose(triton.y, rows["tflops"])
    np.testing.assert_allclose(triton.low, rows["low"])
    library = of_name(found, "cublas")
    assert (triton.look, library.look, library.dashed, library.hollow) == (0, None, 1, True)
    assert found.panels[0].y.title == "speed, TFLOPS"
    assert found.panels[0].x.ticks == tuple(2.0**k for k in range(11))


def test_published_numbers_are_lines_of_their_own_with_a_source() -> None:
    found, (said, _) = made("curve"), MADE["curve"]
    marks = [one for one in found.panels[0].marks if one.name.startswith("published")]
    assert [(one.name, one.kind, len(one.x)) for one in marks] == [
        ("published: MI300X, graph, hot, 2025-11", "line", 3),
        ("published: peak of a source", "rule", 1),
    ]
    assert all(one.look is None and one.dashed > 1 for one in marks)
    lines = foot(parse(said, KEYS), found)
    assert lines[0].startswith(
        "dashed and published elsewhere, not measured here: MI300X, graph, hot, 2025-11: example.org"
    )
    in_time = {**said, "y": "us"}
    times = picture(parse(in_time, KEYS), MADE["curve"][1].assign(us=1.0))
    assert not any(one.name.startswith("published") for one in times.panels[0].marks), "of another unit"


def test_rows_without_a_number_are_counted_not_joined_over() -> None:
    found = made("holes")
    assert found.notes == ("12 of 33 rows have no M or tflops and are not drawn",)
    assert sum(len(marks.x) for marks in found.panels[0].marks if not marks.name.startswith("published")) == 21


def test_of_too_many_groups_the_smaller_are_grey_together() -> None:
    names = [marks.name for marks in made("twenty").panels[0].marks]
    assert names[0] == "8 others"
    assert sum(name.startswith("variant") for name in names) == 9


def test_names_that_differ_in_numbers_stand_together_by_size() -> None:
    given = ["serial", "8 streams", "b32_m64", "2 streams", "b8_m64", "16 streams", "b8_m128", "9" * 5000]
    wanted = ["serial", "2 streams", "8 streams", "16 streams", "b8_m64", "b8_m128", "b32_m64", "9" * 5000]
    assert columns.ordered(pd.DataFrame({"name": given}), "name") == wanted
    assert columns.ordered(pd.DataFrame({"name": ["64", "8", "16"]}), "name") == ["8", "16", "64"]
    sizes = ["w2_fp16_16MB", "w2_fp16_1GB", "w2_fp16_512KB", "w2_bf16_64KB", f"{'9' * 5000}KB"]
    assert columns.ordered(pd.DataFrame({"name": sizes}), "name") == [
        "w2_fp16_512KB", "w2_fp16_16MB", "w2_fp16_1GB", "w2_bf16_64KB", sizes[-1]
    ]  # fmt: skip


def test_a_group_that_is_on_or_off_says_what_is() -> None:
    looks = columns.groups(pd.DataFrame({"non_temporal": [True, False]}), "non_temporal")
    assert [look.name for look in looks] == ["non_temporal True", "non_temporal False"]


def test_several_values_at_one_place_are_dots() -> None:
    assert {marks.kind for panel in made("three").panels for marks in panel.marks} == {"dots"}
    assert [panel.x.scale for panel in made("three").panels] == ["category", "linear", "linear"]


def test_ideal_and_ceiling_stand_beside_what_was_measured() -> None:
    found = made("scaling")
    assert [panel.title for panel in found.panels] == ["strong", "weak"]
    ideal = [marks for marks in found.panels[0].marks if marks.name == "ideal"]
    fused = of_name(found, "fused")
    np.testing.assert_allclose(ideal[0].y, [fused.y[0] * n for n in (1, 2, 4, 8)])
    np.testing.assert_allclose(of_name(found, "link ceiling").y, [900 * n**0.9 for n in (1, 2, 4, 8)])
    assert of_name(made("scaling", ideal="constant"), "ideal").y == (480.0,) * 4
    np.testing.assert_allclose(of_name(made("scaling", ideal="inverse"), "ideal").y, [480 / n for n in (1, 2, 4, 8)])


def test_a_cell_is_its_best_point_relative_to_the_best_of_its_column() -> None:
    said, data = MADE["heatmap"]
    cells = made("heatmap").panels[0].cells
    assert cells is not None
    best = data.groupby("M")["us"].min()
    for y, tile in enumerate(data["tile"].drop_duplicates()):
        for x, m in enumerate(sorted(data["M"].unique())):
            us = data[(data["tile"] == tile) & (data["M"] == m)]["us"].min()
            assert cells.values[y][x] == pytest.approx(us / best[m])
            assert cells.best[y][x] == (us == best[m])
    speeds = picture(parse({**said, "better": "higher", "relative": "all"}, KEYS), data).panels[0].cells
    assert speeds is not None
    assert np.nanmax(speeds.values) == 1.0
    assert speeds.ends == (0.5, 1.0)
    times = picture(parse({**said, "relative": None}, KEYS), data).panels[0].cells
    assert times is not None
    assert times.ends == (2 * data["us"].min(), data["us"].min()), "a cell far off does not make the others look alike"


def test_the_roof_is_where_peak_and_bandwidth_meet() -> None:
    found, (_, data) = made("roofline"), MADE["roofline"]
    assert [panel.x.title[-5:] for panel in found.panels] == ["f HBM", "links"]
    roof = next(marks for marks in found.panels[0].marks if marks.name.startswith("roof, fp16"))
    assert roof.x[1] == pytest.approx(989.4e12 / 4800e9)
    points = [marks for marks in found.panels[0].marks if marks.kind == "dots"]
    assert sum(len(marks.x) for marks in points) == len(data)
    for marks in points:
        for x, y in zip(marks.x, marks.y, strict=True):
            assert y <= 1.01 * min(989.4, x * 4.8)
    assert sum(marks.named for marks in points) == 3
    assert not any(marks.named for panel in made("roof_1200").panels for marks in panel.marks)


def test_before_and_after_have_their_ratio_and_their_machine_code() -> None:
    times, ratio, code = made("before_after").panels
    assert (times.x.title, times.x.scale) == ("time, µs", "log")
    assert ratio.marks[0].x == pytest.approx((0.93, 0.93, 1.02, 1.02, 0.99, 0.99))
    assert [column.title for column in code.texts] == ["VGPRs", "stores", "spills"]
    assert code.texts[0].texts == ("128", "128", "128 → 120", "128 → 120", "128 → 112", "128 → 112")
    assert code.texts[2].texts == ("0",) * 6
    said, data = MADE["before_after"]
    unknown = data.assign(**{one[side]: None for one in said["code"] for side in ("before", "after")})
    assert len(picture(parse(said, KEYS), unknown).panels) == 2, "no columns of dashes"


def test_bars_have_the_geometric_mean_of_the_cases_that_all_have() -> None:
    said, data = MADE["bars"]
    hole = data.assign(tflops=data["tflops"].where(data.index != 1))
    found = picture(parse(said, KEYS), hole)
    whole = hole[hole["case"] != data["case"].iloc[0]]
    means = np.exp(np.log(whole.pivot(index="case", columns="backend", values="tflops")).mean())
    for name in data["backend"].unique():
        marks = of_name(found, name)
        assert marks.x[-1] == pytest.approx(means[name])
        assert len(marks.x) == 5
    assert math.isnan(of_name(found, "hipblaslt").x[0])
    assert "geometric mean over 3 cases that every backend has" in found.notes
    assert {marks.kind for marks in found.panels[0].marks} == {"bars"}
    assert {marks.kind for marks in made("many_bars").panels[0].marks} == {"dots"}


def test_a_sweep_ranks_names_the_fastest_and_counts_what_was_not_measured() -> None:
    found, (_, data) = made("sweep"), MADE["sweep"]
    (panel,) = found.panels
    assert panel.y.title == "time / time of the rule's configuration"
    assert list(panel.marks[0].y) == sorted(data["ratio"].dropna())
    fastest = data.loc[data["ratio"].idxmin(), "point"]
    assert panel.said.startswith(f"fastest: {fastest}\n")
    assert found.notes == ("60 of 90 points measured", "not measured: 18 spills, 12 same code")


@pytest.mark.slow
def test_the_same_files_give_the_same_bytes_and_a_process_draws_both(tmp_path: Path) -> None:
    said, data = MADE["panels"]
    (tmp_path / "s.json").write_text(json.dumps(said))
    data.to_csv(tmp_path / "d.csv", index=False)
    argv = [str(tmp_path / "s.json"), "--data", str(tmp_path / "d.csv"), "--out"]
    assert command.main([*argv, str(tmp_path / "a")]) == 0
    module = [sys.executable, "-m", "dashboards.figures.studies"]
    ended = subprocess.run([*module, *argv, str(tmp_path / "b.c")], capture_output=True, text=True, check=True)
    assert ended.stdout.split() == [str(tmp_path / "b.c.png"), str(tmp_path / "b.c.svg")]
    for suffix in ("png", "svg"):
        assert (tmp_path / f"a.{suffix}").read_bytes() == (tmp_path / f"b.c.{suffix}").read_bytes()


WRONG: list[tuple[dict[str, Any], str]] = [
    ({"kind": "pie"}, "kind 'pie' is not known; choose one of curve, panels"),
    ({"titel": "x"}, "has no key 'titel'; allowed are"),
    ({"title": " "}, "has no title"),
    ({"foot": {"machine": "m", "commit": "c"}}, "foot has no 'versions'"),
    ({"x": "rows"}, "'x' shows the column 'rows'; the data have: M, backend, tflops, low, high"),
    ({"y": {"column": "tflops", "label": "speed", "scale": "loog"}}, "scale 'loog' is not known; choose one of linear"),
    ({"y": {"column": "low", "label": "speed"}}, "y has no unit; every axis says"),
    ({"y": "low"}, "the quantity 'low' is not known; give"),
    ({"y": {"column": "low", "label": "speed", "unit": "m", "colour": 1}}, "y has the key 'colour'; allowed are"),
    ({"group": "vendor"}, "'group' names the column 'vendor'; the data have"),
    ({"baselines": "cublas"}, "'baselines' is 'cublas'; give a list"),
    ({"where": {"backend": "hip"}}, "no row has backend 'hip'; there is: cublas, triton, gluon"),
    ({"published": [{"unit": "TFLOPS", "y": "fast"}]}, "published[0].y: 'fast' is not of type"),
    ({"where": ["backend"]}, "where: ['backend'] is not of type 'object'"),
    ({"kind": "roofline", "ceilings": {"hbm_gbs": 0, "peak_tflops": {"fp16": 1}}}, "ceilings.hbm_gbs: 0 is less"),
    ({"ticks": "many"}, "'ticks' is 'many'; choose one of"),
    ({"kind": "heatmap", "x": "M", "y": "backend", "value": "tflops", "relative": "y"}, "'relative' is 'y'"),
    ({"kind": "roofline"}, "a roofline needs the column 'flops'"),
    ({"kind": "sweep"}, "a sweep needs the column 'point'"),
]


@pytest.mark.parametrize(("changes", "said"), WRONG)
def test_a_wrong_spec_is_told_by_name(changes: dict[str, Any], said: str) -> None:
    good, data = MADE["curve"]
    kind = changes.get("kind", "curve")
    kept = {key: value for key, value in good.items() if key in ("title", "foot") or kind == "curve" or kind == "pie"}
    with pytest.raises(FigureError, match=re.escape(said)):
        picture(parse({**kept, "kind": kind, **changes}, KEYS), data)


def test_files_that_cannot_be_read_are_an_exit_code_and_a_sentence(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    spec, data, out = tmp_path / "s.json", tmp_path / "d.csv", tmp_path / "out"
    argv = [str(spec), "--data", str(data), "--out", str(out)]
    assert command.main(argv) == 3
    spec.write_text("{")
    data.write_text("")
    assert command.main(argv) == 3
    spec.write_text(json.dumps(MADE["curve"][0]))
    assert command.main(argv) == 3
    data.write_text("M,backend,tflops,low,high\n")
    assert command.main(argv) == 3
    errors = capsys.readouterr().err.splitlines()
    assert len(errors) == 4
    assert "s.json" in errors[0]
    assert "is not JSON" in errors[1]
    assert "is not a table" in errors[2]
    assert errors[3] == "error: the data have no row; there is nothing to draw"
    assert list(tmp_path.glob("out*")) == []


def test_a_map_with_more_cells_than_paper_has_room_for_is_refused() -> None:
    rows = pd.DataFrame([{"M": m, "tile": n, "us": 1.0 + m} for m in range(80) for n in range(80)])
    x, y = ({"column": name, "label": name, "unit": "1", "scale": "category"} for name in ("M", "tile"))
    with pytest.raises(FigureError, match="80 x 80 cells are more than 4000; choose with 'where'"):
        picture(parse(made_studies.spec("heatmap", "t", x=x, y=y, value="us"), KEYS), rows)
