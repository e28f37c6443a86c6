"""Grids of knobs and the points that they come to."""

from __future__ import annotations

import itertools
import time
from pathlib import Path

import pytest

from ci.sweeps import grid
from ci.sweeps.grid import KnobGrid, PointWish
from ci.sweeps.measured import SweepError
from tests.ci.sweeps.made_offers import catalogue, offer


def _knobs(wish: PointWish, offers=()) -> list[dict]:
    return [dict(point.knobs) for own in grid.points(catalogue(offers), wish).values() for point in own if point.knobs]


def test_knobs_give_every_combination_in_the_order_that_they_are_named() -> None:
    grids = grid.of_options(["block_m=16,32", "num_warps=4,8", "flatten=true,False"])
    by_hand = [
        {"block_m": m, "num_warps": w, "flatten": f} for m, w, f in itertools.product((16, 32), (4, 8), (True, False))
    ]
    assert _knobs(PointWish(tuple(grids))) == by_hand
    assert grids[0].size == 8


def test_a_backend_without_knobs_is_a_point_as_it_is() -> None:
    found = grid.points(catalogue(), PointWish(tuple(grid.of_options(["num_warps=4"]))))
    assert [point.label for point in found["m16"]][-1] == "blas"


def test_values_are_numbers_truths_and_names() -> None:
    assert grid.of_options(["variant=split,stream"])[0].values["variant"] == ["split", "stream"]
    assert grid.of_options(["a=1,1.5,true"])[0].values["a"] == [1, 1.5, True]


@pytest.mark.parametrize(
    ("knobs", "words"),
    [
        (["num_warp=4"], r"--knob: none of blas, triton has a knob 'num_warp'; there are num_warps"),
        (["num_warps=four"], r"'num_warps': 'four' is not a whole number, as its default 4 is"),
        (["num_warps=true"], r"'num_warps': True is not a whole number"),
        (["num_warps=4.5"], r"'num_warps': 4.5 is not a whole number"),
        (["flatten=1"], r"'flatten': 1 is not true or false"),
        (["variant=3"], r"'variant': 3 is not a name"),
        (["num_warps"], r"'num_warps': expected NAME=VALUE,VALUE"),
        (["num_warps="], r"expected NAME=VALUE,VALUE"),
        (["num_warps=4,4"], r"a value twice in 4, 4"),
        (["num_warps=4", "num_warps=8"], r"num_warps is given twice"),
    ],
)
def test_a_wrong_knob_is_refused_by_name(knobs: list[str], words: str) -> None:
    with pytest.raises(SweepError, match=words):
        grid.points(catalogue(), PointWish(tuple(grid.of_options(knobs))))


def test_whole_numbers_are_numbers_and_a_knob_without_a_type_takes_all() -> None:
    assert len(_knobs(PointWish(tuple(grid.of_options(["scale=1,2.5", "swizzle=1,x,true"]))))) == 6


def test_a_file_says_the_same_as_options_and_more(tmp_path: Path) -> None:
    file = tmp_path / "grid.toml"
    file.write_text(
        "knobs = {num_warps = [4, 8]}\npoints = [{block_m = 32, flatten = false}]\n"
        '[[grid]]\ncase = "*64"\nknobs = {block_m = [64]}\n'
    )
    grids = grid.of_file(file)
    assert [one.size for one in grids] == [3, 1]
    both = grid.points(catalogue([offer("m16"), offer("m64")]), PointWish(tuple(grids)))
    assert [len(both["m16"]), len(both["m64"])] == [3, 4]
    as_json = tmp_path / "grid.json"
    as_json.write_text('{"knobs": {"num_warps": [4, 8]}, "points": [{"block_m": 32, "flatten": false}]}')
    assert grid.of_file(as_json)[0].values == grids[0].values
    assert grid.of_file(as_json)[0].points == grids[0].points


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("", "the grid is empty"),
        ("knobs = {}", "the grid is empty"),
        ("knobs = {num_warps = []}", r"num_warps is \[\]; allowed: at least one value"),
        ("knobs = [1]", r"knobs is \[1\]; allowed: an object"),
        ("points = 3", "points is 3; allowed: a list"),
        ("points = [{}]", r"points\[0\] is \{\}; allowed: a table of values"),
        ("knobs = {num_warps = [[4]]}", r"num_warps\[0\] is \[4\]; allowed: a number"),
        ("knobs = {scale = [nan]}", r"scale\[0\] is NaN; allowed: a number"),
        ("nobs = {num_warps = [4]}", "unknown key 'nobs'"),
        ("[[grid]]\ncase = 3", "case is 3; allowed: text"),
        ("grid = 3", "grid is 3; allowed: a list"),
        ("knobs = {", "grid.toml"),
    ],
)
def test_a_wrong_file_is_refused_by_name(tmp_path: Path, text: str, words: str) -> None:
    file = tmp_path / "grid.toml"
    file.write_text(text)
    with pytest.raises(SweepError, match=words):
        grid.of_file(file)
    with pytest.raises(SweepError, match="nowhere.toml: No such file"):
        grid.of_file(tmp_path / "nowhere.toml")


def test_a_grid_for_a_case_that_is_not_swept_is_refused() -> None:
    with pytest.raises(SweepError, match="case 'x' is none of those that are swept: triton, blas, m16"):
        grid.points(catalogue(), PointWish((KnobGrid({"num_warps": [4]}, case="x"),)))
    with pytest.raises(SweepError, match="backend 'hip' is none"):
        grid.points(catalogue(), PointWish((KnobGrid({"num_warps": [4]}, backend="hip"),)))


def test_a_billion_points_are_counted_and_not_made() -> None:
    huge = KnobGrid({"block_m": range(1, 1001), "num_warps": range(1, 1001), "scale": range(1, 1001)})
    began = time.process_time()
    with pytest.raises(SweepError, match=r"1,000,000,001 points.*--sample N.*--most 1000000001"):
        grid.points(catalogue(), PointWish((huge, KnobGrid({"num_warps": [3]}))))
    some = _knobs(PointWish((huge,), sample=50))
    assert len(some) == 50
    assert some == _knobs(PointWish((huge,), sample=50)), "the same ones every time"
    assert len({tuple(one.items()) for one in some}) == 50
    assert time.process_time() - began < 5


def test_candidates_are_points_by_what_they_change_of_the_configuration() -> None:
    proposed = ({"block_m": 16}, {"block_m": 32, "num_warps": 8}, {"num_warps": 4})
    found = _knobs(PointWish(candidates=True), [offer(candidates=proposed)])
    assert found == [{"block_m": 32, "num_warps": 8}, {"block_m": 64}], "the third leaves block_m at its default"
    both = _knobs(PointWish(tuple(grid.of_options(["num_warps=2"])), candidates=True), [offer(candidates=proposed)])
    assert {"num_warps": 2} in both
    assert len(both) == 3


def test_an_operator_without_candidates_or_knobs_says_so() -> None:
    with pytest.raises(SweepError, match="declares no candidates; name knobs"):
        grid.points(catalogue(), PointWish(candidates=True))
    with pytest.raises(SweepError, match="nothing to sweep"):
        grid.points(catalogue(), PointWish())
