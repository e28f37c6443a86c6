"""What links carried and what dies ran, from a trial's costs, knobs and notes."""

from __future__ import annotations

import io

import pytest
from rich.console import Console

from ci.report import effort
from ci.trials.trial import Dispatch, HeapHome
from tests.ci.made_trials import declaration, failed, ok, parsed, tree, trial

PROBED = {"torch": {"why": "", "gbs": [[0, 100.0], [80.0, 0]]}, "ipc": {"why": "cannot", "gbs": []}}


def measured(world=2, link=10**9, knobs=None, **notes):
    """A trial of one case that took 20 ms, and one that failed."""
    declared = declaration("gather", cases=("big", "bad"), link=link)
    for case in declared["cases"]:
        case["world"] = world
    arm = {**ok([0.02] * 4), "knobs": knobs or {}}
    cases = {"big": {"head/triton": arm}, "bad": {"head/triton": failed("wrong")}}
    return parsed({**trial(cases, kernel="gather", trees={"head": tree(declared=declared)}), **notes})


def test_a_trial_keeps_the_homes_of_its_heaps():
    found = measured(heap={"w2": {"home": "torch", "homes": PROBED}, "w4": {"home": "torch"}})
    assert found.heaps[2] == HeapHome("torch", {"torch": ((0, 100.0), (80.0, 0))}, {"ipc": "cannot"})
    assert (found.heaps[2].slowest_link, found.heaps[4].slowest_link) == (80.0, None)


def test_older_trials_say_nothing_of_heaps_and_dies():
    found = measured()
    assert (found.heaps, found.dispatch) == ({}, None)


def test_a_link_carries_a_peers_part_in_the_median_time():
    """1 GB to all peers in 20 ms: 50 GB/s to the one peer of two ranks, 16.7 to each of the three of four."""
    [two] = effort.uses([measured(heap={"w2": {"home": "torch", "homes": PROBED}})])
    assert (two.name, two.backend, two.to_peer_gbs) == ("gather/big", "triton", pytest.approx(50.0))
    assert two.share == pytest.approx(50 / 80)
    [four] = effort.uses([measured(world=4)])
    assert (four.to_peer_gbs, four.share) == (pytest.approx(50 / 3), None)


def test_programs_are_dealt_out_to_the_dies_in_turn():
    assert Dispatch((76,) * 8, True).in_turn(64) == (8,) * 8
    assert Dispatch((76,) * 8, True).in_turn(10) == (2, 2, 1, 1, 1, 1, 1, 1)
    assert Dispatch((76,), True).in_turn(10) == (10,)


def test_a_kernel_of_one_rank_shows_its_dies_only():
    dies = {"programs": [38, 38, 38, 38], "round_robin": False}
    [found] = effort.uses([measured(world=1, link=0, knobs={"programs": 6}, dispatch=dies)])
    assert (found.to_peer_gbs, found.xcds, found.dealt) == (None, (2, 2, 1, 1), False)
    assert effort.uses([measured(world=1, link=0, knobs={"programs": 6})]) == []
    assert effort.uses([measured(world=1, link=0, knobs={}, dispatch=dies)]) == []


def test_the_table():
    dies = {"programs": [38] * 8, "round_robin": True}
    heap = {"w2": {"home": "torch", "homes": PROBED}}
    out = io.StringIO()
    found = effort.uses([measured(heap=heap, dispatch=dies, knobs={"programs": 64})])
    Console(file=out, width=120).print(effort.link_table(found))
    assert out.getvalue().splitlines()[-1].split("  ")[0] == "gather/big"
    assert "50.0" in out.getvalue()
    assert "62 % of 80" in out.getvalue()
    assert "8 x 8" in out.getvalue()
