"""Points that need no GPU time."""

from __future__ import annotations

import itertools
from pathlib import Path

import pytest

from benchmarks.points import Point
from ci.sweeps import catalogue as catalogues
from ci.sweeps import pruning
from ci.sweeps.measured import SweepError
from ci.sweeps.pruning import Compiled, PointCompiler, prune, read_compiled
from tests.ci.sweeps.made_sweeps import catalogue, offer

ANCHORS = {"m16": "triton"}


def _point(**knobs):
    return Point("m16", "triton", knobs)


def test_points_whose_knobs_come_to_the_same_are_one():
    points = [_point(block_m=16), _point(num_warps=8), _point(num_warps=8, flatten=True), _point(num_warps=2)]
    found = prune(catalogue(), {"m16": points}, ANCHORS, None)
    assert [one.knobs for one in found.to_measure["m16"]] == [{"num_warps": 8}, {"num_warps": 2}]
    assert found.equal == {("m16", points[0].label): "triton", ("m16", points[2].label): points[1].label}
    assert found.reasons() == {"the code of another point": 2}


def test_a_case_that_the_backend_refuses_is_dropped_with_its_sentence():
    found = prune(catalogue([offer(why_not="needs gfx950")]), {"m16": [_point(num_warps=8)]}, ANCHORS, None)
    assert [(one.kind, one.why) for one in found.dropped] == [("refused", "needs gfx950")]
    assert found.count == 0


def _entry(point, **more):
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
def test_what_the_code_says_of_a_point(more, kind):
    point = _point(num_warps=8)
    found = read_compiled({"points": [_entry(point, **more)]})
    assert found["m16", point.label].kind == kind


def test_points_of_one_code_are_one_and_a_twin_falls_with_its_point(monkeypatch):
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


# What a declaration offers, as `python -m benchmarks candidates` prints it.


ROOT = Path(__file__).parents[3]


@pytest.fixture(scope="module")
def gemm():
    return catalogues.ask("gemm", ROOT, ["n4096_k4096_m16_fp16"], "gfx942")


def test_the_program_and_its_reader_agree(gemm):
    assert (gemm.arch, gemm.backends) == ("gfx942", ["blas", "torch", "triton"])
    ours = gemm.of("n4096_k4096_m16_fp16", "triton")
    assert [*ours.config] == [*ours.knobs]
    assert ours.place.key
    assert not ours.baseline
    changes = [ours.overrides(one) for one in ours.candidates]
    assert changes[0] == {}, "the present choice comes first"
    assert all(ours.whole(change) == dict(one) for change, one in zip(changes, ours.candidates, strict=True))
    assert gemm.of("n4096_k4096_m16_fp16", "blas").baseline


# Values of knobs and the points that they come to.


def _knobs(*options, candidates=False, offers=()):
    found = catalogues.points(catalogue(offers), catalogues.of_options(options), candidates)
    return [dict(point.knobs) for own in found.values() for point in own if point.knobs]


def test_knobs_give_every_combination_in_the_order_that_they_are_named():
    by_hand = [
        {"block_m": m, "variant": v, "flatten": f}
        for m, v, f in itertools.product((16, 32), ("split", "stream"), (True, False))
    ]
    assert _knobs("block_m=16,32", "variant=split,stream", "flatten=true,False") == by_hand
    assert len(_knobs("scale=1,2.5", "swizzle=1,x,true")) == 6, "a knob without a type takes all"


@pytest.mark.parametrize(
    ("knobs", "words"),
    [
        (["num_warp=4"], r"the backends triton, blas have no knob 'num_warp'; there are block_m, num_warps"),
        (["num_warps"], r"'num_warps': expected NAME=VALUE,VALUE"),
        (["num_warps=4", "num_warps=8"], r"num_warps is given twice"),
        (
            [f"{name}={','.join(map(str, range(1000)))}" for name in ("block_m", "num_warps")],
            r"1,000,001 points in 1 cases",
        ),
    ],
)
def test_a_wrong_knob_is_refused_by_name(knobs, words):
    with pytest.raises(SweepError, match=words):
        _knobs(*knobs)


def test_candidates_are_points_by_what_they_change_of_the_configuration():
    proposed = ({"block_m": 16}, {"block_m": 32, "num_warps": 8}, {"num_warps": 4})
    found = _knobs(candidates=True, offers=[offer(candidates=proposed)])
    assert found == [{"block_m": 32, "num_warps": 8}, {"block_m": 64}], "the third leaves block_m at its default"
    assert len(_knobs("num_warps=2", candidates=True, offers=[offer(candidates=proposed)])) == 3
