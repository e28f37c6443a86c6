"""A check of the same commit again: which earlier trials count, and which do not."""

from __future__ import annotations

import dataclasses
import os
import platform
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from ci.commands.common import measuring
from ci.git.repository import Commit, LocalCheckout
from ci.harness import MeasurePlan
from tests.ci import made_trials

HEAD = LocalCheckout("head", Path(), Commit(made_trials.HEAD, 0, ""))
PLAN = MeasurePlan(rounds=20, cache="hot")


def line(**changed: Any) -> dict[str, Any]:
    system = f"{platform.system()} {'.'.join(platform.release().split('.')[:2])}"
    machine = {"name": "m", "kind": "cpu", "os": system, "cpu_count": len(os.sched_getaffinity(0))}
    tree = made_trials.tree(made_trials.HEAD)
    tree["environment"] = {"python": platform.python_version(), **measuring._versions()}
    protocol = {"rounds": 20, "cache": "hot", "seed": 0, "regime": "spaced"}
    cases = {"m16": {"head/triton": made_trials.ok([1e-3] * 20)}}
    made = made_trials.trial(cases, trees={"head": tree})
    return {**made, "machine": machine, "protocol": protocol, **changed}


@pytest.fixture
def found(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[..., Any]:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(measuring, "machine_kind", lambda: "cpu")
    Path(measuring.TRIALS).mkdir(parents=True)

    def look(plan: MeasurePlan = PLAN, head: LocalCheckout = HEAD, name: str = "check", **changed: Any) -> Any:
        made_trials.write(
            Path(measuring.TRIALS) / f"20261122-000000-{name}-{HEAD.commit.short}-1.jsonl", line(**changed)
        )
        return measuring.measured_before(head, plan, ["gemm"])

    return look


def test_the_same_check_again_reads_its_trials(found: Callable[..., Any]) -> None:
    assert [trial.operator for trial in found().trials] == ["gemm"]


@pytest.mark.parametrize(
    "changed",
    [
        {"plan": dataclasses.replace(PLAN, rounds=40)},
        {"plan": dataclasses.replace(PLAN, regime="sustained")},
        {"plan": dataclasses.replace(PLAN, tier="nightly")},
        {"plan": dataclasses.replace(PLAN, cases=("m16",))},
        {"plan": dataclasses.replace(PLAN, kernels=("softmax",))},
        {"head": dataclasses.replace(HEAD, changed=("a.py",))},
        {"head": dataclasses.replace(HEAD, commit=Commit("d" * 40, 0, ""))},
        {"machine": {"name": "m", "kind": "cpu", "os": "other", "cpu_count": 2}},
        {"machine": {"name": "m", "kind": "gpu"}},
        {"kernel": "other"},
        {"name": "ab"},
    ],
    ids=str,
)
def test_what_was_measured_otherwise_does_not_count(found: Callable[..., Any], changed: dict[str, Any]) -> None:
    assert found(**changed) is None


def test_another_torch_or_python_does_not_count(found: Callable[..., Any], monkeypatch: pytest.MonkeyPatch) -> None:
    assert found()
    monkeypatch.setattr(measuring, "_versions", lambda: {"torch": "1.0"})
    assert measuring.measured_before(HEAD, PLAN, ["gemm"]) is None
