"""Points that launch the same code in the same way are timed once."""

from __future__ import annotations

import dataclasses
import random
from collections.abc import Sequence
from typing import Any

import pytest

from benchmarks.coordinator.case_run import CaseRun
from benchmarks.coordinator.samples import same_code
from benchmarks.plan import PlannedArm, PlannedCase, Protocol
from benchmarks.worker.arms import CaseBench
from tests.benchmarks.test_graph_cases import LocalPools

ANCHOR = PlannedArm("head", "good")
POINTS = tuple(PlannedArm("head", "good", point=name) for name in ("p1", "p2", "p3"))


@pytest.mark.parametrize(
    ("arms", "hashes", "expected"),
    [
        ((ANCHOR, *POINTS), ("a", "b", "a", "b"), {"head/good@p2": "head/good", "head/good@p3": "head/good@p1"}),
        ((ANCHOR, *POINTS), (None, None, None, "a"), {}),
        ((ANCHOR, PlannedArm("head", "other")), ("a", "a"), {}),
        ((POINTS[0], ANCHOR), ("a", "a"), {}),
    ],
)
def test_a_point_is_left_to_the_first_arm_with_its_code(
    arms: Sequence[PlannedArm], hashes: Sequence[str | None], expected: dict[str, str]
):
    assert same_code(arms, hashes) == expected


def measured(monkeypatch: pytest.MonkeyPatch, hashes: dict[str, str], *arms: PlannedArm) -> tuple[dict[str, Any], list]:
    """The entry of a case whose arms trace to these hashes, and the labels in the order in which they were timed."""
    timed: list[str] = []
    samples = CaseBench.samples
    monkeypatch.setattr(CaseBench, "trace", lambda self, label: hashes[label])
    monkeypatch.setattr(
        CaseBench,
        "samples",
        lambda self, order, *more, **other: timed.extend(order) or samples(self, order, *more, **other),
    )
    workers = LocalPools(pools={}, lost={}, starts=0)
    case = PlannedCase("c", 1, arms, "clock", 1, 1, 0)
    return CaseRun(workers, case, Protocol(rounds=5), random.Random(0), {}).run()["arms"], timed


def test_it_carries_the_samples_of_that_arm_and_was_checked_itself(monkeypatch):
    hashes = {"good": "a", "good@p1": "b", "good@p2": "a", "good@p3": "b"}
    arms, timed = measured(monkeypatch, hashes, ANCHOR, *POINTS)
    assert "good@p2" not in timed
    assert "good@p3" not in timed
    assert arms["head/good@p3"]["same_as"] == "head/good@p1"
    assert arms["head/good@p3"]["seconds"] == arms["head/good@p1"]["seconds"]
    assert arms["head/good@p2"]["same_as"] == "head/good"
    assert arms["head/good@p2"]["error"] == {"norm": 0.0, "peak": 0.0}
    assert "same_as" not in arms["head/good@p1"]
    assert {arm["code_hash"] for arm in arms.values()} == {"a", "b"}


def test_it_fails_where_that_arm_fails_after_timing(monkeypatch):
    check, checked = CaseBench.check, []

    def second_is_wrong(self: CaseBench, label: str) -> dict[str, Any]:
        checked.append(label)
        if label == "good@p1" and checked.count(label) > 1:
            raise_wrong()
        return check(self, label)

    monkeypatch.setattr(CaseBench, "check", second_is_wrong)
    arms, _ = measured(monkeypatch, dict.fromkeys(("good@p1", "good@p2"), "a") | {"good": "b"}, ANCHOR, *POINTS[:2])
    assert arms["head/good@p1"]["status"] == arms["head/good@p2"]["status"] == "wrong"
    assert arms["head/good@p2"]["why"] == "its code is that of head/good@p1: check after timing: a race"
    assert arms["head/good"]["status"] == "ok"


def raise_wrong() -> None:
    from benchmarks.worker.failures import Refused

    raise Refused("wrong", "a race")


def test_points_without_knobs_in_common_are_all_timed(monkeypatch):
    arms, timed = measured(monkeypatch, {"good": "a", "good@p1": "b", "good@p2": "c"}, ANCHOR, *POINTS[:2])
    assert set(timed) == {"good", "good@p1", "good@p2"}
    assert all("same_as" not in arm for arm in arms.values())
    assert len({tuple(arm["seconds"]) for arm in arms.values()}) == 3


@pytest.mark.slow
def test_a_batch_that_keeps_its_inputs_makes_them_once(monkeypatch):
    made: list[str] = []
    init = CaseBench.__init__
    monkeypatch.setattr(CaseBench, "__init__", lambda self, *rest: made.append("inputs") or init(self, *rest))
    workers = LocalPools(pools={}, lost={}, starts=0)
    for keep, count in ((True, 1), (True, 1), (False, 2)):
        case = PlannedCase("c", 1, (ANCHOR, dataclasses.replace(POINTS[0])), "clock", 1, 1, 0)
        entry = CaseRun(workers, case, Protocol(rounds=2), random.Random(0), {}, keep_inputs=keep).run()
        assert {arm["status"] for arm in entry["arms"].values()} == {"ok"}
        assert len(made) == count
        assert set(workers.pools["head"]._service._bench.arms) == {"good", "good@p1"}
