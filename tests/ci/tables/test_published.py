"""The published reference points: the file is complete, and a line that is not is refused by name."""

from __future__ import annotations

import datetime

import pytest

from ci.tables.published import PublishedError, beside, load, points

LINES = load()

GOOD = {
    "name": '"a"',
    "label": '"A"',
    "operators": '["gemm"]',
    "source": '"https://example.org/a"',
    "device": '"MI300X"',
    "world": "1",
    "method": '"by hand"',
    "date": "2026-10-06",
    "y": '"tflops"',
    "unit": '"TFLOPS"',
    "level": "700",
}


def file(tmp_path, *lines):
    path = tmp_path / "published.toml"
    text = ("[[line]]\n" + "".join(f"{key} = {value}\n" for key, value in line.items()) for line in lines)
    path.write_text("\n".join(text), encoding="utf-8")
    return path


def test_every_line_is_of_an_operator_that_we_have_and_older_than_the_day_it_was_read():
    ours = {
        *("gemm", "all_gather", "all_reduce", "all_to_all", "reduce_scatter", "gemm_all_scatter", "moe_gemm2_mxfp4"),
        *("grouped_gemm_forward", "grouped_gemm_dgrad", "grouped_gemm_wgrad"),
    }
    assert {operator for line in LINES for operator in line.operators} <= ours
    assert max(line.date for line in LINES) <= datetime.date(2026, 11, 22)
    assert len(LINES) >= 30


def test_a_file_on_github_is_cited_at_a_commit():
    for line in LINES:
        if "/blob/" in line.source:
            assert len(line.source.split("/blob/")[1].split("/")[0]) == 40, line.name


def names(rows, y, x=""):
    return [line.name for line in beside(LINES, rows, y, x)]


def test_lines_of_the_shape_of_a_figure():
    reduces = {"operator": {"all_reduce"}, "dtype": {"fp32", "fp16"}, "world": {8}}
    assert names(reduces, "us", "bytes") == ["rccl_all_reduce_mi300x_us", "rccl_all_reduce_mi300x_graph_us"]
    assert names({**reduces, "dtype": {"bf16"}}, "us", "bytes") == []
    assert names({**reduces, "operator": {"all_reduce", "all_gather"}}, "us", "bytes") == []
    assert names({**reduces, "world": {2, 4}}, "busbw", "bytes") == []
    assert names(reduces, "busbw", "M") == ["nccl_all_reduce_h200"], "levels only, over another axis"
    levels = beside(LINES, {"operator": ["gemm"], "dtype": ["bf16"], "world": [1]}, "tflops", "M")
    assert {line.dtype for line in levels} == {"bf16"}
    assert {line.x for line in levels} == {""}


def test_a_line_about_certain_dimensions_stands_beside_these_only():
    kimi = {"operator": {"moe_gemm2_mxfp4"}, "N": {7168}, "K": {512}, "E": {385}, "topk": {9}}
    assert names(kimi, "us", "M") == ["aiter_gemm2_kimi"]
    assert names({**kimi, "K": {256, 512}, "E": {257, 385}}, "us", "M") == ["aiter_gemm2_kimi", "aiter_gemm2_dsv3"]
    assert names({"operator": {"moe_gemm2_mxfp4"}}, "us", "M") == []


def test_bus_bandwidth_and_time_of_the_same_runs_agree():
    """busbw = 2 (n - 1) / n x bytes / time (rccl-tests, doc/PERFORMANCE.md): a slip in copying a digit shows."""
    lines = {line.name: dict(line.points) for line in LINES}
    for kind in ("", "_graph"):
        speeds, times = (lines[f"rccl_all_reduce_mi300x{kind}_{what}"] for what in ("busbw", "us"))
        both = speeds.keys() & times.keys()
        assert len(both) == 6
        for size in both:
            assert speeds[size] == pytest.approx(2 * 7 / 8 * size / times[size] / 1e3, rel=1e-3)


def test_the_fused_kernel_of_iris_agrees_with_its_own_time():
    lines = {line.name: dict(line.points) for line in LINES}
    ((m, us),) = lines["iris_gemm_all_scatter_us"].items()
    assert lines["iris_gemm_all_scatter_tflops"][m] == pytest.approx(2 * m**3 / us / 1e6, rel=1e-5)


def test_points_are_what_a_figure_takes(tmp_path):
    level = load(file(tmp_path, GOOD))
    assert points(level) == [
        {
            "label": "A",
            "source": "https://example.org/a",
            "device": "MI300X",
            "method": "by hand",
            "world": 1,
            "unit": "TFLOPS",
            "date": "2026-10-06",
            "x": None,
            "y": 700.0,
        }
    ]
    curve = {key: value for key, value in GOOD.items() if key != "level"} | {"x": '"M"', "points": "[[1, 2], [4, 8.5]]"}
    assert [(one["x"], one["y"]) for one in points(load(file(tmp_path, curve)))] == [(1.0, 2.0), (4.0, 8.5)]


@pytest.mark.parametrize(
    ("key", "value", "sentence"),
    [
        ("source", None, r"line 1 \(a\).source is missing; allowed: an address"),
        ("source", '"a blog"', 'source is "a blog"; allowed: an address'),
        ("date", None, "date is missing; allowed: the day of the source"),
        ("date", '"2026"', 'date is "2026"'),
        ("unit", None, "unit is missing"),
        ("unit", '"GB/s"', 'unit is "GB/s"; allowed: tflops is in TFLOPS'),
        ("device", '" "', 'device is " "; allowed: a text'),
        ("method", "7", "method is 7; allowed: a text"),
        ("world", "0", "world is 0"),
        ("world", "true", "world is true"),
        ("operators", "[]", "operators is .*; allowed: those that it can stand beside"),
        ("y", '"speed"', 'y is "speed"; allowed: tflops'),
        ("level", "-1", "level is -1; allowed: a number from"),
        ("level", "nan", "level is NaN"),
        ("level", None, "allowed: either level, a number, or points with x"),
        ("points", "[[1, 2]]", "either level"),
        ("sauce", '"x"', "unknown key 'sauce'"),
        ("shape", '{ N = "big" }', 'shape.N is "big"; allowed: a whole number'),
    ],
)
def test_a_line_that_is_not_complete_is_refused_by_name(tmp_path, key, value, sentence):
    line = {k: v for k, v in GOOD.items() if k != key} | ({} if value is None else {key: value})
    with pytest.raises(PublishedError, match=sentence):
        load(file(tmp_path, line))


@pytest.mark.parametrize(
    ("x", "given", "sentence"),
    [
        ('"N"', "[[1, 2]]", 'x is "N"; allowed: M, bytes'),
        ('"M"', "[]", "allowed: a list of"),
        ('"M"', "[[1, 2, 3]]", r"allowed: \[x, y\]"),
        ('"M"', "[[2, 1], [1, 1]]", "points is 1; allowed: x above 2"),
        ('"M"', '[["1", 2]]', 'points is "1"; allowed: a number'),
    ],
)
def test_points_that_cannot_be_drawn_are_refused(tmp_path, x, given, sentence):
    line = {k: v for k, v in GOOD.items() if k != "level"} | {"x": x, "points": given}
    with pytest.raises(PublishedError, match=sentence):
        load(file(tmp_path, line))


def test_a_name_stands_for_one_line(tmp_path):
    with pytest.raises(PublishedError, match="has a twice"):
        load(file(tmp_path, GOOD, GOOD))
    path = tmp_path / "broken.toml"
    path.write_text("[[line")
    with pytest.raises(PublishedError, match="is not TOML"):
        load(path)
