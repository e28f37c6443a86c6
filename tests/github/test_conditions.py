"""The conditions at the boundaries of trust, decided by GitHub's own evaluation: what a fork or a branch can start."""

from __future__ import annotations

from typing import Any

import pytest

from tests.github.actions import Expressions, load

GPU = "refs/heads/ridgeline/gpu"


def github(event_name: str = "workflow_dispatch", ref: str = "refs/heads/main", **event: Any) -> dict[str, Any]:
    name = ref.removeprefix("refs/heads/")
    return {
        "event_name": event_name,
        "ref": ref,
        "ref_name": name,
        "event": {"repository": {"default_branch": "main"}, **event},
    }


def holds(
    expressions: Expressions, file: str, job: str, given: dict[str, Any], status: str = "success", **more: Any
) -> bool:
    contexts = {"github": given, "inputs": {"tier": ""}, "needs": {}, **more}
    return expressions.holds(load(file)["jobs"][job].get("if"), contexts, status)


FOREIGN = {
    "a fork's pull request that calls the file": github("pull_request", "refs/pull/7/merge"),
    "pull_request_target": github("pull_request_target"),
    "a push to a branch": github("push", "refs/heads/topic"),
    "a push to the ref of GPU runs": github("push", GPU),
    "a comment": github("issue_comment"),
    "a finished run": github("workflow_run"),
    "a start by hand on the default branch": github(),
    "a start by hand on another branch": github(ref="refs/heads/ridgeline/gpu-2"),
    "a tag of the same name": github(ref="refs/tags/ridgeline/gpu"),
}


def started(expressions: Expressions, file: str, job: str, **more: Any) -> list[str]:
    """What of the foreign attempts would start a job."""
    condition = load(file)["jobs"][job].get("if")
    asked = [(condition, {"github": given, "inputs": {}, "needs": {}, **more}, "success") for given in FOREIGN.values()]
    return [name for name, runs in zip(FOREIGN, expressions.hold(asked), strict=True) if runs]


@pytest.mark.parametrize("job", ["measure", "declare", "wait", "judge"])
def test_a_leg_runs_for_a_start_on_its_own_ref(expressions: Expressions, job: str) -> None:
    """(a), (c) No fork, and no run with the rights of the default branch, gets a machine."""
    given = github(ref=GPU)
    needs = {"measure": {"result": "failure"}, "declare": {"result": "success"}}
    assert holds(expressions, "leg.yml", job, given, needs=needs)
    assert started(expressions, "leg.yml", job, needs=needs) == []


def test_legs_are_listed_for_a_start_on_their_ref_only(expressions: Expressions) -> None:
    assert holds(expressions, "gpu.yml", "legs", github(ref=GPU))
    assert started(expressions, "gpu.yml", "legs") == []


def test_a_start_on_another_ref_is_red_and_says_how_to_start_it(expressions: Expressions) -> None:
    assert not holds(expressions, "gpu.yml", "refuse", github(ref=GPU))
    assert "a start by hand on the default branch" in started(expressions, "gpu.yml", "refuse")


def test_a_leg_is_judged_after_a_fault_but_not_after_it_was_cancelled(expressions: Expressions) -> None:
    assert holds(expressions, "leg.yml", "judge", github(ref=GPU), "failure")
    assert not holds(expressions, "leg.yml", "judge", github(ref=GPU), "cancelled")


@pytest.mark.parametrize(
    ("given", "runs"),
    [
        (github("schedule"), True),
        (github("workflow_dispatch"), True),
        (github("workflow_dispatch", "refs/heads/topic"), False),
        (github("pull_request", "refs/pull/7/merge"), False),
        (github("pull_request", "refs/heads/main"), False),
        (github("push"), False),
    ],
)
def test_a_night_is_of_the_default_branch(expressions: Expressions, given: dict[str, Any], runs: bool) -> None:
    assert holds(expressions, "night_leg.yml", "measure", given) is runs
    if given["event_name"] in load("nightly.yml")["on"]:
        assert holds(expressions, "nightly.yml", "legs", given) is runs
        assert holds(expressions, "nightly.yml", "code", given) is runs


@pytest.mark.parametrize(("tier", "runs"), [("", True), ("nightly", True), ("sweep", False)])
def test_a_sweep_compiles_nothing(expressions: Expressions, tier: str, runs: bool) -> None:
    assert holds(expressions, "nightly.yml", "code", github(), inputs={"tier": tier}) is runs


@pytest.mark.parametrize("result", ["success", "failure"])
def test_a_night_that_broke_off_is_recorded_all_the_same(expressions: Expressions, result: str) -> None:
    needs = {"measure": {"result": result}, "record": {"result": result}}
    assert holds(expressions, "night_leg.yml", "record", github("schedule"), result, needs=needs)
    assert holds(expressions, "night_leg.yml", "publish", github("schedule"), result, needs=needs)
    nothing = {"measure": {"result": "skipped"}, "record": {"result": "skipped"}}
    assert not holds(expressions, "night_leg.yml", "record", github("schedule"), needs=nothing)


@pytest.mark.parametrize(
    ("event", "conclusion", "runs"),
    [
        ("pull_request", "success", True),
        ("pull_request", "failure", True),
        ("pull_request", "cancelled", False),
        ("push", "success", False),
        ("workflow_dispatch", "success", False),
    ],
)
def test_what_is_commented_on(expressions: Expressions, event: str, conclusion: str, runs: bool) -> None:
    finished = github("workflow_run", workflow_run={"event": event, "conclusion": conclusion})
    assert holds(expressions, "comment.yml", "comment", finished) is runs


@pytest.mark.parametrize(
    ("issue", "body", "runs"),
    [
        ({"pull_request": {"url": "x"}}, "/ridgeline gpu " + "a" * 40, True),
        ({"pull_request": {"url": "x"}}, "please run /ridgeline gpu", False),
        ({}, "/ridgeline gpu " + "a" * 40, False),
    ],
)
def test_which_comments_are_read(expressions: Expressions, issue: dict[str, Any], body: str, runs: bool) -> None:
    said = github("issue_comment", issue=issue, comment={"body": body})
    assert holds(expressions, "command.yml", "read", said) is runs


@pytest.mark.parametrize(("action", "runs"), [("gpu", True), ("rerun", False), ("", False), ("refused", False)])
def test_a_run_is_started_only_where_the_first_job_says_so(expressions: Expressions, action: str, runs: bool) -> None:
    needs = {"read": {"outputs": {"action": action}}}
    assert holds(expressions, "command.yml", "start", github("issue_comment"), needs=needs) is runs
    assert not holds(expressions, "command.yml", "start", github("issue_comment"), "failure", needs=needs)
