"""Points that need no GPU time."""

from __future__ import annotations

import itertools
import json
from pathlib import Path
from typing import Any

import pytest
from rich.console import Console

from benchmarks.points import Point
from ci.harness import OneProgram
from ci.sweeps import catalogue as catalogues
from ci.sweeps import grid, pruning
from ci.sweeps.catalogue import KnobFact
from ci.sweeps.grid import KnobGrid, PointWish
from ci.sweeps.measured import SweepError
from ci.sweeps.pruning import Compiled, PointCompiler, prune, read_compiled
from ci.sweeps.run import expected
from ci.sweeps.rungs import Rungs
from tests.ci.sweeps.made_sweeps import catalogue, offer

ANCHORS = {"m16": "triton"}


def _point(**knobs: Any) -> Point:
    return Point("m16", "triton", knobs)


def test_points_whose_knobs_come_to_the_same_are_one() -> None:
    points = [_point(block_m=16), _point(num_warps=8), _point(num_warps=8, flatten=True), _point(num_warps=2)]
    found = prune(catalogue(), {"m16": points}, ANCHORS, None)
    assert [one.knobs for one in found.to_measure["m16"]] == [{"num_warps": 8}, {"num_warps": 2}]
    assert found.equal == {("m16", points[0].label): "triton", ("m16", points[2].label): points[1].label}
    assert found.reasons() == {"the code of another point": 2}


def test_a_case_that_the_backend_refuses_is_dropped_with_its_sentence() -> None:
    found = prune(catalogue([offer(why_not="needs gfx950")]), {"m16": [_point(num_warps=8)]}, ANCHORS, None)
    assert [(one.kind, one.why) for one in found.dropped] == [("refused", "needs gfx950")]
    assert found.count == 0


def _entry(point: Point, **more: Any) -> dict[str, Any]:
    return {"case": point.case, **point.as_json(), "status": "ok", "equal": point.label, "metrics": {}, **more}


@pytest.mark.parametrize(
    ("more", "kind"),
    [
        ({}, ""),
        ({"status": "failed", "why": "x"}, "does not compile"),
        ({"status": "refused", "why": "x"}, "does not compile"),
        ({"status": "unsupported", "why": "x"}, "refused"),
        ({"status": "undeclared", "why": "x"}, ""),
        ({"will_not_load": "300 KB of LDS"}, "cannot load"),
    ],
)
def test_what_the_code_says_of_a_point(more: dict[str, Any], kind: str) -> None:
    point = _point(num_warps=8)
    found = read_compiled({"points": [_entry(point, **more)]})
    assert found["m16", point.label].kind == kind


def test_a_compiler_that_cannot_start_is_an_error() -> None:
    with pytest.raises(SweepError, match="nothing could be compiled ahead: no Triton"):
        read_compiled({"points": [], "failure": "no Triton"})


def test_points_of_one_code_are_one_and_a_twin_falls_with_its_point(monkeypatch: pytest.MonkeyPatch) -> None:
    bad, good, same = (_point(num_warps=n) for n in (1, 2, 8))
    twin = _point(num_warps=1, flatten=True)
    known = {
        ("m16", "triton"): Compiled(identity="a"),
        ("m16", bad.label): Compiled("cannot load", "too much LDS"),
        ("m16", good.label): Compiled(identity="b"),
        ("m16", same.label): Compiled(identity="a"),
    }
    monkeypatch.setattr(pruning.PointCompiler, "compiled", lambda *_: known)
    found = prune(catalogue(), {"m16": [bad, good, same, twin]}, ANCHORS, PointCompiler(None, None))
    assert found.to_measure == {"m16": [good]}
    assert found.equal == {("m16", same.label): "triton"}
    assert [one.point for one in found.dropped] == [bad, twin]
    assert found.reasons() == {"the code of another point": 1, "cannot load": 2}


def test_unknown_code_equals_no_other() -> None:
    points = [Point("m16", "blas"), _point(num_warps=2)]
    assert prune(catalogue(), {"m16": points}, ANCHORS, None).count == 2


def test_minutes_grow_with_points_and_shrink_with_halving() -> None:
    few, many = ({"m16": [_point(num_warps=n) for n in range(1, count)]} for count in (10, 1000))
    cheap, dear = (expected(catalogue(), points, Rungs()) for points in (few, many))
    whole = expected(catalogue(), many, Rungs(halving=False))
    assert cheap.minutes < dear.minutes < whole.minutes
    assert (dear.points, whole.samples) == (999, 999 * 148)
    assert 3 < dear.minutes < 15
    assert expected(catalogue(arch="cpu"), few, Rungs()).minutes > 0
    both = catalogue([offer(), offer("m16_w8", world=8)])
    assert expected(both, few, Rungs()).minutes == cheap.minutes, "ranks of the cases that are swept"


