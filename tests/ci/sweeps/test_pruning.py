"""Points that need no GPU time."""

from __future__ import annotations

from typing import Any

import pytest

from benchmarks.points import Point
from ci.sweeps import pruning
from ci.sweeps.measured import SweepError
from ci.sweeps.pruning import CodeLimits, Compiled, PointCompiler, Pruned, by_config, read_compiled
from ci.sweeps.run import expected
from ci.sweeps.rungs import Rungs
from tests.ci.sweeps.made_offers import catalogue, offer

ANCHORS = {"m16": "triton"}


def _point(**knobs: Any) -> Point:
    return Point("m16", "triton", knobs)


def test_points_whose_knobs_come_to_the_same_are_one() -> None:
    points = [_point(block_m=16), _point(num_warps=8), _point(num_warps=8, flatten=True), _point(num_warps=2)]
    found = by_config(catalogue(), {"m16": points}, ANCHORS)
    assert [one.knobs for one in found.kept["m16"]] == [{"num_warps": 8}, {"num_warps": 2}]
    assert found.equal == {("m16", points[0].label): "triton", ("m16", points[2].label): points[1].label}
    assert found.reasons() == {"the code of another point": 2}


def test_a_case_that_the_backend_refuses_is_dropped_with_its_sentence() -> None:
    found = by_config(catalogue([offer(why_not="needs gfx950")]), {"m16": [_point(num_warps=8)]}, ANCHORS)
    assert [(one.kind, one.why) for one in found.dropped] == [("refused", "needs gfx950")]
    assert found.count == 0


def _entry(point: Point, **more: Any) -> dict[str, Any]:
    return {"case": point.case, **point.as_json(), "status": "ok", "equal": point.label, "metrics": {}, **more}


@pytest.mark.parametrize(
    ("more", "limits", "kind"),
    [
        ({}, CodeLimits(), ""),
        ({"status": "failed", "why": "x"}, CodeLimits(), "does not compile"),
        ({"status": "refused", "why": "x"}, CodeLimits(), "does not compile"),
        ({"status": "unsupported", "why": "x"}, CodeLimits(), "refused"),
        ({"status": "undeclared", "why": "x"}, CodeLimits(), ""),
        ({"will_not_load": "300 KB of LDS"}, CodeLimits(), "cannot load"),
        ({"metrics": {"vgpr": 300}}, CodeLimits(registers=256), "too many registers"),
        ({"metrics": {"registers": 256}}, CodeLimits(registers=256), ""),
        ({"metrics": {"vgpr_spills": 3}}, CodeLimits(spills=2), "spills too much"),
        ({"metrics": {"scratch_bytes": 3}}, CodeLimits(spills=2), "spills too much"),
    ],
)
def test_what_the_code_says_of_a_point(more: dict[str, Any], limits: CodeLimits, kind: str) -> None:
    point = _point(num_warps=8)
    found = read_compiled({"points": [_entry(point, **more)]}, limits)
    assert found["m16", point.label].kind == kind


def test_a_compiler_that_cannot_start_is_an_error() -> None:
    with pytest.raises(SweepError, match="nothing could be compiled ahead: no Triton"):
        read_compiled({"points": [], "failure": "no Triton"}, CodeLimits())


def test_points_of_one_code_are_one_and_a_twin_falls_with_its_point(monkeypatch: pytest.MonkeyPatch) -> None:
    bad, good, same, twin = (_point(num_warps=n) for n in (1, 2, 4, 8))
    before = Pruned({"m16": [bad, good, same]}, {("m16", twin.label): bad.label}, (), (twin,))
    known = {
        ("m16", "triton"): Compiled(identity="a"),
        ("m16", bad.label): Compiled("cannot load", "too much LDS"),
        ("m16", good.label): Compiled(identity="b"),
        ("m16", same.label): Compiled(identity="a"),
    }
    monkeypatch.setattr(pruning.PointCompiler, "compiled", lambda *_: known)
    found = PointCompiler(None, None).pruned(catalogue(), before, ANCHORS)
    assert found.kept == {"m16": [good]}
    assert found.equal == {("m16", same.label): "triton"}
    assert [one.point for one in found.dropped] == [bad, twin]
    assert found.reasons() == {"the code of another point": 1, "cannot load": 2}


def test_unknown_code_equals_no_other() -> None:
    points = [Point("m16", "blas"), _point(num_warps=2)]
    assert by_config(catalogue(), {"m16": points}, ANCHORS).count == 2


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
