"""What is measured next, from the lines that are there."""

from __future__ import annotations

import pytest

from benchmarks.points import Point
from ci.sweeps.measured import SweepError
from ci.sweeps.rungs import DueRung, Rungs, due, seen_in
from tests.ci.made_trials import parsed
from tests.ci.sweeps.made_sweeps import line

TRUTH = {2: 1.30, 4: 1.001, 8: 0.90, 16: 1.10}
POINTS = [Point("m16", "triton", {"num_warps": warps}) for warps in TRUTH]
RUNGS = Rungs((8, 20, 40))


def _next(*lines, rungs: Rungs = RUNGS, points=POINTS) -> DueRung | None:
    seen = seen_in([parsed(one) for one in lines], "gemm", "spaced")
    return due({"m16": points}, rungs, seen, {"m16": "triton"})


def _warps(found: DueRung | None) -> list[int]:
    assert found is not None
    return [point.knobs["num_warps"] for point in found.points["m16"]]


def _measured(warps, rung: int = 0, rounds: int = 8, **more):
    return line([({"num_warps": w}, TRUTH[w]) for w in warps], rung=rung, rounds=rounds, **more)


def test_first_all_points_then_those_that_may_be_the_best() -> None:
    assert (_next().rung, _warps(_next())) == (0, [2, 4, 8, 16])
    found = _next(_measured(TRUTH))
    assert (found.rung, _warps(found), found.entered) == (1, [8], 1)
    found = _next(_measured(TRUTH), _measured([8], 1, 20))
    assert (found.rung, _warps(found)) == (2, [8])
    assert _next(_measured(TRUTH), _measured([8], 1, 20), _measured([8], 2, 40)) is None


def test_a_finished_point_is_not_asked_for_again() -> None:
    assert _warps(_next(_measured([2, 8]))) == [4, 16]
    assert _next(_measured([2, 8]), _measured([4, 16], batch=1)).rung == 1


def test_points_are_not_dropped_before_the_rung_is_whole() -> None:
    assert _next(_measured([2, 8, 16])).rung == 0


def test_noise_forbids_to_drop() -> None:
    assert _warps(_next(_measured(TRUTH, noise=0.6))) == [2, 4, 8, 16]


def test_a_point_that_failed_is_never_tried_again() -> None:
    bad = line([({"num_warps": 8}, "hang"), ({"num_warps": 2}, TRUTH[2]), ({"num_warps": 4}, TRUTH[4])])
    rest = _measured([16], batch=1)
    assert _next(bad, rest).rung == 1
    assert 8 not in _warps(_next(bad, rest))


def test_lines_of_fewer_rounds_do_not_count() -> None:
    assert _warps(_next(_measured([2, 8], rounds=4))) == [2, 4, 8, 16]


def test_without_halving_all_points_are_in_all_rungs() -> None:
    found = _next(_measured(TRUTH), rungs=Rungs((8, 8), halving=False))
    assert (found.rung, _warps(found)) == (1, [2, 4, 8, 16])


def test_what_others_are_compared_with_stays_however_slow() -> None:
    slow = Rungs((8, 20, 40), stay=frozenset({("m16", POINTS[0].label), ("other", POINTS[1].label)}))
    assert _warps(_next(_measured(TRUTH), rungs=slow)) == [2, 8]
    faster_anchor = line([({"num_warps": w}, 1.5) for w in TRUTH], rounds=8)
    assert _warps(_next(faster_anchor, rungs=slow)) == [2]
    assert _next(faster_anchor) is None


def test_an_anchor_that_failed_ends_its_case() -> None:
    broken = _measured(TRUTH)
    broken["cases"]["m16"]["arms"]["head/triton"] = {"status": "wrong", "why": "norm 2", "detail": ""}
    assert _next(broken) is None


def test_a_fast_library_drops_none_of_our_points() -> None:
    points = [*POINTS, Point("m16", "blas")]
    found = _next(_measured(TRUTH, plain={"blas": 0.2}), points=points)
    assert [point.label for point in found.points["m16"]][1:] == ["blas"]
    assert found.points["m16"][0].knobs == {"num_warps": 8}


def test_the_anchor_drops_points_that_are_slower_than_it() -> None:
    slow = [POINTS[0], POINTS[3]]
    assert _next(_measured([2, 16]), points=slow) is None


def test_lines_of_another_regime_are_of_another_sweep() -> None:
    assert _warps(_next(_measured(TRUTH, regime="sustained"))) == [2, 4, 8, 16]


@pytest.mark.parametrize(
    ("rounds", "more", "words"),
    [
        ((), {}, "at least"),
        ((1,), {}, "2 rounds at least"),
        ((4, 40), {}, "4 rounds in the first rung"),
        ((8,), {"miss": 1.0}, "chance of 1 "),
    ],
)
def test_rungs_that_cannot_work_are_refused(rounds, more, words: str) -> None:
    with pytest.raises(SweepError, match=words):
        Rungs(rounds, **more)