# What a declaration offers, as `python -m benchmarks candidates` prints it.


ROOT = Path(__file__).parents[3]


@pytest.fixture(scope="module")
def gemm() -> catalogues.Catalogue:
    return catalogues.ask("gemm", ROOT, ["n4096_k4096_m16_fp16"], "gfx942")


def test_the_program_and_its_reader_agree(gemm: catalogues.Catalogue) -> None:
    assert (gemm.arch, gemm.backends) == ("gfx942", ["blas", "torch", "triton"])
    ours = gemm.of("n4096_k4096_m16_fp16", "triton")
    assert ours.knobs["num_warps"].kind == "int"
    assert ours.config.keys() == ours.knobs.keys()
    assert ours.cost.flops == 2 * 16 * 4096 * 4096
    assert ours.place.key
    assert not ours.baseline
    changes = [ours.overrides(one) for one in ours.candidates]
    assert changes[0] == {}, "the present choice comes first"
    assert all(ours.whole(change) == dict(one) for change, one in zip(changes, ours.candidates, strict=True))
    assert gemm.of("n4096_k4096_m16_fp16", "blas").baseline


def test_cases_are_chosen_by_pattern_or_tier(gemm: catalogues.Catalogue) -> None:
    assert gemm.chosen(["*_m16_*"], ["triton"], ()).backends == ["triton"]
    assert gemm.chosen([], [], ("pr",)).cases == ["n4096_k4096_m16_fp16"]
    assert gemm.chosen([], [], ("sweep",)).offers == ()
    with pytest.raises(SweepError, match="no case of gemm fits 'm17'; it has n4096"):
        gemm.chosen(["m17"], [], ())


def test_operators_of_a_study_are_asked_for_once(monkeypatch: pytest.MonkeyPatch) -> None:
    asked = []

    def produce(argv: list[str], out: Path, *_: object) -> None:
        asked.append([word for flag, word in zip(argv, argv[1:], strict=False) if flag in ("--kernel", "--arch")])
        entries = [{"kernel": name, "case": "m16", "backend": name, "knobs": {}} for name in ("gemm", "norm")]
        arch = asked[-1][2] if len(asked[-1]) > 2 else "gfx942"
        out.write_text(json.dumps({"entries": entries, "arch": arch, "compute_units": 304}))

    monkeypatch.setattr(catalogues, "produce", produce)
    known = catalogues.Catalogues(ROOT, ["gemm", "norm", "gemm"], OneProgram(), Console(quiet=True))
    assert [known.of(name).backends for name in ("gemm", "norm")] == [["gemm"], ["norm"]]
    assert known.of("norm", "gfx942", 304) is known.of("norm"), "this machine's, by its name"
    assert known.of("norm", "gfx950").arch == "gfx950"
    assert asked == [["gemm", "norm"], ["gemm", "norm", "gfx950"]]


@pytest.mark.parametrize(
    ("kind", "good", "bad"),
    [("int", 3, 3.0), ("bool", True, 1), ("str", "a", 1), ("float", 1, True), ("int | None", 3, "x"), ("", "x", None)],
)
def test_values_have_the_type_of_the_knob(kind: str, good: object, bad: object) -> None:
    assert KnobFact("k", None, kind).refusal(good) == ""
    assert bool(KnobFact("k", None, kind).refusal(bad)) == bool(kind)


# Grids of knobs and the points that they come to.


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

    def counted() -> None:
        with pytest.raises(SweepError, match=r"1,000,000,001 points.*--most 1000000001"):
            grid.points(catalogue(), PointWish((huge, KnobGrid({"num_warps": [3]}))))


def test_candidates_are_points_by_what_they_change_of_the_configuration() -> None:
    proposed = ({"block_m": 16}, {"block_m": 32, "num_warps": 8}, {"num_warps": 4})
    found = _knobs(PointWish(candidates=True), [offer(candidates=proposed)])
    assert found == [{"block_m": 32, "num_warps": 8}, {"block_m": 64}], "the third leaves block_m at its default"
    both = _knobs(PointWish(tuple(grid.of_options(["num_warps=2"])), candidates=True), [offer(candidates=proposed)])
    assert {"num_warps": 2} in both
    assert len(both) == 3
