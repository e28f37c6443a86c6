"""Which cases the backends are tried in, and what is said of them."""

from __future__ import annotations

import pytest

from benchmarks.bringup import run
from benchmarks.bringup.steps import RowStatus
from benchmarks.coordinator.checkouts import Checkout
from benchmarks.plan import PlannedArm, PlannedCase


def case(name: str, world: int = 1, arms: tuple[str, ...] = ("ours",), skip: str = "") -> PlannedCase:
    return PlannedCase(name, world, tuple(PlannedArm("head", arm) for arm in arms), "events", 1, 1, 0, skip)


def cost(flops: int, hbm_bytes: int) -> dict[str, int]:
    return {"flops": flops, "hbm_bytes": hbm_bytes, "link_bytes": 0, "payload_bytes": 0}


def test_the_smallest_case_of_the_most_ranks_is_tried():
    cases = [case("w2_small", 2), case("w4_large", 4), case("w4_small", 4), case("w8", 8, skip="needs 8 GPUs")]
    costs = {"w2_small": cost(0, 1), "w4_large": cost(0, 400), "w4_small": cost(0, 40), "w8": cost(0, 1)}
    assert [one.name for one in run.smallest_first(cases, costs)] == ["w4_small", "w4_large"]


def test_a_case_without_a_cost_is_not_tried():
    assert run.smallest_first([case("costless")], {}) == []


def arm(status: str, why: str = "", **more) -> dict:
    return {"status": status, "why": why, **more}


RIGHT = arm("ok", first_call_s=0.5, compile_s=1.5, error={"norm": 2e-4, "peak": 1e-2})


@pytest.mark.parametrize(
    ("entry", "status", "text"),
    [
        (RIGHT, RowStatus.PASS, "baseline, right in m16 (error 2.0e-04)"),
        (arm("unsupported", "no such dtype"), RowStatus.NOT_HERE, "baseline, m16: no such dtype"),
        (arm("wrong", "norm 0.5", detail=""), RowStatus.FAIL, "baseline, m16: wrong: norm 0.5"),
        (arm("hang", "no answer within 120 s"), RowStatus.FAIL, "baseline, m16: hang: no answer within 120 s"),
        (arm("crash", "killed by SIGABRT"), RowStatus.FAIL, "baseline, m16: crash: killed by SIGABRT"),
    ],
)
def test_what_is_said_of_a_backend(entry, status, text):
    row = run.row_of("gemm", "m16", "aiter", entry, ["aiter"])
    assert (row.name, row.status, row.text) == ("gemm/aiter", status, text)
    assert bool(row.next_step) == (status == RowStatus.FAIL)
    if status == RowStatus.PASS:
        assert row.numbers["first_call"] == (2.0, "s")


def test_kernels_beyond_the_time_are_left_to_the_next_call(toy_tree, toy_log, monkeypatch):
    monkeypatch.setattr(run, "BUDGET_S", 0.0)
    checkout = Checkout("head", toy_tree("tree"))
    found = run.tried_backends(checkout, ["backend/pairs"], "auto", lambda event: None)
    by_part = {part: [row.text for row in rows] for part, _, rows in found}
    assert by_part["backend"] == ["3 kernels"]
    assert "backend/steady" in by_part
    assert "backend/pairs" not in by_part
    assert "not begun: the kernels before it took 0 s" in by_part["backend/steady"]
    assert toy_log.read_text() == "", "nothing was called"


def planned(*arms: PlannedArm) -> dict[str, list[PlannedCase]]:
    return {"moe": [PlannedCase("m16", 1, arms, "events", 1, 1, 0)]}


OURS = PlannedArm("head", "ours")
QUICK = PlannedArm("head", "gmm", libraries="grouped_gemm 1.1", first_call_s=0.0)
SLOW = PlannedArm("head", "aiter", libraries="amd-aiter 0.1.20", first_call_s=1800.0)


def test_what_compiles_itself_on_first_use_comes_last():
    found = [
        (part, [arm.backend for arm in cases[0].arms]) for part, _, cases in run.parts(planned(OURS, SLOW, QUICK), [])
    ]
    assert found == [("backend/moe", ["ours", "gmm"]), ("backend/moe/compiling", ["aiter"])]
    left = run.parts(planned(OURS, SLOW), ["backend/moe"])
    assert [part for part, _, _ in left] == ["backend/moe/compiling"]
    absent = PlannedArm("head", "aiter", first_call_s=1800.0)
    assert [part for part, _, _ in run.parts(planned(OURS, absent), [])] == ["backend/moe"]
